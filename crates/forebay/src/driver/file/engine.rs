//! I/O engine of a file: io_uring or a substitute.
//!
//! `engine=auto`, the default, uses the first of io_uring, AIO and blocking calls that the kernel
//! has and permits, and reports it if that is not the first. An engine that a spec names is used,
//! or opening fails. An engine may also be unavailable for a reason other than absence or
//! permission (too many open files, for example). The next engine would then do no better, so
//! opening fails.

use super::base::{Base, RingOptions, no_uring};
use super::device::FileDevice;
use super::options::Options;
use super::probe::Probed;
use super::ranges::{self, Knowledge, Settled};
use crate::claim::{Claim, QueueFile};
use crate::driver::aio::{AioDevice, no_aio};
use crate::driver::psync::PsyncDevice;
use crate::driver::psync::call::Target;
use crate::driver::{Device, Mode, Opened};
use crate::error::{OpenError, SpecError};
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::scheduler_below::SchedulerBelow;
use crate::settings::Defaults;
use forebay_core::QueueLimits;
use io_uring::IoUring;
use std::io;
use std::sync::Arc;

/// An open file with its known properties, before an engine is chosen.
pub(super) struct File {
    pub(super) file: Arc<QueueFile>,
    pub(super) options: Options,
    pub(super) probed: Probed,
    pub(super) claim: Claim,
    /// The number of tags of a queue.
    pub(super) depth: u32,
    /// The maximum of threads, for an engine that makes blocking calls.
    pub(super) nr_threads: usize,
    /// For an engine with rings.
    pub(super) rings: RingOptions,
}

impl File {
    /// Returns this file opened on a device with these properties.
    pub(super) fn with(&self, Known { device, facts, features }: Known) -> Opened {
        let out_of_reach_bytes = self.probed.out_of_reach_bytes;
        let caches_reads = !self.options.direct;
        let facts = DiskFacts { out_of_reach_bytes, caches_reads, ..facts };
        let block = self.probed.limits.logical_block_size;
        let tail = (out_of_reach_bytes > 0).then(|| {
            format!(
                "direct=on needs whole blocks of {block} bytes: the last {out_of_reach_bytes} \
                 bytes of the file are not part of the disk; extend the file, or omit direct=on"
            )
        });
        let notices: Vec<String> = tail.into_iter().chain(self.claim.lock_notice()).collect();
        let notice = (!notices.is_empty()).then(|| notices.join("; "));
        let features = self.probed.features.iter().cloned().chain(features).collect();
        let below = SchedulerBelow::Kernel { dev: self.probed.dev };
        let (defaults, claim) = (Defaults { below, ..Defaults::default() }, self.claim.clone());
        Opened { device, facts, features, notice, defaults, claim }
    }
}

/// The engine that a user may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// The first of the others that is available.
    Auto,
    IoUring,
    Aio,
    Psync,
}

impl Engine {
    /// Takes the key `engine`.
    pub(super) fn take(keys: &mut Keys) -> Result<Engine, SpecError> {
        let engine = keys.take("engine", "auto, io_uring, aio or psync", |value| match value {
            "auto" => Some(Engine::Auto),
            "io_uring" => Some(Engine::IoUring),
            "aio" => Some(Engine::Aio),
            "psync" => Some(Engine::Psync),
            _ => None,
        })?;
        Ok(engine.unwrap_or(Engine::Auto))
    }
}

/// Opens the device of a file.
pub(super) fn open(file: File, engine: Engine) -> Result<Opened, OpenError> {
    match engine {
        Engine::Aio | Engine::Psync if file.rings != RingOptions::default() => {
            Err(OpenError::Spec(file.rings.refusal()))
        }
        Engine::IoUring => match uring(&file) {
            Ok(opened) => Ok(file.with(opened)),
            Err(NoRing::Refused(source)) => Err(no_uring(source)),
            Err(NoRing::Key(error)) => Err(error),
        },
        Engine::Aio => aio(&file).map(|opened| file.with(opened)).map_err(no_aio),
        Engine::Psync => Ok(file.with(psync(&file))),
        Engine::Auto => auto(file),
    }
}

