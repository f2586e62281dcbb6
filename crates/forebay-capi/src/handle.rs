//! Handles behind the pointers of a C program, and checks that find wrong pointers (J2).
//!
//! A handle begins with a word: the number of its kind, and the number of calls that use its value.
//! A close changes the number, so that no other call begins. It drops the value if no call uses it.
//! Otherwise the last of these calls does.
//!
//! A closed handle keeps its place: the last [`CLOSED_MAX`] closed handles are freed only when more
//! are closed. So a call on a recently closed handle fails with `EBADF` instead of using freed
//! memory. A pointer that never was a handle is detected if it is null, misaligned, or points to
//! memory with other contents. It is not detected if it points to unmapped memory. Requests have
//! keys instead ([`slab`](crate::slab)).
// Reads what pointers of the caller lead to.
#![allow(unsafe_code)]

use crate::error::Failure;
use crate::slab::Key;
use std::alloc::{Layout, dealloc};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of closed handles that keep their memory.
const CLOSED_MAX: usize = 256;

/// The number of attempts of a close to lock the list of closed handles. Other threads hold the
/// lock only briefly, but in a child of a fork, a thread of the parent may hold it forever.
const LOCK_TRIES: u32 = 1000;

/// The number of a closed handle, of any kind.
const CLOSED: u32 = 0x46_42_00_00;

/// The number of a request, which is not a handle.
const REQUEST: u32 = 0x46_42_52_04;

/// The mark of a kind of handle.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    number: u32,
    /// The name in messages.
    name: &'static str,
}

pub(crate) const DISK: Mark = Mark { number: 0x46_42_44_01, name: "disk" };
pub(crate) const QUEUE: Mark = Mark { number: 0x46_42_51_02, name: "queue" };
pub(crate) const HOLD: Mark = Mark { number: 0x46_42_48_05, name: "hold" };
pub(crate) const GROUP_COMMIT: Mark = Mark { number: 0x46_42_43_03, name: "group commit" };
pub(crate) const OWNER: Mark = Mark { number: 0x46_42_4f_06, name: "owner" };

/// A kind of handle: the type of its value.
pub(crate) trait Kind: Sized {
    const MARK: Mark;
    /// The type of the pointers in C.
    type Pointee;
}

#[repr(C)]
struct Handle<T> {
    /// The number of the kind in the upper half, the number of calls that use the value in the
    /// lower one.
    state: AtomicU64,
    /// Initialized while the number is that of the kind, or a call uses it.
    value: MaybeUninit<T>,
}

/// The state of a handle that no call uses.
const fn unused(number: u32) -> u64 {
    (number as u64) << 32
}

/// Returns the number of the kind.
fn number_of(state: u64) -> u32 {
    (state >> 32) as u32
}

/// Creates a handle.
pub(crate) fn open<T: Kind>(value: T) -> *mut T::Pointee {
    let state = AtomicU64::new(unused(T::MARK.number));
    Box::into_raw(Box::new(Handle { state, value: MaybeUninit::new(value) })).cast()
}

/// Returns the state of a handle.
///
/// # Safety
/// `handle` is null, or leads to readable memory while the result is used.
#[inline]
unsafe fn state_of<'a, T: Kind>(handle: *mut Handle<T>) -> Result<&'a AtomicU64, Failure> {
    if handle.is_null() || !handle.is_aligned() {
        let is_request = Key::from_bits(handle.addr()).is_some();
        return Err(refuse::<T>(handle.is_null(), if is_request { REQUEST } else { 0 }));
    }
    // SAFETY: the caller passes readable memory, and the address is aligned.
    Ok(unsafe { &(*handle).state })
}

/// Returns the value of a handle. A close during this use leaves the drop of the value to it.
///
/// # Safety
/// `pointer` is null, or leads to readable memory.
#[inline]
pub(crate) unsafe fn get<T: Kind>(pointer: *mut T::Pointee) -> Result<InUse<T>, Failure> {
    let handle = pointer.cast::<Handle<T>>();
    // SAFETY: the caller keeps the conditions.
    let state = unsafe { state_of(handle) }?;
    let mut seen = state.load(Ordering::Relaxed);
    // The exchange counts this call only while the handle is open. Acquire: the value was
    // initialized before the handle reached this thread, also by way of another call.
    while number_of(seen) == T::MARK.number {
        match state.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(InUse { handle }),
            Err(now) => seen = now,
        }
    }
    Err(refuse::<T>(false, number_of(seen)))
}

