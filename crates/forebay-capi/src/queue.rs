//! Completion queues: arrays of I/O in, arrays of completions out.
//!
//! A queue belongs to the thread that opened it (J3). Each call compares the number of its thread
//! with that of the queue, before it looks at anything else in it.
// Exports functions to C, and passes the addresses of the caller's memory to drivers.
#![allow(unsafe_code)]

use crate::args::place_of;
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle::{self, Kind, Mark};
use crate::io::{bio_of, check_memory, forebay_io, plain_bio, read_io};
use forebay::foreign::thread_number;
use forebay::{
    BioQueue, BlockStatus, Completion, IoError, RegisteredMemory, Segment, Segments,
    SubmitErrorKind,
};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A completion queue of a disk. It belongs to the thread that opened it.
pub struct forebay_queue {
    _private: [u8; 0],
}

/// The completion of an I/O.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_completion {
    /// The number of the I/O.
    pub user_data: u64,
    /// The number of bytes moved, fewer than requested only at the end of a file, or a negative
    /// errno.
    pub result: i64,
    /// The point to wait for until this write is durable: see forebay_durable_wait(). 0 if it is
    /// durable already or nothing was written.
    pub durable_point: u64,
    /// How long the I/O waited for a tag, in nanoseconds; 0 if it did not wait.
    pub tag_wait_ns: u64,
    /// 0, for fields of later versions.
    pub reserved: [u64; 4],
}

const _: () = assert!(size_of::<forebay_completion>() == 64, "a change of the ABI");

/// The value of a `forebay_queue`.
pub(crate) struct OpenQueue {
    /// The number of the thread that opened it.
    owner: u64,
    /// Borrowed during a call.
    state: RefCell<State>,
}

struct State {
    queue: BioQueue,
    /// Lists of segments of earlier I/O, to be used again.
    lists: Vec<Vec<Segment>>,
    /// The number of I/Os with lists that were submitted and not reaped.
    nr_listed: usize,
    /// By number less 1. Dropped after the queue, which waits for its I/O.
    registered: Vec<Option<RegisteredMemory>>,
}

impl Kind for OpenQueue {
    const MARK: Mark = handle::QUEUE;
    type Pointee = forebay_queue;
}

/// Returns a queue of this thread.
///
/// # Safety
/// As for [`handle::get_own`].
#[inline]
unsafe fn own<'a>(queue: *mut forebay_queue) -> Result<&'a OpenQueue, Failure> {
    // SAFETY: the caller keeps the conditions.
    let open = unsafe { handle::get_own::<OpenQueue>(queue) }?;
    match open.owner == thread_number() {
        true => Ok(open),
        false => Err(Failure::of(
            libc::EPERM,
            c"the queue belongs to another thread; open a queue on each thread that needs one",
        )),
    }
}

/// Runs a call on a queue of this thread.
///
/// # Safety
/// As for [`handle::get_own`].
#[inline]
unsafe fn on_queue<T: From<c_int>>(
    queue: *mut forebay_queue,
    call: impl FnOnce(&mut State) -> Result<T, Failure>,
) -> T {
    guard(|| {
        // SAFETY: the caller keeps the conditions.
        let open = unsafe { own(queue) }?;
        call(&mut *open.state.try_borrow_mut().map_err(|_| in_use())?)
    })
}

#[cold]
fn in_use() -> Failure {
    Failure::of(libc::EBUSY, c"the queue is in use by another call of this thread")
}

/// Opens a queue on a disk for the calling thread. Stores a handle in *queue. Only this thread may
/// use it: other threads get -EPERM.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_queue_open(
    disk: *mut forebay_disk,
    queue: *mut *mut forebay_queue,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        let disk = unsafe { handle::get::<OpenDisk>(disk) }?;
        let opened = place_of(queue)?;
        let state = RefCell::new(State {
            queue: disk.disk.queue(),
            lists: Vec::new(),
            nr_listed: 0,
            registered: Vec::new(),
        });
        let handle = handle::open(OpenQueue { owner: thread_number(), state });
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

