//! Failures of calls: a negative errno, and a text that the thread keeps.
// Exports a function to C.
#![allow(unsafe_code)]

use forebay::{
    BadLimit, BadSetting, BlockStatus, CommitError, FreezeError, IoError, OpenError, OwnerError,
    RegisterError, SchedulerError, SpecError,
};
use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A failed call.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A positive errno.
    errno: c_int,
    text: Cow<'static, CStr>,
}

impl Failure {
    #[cold]
    pub(crate) fn new(errno: c_int, text: impl Into<Vec<u8>>) -> Failure {
        let mut text = text.into();
        text.retain(|byte| *byte != 0);
        let text = CString::new(text).unwrap_or_default();
        Failure { errno, text: Cow::Owned(text) }
    }

    /// Creates a failure without an allocation.
    pub(crate) const fn of(errno: c_int, text: &'static CStr) -> Failure {
        Failure { errno, text: Cow::Borrowed(text) }
    }

    /// Returns whether it has this errno.
    #[cfg(test)]
    pub(crate) fn is(&self, errno: c_int) -> bool {
        self.errno == errno
    }

    /// Creates the failure of an argument that a call does not accept.
    #[cold]
    pub(crate) fn invalid(text: impl Into<Vec<u8>>) -> Failure {
        Failure::new(libc::EINVAL, text)
    }
}

/// Converts errors of the library, which have an errno.
macro_rules! failure_from {
    ($($error:ty)+) => {
        $(impl From<$error> for Failure {
            #[cold]
            fn from(error: $error) -> Failure {
                Failure::new(error.errno(), error.to_string())
            }
        })+
    };
}

failure_from! {
    IoError OpenError SpecError FreezeError RegisterError CommitError OwnerError SchedulerError
}

impl From<BadLimit> for Failure {
    #[cold]
    fn from(error: BadLimit) -> Failure {
        Failure::invalid(error.to_string())
    }
}

impl From<BadSetting> for Failure {
    #[cold]
    fn from(error: BadSetting) -> Failure {
        Failure::invalid(error.to_string())
    }
}

impl From<io::Error> for Failure {
    #[cold]
    fn from(error: io::Error) -> Failure {
        Failure::new(forebay::errno_of(&error), error.to_string())
    }
}

/// Returns the status of a failure that C reports as a negative errno.
pub(crate) fn status_of(result: i64) -> BlockStatus {
    let errno = |status: &BlockStatus| -i64::from(IoError::from(*status).errno());
    BlockStatus::ALL.into_iter().find(|status| errno(status) == result).unwrap_or(BlockStatus::Io)
}

/// Calls that return nothing return 0.
pub(crate) type Done = Result<c_int, Failure>;

thread_local! {
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// Runs the body of a call (J1). Returns its result, or a negative errno after a failure.
#[inline]
pub(crate) fn guard<T: From<c_int>>(call: impl FnOnce() -> Result<T, Failure>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => T::from(keep(failure)),
        Err(panic) => T::from(keep(of_panic(panic))),
    }
}

/// Stores the text of a failure for [`forebay_last_error`], and returns its negative errno.
#[cold]
fn keep(failure: Failure) -> c_int {
    // A destructor of the thread may call after the text is gone; then there is no text.
    let _ = LAST.try_with(|last| last.replace(failure.text));
    -failure.errno
}

#[cold]
fn of_panic(panic: Box<dyn Any + Send>) -> Failure {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "a panic without a text",
    };
    let failure = Failure::new(
        libc::ENOTRECOVERABLE,
        format!("internal error in libforebay: {text}; close the handle, and report this"),
    );
    // Its destructor may panic.
    std::mem::forget(panic);
    failure
}

/// Returns the reason of the last failed call of this thread, as one line of text. Never NULL; an
/// empty text if no call has failed. The text is valid until the next call of this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_error() -> *const c_char {
    // The text stays in its place until `keep` replaces it.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        // SAFETY: the text is valid until the next failure of this thread.
        unsafe { CStr::from_ptr(forebay_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_an_errno_with_its_text() {
        let result: c_int = guard(|| panic!("the tag is gone"));
        assert_eq!(result, -libc::ENOTRECOVERABLE);
        assert!(text().contains("internal error in libforebay: the tag is gone"), "{}", text());
    }

    #[test]
    fn a_text_ends_at_its_end_and_not_at_a_zero_byte() {
        let failed: i64 = guard(|| Err(Failure::invalid("a\0b")));
        assert_eq!((failed, text().as_str()), (-i64::from(libc::EINVAL), "ab"));
    }

    #[test]
    fn a_success_keeps_the_text_of_the_last_failure() {
        let _: c_int = guard(|| Err(Failure::of(libc::EIO, c"broken")));
        assert_eq!(guard(|| Ok(7_i64)), 7);
        assert_eq!(text(), "broken");
    }
}