/// Returns the value of a handle that only one thread uses.
///
/// # Safety
/// As for [`get`]; and if it is a handle, no other thread closes it before the caller is done with
/// the value.
#[inline]
pub(crate) unsafe fn get_own<'a, T: Kind>(pointer: *mut T::Pointee) -> Result<&'a T, Failure> {
    let handle = pointer.cast::<Handle<T>>();
    // SAFETY: the caller keeps the conditions.
    let state = unsafe { state_of(handle) }?.load(Ordering::Acquire);
    if number_of(state) != T::MARK.number {
        return Err(refuse::<T>(false, number_of(state)));
    }
    // SAFETY: the number is that of an open handle of this kind, so its value is initialized.
    Ok(unsafe { (*handle).value.assume_init_ref() })
}

/// Closes a handle. Drops its value, unless calls use it: then the last of them does.
///
/// # Safety
/// As for [`get`]. No thread uses a value that [`get_own`] has returned.
pub(crate) unsafe fn close<T: Kind>(pointer: *mut T::Pointee) -> Result<(), Failure> {
    let handle = pointer.cast::<Handle<T>>();
    // SAFETY: the caller keeps the conditions.
    let state = unsafe { state_of(handle) }?;
    let mut seen = state.load(Ordering::Relaxed);
    // One close succeeds. AcqRel: a last call sees that it is closed, and all calls that have ended
    // (their release is in `InUse`) used the value before it is dropped here.
    while number_of(seen) == T::MARK.number {
        let nr_uses = seen - unused(T::MARK.number);
        let closed = unused(CLOSED) + nr_uses;
        match state.compare_exchange_weak(seen, closed, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                if nr_uses == 0 {
                    // SAFETY: no call uses it, and no other begins.
                    unsafe { drop_value(handle) };
                }
                return Ok(());
            }
            Err(now) => seen = now,
        }
    }
    Err(refuse::<T>(false, number_of(seen)))
}

/// The value of a handle during a call.
pub(crate) struct InUse<T: Kind> {
    /// It counts this use.
    handle: *mut Handle<T>,
}

impl<T: Kind> Deref for InUse<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a value that is in use is not dropped, and its handle is not freed.
        unsafe { (*self.handle).value.assume_init_ref() }
    }
}

impl<T: Kind> Drop for InUse<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `deref`.
        let state = unsafe { &(*self.handle).state };
        // Release: this use ends before the value is dropped, here or by another thread. Acquire:
        // so have the uses of other threads, if this is the last one.
        if state.fetch_sub(1, Ordering::AcqRel) == unused(CLOSED) + 1 {
            // SAFETY: the handle is closed, and this was the last use.
            unsafe { drop_value(self.handle) };
        }
    }
}

/// Drops the value of a closed handle, and retires its memory.
///
/// # Safety
/// The handle is closed, no call uses its value, and this is called once for it.
#[cold]
unsafe fn drop_value<T>(handle: *mut Handle<T>) {
    // SAFETY: the value is initialized, and only the caller drops it.
    unsafe { (*handle).value.assume_init_drop() };
    retire(Closed { handle: handle.cast(), layout: Layout::new::<Handle<T>>() });
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
static CLOSED_LAST: Mutex<VecDeque<Closed>> = Mutex::new(VecDeque::new());

/// Keeps the memory of a closed handle, and frees that of the oldest one.
fn retire(closed: Closed) {
    for _ in 0..LOCK_TRIES {
        if let Ok(mut all) = CLOSED_LAST.try_lock() {
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
    let kinds = [DISK, QUEUE, HOLD, GROUP_COMMIT, OWNER];
    let other = kinds.into_iter().find(|mark| mark.number == magic);
    Failure::invalid(match other {
        None if magic == REQUEST => {
            format!("expected a {name}, but the pointer is that of a request or misaligned")
        }
        Some(Mark { name: other, .. }) => {
            format!("expected a {name}, but the pointer is that of a {other}")
        }
        None => format!("expected a {name}, but the pointer is not a handle of this library"),
    })
}

#[cfg(test)]
mod tests;
