//! Error types, one per kind of operation. Messages name the object, the reason and a remedy.

use crate::Io;
use crate::driver_names;
use forebay_core::{BadLimit, BlockStatus, LimitsError, Op, SubmitErrorKind};
use forebay_nbd::uri::UriError;
use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// An invalid device spec. See [`Spec`](crate::Spec) for the syntax.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The spec is empty.
    #[error("empty device spec; expected [driver:]target[?key=value&...], such as disk.img")]
    Empty,
    /// A driver that this version does not have yet.
    #[error("driver `{0}` is not in this version; available: {all}", all = driver_names::list())]
    NotYet(String),
    /// A part between `&` and `&` that is not `key=value`.
    #[error("`{0}` is not key=value; in a path, write `?` as %3F")]
    NotKeyValue(String),
    /// A key that the driver does not have.
    #[error("unknown key `{key}` for driver `{driver}`; {hint}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The driver of the spec.
        driver: &'static str,
        /// The nearest key, or all of them.
        hint: String,
    },
    /// A value that is not valid for its key.
    #[error("{key}={value}: expected {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The given value.
        value: String,
        /// The valid values.
        expected: Cow<'static, str>,
    },
    /// A target that is not valid for its driver.
    #[error("{driver}:{target}: expected {expected}")]
    BadTarget {
        /// The driver.
        driver: &'static str,
        /// The given value.
        target: String,
        /// The valid values.
        expected: &'static str,
    },
    /// An invalid NBD URI.
    #[error("{target}: {why}")]
    Uri {
        /// The URI without its keys.
        target: String,
        /// The reason.
        why: UriError,
    },
}

/// A failure to open a disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The spec is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The file does not exist.
    #[error("{}: no such file{hint}", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
        /// A guess at the intended name; begins with a separator, or is empty.
        hint: String,
    },
    /// The permissions do not allow to open the file.
    #[error("{}: no permission to {access} it{hint}", path.display())]
    NoPermission {
        /// The file.
        path: PathBuf,
        /// `read` or `read and write`.
        access: &'static str,
        /// A possible remedy; begins with a separator, or is empty.
        hint: &'static str,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: not a regular file or a block device, but {what}", path.display())]
    NotADisk {
        /// The path.
        path: PathBuf,
        /// The kind of file.
        what: &'static str,
    },
    /// A disk cannot use a descriptor ([`open_fd`](crate::DiskOptions::open_fd)).
    #[error("{}: a disk cannot use its descriptor: {why}", path.display())]
    Descriptor {
        /// The file.
        path: PathBuf,
        /// The reason, and the remedy.
        why: &'static str,
    },
    /// The file system does not support direct I/O.
    #[error("{}: the file system does not support direct I/O; omit direct=on", path.display())]
    NoDirect {
        /// The file.
        path: PathBuf,
    },
    /// The file or device cannot be opened exclusively.
    #[error("exclusive=on: {}: {why}", path.display())]
    Exclusive {
        /// The file.
        path: PathBuf,
        /// Which program uses it, and what to do.
        why: String,
    },
    /// Another disk of this process has opened it exclusively.
    #[error(
        "{}: a disk of this process has it open with exclusive=on; use a clone of that disk, or \
         close it first",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Another program has locked the whole file.
    #[error(
        "{}: another program has locked it, as exclusive=on does; stop that program (lslocks \
         names it), or use read_only=on&lock=off",
        path.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Another program uses the image, and does not share it as this disk needs.
    #[error(
        "{}: another program {why}; stop that program (`fuser -v` names it); if both may use \
         the image at once: lock=shared in both programs, or lock=off here",
        path.display()
    )]
    ImageInUse {
        /// The file.
        path: PathBuf,
        /// The end of a sentence about the other program.
        why: &'static str,
    },
    /// I/O of a program that was killed is still in flight.
    #[error(
        "{}: a program that wrote to it has ended, and its I/O is still in flight after \
         {waited_ms} ms; wait until the device has completed it, or allow more time with \
         takeover_wait_ms",
        path.display()
    )]
    PredecessorBusy {
        /// The file.
        path: PathBuf,
        /// The time that was waited, ms.
        waited_ms: u64,
    },
    /// Flushes must not be skipped where other programs may write.
    #[error(
        "{spec}: elide=on: other programs may write to it, and a skipped flush would not cover \
         their writes; add exclusive=on to keep them out, or omit elide=on"
    )]
    Elide {
        /// The spec.
        spec: String,
    },
    /// A model file is wrong.
    #[error("{}: {why}", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// The line, the reason, and the valid names or values.
        why: String,
    },
    /// The file is smaller than one block.
    #[error(
        "{}: {}; extend the file, or use capacity=growing",
        path.display(),
        too_small(*len, *block)
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
    #[error("service=on: cannot start a thread: {source}; raise the process limit (ulimit -u)")]
    Service {
        /// The system's error.
        source: io::Error,
    },
    /// A driver of the caller's own cannot open a queue.
    #[error("driver {name}: cannot open a queue: {source}")]
    Driver {
        /// The name of the driver.
        name: String,
        /// The error of the driver.
        source: io::Error,
    },
    /// The worker of a disk with `run_queue=always` could not be started.
    #[error(
        "run_queue=always: cannot start a thread: {source}; raise the process limit (ulimit -u)"
    )]
    Worker {
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{}: {call}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// The kernel refuses io_uring.
    #[error("io_uring is not available: {source}{hint}")]
    NoUring {
        /// The kernel's error.
        source: io::Error,
        /// A possible reason; begins with a separator, or is empty.
        hint: &'static str,
    },
    /// The kernel refuses an AIO context.
    #[error("Linux AIO is not available: {source}{hint}")]
    NoAio {
        /// The kernel's error.
        source: io::Error,
        /// A possible reason; begins with a separator, or is empty.
        hint: &'static str,
    },
    /// The kernel refuses a key that changes its rings.
    #[error("{key}: the kernel refuses it: {source}{hint}")]
    RingKey {
        /// The key and its value.
        key: String,
        /// The kernel's error.
        source: io::Error,
        /// A possible remedy; begins with a separator, or is empty.
        hint: String,
    },
    /// Memory for a disk in memory is not available.
    #[error("{driver}: {len} bytes of address space are not available: {source}{hint}")]
    NoMemory {
        /// The driver.
        driver: &'static str,
        /// The requested size.
        len: u64,
        /// The kernel's error.
        source: io::Error,
        /// A possible remedy; begins with a separator, or is empty.
        hint: &'static str,
    },
    /// An NBD export cannot be opened.
    #[error("{uri}: {why}")]
    Nbd {
        /// The URI of the export.
        uri: String,
        /// Why, and what to do.
        why: String,
        /// The system's error, if it is the cause.
        source: Option<io::Error>,
    },
    /// The disk of a vhost-user server cannot be opened.
    #[error("vhost-user:{}: {why}", path.display())]
    VhostUser {
        /// The server's socket.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
        /// The system's error, if it is the cause.
        source: Option<io::Error>,
    },
    /// An image of a Ceph cluster cannot be opened.
    #[error("rbd:{image}: {why}")]
    Rbd {
        /// The target of the spec.
        image: String,
        /// Why, and what to do.
        why: String,
        /// The errno of librados or librbd.
        errno: i32,
    },
    /// The capacity of a back end is invalid.
    #[error(
        "{spec}: invalid capacity of {bytes} bytes: expected whole logical blocks of {block} \
         bytes, at least one, and at most i64::MAX bytes"
    )]
    Capacity {
        /// The spec of the disk.
        spec: String,
        /// The capacity of its limits, in bytes.
        bytes: u64,
        /// The logical block size of its limits, in bytes.
        block: u32,
    },
    /// The settings result in contradictory limits.
    #[error("{spec}: {source}")]
    Limits {
        /// The spec.
        spec: String,
        /// The contradiction.
        source: LimitsError,
    },
}

