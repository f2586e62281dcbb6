//! How things can fail: one error per kind of operation, each saying what to do.

use crate::Io;
use crate::driver::names;
use forebay_core::{BlockStatus, LimitsError, Refusal};
use forebay_nbd::uri::UriError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// A device spec that cannot be understood. See [`Spec`](crate::Spec) for the grammar.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// Nothing was given.
    #[error("empty device spec; expected [driver:]target[?key=value&...], such as disk.img")]
    Empty,
    /// A driver of the design that this version does not have.
    #[error("driver `{0}` does not exist in this version; there are: {all}", all = names())]
    NotYet(String),
    /// A part between `&` and `&` that is not `key=value`.
    #[error("`{0}` is not key=value")]
    NotKeyValue(String),
    /// A key that nobody takes.
    #[error("unknown key `{key}` for driver `{driver}`; {hint}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The driver of the spec.
        driver: &'static str,
        /// The nearest key, or all of them.
        hint: String,
    },
    /// A value that its key cannot take.
    #[error("{key}={value}: expected {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// A target that its driver cannot take.
    #[error("{driver}:{target}: expected {expected}")]
    BadTarget {
        /// The driver.
        driver: &'static str,
        /// What was given.
        target: String,
        /// What would do.
        expected: &'static str,
    },
    /// An NBD URI that names no export.
    #[error("{target}: {why}")]
    Uri {
        /// What was given, without its keys.
        target: String,
        /// What is wrong with it.
        why: UriError,
    },
}

/// A disk that cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The spec is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// There is no such file.
    #[error("{}: no such file{hint}", path.display())]
    NotFound {
        /// What was looked for.
        path: PathBuf,
        /// What may have been meant; begins with a separator, or is empty.
        hint: String,
    },
    /// The file may not be opened.
    #[error("{}: no permission to {access} it{hint}", path.display())]
    NoPermission {
        /// The file.
        path: PathBuf,
        /// `read` or `read and write`.
        access: &'static str,
        /// What may help; begins with a separator, or is empty.
        hint: &'static str,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: not a regular file or a block device, but {what}", path.display())]
    NotADisk {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Direct I/O is not possible on this file.
    #[error("{}: its file system does not do direct I/O; leave out direct=on", path.display())]
    NoDirect {
        /// The file.
        path: PathBuf,
    },
    /// The file or device cannot be had for this disk alone.
    #[error("exclusive=on: {}: {why}", path.display())]
    Exclusive {
        /// The file.
        path: PathBuf,
        /// Who has it, and what to do.
        why: String,
    },
    /// Another disk of this process has it for itself.
    #[error(
        "{}: a disk of this process has it open with exclusive=on; use a clone of that disk, or \
         close it first",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Another program has locked all of it.
    #[error(
        "{}: another program has locked it, as exclusive=on does; end that first (lslocks says \
         which it is), or use read_only=on",
        path.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Flushes may not be skipped where others write.
    #[error(
        "{spec}: elide=on: others may write to it, and a flush must not be skipped for what they \
         wrote; add exclusive=on, which keeps them away, or leave out elide=on"
    )]
    Elide {
        /// The spec.
        spec: String,
    },
    /// The file holds not even one block.
    #[error(
        "{}: {len} bytes hold no block of {block} bytes; make it larger, or use capacity=growing",
        path.display()
    )]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Its length, bytes.
        len: u64,
        /// The logical block size, bytes.
        block: u32,
    },
    /// The thread of a disk with `service=on` could not be started.
    #[error("service=on: no thread: {source}; raise the limit of processes (ulimit -u)")]
    Service {
        /// The system's answer.
        source: io::Error,
    },
    /// The worker of a disk with `run_queue=always` could not be started.
    #[error("run_queue=always: no thread: {source}; raise the limit of processes (ulimit -u)")]
    Worker {
        /// The system's answer.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{}: {call}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What was asked of the system.
        call: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The kernel gives no ring.
    #[error("io_uring is not available: {source}{hint}")]
    NoUring {
        /// The kernel's answer.
        source: io::Error,
        /// What may be the reason; begins with a separator, or is empty.
        hint: &'static str,
    },
    /// The kernel gives no context for AIO.
    #[error("Linux AIO is not available: {source}{hint}")]
    NoAio {
        /// The kernel's answer.
        source: io::Error,
        /// What may be the reason; begins with a separator, or is empty.
        hint: &'static str,
    },
    /// The kernel refuses what a key asks of its rings.
    #[error("{key}: the kernel refuses it: {source}{hint}")]
    RingKey {
        /// The key and its value.
        key: String,
        /// The kernel's answer.
        source: io::Error,
        /// What may help; begins with a separator, or is empty.
        hint: String,
    },
    /// Memory for a disk in memory is not to be had.
    #[error("{driver}: {len} bytes of address space are not available: {source}{hint}")]
    NoMemory {
        /// The driver.
        driver: &'static str,
        /// The size asked for.
        len: u64,
        /// The kernel's answer.
        source: io::Error,
        /// What may help; begins with a separator, or is empty.
        hint: &'static str,
    },
    /// An NBD server does not give what is asked for.
    #[error("{uri}: {why}")]
    Nbd {
        /// What is asked for.
        uri: String,
        /// Why it is not to be had, and what to do.
        why: String,
    },
    /// The settings make limits that contradict each other.
    #[error("{spec}: {source}")]
    Limits {
        /// The spec.
        spec: String,
        /// The contradiction.
        source: LimitsError,
    },
}

/// A disk that could not be frozen. It is not frozen then.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreezeError {
    /// The disk is quiesced, and I/O that it has admitted ends only when it is not.
    #[error("{disk}: not frozen: the disk is quiesced, with I/O admitted; drop that hold first")]
    Quiesced {
        /// The spec of the disk.
        disk: String,
    },
    /// The disk is stopped, and I/O that it has admitted ends only when it is not.
    #[error("{disk}: not frozen: the disk is stopped, with I/O admitted; drop that hold first")]
    Stopped {
        /// The spec of the disk.
        disk: String,
    },
    /// I/O that the disk has admitted has not ended in time.
    #[error(
        "{disk}: not frozen: I/O admitted before is still there after {timeout:?}; have its \
         threads reap it, or wait longer"
    )]
    TimedOut {
        /// The spec of the disk.
        disk: String,
        /// For how long the call waited.
        timeout: Duration,
    },
}

/// An I/O that failed: it was refused at the border, or the device failed it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// Refused; nothing was submitted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Ended with this status.
    #[error(transparent)]
    Ended(#[from] BlockStatus),
}

impl IoError {
    /// The error number that a system call would have given for this.
    pub fn errno(self) -> i32 {
        match self {
            IoError::Ended(status) => crate::errno::of_status(status),
            IoError::Refused(refusal) => crate::errno::of_refusal(refusal),
        }
    }
}

impl From<IoError> for io::Error {
    /// The kind of the error number, and the text of this error.
    fn from(error: IoError) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(error.errno()).kind(), error)
    }
}

/// A submission that was refused: why, and the I/O with its buffer back.
#[derive(Debug, Error)]
#[error("{refusal}")]
pub struct SubmitError {
    /// Why.
    pub refusal: Refusal,
    /// What was to be submitted.
    pub io: Io,
}