fn auto(file: File) -> Result<Opened, OpenError> {
    let no_uring_source = match uring(&file) {
        Ok(opened) => return Ok(file.with(opened)),
        Err(NoRing::Refused(source)) if is_absent(&source) => source,
        Err(NoRing::Refused(source)) => return Err(no_uring(source)),
        Err(NoRing::Key(error)) => return Err(error),
    };
    let mut why = format!("io_uring is {}", absence(&no_uring_source, URING_SWITCH));
    let mut missing = vec![("io_uring", absence(&no_uring_source, URING_SWITCH))];
    let (used, known) = match aio(&file) {
        Ok(opened) => ("aio", opened),
        // A context beyond the system's limit (EAGAIN) counts as absent.
        Err(source) if is_absent(&source) || source.raw_os_error() == Some(libc::EAGAIN) => {
            why += &format!("; aio is {}", absence(&source, AIO_SWITCH));
            missing.push(("aio", absence(&source, AIO_SWITCH)));
            ("psync", psync(&file))
        }
        Err(source) => return Err(no_aio(source)),
    };
    let mut opened = file.with(known);
    for (name, absence) in missing {
        opened.features.push(Feature::missing(name, format!("{absence}: using {used}")));
    }
    let other = opened.notice.map(|notice| format!("; {notice}")).unwrap_or_default();
    opened.notice = Some(format!("{why}: using {used}{other}"));
    Ok(opened)
}

/// A device and its known properties.
pub(super) struct Known {
    pub(super) device: Arc<dyn Device>,
    pub(super) facts: DiskFacts,
    pub(super) features: Vec<Feature>,
}

/// The reason why there is no ring.
enum NoRing {
    /// The kernel refuses a ring.
    Refused(io::Error),
    /// The kernel creates a ring, but refuses what a key asks of it.
    Key(OpenError),
}

impl From<io::Error> for NoRing {
    fn from(source: io::Error) -> NoRing {
        NoRing::Refused(source)
    }
}

fn uring(file: &File) -> Result<Known, NoRing> {
    // Tests a plain ring first, before options are requested.
    drop(IoUring::new(1)?);
    let base = Base::open(file.rings).map_err(NoRing::Key)?;
    let mut limits = file.probed.limits;
    let is_device = matches!(file.probed.ranges, Knowledge::OfDevice { .. });
    // During io_uring's discard command other threads may read pages into the cache. They would
    // find discarded data there afterwards. So with buffered I/O the device gets discards in
    // another way.
    let asks = is_device && file.options.direct;
    let discards = asks && ranges::uring_discards(&file.file)?;
    let Settled { ranges, facts, mut features } = file.probed.ranges.settle(discards, &mut limits);
    let device = FileDevice::new(Arc::clone(&file.file), limits, ranges, file.probed.writes, base)?;
    // Only this shows whether there are resources for this many tags.
    drop(device.open_queue(file.depth, Mode::Shared)?);
    features.extend(device.features());
    Ok(Known { device: Arc::new(device), facts, features })
}

fn aio(file: &File) -> io::Result<Known> {
    let (target, limits, Settled { facts, mut features, .. }) = target(file);
    let device = AioDevice::new(target, limits, file.options.direct);
    drop(device.open_queue(file.depth, Mode::Shared)?);
    features.push(device.feature());
    Ok(Known { device: Arc::new(device), facts, features })
}

fn psync(file: &File) -> Known {
    let (target, limits, Settled { facts, mut features, .. }) = target(file);
    let device = PsyncDevice::new(target, limits, file.nr_threads);
    features.push(device.feature());
    Known { device: Arc::new(device), facts, features }
}

/// Returns the target of blocking system calls, with its limits and other known properties.
fn target(file: &File) -> (Target, QueueLimits, Settled) {
    let mut limits = file.probed.limits;
    let settled = file.probed.ranges.settle(true, &mut limits);
    (Target::new(Arc::clone(&file.file), settled.ranges), limits, settled)
}

/// Returns whether the kernel lacks the engine, is too old for it, or does not permit it.
fn is_absent(source: &io::Error) -> bool {
    let absent = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::ENOMEM, libc::EINVAL];
    source.kind() == io::ErrorKind::Unsupported
        || source.raw_os_error().is_some_and(|errno| absent.contains(&errno))
}

/// The settings that may forbid each engine.
const URING_SWITCH: &str = "/proc/sys/kernel/io_uring_disabled or a container's seccomp profile";
const AIO_SWITCH: &str = "a container's seccomp profile";

/// Returns in what way an engine is absent, and what to check.
fn absence(source: &io::Error, switch: &str) -> String {
    match source.raw_os_error() {
        Some(libc::EPERM) => format!("not permitted (EPERM; {switch})"),
        Some(libc::EACCES) => format!("not permitted (EACCES; {switch})"),
        Some(libc::ENOSYS) => {
            String::from("not there (ENOSYS; this kernel, or a container's seccomp profile)")
        }
        Some(libc::ENOMEM) => {
            String::from("short of memory (ENOMEM; ulimit -l, or a smaller queue_depth)")
        }
        Some(libc::EAGAIN) => String::from("at its limit (EAGAIN; /proc/sys/fs/aio-max-nr)"),
        Some(libc::EINVAL) => String::from("too old in this kernel (EINVAL)"),
        _ => format!("too old in this kernel ({source})"),
    }
}
