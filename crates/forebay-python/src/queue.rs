//! Completion queues: lists of I/O in, lists of ended I/O out.
//!
//! A queue belongs to the thread that opened it ([`Owned`]). It keeps a reference to each I/O in
//! flight in a slot. The completion returns the number of the slot. The thread keeps its open
//! queues ([`threads`](crate::threads)), so that it can close one that another thread has
//! collected.
// Passes the addresses of exported memory to drivers.
#![allow(unsafe_code)]

use crate::detach::without_gil;
use crate::error::{closed, of_io, of_system};
use crate::io::Io;
use crate::owned::Owned;
use crate::threads::{self, Kept};
use forebay::{Bio, BioQueue, BlockStatus, Completion, SubmitErrorKind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A queue and the I/O that is in flight on it.
struct State {
    /// `None` once it is closed.
    queue: Option<BioQueue>,
    /// Changed with the GIL only.
    slots: Slots,
    /// Completions of a reap; empty between calls.
    completions: Vec<Completion>,
    /// Ended I/O of a reap. Empty between calls, except after a wait that has failed: then the next
    /// reap returns that I/O.
    ended: Vec<Ended>,
    /// The queue was collected on another thread.
    is_collected: bool,
}

/// The I/O that is in flight, by the numbers of its bios.
#[derive(Default)]
struct Slots {
    ios: Vec<Option<Py<Io>>>,
    free: Vec<u32>,
}

impl Slots {
    /// Returns a free number, which stays free until [`Slots::fill`].
    #[inline]
    fn next(&mut self) -> u32 {
        if self.free.is_empty() {
            self.free
                .push(u32::try_from(self.ios.len()).expect("a queue has at most nr_bios I/Os"));
            self.ios.push(None);
        }
        *self.free.last().expect("just made")
    }

    /// Stores an I/O at the number that `next` has returned.
    #[inline]
    fn fill(&mut self, io: Py<Io>) {
        let number = self.free.pop().expect("`next` has left one");
        self.ios[number as usize] = Some(io);
    }

    #[inline]
    fn take(&mut self, number: u64) -> Py<Io> {
        let io = self.ios[number as usize].take().expect("each bio has an I/O in its slot");
        self.free.push(number as u32);
        io
    }
}

/// An I/O that has ended.
struct Ended {
    io: Py<Io>,
    result: Result<u64, BlockStatus>,
    durable_point: u64,
}

impl State {
    fn queue(&mut self) -> PyResult<&mut BioQueue> {
        self.queue.as_mut().ok_or_else(|| closed("queue"))
    }

    /// Returns the number of I/Os that were submitted and not returned to the program.
    fn nr_unreaped(&self) -> usize {
        self.queue.as_ref().map_or(0, BioQueue::len) + self.ended.len()
    }

    /// Waits without the GIL until `min` I/Os have ended, or all have. Moves at most `max` ended
    /// I/Os to `ended`.
    #[inline]
    fn collect(&mut self, py: Python<'_>, min: usize, max: usize) -> PyResult<()> {
        let State { queue, slots, completions, ended, .. } = self;
        let queue = queue.as_mut().ok_or_else(|| closed("queue"))?;
        // SAFETY: the queue and the list have no objects of Python. Only this thread uses them.
        unsafe { without_gil(py, || queue.reap(min, max, completions)) };
        sort_out(slots, completions, ended);
        Ok(())
    }

    /// Waits for all I/O and closes the queue, without the GIL. The completions stay here. Returns
    /// whether there are any, or other ended I/O.
    fn end(&mut self) -> bool {
        if let Some(mut queue) = self.queue.take() {
            let len = queue.len();
            queue.reap(len, len, &mut self.completions);
        }
        !self.completions.is_empty() || !self.ended.is_empty()
    }

    /// Returns whether the queue is open and was collected on another thread.
    fn is_collected(&self) -> bool {
        self.is_collected && self.queue.is_some()
    }
}

/// Moves completions to the I/O that has ended.
#[inline]
fn sort_out(slots: &mut Slots, completions: &mut Vec<Completion>, ended: &mut Vec<Ended>) {
    ended.extend(completions.drain(..).map(|completion| {
        let Completion { user_data, result, durable_point, .. } = completion;
        Ended { io: slots.take(user_data), result, durable_point }
    }));
}

/// A completion queue of a disk, for the thread that opens it: `Disk.queue()`.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Queue {
    state: Arc<Owned<State>>,
}

