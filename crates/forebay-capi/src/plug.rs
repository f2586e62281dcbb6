//! Plugs of a thread, opened and ended by two calls.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::error::{Failure, guard};
use forebay::PlugGuard;
use std::cell::RefCell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;

thread_local! {
    /// The open plugs of this thread. The list is never dropped, so that a thread that ends with
    /// an open plug runs no destructor of it after those of the library.
    static OPEN: ManuallyDrop<RefCell<Vec<PlugGuard>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

// Otherwise each thread would leak its list.
const _: () = assert!(size_of::<PlugGuard>() == 0, "the list of plugs has no memory");

/// Opens a plug on this thread: I/O that the thread submits on any disk waits, so that neighbours
/// merge. It is issued when the outermost plug ends, a limit is reached, or the thread waits. Plugs
/// nest; end each with forebay_unplug().
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_plug() -> c_int {
    guard(|| {
        OPEN.with(|open| open.borrow_mut().push(forebay::plug()));
        Ok(0)
    })
}

/// Ends the innermost plug of this thread.
///
/// Returns 0, or -EINVAL if the thread has no plug.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_unplug() -> c_int {
    guard(|| {
        let plug = OPEN.with(|open| open.borrow_mut().pop());
        match plug {
            Some(plug) => {
                drop(plug);
                Ok(0)
            }
            None => Err(Failure::of(libc::EINVAL, c"this thread has no open plug")),
        }
    })
}