/// A failure to freeze a disk ([`Disk::freeze`](crate::Disk::freeze)). The call leaves no hold
/// behind.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreezeError {
    /// The disk is quiesced, so I/O that it has admitted cannot end.
    #[error(
        "{disk}: cannot freeze: the disk is quiesced and has admitted I/O; drop the hold of \
         quiesce() first"
    )]
    Quiesced {
        /// The spec of the disk.
        disk: String,
    },
    /// The disk is stopped, so I/O that it has admitted cannot end.
    #[error(
        "{disk}: cannot freeze: the disk is stopped and has admitted I/O; drop the hold of stop() \
         first"
    )]
    Stopped {
        /// The spec of the disk.
        disk: String,
    },
    /// I/O that the disk has admitted did not end in time.
    #[error(
        "{disk}: cannot freeze: admitted I/O has not ended after {timeout:?}; reap it on the \
         threads that own its queues, or use a longer timeout"
    )]
    TimedOut {
        /// The spec of the disk.
        disk: String,
        /// The timeout of the call.
        timeout: Duration,
    },
}

/// A failure to change the scheduler of a disk
/// ([`Disk::set_scheduler`](crate::Disk::set_scheduler)). The disk keeps its scheduler.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchedulerError {
    /// A setting is out of its range.
    #[error("{disk}: cannot change the scheduler: {source}")]
    Setting {
        /// The spec of the disk.
        disk: String,
        /// The setting.
        source: SpecError,
    },
    /// The disk has several hardware contexts, and a scheduler orders the requests of one.
    #[error(
        "{disk}: cannot use scheduler={scheduler}: the disk has {nr_hw_queues} hardware contexts; \
         open it with nr_hw_queues=1"
    )]
    Contexts {
        /// The spec of the disk.
        disk: String,
        /// The scheduler.
        scheduler: &'static str,
        /// The number of hardware contexts.
        nr_hw_queues: u32,
    },
    /// The disk could not be frozen.
    #[error("scheduler not changed: {0}")]
    Freeze(#[from] FreezeError),
    /// The disk was opened by the parent of this process.
    #[error("{disk}: cannot change the scheduler in a child of a fork: open the disk here")]
    Forked {
        /// The spec of the disk.
        disk: String,
    },
}

