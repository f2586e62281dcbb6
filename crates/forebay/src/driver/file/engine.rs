//! What does the I/O of a file: io_uring, or what there is in its place.
//!
//! `engine=auto`, the default, takes the first of io_uring, AIO and blocking calls that the kernel
//! has and lets us use, and says so where that is not the first. Whoever names an engine gets that
//! one or an error. A kernel that lacks one for another reason than that it is absent or forbidden
//! (too many open files, say) would not do better with the next: that is an error, too.

use super::base::{Base, RingOptions};
use super::device::FileDevice;
use super::open::{File, no_uring};
use super::ranges::{self, Knowledge, Settled};
use crate::driver::aio::{AioDevice, no_aio};
use crate::driver::psync::PsyncDevice;
use crate::driver::psync::call::Target;
use crate::driver::{Device, Mode, Opened};
use crate::error::{OpenError, SpecError};
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use forebay_core::QueueLimits;
use io_uring::IoUring;
use std::io;
use std::sync::Arc;

/// What a user may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// The first of the others that there is.
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

/// The device of an open file.
pub(super) fn open(file: File, engine: Engine) -> Result<Opened, OpenError> {
    match engine {
        Engine::Aio | Engine::Psync if file.rings != RingOptions::default() => {
            Err(OpenError::Spec(SpecError::BadValue {
                key: String::from("engine"),
                value: String::from(if engine == Engine::Aio { "aio" } else { "psync" }),
                expected: "io_uring, because fixed_buffers and sqpoll need it".into(),
            }))
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
        // A context more than the system's limit is as good as none.
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

/// A device, and what is known of it.
pub(super) struct Known {
    pub(super) device: Arc<dyn Device>,
    pub(super) facts: DiskFacts,
    pub(super) features: Vec<Feature>,
}

/// Why there is no ring.
enum NoRing {
    /// The kernel gives none.
    Refused(io::Error),
    /// It gives one, and not what a key asks of it.
    Key(OpenError),
}

impl From<io::Error> for NoRing {
    fn from(source: io::Error) -> NoRing {
        NoRing::Refused(source)
    }
}

fn uring(file: &File) -> Result<Known, NoRing> {
    // Before anything is asked of it.
    drop(IoUring::new(1)?);
    let base = Base::open(file.rings).map_err(NoRing::Key)?;
    let mut limits = file.probed.limits;
    let is_device = matches!(file.probed.ranges, Knowledge::OfDevice { .. });
    // The command keeps nobody from reading pages into the cache while it runs, who would then find
    // there what was discarded. Where reads go by the cache, the device is told by other ways.
    let asks = is_device && file.options.direct;
    let discards = asks && ranges::uring_discards(&file.file)?;
    let Settled { ranges, facts, mut features } = file.probed.ranges.settle(discards, &mut limits);
    let device = FileDevice::new(Arc::clone(&file.file), limits, ranges, file.probed.writes, base)?;
    // Whether there is room for as many tags is seen only then.
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

/// What system calls that block are made on, with its limits and what else is known.
fn target(file: &File) -> (Target, QueueLimits, Settled) {
    let mut limits = file.probed.limits;
    let settled = file.probed.ranges.settle(true, &mut limits);
    (Target::new(Arc::clone(&file.file), settled.ranges), limits, settled)
}

/// Whether the kernel does not have it, is too old for it, or does not let us use it.
fn is_absent(source: &io::Error) -> bool {
    let absent = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::ENOMEM, libc::EINVAL];
    source.kind() == io::ErrorKind::Unsupported
        || source.raw_os_error().is_some_and(|errno| absent.contains(&errno))
}

/// Where the use of each is forbidden.
const URING_SWITCH: &str = "/proc/sys/kernel/io_uring_disabled or a container's seccomp profile";
const AIO_SWITCH: &str = "a container's seccomp profile";

/// How it is absent, and what is to be looked at.
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