impl Queue {
    pub(crate) fn open(py: Python<'_>, disk: &forebay::Disk) -> Queue {
        threads::tidy(py);
        let queue = Some(disk.queue());
        let (slots, completions, ended) = (Slots::default(), Vec::new(), Vec::new());
        let state = State { queue, slots, completions, ended, is_collected: false };
        let state = Arc::new(Owned::new(state));
        threads::keep(Arc::clone(&state) as Arc<dyn Kept>);
        Queue { state }
    }

    /// Submits an I/O. If it is refused, returns the exception for the program.
    #[inline]
    fn submit_one(&self, io: &Bound<'_, Io>, now: u64) -> PyResult<()> {
        let py = io.py();
        // The export may run code of the program, so the queue is not in use meanwhile.
        let bio = io.get().begin(py)?;
        let submitted = self.state.with(py, |state| {
            let number = state.slots.next().into();
            let queue = state.queue()?;
            let bio = match io.get().owner() {
                None => bio,
                Some(owner) => {
                    let number = owner.get().number_on(queue)?;
                    Bio { origin: bio.origin.with_owner(number), ..bio }
                }
            };
            // SAFETY: the memory is exported until the completion has been reaped and the slot is
            // empty, or the queue is dropped, which waits. The program must leave it alone. Its
            // address is exposed.
            let submitted = unsafe { queue.submit_raw_at(Bio { user_data: number, ..bio }, now) };
            submitted.map_err(|(kind, _)| refused(kind))?;
            state.slots.fill(io.clone().unbind());
            Ok(())
        });
        if submitted.is_err() {
            io.get().take_back(py);
        }
        submitted
    }

    /// Waits until the descriptor is readable, for at most the time `left`. Runs Python's handlers
    /// of signals that arrive.
    fn wait_until_due(&self, py: Python<'_>, left: Duration) -> PyResult<()> {
        let fd = self.state.with(py, |state| fd_of(state.queue()?))?;
        let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // Rounded up, so that the last wait does not become many of 0 ms.
        let ms = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        // SAFETY: one entry is passed, which lives until the call returns. No object of Python is
        // used.
        let nr = unsafe { without_gil(py, || libc::poll(&raw mut polled, 1, ms)) };
        if nr >= 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error() {
            error if error.kind() == std::io::ErrorKind::Interrupted => py.check_signals(),
            error => Err(of_system(&error)),
        }
    }

    /// Waits as [`State::collect`] does, for at most the time `limit`.
    fn collect_until(
        &self,
        py: Python<'_>,
        (min, max): (usize, usize),
        limit: Duration,
    ) -> PyResult<()> {
        let start = Instant::now();
        loop {
            let (nr, is_empty) = self.state.with(py, |state| {
                state.collect(py, 0, max.saturating_sub(state.ended.len()))?;
                Ok((state.ended.len(), state.queue()?.is_empty()))
            })?;
            let left = limit.saturating_sub(start.elapsed());
            if nr >= min || is_empty || left.is_zero() {
                return Ok(());
            }
            self.wait_until_due(py, left)?;
        }
    }