/// A failed I/O. It was refused before submission, or it ended with a failure.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// The I/O was refused. Nothing was submitted.
    #[error(transparent)]
    Refused(#[from] SubmitErrorKind),
    /// The I/O ended with this status.
    #[error(transparent)]
    Ended(#[from] BlockStatus),
    /// A call that moves all bytes or fails ([`read_exact_at`](crate::Disk::read_exact_at),
    /// [`write_all_at`](crate::Disk::write_all_at)) has moved only a part.
    #[error(
        "short {} of {len} bytes at byte {offset}: {missing} bytes are missing, from byte {} on{}",
        op.name(),
        offset + (len - missing) as u64,
        if *op == Op::Read { "; the file ends there" } else { "" }
    )]
    Short {
        /// [`Op::Read`] or [`Op::Write`].
        op: Op,
        /// The start of the range, bytes.
        offset: u64,
        /// The length of the range, bytes.
        len: usize,
        /// The number of bytes that were not moved: the last ones of the range.
        missing: usize,
    },
}

impl IoError {
    /// Returns the errno that a system call would return for this failure.
    pub fn errno(self) -> i32 {
        match self {
            IoError::Ended(status) => crate::errno::of_status(status),
            IoError::Refused(refusal) => crate::errno::of_submit_error(refusal),
            IoError::Short { .. } => libc::EIO,
        }
    }
}

impl From<IoError> for io::Error {
    /// Converts to the kind of the errno, with the text of this error. [`IoError::Short`] converts
    /// to the kinds that the standard library uses for such failures.
    fn from(error: IoError) -> io::Error {
        let kind = match error {
            IoError::Short { op: Op::Read, .. } => io::ErrorKind::UnexpectedEof,
            IoError::Short { .. } => io::ErrorKind::WriteZero,
            _ => io::Error::from_raw_os_error(error.errno()).kind(),
        };
        io::Error::new(kind, error)
    }
}

/// A refused submission. It returns the I/O with its buffer, so that the caller can submit it
/// again.
#[derive(Debug, Error)]
#[error("{kind}")]
pub struct SubmitError {
    /// The reason.
    pub kind: SubmitErrorKind,
    /// The I/O that was not submitted.
    pub io: Io,
}

/// Reason why memory is not registered with a disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The disk cannot register memory of its callers.
    #[error(
        "the disk {spec} cannot register memory: it needs the driver file with engine=io_uring, \
         without fixed_buffers, on Linux 5.19 or later"
    )]
    Unsupported {
        /// The spec of the disk.
        spec: String,
    },
    /// The kernel refuses it.
    #[error("io_uring does not register {len} bytes: {source}")]
    Refused {
        /// The length of the memory.
        len: usize,
        /// The kernel's error, with a hint.
        source: io::Error,
    },
}

/// Returns why a file of `len` bytes is no disk with blocks of `block` bytes.
fn too_small(len: u64, block: u32) -> String {
    match len {
        0 => "the file is empty".to_owned(),
        _ => format!("{len} bytes are less than one block of {block} bytes"),
    }
}

/// An owner of I/O that was not added, changed or removed. See [`Owner`](crate::Owner).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerError {
    /// The list of owners does not allow it.
    #[error(transparent)]
    List(#[from] forebay_core::OwnerError),
    /// The disk emulates an earlier system, in which threads wait for tags.
    #[error(
        "{disk}: no owner added, because the disk emulates an earlier system, which has none: \
         remove its keys (wake, run_queue, kick)"
    )]
    Emulated {
        /// The spec of the disk.
        disk: String,
    },
    /// The name is empty.
    #[error("{disk}: no owner added, because its name is empty: name it")]
    Unnamed {
        /// The spec of the disk.
        disk: String,
    },
    /// A burst has no rate.
    #[error("limits not set: {0}")]
    Limit(#[from] BadLimit),
    /// The weight is out of range.
    #[error("owner {owner}: weight {weight} not set: expected a number from 1 to 10000")]
    Weight {
        /// The name of the owner.
        owner: String,
        /// The weight.
        weight: u32,
    },
    /// The disk has several hardware contexts, and weights order the I/O of one.
    #[error(
        "{disk}: weight not set: weights need one hardware context, and the disk has \
         {nr_hw_queues}; open it with nr_hw_queues=1"
    )]
    Contexts {
        /// The spec of the disk.
        disk: String,
        /// The number of hardware contexts.
        nr_hw_queues: usize,
    },
    /// The parent was removed before.
    #[error("owner {owner} not added, because its parent {parent} was removed")]
    Parent {
        /// The name of the owner.
        owner: String,
        /// The name of its parent.
        parent: String,
    },
    /// The owner was removed before.
    #[error("owner {owner} not removed, because it was removed before")]
    Removed {
        /// The name of the owner.
        owner: String,
    },
}