/// Closes a queue. If I/O is in flight, waits until it has ended, because the device uses its
/// memory until then. Completions that were not reaped are lost.
///
/// Returns 0, or a negative errno: -EPERM on a thread that has not opened it, and the queue stays
/// open; -EBADF if it is closed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_queue_close(queue: *mut forebay_queue) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        let open = unsafe { own(queue) }?;
        drop(open.state.try_borrow_mut().map_err(|_| in_use())?);
        // SAFETY: only this thread uses it, and it is in no other call.
        unsafe { handle::close::<OpenQueue>(queue) }.map(|()| 0)
    })
}

/// Submits nr I/Os, under one plug: neighbours merge. Never waits for the device. Inside of
/// forebay_plug() they also merge with those of other calls, and are issued at forebay_unplug().
///
/// Returns the number of I/Os that were accepted, or a negative errno if the first one is refused.
/// If fewer than nr were accepted, the next one was refused: submit the rest to learn why. -EAGAIN:
/// the queue is full (nr_bios of the spec). Reap, then submit the rest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_queue_submit(
    queue: *mut forebay_queue,
    ios: *const forebay_io,
    nr: u32,
) -> c_int {
    let submit = |state: &mut State| {
        if nr == 0 {
            return Ok(0);
        }
        if ios.is_null() {
            return Err(Failure::invalid("the array of I/O is NULL"));
        }
        let nr = nr.min(c_int::MAX as u32);
        let _plug = (nr > 1).then(forebay::plug);
        let (now, mut at) = (forebay::now_ns(), ios);
        for accepted in 0..nr {
            // SAFETY: the caller passes an array of so many I/Os, which leave their memory alone
            // until their completions have been reaped. Closing the queue waits.
            match unsafe { submit_one(state, at, now) } {
                Ok(size) => at = at.wrapping_byte_add(size),
                Err(failure) if accepted == 0 => return Err(failure),
                Err(_) => return Ok(accepted as c_int),
            }
        }
        Ok(nr as c_int)
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_queue(queue, submit) }
}

/// Submits one I/O, and returns the size of its structure.
///
/// # Safety
/// `at` is as for [`read_io`]. The memory of the I/O is as for [`BioQueue::submit_raw`].
#[inline(always)]
unsafe fn submit_one(state: &mut State, at: *const forebay_io, now: u64) -> Result<usize, Failure> {
    // SAFETY: the caller keeps the conditions.
    let Some(bio) = (unsafe { plain_bio(at) }) else {
        // SAFETY: the caller keeps the conditions.
        return unsafe { submit_any(state, at, now) };
    };
    // SAFETY: the caller keeps the conditions. All addresses are exposed.
    match unsafe { state.queue.submit_raw_at(bio, now) } {
        Ok(()) => Ok(size_of::<forebay_io>()),
        Err((kind, _)) => Err(refused(kind)),
    }
}

/// Submits an I/O of any kind.
///
/// # Safety
/// As for [`submit_one`].
#[cold]
unsafe fn submit_any(state: &mut State, at: *const forebay_io, now: u64) -> Result<usize, Failure> {
    // SAFETY: the caller keeps the conditions.
    let (io, size) = unsafe { read_io(at) }?;
    // SAFETY: the caller keeps the conditions.
    let bio = unsafe { bio_of(&io, &mut state.lists) }?;
    let is_listed = matches!(bio.segments, Segments::Many(_));
    // SAFETY: the caller keeps the conditions. All addresses are exposed.
    match unsafe { state.queue.submit_raw_at(bio, now) } {
        Ok(()) => {
            state.nr_listed += usize::from(is_listed);
            Ok(size)
        }
        Err((kind, bio)) => {
            keep_list(&mut state.lists, bio.segments);
            Err(refused(kind))
        }
    }
}