    /// Ends the I/O that was collected, and returns it. An export that ends may run code of the
    /// program, so the queue is not in use meanwhile.
    fn finish<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Bound<'py, PyList>> {
        let mut ended = self.state.with(py, |state| {
            let mut ended = std::mem::take(&mut state.ended);
            if ended.len() > max {
                state.ended = ended.split_off(max);
            }
            Ok(ended)
        })?;
        let done = PyList::new(py, ended.drain(..).map(|ended| ended.end(py)))?;
        // Keeps the memory for the next call.
        let _ = self.state.with(py, |state| {
            if state.ended.capacity() == 0 {
                state.ended = ended;
            }
            Ok(())
        });
        Ok(done)
    }

    /// Waits for all I/O, ends it, and closes the queue.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        drain(&self.state, py)?;
        threads::forget(&self.state);
        Ok(())
    }
}

/// Waits for all I/O of a queue of this thread, ends it, and closes the queue.
fn drain(state: &Owned<State>, py: Python<'_>) -> PyResult<()> {
    let queue = state.with(py, |state| {
        let Some(len) = state.queue.as_ref().map(BioQueue::len) else { return Ok(None) };
        state.collect(py, len, len)?;
        Ok(state.queue.take())
    })?;
    // SAFETY: the queue has no objects of Python, and belongs to this thread.
    unsafe { without_gil(py, || drop(queue)) };
    end_all(state, py);
    Ok(())
}

impl Kept for Owned<State> {
    fn close_if_collected(&self, py: Python<'_>) -> bool {
        let is_collected = self.with(py, |state| Ok(state.is_collected())).unwrap_or_default();
        // It is in no call, because its object is gone.
        is_collected && drain(self, py).is_ok()
    }

    fn close_at_end(&self) -> Option<bool> {
        self.end(State::end)
    }

    fn end_all(&self, py: Python<'_>) {
        end_all(self, py);
    }
}

/// Ends the I/O of a queue that is closed, on any thread.
fn end_all(state: &Owned<State>, py: Python<'_>) {
    // SAFETY: a queue that is closed has only objects of Python, and this thread has the GIL.
    let ended = unsafe {
        state.peek(|state| {
            let State { queue, slots, completions, ended, .. } = &mut *state;
            if queue.is_none() {
                sort_out(slots, completions, ended);
            }
            std::mem::take(ended)
        })
    };
    for ended in ended.unwrap_or_default() {
        ended.end(py);
    }
}

impl Ended {
    #[inline]
    fn end<'py>(self, py: Python<'py>) -> Bound<'py, Io> {
        let io = self.io.into_bound(py);
        io.get().end(py, self.result, self.durable_point);
        io
    }
}

fn fd_of(queue: &mut BioQueue) -> PyResult<i32> {
    let fd = queue.poll_fd().map_err(|error| of_system(&error))?;
    Ok(fd.as_raw_fd())
}

#[cold]
fn refused(kind: SubmitErrorKind) -> PyErr {
    match kind {
        SubmitErrorKind::WouldBlock => {
            let text = "the queue is full; reap completions, then submit the rest";
            crate::error::os_error(libc::EAGAIN, text)
        }
        kind => of_io(kind),
    }
}

/// Returns a time limit, which is given in seconds.
pub(crate) fn limit_of(seconds: f64) -> PyResult<Duration> {
    let limit = Duration::try_from_secs_f64(seconds);
    let text = || format!("timeout={seconds}: expected seconds, or None for no limit");
    limit.map_err(|_| PyValueError::new_err(text()))
}

