//! libaio's functions. Each returns a negative errno for a failure.
//!
//! Source: io_setup(2), io_destroy(2), io_submit(2), io_getevents(2), io_cancel(2), and libaio's
//! io_queue_init(3), io_queue_run(3), io_queue_wait(3).
// Functions that C programs call.
#![allow(unsafe_code)]

use crate::abi::IoEvent;
use crate::context::{self, Context, Events};
use crate::plan::plan;
use crate::program::EventArray;
use crate::raw::Errno;
use crate::{program, table};
use std::ffi::{c_int, c_long, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The callback of an iocb (`io_callback_t`), for [`io_queue_run`].
type Callback = unsafe extern "C" fn(*mut c_void, u64, c_long, c_long);

unsafe extern "C" {
    /// Source: pthread_setcancelstate(3).
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

/// This thread is not cancelled while this value lives.
pub(crate) struct NoCancel {
    before: c_int,
    /// The state is that of a thread.
    not_send: PhantomData<*const ()>,
}

impl NoCancel {
    pub(crate) fn new() -> NoCancel {
        let mut before = 0;
        // SAFETY: the function writes one number, and fails only for a wrong state.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        NoCancel { before, not_send: PhantomData }
    }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        // SAFETY: the state is one that the thread had.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

/// Returns the result of a call as C has it. A panic is `EIO`. The variable `errno` does not
/// change. The thread is not cancelled during the call: libaio's functions are not
/// cancellation points.
fn answer(call: impl FnOnce() -> Result<usize, Errno>) -> c_int {
    let _not_cancelled = NoCancel::new();
    // SAFETY: the variable of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let result = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(nr)) => c_int::try_from(nr).unwrap_or(c_int::MAX),
        Ok(Err(errno)) => -errno,
        Err(_) => -libc::EIO,
    };
    // SAFETY: as above.
    unsafe { errno.write(before) };
    result
}

/// Creates a context for `nr` iocbs at once, and stores its handle.
///
/// # Safety
/// `handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_setup(nr: c_int, handle: *mut *mut c_void) -> c_int {
    answer(|| {
        if handle.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: the caller's promise.
        let is_new = unsafe { handle.read_unaligned() }.is_null();
        let nr = u32::try_from(nr).ok().filter(|nr| *nr > 0 && is_new).ok_or(libc::EINVAL)?;
        let address = table::create(nr)?;
        // SAFETY: as above.
        unsafe { handle.write_unaligned(std::ptr::with_exposed_provenance_mut(address)) };
        Ok(0)
    })
}

/// Ends a context, after the kernel has ended its iocbs.
#[unsafe(no_mangle)]
pub extern "C" fn io_destroy(handle: *mut c_void) -> c_int {
    answer(|| {
        table::remove(handle.addr())?.end();
        Ok(0)
    })
}

/// Submits `nr` iocbs. Returns how many were accepted.
///
/// # Safety
/// `iocbs` is an array of pointers to iocbs, whose memory is valid until they have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_submit(handle: *mut c_void, nr: c_long, iocbs: *const usize) -> c_int {
    answer(|| {
        let context = table::find(handle.addr())?;
        let nr = usize::try_from(nr).map_err(|_| libc::EINVAL)?;
        if nr == 0 {
            return Ok(0);
        }
        if !program::can_be_memory(iocbs.addr()) {
            return Err(libc::EFAULT);
        }
        let accepted = if nr == 1 {
            // SAFETY: the caller's promise.
            context.submit_one(unsafe { iocbs.read_unaligned() })?
        } else {
            // SAFETY: as above.
            let iocbs = unsafe { program::addresses(iocbs, nr.min(context.nr_max())) };
            context.submit(plan(&iocbs))?
        };
        context::start_service(&context);
        Ok(accepted)
    })
}

