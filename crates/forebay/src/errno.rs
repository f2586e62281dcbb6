//! Conversion between errno and statuses: the only place where errno meets the layer.

use forebay_core::{BlockStatus, SubmitErrorKind};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_survive_the_way_through_errno() {
        for status in BlockStatus::ALL {
            assert_eq!(to_status(of_status(status)), status, "{status:?}");
        }
    }
}