#[pymethods]
impl Queue {
    /// Submits a list of I/O under one plug: neighbours merge. Never waits for the device. Within
    /// `plug()`, I/O also merges with that of other calls, and is issued when the plug ends.
    ///
    /// Returns the number of I/Os that were accepted. Raises an exception if the first one is
    /// refused: `BlockingIOError` if the queue is full (`nr_bios` of the spec). If fewer were
    /// accepted than given, the next one was refused: submit the rest to get the reason.
    fn submit(&self, py: Python<'_>, ios: &Bound<'_, PyAny>) -> PyResult<usize> {
        threads::tidy(py);
        let ios = match ios.cast::<PyList>() {
            Ok(list) => list.clone(),
            Err(_) => PyList::new(py, ios.try_iter()?.collect::<PyResult<Vec<_>>>()?)?,
        };
        self.state.with(py, |state| state.queue().map(|_| ()))?;
        let plug = (!ios.is_empty()).then(forebay::plug);
        let (now, mut accepted, mut first_error) = (forebay::now_ns(), 0, None);
        // Code of the program may change the list meanwhile.
        while let Ok(item) = ios.get_item(accepted) {
            let submitted = match item.cast::<Io>() {
                Ok(io) => self.submit_one(io, now),
                Err(_) => Err(not_an_io(&item)),
            };
            if let Err(error) = submitted {
                first_error = (accepted == 0).then_some(error);
                break;
            }
            accepted += 1;
        }
        // SAFETY: a plug has no object of Python, and belongs to this thread.
        unsafe { without_gil(py, || drop(plug)) };
        first_error.map_or(Ok(accepted), Err)
    }

    /// Waits until `min` I/Os of the queue have ended, or all of them have, or `timeout` seconds
    /// have passed. Returns at most `max` I/Os that have ended, oldest first. `min` = 0 never
    /// waits. A signal interrupts the wait only if there is a timeout.
    ///
    /// Everything that the thread has plugged is issued first, unless enough I/O has ended already.
    #[pyo3(signature = (min=1, max=None, timeout=None))]
    fn reap<'py>(
        &self,
        py: Python<'py>,
        min: usize,
        max: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        threads::tidy(py);
        let max = max.unwrap_or(usize::MAX);
        if min > max {
            let text = format!("min is {min}, more than max, which is {max}");
            return Err(PyValueError::new_err(text));
        }
        match timeout {
            None => self.state.with(py, |state| {
                let nr = state.ended.len();
                state.collect(py, min.saturating_sub(nr), max.saturating_sub(nr))
            })?,
            Some(seconds) => self.collect_until(py, (min, max), limit_of(seconds)?)?,
        }
        self.finish(py, max)
    }

    /// Returns a descriptor for an event loop. When it is readable, call `reap(0)`, which may
    /// return nothing. The descriptor is readable at first. It belongs to the queue: do not close
    /// it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.state.with(py, |state| fd_of(state.queue()?))
    }

    /// Waits until the I/O of the queue has ended, and closes the queue. Afterwards each I/O has
    /// its result.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.drain(py)
    }

    /// True if the queue is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.state.with(py, |state| Ok(state.queue.is_none()))
    }

    /// Returns the number of I/Os that were submitted and not reaped.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.state.with(py, |state| Ok(state.nr_unreaped()))
    }

    /// A queue is true even if it has no I/O.
    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        self.drain(py)?;
        Ok(false)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector has the GIL. Objects of Python are used with the GIL only.
        let visited = unsafe {
            self.state.peek(|state| {
                let (slots, ended) = (&(*state).slots, &(*state).ended);
                slots.ios.iter().flatten().try_for_each(|io| visit.call(io))?;
                ended.iter().try_for_each(|ended| visit.call(&ended.io))
            })
        };
        // While a call uses the queue, its objects count as reachable.
        visited.unwrap_or(Ok(()))
    }
}

#[cold]
fn not_an_io(item: &Bound<'_, PyAny>) -> PyErr {
    let name = item.get_type().name();
    let name = name.map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("expected a list of forebay.Io, found {name}"))
}

impl Drop for Queue {
    /// Waits for the I/O, which uses the memory of buffers until it ends. On another thread, or
    /// without an interpreter, leaves the wait to the thread of the queue.
    fn drop(&mut self) {
        Python::try_attach(|py| {
            if self.state.is_own() {
                // A failure leaves the queue to the end of the thread.
                let _ = self.drain(py);
                return;
            }
            // SAFETY: any thread may set the flag, and the GIL is held.
            let _ = unsafe { self.state.peek(|state| (*state).is_collected = true) };
            threads::leave();
            // The thread may have ended, and closed the queue.
            threads::tidy(py);
        });
    }
}
