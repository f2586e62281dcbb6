//! Conversion between errno and statuses: the only place where errno meets the layer.

use crate::commit::CommitError;
use crate::error::IoError;
use forebay_core::{BlockStatus, SubmitErrorKind};
use std::io::{self, ErrorKind};

/// Converts the positive errno of a failed command to a status.
pub(crate) fn to_status(errno: i32) -> BlockStatus {
    match errno {
        libc::ENODATA => BlockStatus::Medium,
        libc::ENOSPC | libc::EDQUOT => BlockStatus::NoSpace,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => BlockStatus::NotSupported,
        libc::ETIMEDOUT => BlockStatus::Timeout,
        libc::ENOLINK => BlockStatus::Transport,
        libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM => BlockStatus::Offline,
        libc::ENOMEM | libc::ENOBUFS => BlockStatus::Resource,
        libc::EAGAIN => BlockStatus::Again,
        libc::EROFS | libc::EPERM | libc::EBADF => BlockStatus::ReadOnly,
        libc::EINVAL | libc::EFBIG | libc::EFAULT => BlockStatus::Invalid,
        _ => BlockStatus::Io,
    }
}

/// Returns the errno of a status, as the Linux block layer reports it to programs.
pub(crate) fn of_status(status: BlockStatus) -> i32 {
    match status {
        BlockStatus::Io => libc::EIO,
        BlockStatus::Medium => libc::ENODATA,
        BlockStatus::NoSpace => libc::ENOSPC,
        BlockStatus::NotSupported => libc::EOPNOTSUPP,
        BlockStatus::Timeout => libc::ETIMEDOUT,
        BlockStatus::Transport => libc::ENOLINK,
        BlockStatus::Offline => libc::ENODEV,
        BlockStatus::Resource => libc::ENOMEM,
        BlockStatus::Again => libc::EAGAIN,
        BlockStatus::ReadOnly => libc::EROFS,
        BlockStatus::Invalid => libc::EINVAL,
    }
}

/// Returns the errno of a refusal.
pub(crate) fn of_submit_error(refusal: SubmitErrorKind) -> i32 {
    match refusal {
        SubmitErrorKind::OutOfRange { .. } => libc::ENXIO,
        SubmitErrorKind::ReadOnly => libc::EROFS,
        SubmitErrorKind::NotSupported(_) => libc::EOPNOTSUPP,
        SubmitErrorKind::WouldBlock => libc::EAGAIN,
        SubmitErrorKind::NoThread { errno } => errno,
        _ => libc::EINVAL,
    }
}

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
/// that of its cause in the library, or that of its kind. `EIO` is left for errors that have none
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_survive_the_way_through_errno() {
        for status in BlockStatus::ALL {
            assert_eq!(to_status(of_status(status)), status, "{status:?}");
        }
    }

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