/// Takes up to `max` events, and waits until there are `min` or the timeout has passed.
///
/// # Safety
/// `events` has room for `max` events. `timeout` is null or points to a time.
#[cfg_attr(not(forebay_libaio), unsafe(no_mangle))]
pub unsafe extern "C" fn io_getevents(
    handle: *mut c_void,
    min: c_long,
    max: c_long,
    events: *mut IoEvent,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { io_pgetevents(handle, min, max, events, timeout, std::ptr::null()) }
}

/// # Safety
/// As for [`io_pgetevents`].
unsafe fn events_of(
    context: &Arc<Context>,
    min: c_long,
    max: c_long,
    events: *mut IoEvent,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> Result<usize, Errno> {
    let (min, max) = match (usize::try_from(min), usize::try_from(max)) {
        (Ok(min), Ok(max)) if min <= max => (min, max),
        _ => return Err(libc::EINVAL),
    };
    if max > 0 && !program::can_be_memory(events.addr()) {
        return Err(libc::EFAULT);
    }
    let timeout = match timeout.is_null() {
        true => None,
        // SAFETY: the caller's promise.
        false => limit_of(unsafe { timeout.read_unaligned() }),
    };
    let mask = (!mask.is_null()).then_some(mask);
    // SAFETY: the caller's promise.
    let array = unsafe { EventArray::new(events, max) };
    context.events(Events { min, timeout, mask }, array)
}

/// Returns the limit of a wait. The kernel does not check it: it waits without a limit for a time
/// below 0.
fn limit_of(time: libc::timespec) -> Option<Duration> {
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// Takes events as [`io_getevents`] does, with another signal mask during the wait.
///
/// # Safety
/// As for [`io_getevents`]; `mask` is null or points to a signal mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_pgetevents(
    handle: *mut c_void,
    min: c_long,
    max: c_long,
    events: *mut IoEvent,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    answer(|| unsafe { events_of(&table::find(handle.addr())?, min, max, events, timeout, mask) })
}

/// Cancels an iocb, as the kernel does: only polls can be cancelled, with `EINPROGRESS`, and their
/// event comes as usual. For all others this returns `EINVAL`.
#[cfg_attr(not(forebay_libaio), unsafe(no_mangle))]
pub extern "C" fn io_cancel(handle: *mut c_void, iocb: *mut c_void, _: *mut IoEvent) -> c_int {
    answer(|| Err(table::find(handle.addr())?.cancel(iocb.addr())))
}

/// Creates a context, as [`io_setup`] does.
///
/// # Safety
/// As for [`io_setup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_queue_init(nr: c_int, handle: *mut *mut c_void) -> c_int {
    if nr <= 0 || handle.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    unsafe {
        handle.write_unaligned(std::ptr::null_mut());
        io_setup(nr, handle)
    }
}

/// Ends a context, as [`io_destroy`] does.
#[unsafe(no_mangle)]
pub extern "C" fn io_queue_release(handle: *mut c_void) -> c_int {
    io_destroy(handle)
}

/// Processes the ends that the kernel has, and returns without waiting. Takes no event.
///
/// # Safety
/// `timeout` is null or points to a time.
#[cfg_attr(not(forebay_libaio), unsafe(no_mangle))]
pub unsafe extern "C" fn io_queue_wait(
    handle: *mut c_void,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: no event is taken.
    unsafe { io_getevents(handle, 0, 0, std::ptr::null_mut(), timeout) }
}

/// Calls the callback of each event that is there.
///
/// # Safety
/// The field `data` of each iocb is its callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_queue_run(handle: *mut c_void) -> c_int {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut event = IoEvent { data: 0, obj: 0, res: 0, res2: 0 };
    loop {
        // SAFETY: there is room for one event.
        match unsafe { io_getevents(handle, 0, 1, &raw mut event, &raw const now) } {
            1 => {
                let callback = std::ptr::with_exposed_provenance::<()>(event.data as usize);
                // SAFETY: the caller's promise.
                let callback = unsafe { std::mem::transmute::<*const (), Callback>(callback) };
                // SAFETY: as above.
                unsafe { callback(handle, event.obj, event.res as c_long, event.res2 as c_long) };
            }
            nr => return nr,
        }
    }
}
