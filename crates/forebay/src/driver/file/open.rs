//! Opening a file as a disk.

use super::base::RingOptions;
use super::engine::{self, Engine, Known};
use super::probe::{self, Probed};
use crate::claim::{Claim, Use};
use crate::driver::psync::nr_threads;
use crate::driver::{self, Opened};
use crate::error::{OpenError, SpecError};
use crate::info::{DiskFacts, ImageLock};
use crate::keys::Keys;
use crate::settings::table::LOCK;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::Policy;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long the kernel's thread of `sqpoll=on` polls before it sleeps, ms: the kernel's own
/// default.
const SQPOLL_IDLE_MS: u32 = 1000;

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) direct: bool,
    pub(super) growing: bool,
    pub(super) read_only: bool,
    /// The key `fua`, if set: each durable write is one call with its own sync (`RWF_DSYNC`).
    pub(super) fua: Option<bool>,
}

/// An open file with its known properties, before an engine is chosen.
pub(super) struct File {
    pub(super) file: Arc<fs::File>,
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
        let (defaults, claim) = (Defaults::default(), self.claim.clone());
        Opened { device, facts, features, notice, defaults, claim }
    }
}

pub(in crate::driver) fn open(
    spec: &Spec,
    keys: &mut Keys,
    settings: &Settings,
) -> Result<Opened, OpenError> {
    let engine = Engine::take(keys)?;
    let nr_threads = nr_threads(keys)?;
    engine::open(open_target(spec, keys, settings, nr_threads)?, engine)
}

pub(in crate::driver) fn open_aio(
    spec: &Spec,
    keys: &mut Keys,
    settings: &Settings,
) -> Result<Opened, OpenError> {
    engine::open(open_target(spec, keys, settings, 1)?, Engine::Aio)
}

pub(in crate::driver) fn open_psync(
    spec: &Spec,
    keys: &mut Keys,
    settings: &Settings,
) -> Result<Opened, OpenError> {
    let nr_threads = nr_threads(keys)?;
    engine::open(open_target(spec, keys, settings, nr_threads)?, Engine::Psync)
}

fn open_target(
    spec: &Spec,
    keys: &mut Keys,
    settings: &Settings,
    nr_threads: usize,
) -> Result<File, OpenError> {
    let growing = keys.take("capacity", "fixed or growing", |value| match value {
        "fixed" => Some(false),
        "growing" => Some(true),
        _ => None,
    })?;
    let options = Options {
        direct: keys.take_switch("direct")?.unwrap_or(false),
        growing: growing.unwrap_or(false),
        read_only: settings.read_only(),
        fua: settings.fua(),
    };
    let image_lock = take_lock(keys, settings.exclusive())?;
    let rings = ring_options(keys)?;
    let path = Path::new(spec.target());
    let file = open_file(path, options)?;
    let Policy { queue_depth, nr_hw_queues, .. } = settings.policy(Defaults::default())?;
    let wanted = Use {
        exclusive: settings.exclusive(),
        read_only: options.read_only,
        grows: options.growing,
        image_lock,
    };
    let claim = Claim::of_file(&file, path, wanted, nr_hw_queues)?;
    let mut probed = probe::probe(&file, path, options)?;
    probed.features.extend([claim.feature(), claim.lock_feature()]);
    let file = Arc::new(file);
    Ok(File { file, options, probed, claim, depth: queue_depth, nr_threads, rings })
}

/// Takes the byte locks for a file. A file that is locked as a whole gets none.
fn take_lock(keys: &mut Keys, exclusive: bool) -> Result<ImageLock, SpecError> {
    let lock = LOCK.take(keys)?.map(|at| ImageLock::ALL[at as usize]);
    match lock {
        Some(ImageLock::Shared) if exclusive => Err(SpecError::BadValue {
            key: String::from("lock"),
            value: String::from("shared"),
            expected: "on or off, because exclusive=on locks the whole file".into(),
        }),
        lock => Ok(lock.unwrap_or(ImageLock::On)),
    }
}

/// Takes the options of the rings.
fn ring_options(keys: &mut Keys) -> Result<RingOptions, OpenError> {
    // A ring registers at most 1 GiB as one buffer.
    let fixed_buffers = keys.take_number("fixed_buffers", "a size of 4k to 1G", 4096..=1 << 30)?;
    let sqpoll = keys.take_switch("sqpoll")?.unwrap_or(false);
    let idle = keys.take_number("sqpoll_idle_ms", "a number from 1 to 600000", 1..=600_000)?;
    if let (Some(idle), false) = (idle, sqpoll) {
        return Err(OpenError::Spec(SpecError::BadValue {
            key: String::from("sqpoll_idle_ms"),
            value: idle.to_string(),
            expected: "sqpoll=on as well".into(),
        }));
    }
    let idle_ms = idle.map_or(SQPOLL_IDLE_MS, |idle| idle as u32);
    Ok(RingOptions { fixed_buffers, sqpoll_idle_ms: sqpoll.then_some(idle_ms) })
}

fn open_file(path: &Path, options: Options) -> Result<fs::File, OpenError> {
    let metadata = std::fs::metadata(path).map_err(|source| refused(path, options, source))?;
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() || kind.is_block_device() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_char_device() => Some("a character device"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a pipe"),
    };
    if let Some(what) = what {
        return Err(OpenError::NotADisk { path: path.to_owned(), what });
    }
    OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .custom_flags(if options.direct { libc::O_DIRECT } else { 0 })
        .open(path)
        .map_err(|source| refused(path, options, source))
}

/// Converts the kernel's error to the reason why a file could not be opened.
fn refused(path: &Path, options: Options, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::ENOENT) => OpenError::NotFound { hint: not_found_hint(&path), path },
        Some(libc::EPERM) if options.read_only => {
            let hint = "; in a container, pass the device to it";
            OpenError::NoPermission { path, access: "read", hint }
        }
        Some(libc::EACCES | libc::EROFS) if options.read_only => {
            OpenError::NoPermission { path, access: "read", hint: "" }
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            let hint = match fs::File::open(&path) {
                Ok(_) => "; to only read it, add read_only=on, as in `disk.img?read_only=on`",
                Err(_) => "",
            };
            OpenError::NoPermission { path, access: "read and write", hint }
        }
        Some(libc::EINVAL) if options.direct => OpenError::NoDirect { path },
        _ => OpenError::System { path, call: "open", source },
    }
}

/// Converts the kernel's error to the reason why there is no ring.
pub(crate) fn no_uring(source: io::Error) -> OpenError {
    let hint = match source.raw_os_error() {
        Some(libc::EPERM) => {
            "; /proc/sys/kernel/io_uring_disabled or a container's seccomp profile forbids it"
        }
        Some(libc::ENOSYS) => "; this kernel, or a container's seccomp profile, does not have it",
        Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
        Some(libc::ENOMEM) => {
            "; raise the limit of locked memory (ulimit -l), or lower queue_depth"
        }
        _ => "",
    };
    OpenError::NoUring { source, hint }
}

/// Returns a hint for a path that looks like a misspelt driver name.
fn not_found_hint(path: &Path) -> String {
    let text = path.to_string_lossy();
    match text.split_once(':') {
        Some((name, _)) if !name.contains('/') => {
            format!("; if `{name}` was meant as a driver, use one of {}", driver::names())
        }
        _ => format!("; create it first, for example with `truncate -s 1G {text}`"),
    }
}

/// Returns the error of a failed system call on a path.
pub(super) fn system(path: &Path, call: &'static str) -> OpenError {
    let path: PathBuf = path.to_owned();
    OpenError::System { path, call, source: io::Error::last_os_error() }
}
