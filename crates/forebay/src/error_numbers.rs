//! The errno of each error of the library, for programs and languages that report numbers.

use crate::commit::CommitError;
use crate::driver::refusal::Refusal;
use crate::errno::of_submit_error;
use crate::error::{
    FreezeError, IoError, OpenError, OwnerError, RegisterError, SchedulerError, SpecError,
    SubmitError,
};
use forebay_core::SubmitErrorKind;
use std::io::{self, ErrorKind};

/// The errnos for which the standard library has an error kind. The first errno of a kind stands
/// for it.
const ERRNOS: [i32; 34] = [
    libc::ENOENT,
    libc::EACCES,
    libc::ECONNREFUSED,
    libc::ECONNRESET,
    libc::EHOSTUNREACH,
    libc::ENETUNREACH,
    libc::ECONNABORTED,
    libc::ENOTCONN,
    libc::EADDRINUSE,
    libc::EADDRNOTAVAIL,
    libc::ENETDOWN,
    libc::EPIPE,
    libc::EEXIST,
    libc::EAGAIN,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
    libc::EROFS,
    libc::ESTALE,
    libc::EINVAL,
    libc::ETIMEDOUT,
    libc::ENOSPC,
    libc::ESPIPE,
    libc::EDQUOT,
    libc::EFBIG,
    libc::EBUSY,
    libc::ETXTBSY,
    libc::EDEADLK,
    libc::EXDEV,
    libc::EMLINK,
    libc::E2BIG,
    libc::EINTR,
    libc::EOPNOTSUPP,
    libc::ENOMEM,
];

/// Returns the errno of an error that a call of this library has returned: that of the system, or
/// that of its cause in the library, or that of its kind. Returns `EIO` for an error that has none
/// of them.
///
/// The library's own errors have a method `errno`. This is for calls that return an
/// [`io::Error`](std::io::Error), such as [`Disk::grow`](crate::Disk::grow).
///
/// ```
/// assert_eq!(forebay::errno_of(&std::io::ErrorKind::TimedOut.into()), libc::ETIMEDOUT);
/// ```
pub fn errno_of(error: &io::Error) -> i32 {
    if let Some(errno) = error.raw_os_error() {
        return errno;
    }
    let source = error.get_ref();
    if let Some(refused) = source.and_then(|source| source.downcast_ref::<SubmitErrorKind>()) {
        return of_submit_error(*refused);
    }
    if let Some(failed) = source.and_then(|source| source.downcast_ref::<IoError>()) {
        return failed.errno();
    }
    if let Some(failed) = source.and_then(|source| source.downcast_ref::<CommitError>()) {
        return failed.errno();
    }
    if let Some(refusal) = source.and_then(|source| source.downcast_ref::<Refusal>()) {
        return refusal.system_error().map_or(libc::ENOTCONN, errno_of);
    }
    match error.kind() {
        // The peer ended its stream early, or violated the protocol.
        ErrorKind::UnexpectedEof => libc::ECONNRESET,
        ErrorKind::InvalidData => libc::EBADMSG,
        kind => {
            let is_of_kind = |errno: &i32| io::Error::from_raw_os_error(*errno).kind() == kind;
            ERRNOS.into_iter().find(is_of_kind).unwrap_or(libc::EIO)
        }
    }
}

impl OpenError {
    /// Returns the errno that a system call would return for this failure: `ENOENT`, `EACCES`,
    /// `EBUSY` if another program uses the image, the errno of a system call that failed,
    /// `ENOTCONN` if a server cannot be used for another reason, or `EINVAL` for a wrong spec.
    ///
    /// ```
    /// let error = forebay::Disk::open("/no/such/folder/disk.img").unwrap_err();
    /// assert_eq!(error.errno(), 2); // ENOENT
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            OpenError::NotFound { .. } => libc::ENOENT,
            OpenError::NoPermission { .. } => libc::EACCES,
            OpenError::NotADisk { .. } => libc::ENOTBLK,
            OpenError::Exclusive { .. }
            | OpenError::InUse { .. }
            | OpenError::Locked { .. }
            | OpenError::ImageInUse { .. }
            | OpenError::PredecessorBusy { .. } => libc::EBUSY,
            OpenError::Service { source }
            | OpenError::Driver { source, .. }
            | OpenError::Worker { source }
            | OpenError::System { source, .. }
            | OpenError::NoUring { source, .. }
            | OpenError::NoAio { source, .. }
            | OpenError::RingKey { source, .. }
            | OpenError::NoMemory { source, .. } => errno_of(source),
            OpenError::Rbd { errno, .. } => *errno,
            OpenError::Nbd { source, .. } | OpenError::VhostUser { source, .. } => {
                source.as_ref().map_or(libc::ENOTCONN, errno_of)
            }
            // No last arm: each new variant needs a decision.
            OpenError::Spec(_)
            | OpenError::Descriptor { .. }
            | OpenError::NoDirect { .. }
            | OpenError::Elide { .. }
            | OpenError::ModelFile { .. }
            | OpenError::TooSmall { .. }
            | OpenError::Capacity { .. }
            | OpenError::Limits { .. } => libc::EINVAL,
        }
    }
}

