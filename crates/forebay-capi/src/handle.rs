//! Handles behind the pointers of a C program, and checks that find wrong pointers (J2).
//!
//! A handle begins with a number that stands for its kind. A closed handle keeps its place with
//! another number: the last [`CLOSED_MAX`] closed handles are freed only when more are closed.
//! Requests, of which each I/O closes one, are counted apart from the handles of other kinds. So a
//! call on a handle that was closed a short time ago fails with `EBADF`, rather than to use freed
//! memory. A pointer that never was a handle is found if it is null, misaligned, or leads to memory
//! with other contents. It is not found if it leads nowhere.
// Reads what pointers of the caller lead to.
#![allow(unsafe_code)]

use crate::error::Failure;
use std::alloc::{Layout, dealloc};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many closed handles keep their memory: requests, and handles of all other kinds.
const CLOSED_MAX: usize = 256;

/// How often a close tries to get the list of closed handles, which others hold only for a moment.
/// In a child of a fork it may be held for ever, by a thread of the parent.
const LOCK_TRIES: u32 = 1000;

/// The number of a closed handle, of any kind.
const CLOSED: u32 = 0x46_42_00_00;

/// The mark of a kind of handle.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    number: u32,
    /// The name in messages.
    name: &'static str,
}

pub(crate) const DISK: Mark = Mark { number: 0x46_42_44_01, name: "disk" };
pub(crate) const QUEUE: Mark = Mark { number: 0x46_42_51_02, name: "queue" };
pub(crate) const REQUEST: Mark = Mark { number: 0x46_42_52_04, name: "request" };
pub(crate) const GROUP_COMMIT: Mark = Mark { number: 0x46_42_43_03, name: "group commit" };

/// A kind of handle: the type of its value.
pub(crate) trait Kind: Sized {
    const MARK: Mark;
    /// The type of the pointers in C.
    type Pointee;
}

#[repr(C)]
struct Handle<T> {
    magic: AtomicU32,
    /// Initialized while `magic` is that of the kind.
    value: MaybeUninit<T>,
}

/// Creates a handle.
pub(crate) fn open<T: Kind>(value: T) -> *mut T::Pointee {
    let handle = Handle { magic: AtomicU32::new(T::MARK.number), value: MaybeUninit::new(value) };
    Box::into_raw(Box::new(handle)).cast()
}

/// Returns the value of a handle.
///
/// # Safety
/// `pointer` is null, or leads to readable memory. If it is a handle, no other thread closes it
/// before the caller is done with the value.
#[inline]
pub(crate) unsafe fn get<'a, T: Kind>(pointer: *mut T::Pointee) -> Result<&'a T, Failure> {
    let handle = pointer.cast::<Handle<T>>();
    if handle.is_null() || !handle.is_aligned() {
        return Err(refuse::<T>(handle.is_null(), 0));
    }
    // SAFETY: the caller passes readable memory, and the address is aligned.
    let magic = unsafe { &(*handle).magic }.load(Ordering::Acquire);
    if magic != T::MARK.number {
        return Err(refuse::<T>(false, magic));
    }
    // SAFETY: the number is that of an open handle of this kind, so its value is initialized.
    Ok(unsafe { (*handle).value.assume_init_ref() })
}

/// Closes a handle: drops its value, and marks it as closed.
///
/// # Safety
/// As for [`get`]; and no other thread uses the handle.
pub(crate) unsafe fn close<T: Kind>(pointer: *mut T::Pointee) -> Result<(), Failure> {
    // SAFETY: the caller keeps the conditions.
    unsafe { get::<T>(pointer) }?;
    let handle = pointer.cast::<Handle<T>>();
    // SAFETY: it is an open handle.
    let magic = unsafe { &(*handle).magic };
    // Two threads that close a handle at once break the rule of the caller. One of them is found.
    if magic.compare_exchange(T::MARK.number, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_err()
    {
        return Err(refuse::<T>(false, CLOSED));
    }
    // SAFETY: it was open, and this thread has closed it, so no other drops the value.
    unsafe { (*handle).value.assume_init_drop() };
    let is_request = T::MARK.number == REQUEST.number;
    let list = if is_request { &CLOSED_REQUESTS } else { &CLOSED_OTHERS };
    retire(list, Closed { handle: handle.cast(), layout: Layout::new::<Handle<T>>() });
    Ok(())
}

/// The memory of a closed handle.
struct Closed {
    handle: *mut u8,
    layout: Layout,
}

// SAFETY: the memory holds a number, and no value any more. Any thread may free it.
unsafe impl Send for Closed {}

impl Drop for Closed {
    fn drop(&mut self) {
        // SAFETY: `open` has allocated it as a box of this layout.
        unsafe { dealloc(self.handle, self.layout) };
    }
}

/// Handles that were closed last, oldest first.
type ClosedList = Mutex<VecDeque<Closed>>;

static CLOSED_REQUESTS: ClosedList = Mutex::new(VecDeque::new());
static CLOSED_OTHERS: ClosedList = Mutex::new(VecDeque::new());

/// Keeps the memory of a closed handle, and frees that of the oldest one.
fn retire(list: &ClosedList, closed: Closed) {
    for _ in 0..LOCK_TRIES {
        if let Ok(mut all) = list.try_lock() {
            all.push_back(closed);
            if all.len() > CLOSED_MAX {
                all.pop_front();
            }
            return;
        }
        std::thread::yield_now();
    }
    // Freed memory must not be read by a second close, so this leaks.
    std::mem::forget(closed);
}

#[cold]
fn refuse<T: Kind>(is_null: bool, magic: u32) -> Failure {
    let name = T::MARK.name;
    if is_null {
        return Failure::invalid(format!("the {name} is NULL"));
    }
    if magic == CLOSED {
        return Failure::new(libc::EBADF, format!("the {name} is closed: it was used after close"));
    }
    let other = [DISK, QUEUE, REQUEST, GROUP_COMMIT].into_iter().find(|mark| mark.number == magic);
    Failure::invalid(match other {
        Some(Mark { name: other, .. }) => {
            format!("expected a {name}, but the pointer is that of a {other}")
        }
        None => format!("expected a {name}, but the pointer is not a handle of this library"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;
    use std::sync::Barrier;

    struct Number;

    impl Kind for Number {
        const MARK: Mark = GROUP_COMMIT;
        type Pointee = u8;
    }

    /// Closes handles on each of two threads at once, and returns the addresses of all.
    fn close_on_two_threads(nr_each: usize) -> Vec<usize> {
        let start = Barrier::new(2);
        let close_some = || {
            let opened: Vec<_> = (0..nr_each).map(|_| open(Number)).collect();
            start.wait();
            for handle in &opened {
                // SAFETY: only this thread has the handle.
                unsafe { close::<Number>(*handle) }.expect("it is open");
            }
            opened.into_iter().map(<*mut u8>::expose_provenance).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(close_some), scope.spawn(close_some)];
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn handles_that_threads_close_at_once_keep_their_memory() {
        for _ in 0..200 {
            for address in close_on_two_threads(CLOSED_MAX / 2) {
                let handle = ptr::with_exposed_provenance_mut(address);
                // SAFETY: no more handles were closed than keep their memory.
                let used = unsafe { get::<Number>(handle) }.map(|_| ());
                assert!(used.is_err_and(|failure| failure.is(libc::EBADF)));
            }
        }
    }
}
