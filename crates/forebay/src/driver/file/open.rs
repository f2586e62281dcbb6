//! Opening a file as a disk.

use super::base::RingOptions;
use super::engine::{self, Engine, File};
use super::options::Options;
use super::probe;
use crate::claim::{Claim, OwnFile, QueueFile, Source, SpareFiles, Use};
use crate::driver::Opened;
use crate::driver::psync::nr_threads;
use crate::driver_names;
use crate::error::{OpenError, SpecError};
use crate::info::ImageLock;
use crate::keys::Keys;
use crate::settings::table::{LOCK, TAKEOVER_WAIT_MS};
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::Policy;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
    let options = Options::take(keys, settings)?;
    let image_lock = take_lock(keys, settings.exclusive())?;
    let takeover_wait = take_takeover_wait(keys)?;
    let rings = RingOptions::take(keys)?;
    let file = open_file(spec, options)?;
    let path = path_to_show(spec, &file);
    let Policy { queue_depth, nr_hw_queues, .. } = settings.policy(Defaults::default())?;
    let wanted = Use {
        exclusive: settings.exclusive(),
        read_only: options.read_only,
        grows: options.growing,
        image_lock,
        takeover_wait,
    };
    let claim =
        Claim::of_file(&file, Source { path, spares: spec.spares() }, wanted, nr_hw_queues)?;
    let mut probed = probe::probe(&file, path, options)?;
    probed.features.extend([claim.feature(), claim.lock_feature()]);
    let file = Arc::new(QueueFile::new(file, wanted.marks()));
    Ok(File { file, options, probed, claim, depth: queue_depth, nr_threads, rings })
}

/// Returns the path of the open file, for messages and for opening it again. The path of a
/// descriptor in `/proc` is replaced by the target of the spec if that target is the same file.
fn path_to_show<'a>(spec: &'a Spec, file: &fs::File) -> &'a Path {
    let shown = Path::new(spec.target());
    let inode = |found: fs::Metadata| (found.dev(), found.ino());
    let is_there = || {
        let found = shown.metadata().ok().map(inode);
        found.is_some() && found == file.metadata().ok().map(inode)
    };
    if spec.path() == shown || is_there() { shown } else { spec.path() }
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

/// Takes the longest wait for I/O of a predecessor.
fn take_takeover_wait(keys: &mut Keys) -> Result<Duration, SpecError> {
    let wait_ms = TAKEOVER_WAIT_MS.take(keys)?;
    Ok(Duration::from_millis(wait_ms.unwrap_or(3000)))
}

/// Returns the file of the shared queue: the first of the stock, or the file at the path.
fn open_file(spec: &Spec, options: Options) -> Result<OwnFile, OpenError> {
    let path = spec.path();
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
    if let Some(spare) = spec.spares().and_then(SpareFiles::take_first) {
        return Ok(spare);
    }
    OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .custom_flags(if options.direct { libc::O_DIRECT } else { 0 })
        .open(path)
        .map(OwnFile::from)
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

/// Returns a hint for a path that looks like a misspelt driver name.
fn not_found_hint(path: &Path) -> String {
    let text = path.to_string_lossy();
    match text.split_once(':') {
        Some((name, _)) if !name.contains('/') => {
            format!("; if `{name}` was meant as a driver, use one of {}", driver_names::list())
        }
        None if driver_names::ALL.contains(&&*text) => {
            format!("; for the driver `{text}`, write `{text}:` and a target, as in ram:1G")
        }
        _ => format!("; create it first, for example with `truncate -s 1G {text}`"),
    }
}