impl SpecError {
    /// Returns the errno of a wrong argument: `EINVAL`.
    pub fn errno(&self) -> i32 {
        libc::EINVAL
    }
}

impl FreezeError {
    /// Returns the errno that a system call would return for this failure: `ETIMEDOUT`, or `EBUSY`
    /// if another hold keeps admitted I/O from the device.
    pub fn errno(&self) -> i32 {
        match self {
            FreezeError::TimedOut { .. } => libc::ETIMEDOUT,
            FreezeError::Quiesced { .. } | FreezeError::Stopped { .. } => libc::EBUSY,
        }
    }
}

impl SchedulerError {
    /// Returns the errno that a system call would return for this failure: that of the freeze, or
    /// `EINVAL`.
    pub fn errno(&self) -> i32 {
        match self {
            SchedulerError::Freeze(source) => source.errno(),
            SchedulerError::Setting { .. } | SchedulerError::Contexts { .. } => libc::EINVAL,
            SchedulerError::Forked { .. } => of_submit_error(SubmitErrorKind::Forked),
        }
    }
}

impl OwnerError {
    /// Returns the errno that a system call would return for this failure: `EEXIST` if another
    /// owner has the name, `EBUSY` if the owner has children, `ENOENT` if it or its parent was
    /// removed, `ENOSPC` if there are too many, `EOPNOTSUPP` if the disk has none, or `EINVAL`.
    pub fn errno(&self) -> i32 {
        use forebay_core::OwnerError as List;
        match self {
            OwnerError::List(List::NameTaken(_)) => libc::EEXIST,
            OwnerError::List(List::HasChildren(_)) => libc::EBUSY,
            OwnerError::List(List::TooMany) => libc::ENOSPC,
            OwnerError::List(List::Unknown(_))
            | OwnerError::Parent { .. }
            | OwnerError::Removed { .. } => libc::ENOENT,
            OwnerError::Emulated { .. } => libc::EOPNOTSUPP,
            OwnerError::List(_)
            | OwnerError::Unnamed { .. }
            | OwnerError::Limit(_)
            | OwnerError::Weight { .. }
            | OwnerError::Contexts { .. } => libc::EINVAL,
        }
    }
}

impl SubmitError {
    /// Returns the errno that a system call would return for this refusal.
    pub fn errno(&self) -> i32 {
        of_submit_error(self.kind)
    }
}

impl RegisterError {
    /// Returns the errno of the kernel's refusal, or `EOPNOTSUPP`.
    pub fn errno(&self) -> i32 {
        match self {
            RegisterError::Refused { source, .. } => errno_of(source),
            RegisterError::Unsupported { .. } => libc::EOPNOTSUPP,
        }
    }
}

impl CommitError {
    /// Returns the errno that a system call would return for this failure: that of the sync.
    pub fn errno(&self) -> i32 {
        errno_of(self.io_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::BlockStatus;

    #[test]
    fn errors_without_an_errno_of_the_system_have_that_of_their_kind() {
        for (error, errno) in [
            (ErrorKind::TimedOut.into(), libc::ETIMEDOUT),
            (ErrorKind::OutOfMemory.into(), libc::ENOMEM),
            (ErrorKind::InvalidInput.into(), libc::EINVAL),
            (ErrorKind::Unsupported.into(), libc::EOPNOTSUPP),
            (ErrorKind::UnexpectedEof.into(), libc::ECONNRESET),
            (ErrorKind::InvalidData.into(), libc::EBADMSG),
            (io::Error::other(SubmitErrorKind::Forked), libc::EINVAL),
            (IoError::from(BlockStatus::NoSpace).into(), libc::ENOSPC),
            (io::Error::from_raw_os_error(libc::EMFILE), libc::EMFILE),
            (CommitError::new(io::Error::from_raw_os_error(libc::EDQUOT)).into(), libc::EDQUOT),
            (Refusal::by(io::Error::from_raw_os_error(libc::EMFILE), "x").into(), libc::EMFILE),
            (Refusal::from("no server").into(), libc::ENOTCONN),
            (io::Error::other("no number"), libc::EIO),
        ] {
            assert_eq!(errno_of(&error), errno, "{error}");
        }
        for (nth, errno) in ERRNOS.into_iter().enumerate() {
            let kind = |errno: i32| io::Error::from_raw_os_error(errno).kind();
            assert_eq!(errno_of(&kind(errno).into()), errno, "{:?}", kind(errno));
            assert!(ERRNOS[..nth].iter().all(|earlier| kind(*earlier) != kind(errno)), "{errno}");
        }
    }
}