#[cold]
fn refused(kind: SubmitErrorKind) -> Failure {
    match kind {
        SubmitErrorKind::WouldBlock => {
            Failure::of(libc::EAGAIN, c"the queue is full; reap completions, then try again")
        }
        kind => Failure::from(IoError::from(kind)),
    }
}

#[inline]
fn keep_list(lists: &mut Vec<Vec<Segment>>, segments: Segments) {
    if let Segments::Many(list) = segments {
        lists.push(list);
    }
}

/// Stores at most max completions in an array, oldest first. Waits until min I/Os of the queue have
/// ended, or all of them have, or timeout_ms milliseconds have passed. 0: does not wait. Negative:
/// waits without a limit. Everything that the thread has plugged is unplugged first, unless enough
/// I/O has ended already.
///
/// Returns the number of completions, or a negative errno. No completion is lost by a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_queue_reap(
    queue: *mut forebay_queue,
    completions: *mut forebay_completion,
    min: u32,
    max: u32,
    timeout_ms: c_int,
) -> c_int {
    let reap = |state: &mut State| {
        let max = max.min(c_int::MAX as u32);
        if min > max {
            return Err(Failure::invalid(format!("min is {min}, more than max, which is {max}")));
        }
        if max > 0 && (completions.is_null() || !completions.is_aligned()) {
            return Err(Failure::invalid("the array of completions is NULL or misaligned"));
        }
        let mut array = Array { at: completions, left: max as usize };
        let nr = match timeout_ms {
            1.. => array.take_until(state, min as usize, timeout_ms as u64)?,
            _ => array.take(state, if timeout_ms == 0 { 0 } else { min as usize }),
        };
        Ok(nr as c_int)
    };
    // SAFETY: the caller passes a handle, and an array of `max` completions.
    unsafe { on_queue(queue, reap) }
}

/// The rest of the array of a caller. Its memory is that of `left` completions.
struct Array {
    at: *mut forebay_completion,
    left: usize,
}

impl Array {
    /// Waits until `min` I/Os have ended, or all have. Stores completions until the array is full.
    #[inline(always)]
    fn take(&mut self, state: &mut State, min: usize) -> usize {
        if state.nr_listed > 0 {
            return self.take_with_lists(state, min);
        }
        let (mut at, max) = (self.at, self.left);
        let nr = state.queue.reap_with(min, max, |completion| {
            // SAFETY: at most `left` completions are passed here, and there is room for them.
            at = unsafe { put(at, &completion) };
        });
        (self.at, self.left) = (at, max - nr);
        nr
    }

    /// Does the same, and takes the lists of segments back.
    #[cold]
    fn take_with_lists(&mut self, state: &mut State, min: usize) -> usize {
        let State { queue, lists, nr_listed, .. } = state;
        let (mut at, max) = (self.at, self.left);
        let nr = queue.reap_raw_with(min, max, |completion, segments| {
            // SAFETY: as in `take`.
            at = unsafe { put(at, &completion) };
            *nr_listed -= usize::from(matches!(segments, Segments::Many(_)));
            keep_list(lists, segments);
        });
        (self.at, self.left) = (at, max - nr);
        nr
    }

    /// Does the same as [`take`](Array::take), but waits at most for a time.
    #[cold]
    fn take_until(&mut self, state: &mut State, min: usize, ms: u64) -> Result<usize, Failure> {
        let end = Instant::now() + Duration::from_millis(ms);
        let mut nr = self.take(state, 0);
        while nr < min && !state.queue.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // A failure does not take back what is in the array. The next call reports it.
            match wait_until_due(&mut state.queue, left) {
                Err(failure) if nr == 0 => return Err(failure),
                Err(_) => break,
                Ok(()) => {}
            }
            nr += self.take(state, 0);
        }
        Ok(nr)
    }
}

