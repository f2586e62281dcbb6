//! Conversion of librbd's error numbers to statuses, one by one.

use forebay_core::{BlockStatus, Op};

/// Converts the negative result of an operation. `is_locked`: the disk has the image's exclusive
/// lock (`exclusive=on`).
pub(super) fn of_error(result: i64, op: Op, is_locked: bool) -> BlockStatus {
    let errno = i32::try_from(-result).unwrap_or(libc::EIO);
    match errno {
        // The pool or the image has been removed. An object that does not exist is no error.
        libc::ENOENT => BlockStatus::Offline,
        // `EBLOCKLISTED`: another client has fenced this one, or an administrator has.
        libc::ESHUTDOWN => BlockStatus::Offline,
        // The lock is lost, and cannot be acquired again.
        libc::EROFS if is_locked => BlockStatus::Offline,
        libc::EROFS => BlockStatus::ReadOnly,
        // The capabilities of the client do not allow the operation.
        libc::EPERM | libc::EACCES if op.is_write() => BlockStatus::ReadOnly,
        // No reply within `rados_osd_op_timeout`. The operation may have been performed, or may
        // still be.
        libc::ETIMEDOUT => BlockStatus::Timeout,
        // The cluster or the pool is full, or the quota of the pool is used up.
        libc::ENOSPC | libc::EDQUOT => BlockStatus::NoSpace,
        libc::EOPNOTSUPP | libc::ENOSYS => BlockStatus::NotSupported,
        libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN | libc::EBUSY => BlockStatus::Resource,
        libc::ENOTCONN
        | libc::ECONNRESET
        | libc::ECONNREFUSED
        | libc::ECONNABORTED
        | libc::EHOSTUNREACH
        | libc::ENETUNREACH
        | libc::EPIPE => BlockStatus::Transport,
        // A checksum of the stored data does not match.
        libc::EILSEQ | libc::EBADMSG | libc::ENODATA => BlockStatus::Medium,
        libc::EINVAL | libc::ERANGE | libc::EFBIG | libc::EDOM => BlockStatus::Invalid,
        // EIO, ECANCELED, and any other number that a plug-in of the cluster returns.
        _ => BlockStatus::Io,
    }
}

/// Returns why the device is gone, for the errors that mean it.
pub(super) fn why_gone(result: i64) -> &'static str {
    match i32::try_from(-result) {
        Ok(libc::ENOENT) => "the image or its pool has been removed",
        Ok(libc::ESHUTDOWN) => {
            "the cluster has blocklisted this client: another client has taken over the image, or \
             an administrator has fenced this one (`ceph osd blocklist ls`)"
        }
        _ => LOCK_LOST,
    }
}

/// Why a disk with `exclusive=on` is gone.
pub(super) const LOCK_LOST: &str =
    "the exclusive lock of the image is lost: another client has broken it (`rbd lock ls`)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_status() {
        let of = |errno: i32, op| of_error(-i64::from(errno), op, false);
        for (errno, status) in [
            (libc::EIO, BlockStatus::Io),
            (libc::ENOENT, BlockStatus::Offline),
            (libc::ESHUTDOWN, BlockStatus::Offline),
            (libc::EROFS, BlockStatus::ReadOnly),
            (libc::EPERM, BlockStatus::ReadOnly),
            (libc::ETIMEDOUT, BlockStatus::Timeout),
            (libc::ENOSPC, BlockStatus::NoSpace),
            (libc::EDQUOT, BlockStatus::NoSpace),
            (libc::EOPNOTSUPP, BlockStatus::NotSupported),
            (libc::ENOMEM, BlockStatus::Resource),
            (libc::EBUSY, BlockStatus::Resource),
            (libc::ENOTCONN, BlockStatus::Transport),
            (libc::EILSEQ, BlockStatus::Medium),
            (libc::EINVAL, BlockStatus::Invalid),
        ] {
            assert_eq!(of(errno, Op::Write), status, "{errno}");
        }
        assert_eq!(of(libc::EPERM, Op::Read), BlockStatus::Io);
        assert_eq!(of_error(i64::MIN + 1, Op::Read, false), BlockStatus::Io);
        // The layer retries the bios of a merged request only after errors that can be of one bio.
        assert!(!of(libc::ETIMEDOUT, Op::Write).may_be_of_one_bio());
    }

    #[test]
    fn lost_lock_fails_a_disk_that_needs_it() {
        let error = -i64::from(libc::EROFS);
        assert_eq!(of_error(error, Op::Write, true), BlockStatus::Offline);
        assert_eq!(why_gone(error), LOCK_LOST);
    }
}
