//! Names and texts of error numbers.
//!
//! fio's `ignore_error` takes names up to `ERANGE` and numbers. The names after it are those with
//! which block devices and file systems end I/O. The numbers are those of Linux on x86, ARM and
//! RISC-V.

/// Names with their numbers.
#[rustfmt::skip]
const NAMES: &[(&str, i32)] = &[
    ("EPERM", 1), ("ENOENT", 2), ("ESRCH", 3), ("EINTR", 4), ("EIO", 5), ("ENXIO", 6),
    ("E2BIG", 7), ("ENOEXEC", 8), ("EBADF", 9), ("ECHILD", 10), ("EAGAIN", 11),
    ("EWOULDBLOCK", 11), ("ENOMEM", 12), ("EACCES", 13), ("EFAULT", 14), ("ENOTBLK", 15),
    ("EBUSY", 16), ("EEXIST", 17), ("EXDEV", 18), ("ENODEV", 19), ("ENOTDIR", 20), ("EISDIR", 21),
    ("EINVAL", 22), ("ENFILE", 23), ("EMFILE", 24), ("ENOTTY", 25), ("ETXTBSY", 26), ("EFBIG", 27),
    ("ENOSPC", 28), ("ESPIPE", 29), ("EROFS", 30), ("EMLINK", 31), ("EPIPE", 32), ("EDOM", 33),
    ("ERANGE", 34), ("ENODATA", 61), ("ETIME", 62), ("ENOLINK", 67), ("EPROTO", 71),
    ("EBADMSG", 74), ("EOVERFLOW", 75), ("EILSEQ", 84), ("EOPNOTSUPP", 95), ("ENOTSUP", 95),
    ("ESHUTDOWN", 108), ("ETIMEDOUT", 110), ("EHOSTDOWN", 112), ("EALREADY", 114), ("ESTALE", 116),
    ("EREMOTEIO", 121), ("EDQUOT", 122), ("ENOMEDIUM", 123), ("EMEDIUMTYPE", 124),
    ("ECANCELED", 125),
];

/// EIO.
pub(crate) const IO: i32 = 5;
/// ENOSPC.
pub(crate) const NO_SPACE: i32 = 28;
/// EILSEQ, fio's error of a failed verification.
pub(crate) const ILLEGAL_SEQUENCE: i32 = 84;
/// EDQUOT.
pub(crate) const QUOTA: i32 = 122;

/// Returns the number of a name such as `ENOSPC`.
pub(crate) fn number_of(name: &str) -> Option<i32> {
    NAMES.iter().find(|(known, _)| *known == name).map(|&(_, number)| number)
}

/// Returns the names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|&(name, _)| name)
}

/// Returns the text of the C library for an error number, such as `No space left on device`.
pub(crate) fn text(number: i32) -> String {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let suffix = format!(" (os error {number})");
    text.strip_suffix(&suffix).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_c_library() {
        assert_eq!(text(0), "Success");
        assert_eq!(text(NO_SPACE), "No space left on device");
    }

    #[test]
    fn numbers_are_those_of_the_system() {
        use std::io::ErrorKind;
        for (name, kind) in [
            ("ENOENT", ErrorKind::NotFound),
            ("ENOSPC", ErrorKind::StorageFull),
            ("EDQUOT", ErrorKind::QuotaExceeded),
            ("ETIMEDOUT", ErrorKind::TimedOut),
            ("ESTALE", ErrorKind::StaleNetworkFileHandle),
            ("EOPNOTSUPP", ErrorKind::Unsupported),
        ] {
            let number = number_of(name).expect(name);
            assert_eq!(std::io::Error::from_raw_os_error(number).kind(), kind, "{name}");
        }
        assert_eq!(number_of("EFOO"), None);
    }
}