/// Waits until the descriptor of a queue is readable, for at most a time. A signal ends the wait.
fn wait_until_due(queue: &mut BioQueue, left: Duration) -> Result<(), Failure> {
    let fd = queue.poll_fd()?.as_raw_fd();
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // Rounded up, so that the last wait does not become many of 0 ms.
    let ms = left.as_nanos().div_ceil(1_000_000).min(c_int::MAX as u128) as c_int;
    // SAFETY: one entry is passed, which lives until the call returns.
    if unsafe { libc::poll(&raw mut polled, 1, ms) } >= 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error() {
        error if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
        error => Err(Failure::from(error)),
    }
}

/// Stores a completion, and returns the place of the next one.
///
/// # Safety
/// `at` is a place for a completion.
#[inline(always)]
unsafe fn put(at: *mut forebay_completion, completion: &Completion) -> *mut forebay_completion {
    let result = match completion.result {
        Ok(moved) => moved as i64,
        Err(status) => result_of(status),
    };
    let (durable_point, tag_wait_ns) = (completion.durable_point, completion.tag_wait_ns);
    let tag_wait_ns = tag_wait_ns.unwrap_or(0);
    let user_data = completion.user_data;
    let reserved = [0; 4];
    // SAFETY: the caller keeps the condition.
    unsafe {
        at.write(forebay_completion { user_data, result, durable_point, tag_wait_ns, reserved });
        at.add(1)
    }
}

#[cold]
fn result_of(status: BlockStatus) -> i64 {
    -i64::from(IoError::from(status).errno())
}

/// Returns a descriptor for an event loop: when it is readable, call forebay_queue_reap() with
/// timeout_ms 0, even if that gives nothing. It is readable at first. It belongs to the queue: do
/// not close it.
///
/// Returns the descriptor, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_queue_fd(queue: *mut forebay_queue) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe { on_queue(queue, |state| Ok(state.queue.poll_fd()?.as_raw_fd())) }
}

/// Registers len bytes of memory with the queue, so that the kernel need not look up their pages
/// for each I/O. Keep the memory mapped until forebay_queue_unregister(), or until the queue is
/// closed. If the disk supports this, its property registers_memory is 1.
///
/// Returns the number of the registration, at least 1, or a negative errno: -EOPNOTSUPP if the disk
/// does not support it, -ENOMEM if the limit on locked memory is too low.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_queue_register(
    queue: *mut forebay_queue,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    let register = |state: &mut State| {
        if len == 0 {
            return Err(Failure::invalid("the memory has 0 bytes"));
        }
        check_memory(buf, len as u64)?;
        // SAFETY: the caller keeps the memory mapped. The registration ends when the queue has no
        // I/O in flight.
        let memory = unsafe { state.queue.register_memory(buf.expose_provenance(), len) }?;
        let nth = match state.registered.iter().position(Option::is_none) {
            Some(nth) => nth,
            None => {
                state.registered.push(None);
                state.registered.len() - 1
            }
        };
        state.registered[nth] = Some(memory);
        Ok(c_int::try_from(nth + 1).unwrap_or(c_int::MAX))
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_queue(queue, register) }
}

/// Ends a registration of memory. The queue must have no I/O in flight.
///
/// Returns 0, or a negative errno: -EBUSY if I/O of the queue was submitted and not reaped, -EINVAL
/// if there is no such registration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_queue_unregister(
    queue: *mut forebay_queue,
    registration: c_int,
) -> c_int {
    let unregister = |state: &mut State| {
        if !state.queue.is_empty() {
            return Err(Failure::of(
                libc::EBUSY,
                c"the queue has I/O that may use the memory; reap it first",
            ));
        }
        let nth = usize::try_from(registration).ok().and_then(|number| number.checked_sub(1));
        match nth.and_then(|nth| state.registered.get_mut(nth)?.take()) {
            Some(memory) => {
                drop(memory);
                Ok(0)
            }
            None => Err(Failure::invalid(format!("there is no registration {registration}"))),
        }
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_queue(queue, unregister) }
}

/// Returns the number of I/Os that were submitted and not reaped, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_queue_len(queue: *mut forebay_queue) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe { on_queue(queue, |state| Ok(c_int::try_from(state.queue.len()).unwrap_or(c_int::MAX))) }
}
