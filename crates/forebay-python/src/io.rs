//! One I/O as a Python object, which can be submitted again and again.

use crate::error::{misuse, of_status};
use crate::export::{Access, Export, segments_of};
use crate::owner::Owner;
use forebay::{BadPriority, Bio, BioFlags, BlockStatus, Op, Origin, Priority};
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The stage of an I/O.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    InFlight,
    Moved(u64),
    Failed(BlockStatus),
}

/// One I/O. It is created by `Io.read`, `Io.write`, `Io.flush`, `Io.discard` or `Io.write_zeroes`,
/// and submitted by `Queue.submit`. `Queue.reap` returns it when it has ended. Then it can be
/// changed and submitted again, on the queue of any thread.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Io {
    op: Op,
    flags: BioFlags,
    priority: Priority,
    owner: Option<Py<Owner>>,
    /// Locked only briefly, and never while code of the program runs. An export, or an object that
    /// is dropped, may run such code, and that code may use this I/O.
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    offset: u64,
    /// The length of an I/O without a buffer.
    length: u64,
    /// `None` also while the export of its memory begins.
    buffer: Option<Py<PyAny>>,
    /// The memory of `buffer` while the I/O is in flight. Otherwise kept for the next time.
    export: Option<Export>,
    /// A value of the program.
    data: Option<Py<PyAny>>,
    durable_point: u64,
}

impl Io {
    fn new(op: Op, flags: BioFlags, state: State) -> Io {
        let (priority, owner) = (Priority::default(), None);
        Io { op, flags, priority, owner, state: Mutex::new(state) }
    }

    /// Sets the priority and the owner, if they are given.
    #[inline]
    fn with_origin(
        self,
        priority: Option<(String, i64)>,
        owner: Option<Py<Owner>>,
    ) -> PyResult<Io> {
        let priority = match priority {
            None => self.priority,
            Some((class, level)) => priority_of(&class, level)?,
        };
        Ok(Io { priority, owner, ..self })
    }

    /// Returns the owner, if the I/O has one.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&Py<Owner>> {
        self.owner.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exports the memory, and returns the bio, without the number of its owner. The I/O is
    /// in flight until [`end`](Io::end).
    ///
    /// # Errors
    /// `RuntimeError` if it is in flight already, and the errors of [`Export::hold`].
    #[inline]
    pub(crate) fn begin(&self, py: Python<'_>) -> PyResult<Bio> {
        let mut state = self.lock();
        if state.stage == Stage::InFlight {
            return Err(misuse("this I/O is in flight; reap it before it is submitted again"));
        }
        state.stage = Stage::InFlight;
        let (offset, length) = (state.offset, state.length);
        let bio = match state.buffer.take() {
            Some(buffer) => {
                let mut export = state.export.take().unwrap_or_else(Export::new);
                drop(state);
                let is_read = self.op == Op::Read;
                let access = if is_read { Access::Target } else { Access::Source };
                let held = export.hold(buffer.bind(py), access);
                let mut state = self.lock();
                state.buffer = Some(buffer);
                if let Err(error) = held {
                    state.stage = Stage::Idle;
                    return Err(error);
                }
                let (addr, len) = export.memory();
                state.export = Some(export);
                let segments = segments_of(addr, len);
                Bio { segments, ..Bio::range(self.op, offset, len as u64) }
            }
            None if self.op == Op::Flush => Bio::flush(),
            None => Bio::range(self.op, offset, length),
        };
        let origin = Origin::NONE.with_priority(self.priority);
        Ok(Bio { flags: bio.flags.union(self.flags), origin, ..bio })
    }

    /// Ends an I/O that was refused: it has no result.
    #[cold]
    pub(crate) fn take_back(&self, py: Python<'_>) {
        self.leave(py, Stage::Idle, 0);
    }

    /// Stores the result, and ends the export.
    #[inline]
    pub(crate) fn end(&self, py: Python<'_>, result: Result<u64, BlockStatus>, point: u64) {
        let stage = match result {
            Ok(moved) => Stage::Moved(moved),
            Err(status) => Stage::Failed(status),
        };
        self.leave(py, stage, point);
    }

    #[inline]
    fn leave(&self, py: Python<'_>, stage: Stage, durable_point: u64) {
        let mut state = self.lock();
        state.stage = stage;
        state.durable_point = durable_point;
        let Some(mut export) = state.export.take() else { return };
        drop(state);
        export.release(py);
        // Code that ran there may have submitted the I/O again.
        self.lock().export.get_or_insert(export);
    }
}

impl State {
    fn new(offset: u64, length: u64, data: Option<Py<PyAny>>) -> State {
        let (stage, buffer, export) = (Stage::Idle, None, None);
        State { stage, offset, length, buffer, export, data, durable_point: 0 }
    }

    fn with_buffer(offset: u64, buffer: Py<PyAny>, data: Option<Py<PyAny>>) -> State {
        State { buffer: Some(buffer), ..State::new(offset, 0, data) }
    }

    fn check_not_in_flight(&self) -> PyResult<()> {
        match self.stage {
            Stage::InFlight => Err(misuse("this I/O is in flight; reap it first")),
            _ => Ok(()),
        }
    }
}

/// Returns the union of the flags that are set.
fn flags_of(flags: &[(bool, BioFlags)]) -> BioFlags {
    let set = flags.iter().filter(|(is_set, _)| *is_set);
    set.fold(BioFlags::NONE, |all, (_, flag)| all.union(*flag))
}

/// Returns the priority of these words.
#[cold]
fn priority_of(class: &str, level: i64) -> PyResult<Priority> {
    let priority = format!("{class}/{level}").parse();
    priority.map_err(|bad: BadPriority| PyValueError::new_err(format!("priority: {bad}")))
}

#[pymethods]
impl Io {
    /// Creates a read that fills `buffer` from byte `offset` on. `priority`: a class ("realtime",
    /// "best-effort", "idle") and a level from 0, the highest, to 7. `owner`: the `Owner` whose
    /// limits it counts against.
    #[staticmethod]
    #[pyo3(signature = (
        buffer, offset, *, data=None, nowait=false, nomerge=false, background=false, priority=None,
        owner=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn read(
        buffer: Py<PyAny>,
        offset: u64,
        data: Option<Py<PyAny>>,
        nowait: bool,
        nomerge: bool,
        background: bool,
        priority: Option<(String, i64)>,
        owner: Option<Py<Owner>>,
    ) -> PyResult<Io> {
        let flags = flags_of(&[
            (nowait, BioFlags::NOWAIT),
            (nomerge, BioFlags::NOMERGE),
            (background, BioFlags::BACKGROUND),
        ]);
        let state = State::with_buffer(offset, buffer, data);
        Io::new(Op::Read, flags, state).with_origin(priority, owner)
    }

    /// Creates a write of `buffer` at byte `offset`. `fua`: the data is durable when the write
    /// ends. `preflush`: writes that ended before become durable first.
    #[staticmethod]
    #[pyo3(signature = (
        buffer, offset, *, data=None, fua=false, preflush=false, nowait=false, nomerge=false,
        background=false, priority=None, owner=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn write(
        buffer: Py<PyAny>,
        offset: u64,
        data: Option<Py<PyAny>>,
        fua: bool,
        preflush: bool,
        nowait: bool,
        nomerge: bool,
        background: bool,
        priority: Option<(String, i64)>,
        owner: Option<Py<Owner>>,
    ) -> PyResult<Io> {
        let flags = flags_of(&[
            (fua, BioFlags::FUA),
            (preflush, BioFlags::PREFLUSH),
            (nowait, BioFlags::NOWAIT),
            (nomerge, BioFlags::NOMERGE),
            (background, BioFlags::BACKGROUND),
        ]);
        let state = State::with_buffer(offset, buffer, data);
        Io::new(Op::Write, flags, state).with_origin(priority, owner)
    }

    /// Creates a flush: it makes every write that ended before its submission durable.
    #[staticmethod]
    #[pyo3(signature = (*, data=None))]
    fn flush(data: Option<Py<PyAny>>) -> Io {
        Io::new(Op::Flush, BioFlags::NONE, State::new(0, 0, data))
    }

    /// Creates a discard: the device may free the space of `length` bytes at byte `offset`.
    #[staticmethod]
    #[pyo3(signature = (offset, length, *, data=None, priority=None, owner=None))]
    fn discard(
        offset: u64,
        length: u64,
        data: Option<Py<PyAny>>,
        priority: Option<(String, i64)>,
        owner: Option<Py<Owner>>,
    ) -> PyResult<Io> {
        let state = State::new(offset, length, data);
        Io::new(Op::Discard, BioFlags::NONE, state).with_origin(priority, owner)
    }

    /// Creates a write of zeroes to `length` bytes at byte `offset`.
    #[staticmethod]
    #[pyo3(signature = (offset, length, *, data=None, priority=None, owner=None))]
    fn write_zeroes(
        offset: u64,
        length: u64,
        data: Option<Py<PyAny>>,
        priority: Option<(String, i64)>,
        owner: Option<Py<Owner>>,
    ) -> PyResult<Io> {
        let state = State::new(offset, length, data);
        Io::new(Op::WriteZeroes, BioFlags::NONE, state).with_origin(priority, owner)
    }

    /// Returns the number of bytes moved, fewer than requested only at the end of a file. Raises
    /// `OSError` if the I/O has failed, and `RuntimeError` if it has not ended.
    fn result(&self) -> PyResult<u64> {
        match self.lock().stage {
            Stage::Moved(moved) => Ok(moved),
            Stage::Failed(status) => Err(of_status(status)),
            Stage::InFlight => Err(misuse("this I/O is in flight; reap it first")),
            Stage::Idle => Err(misuse("this I/O has no result: it was not submitted")),
        }
    }

    /// Returns the `OSError` of an I/O that has failed, and otherwise `None`.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let stage = self.lock().stage;
        match stage {
            Stage::Failed(status) => Some(of_status(status).into_value(py).into_any()),
            _ => None,
        }
    }

    /// True if the I/O is submitted and not reaped.
    #[getter]
    fn in_flight(&self) -> bool {
        self.lock().stage == Stage::InFlight
    }

    /// The operation: "read", "write", "flush", "discard" or "write_zeroes".
    #[getter]
    fn op(&self) -> &'static str {
        self.op.name()
    }

    /// The first byte on the disk.
    #[getter]
    fn offset(&self) -> u64 {
        self.lock().offset
    }

    #[setter]
    fn set_offset(&self, offset: u64) -> PyResult<()> {
        let mut state = self.lock();
        state.check_not_in_flight()?;
        state.offset = offset;
        Ok(())
    }

    /// The number of bytes of a discard or of a write of zeroes; 0 for others.
    #[getter]
    fn length(&self) -> u64 {
        self.lock().length
    }

    #[setter]
    fn set_length(&self, length: u64) -> PyResult<()> {
        let mut state = self.lock();
        state.check_not_in_flight()?;
        if !matches!(self.op, Op::Discard | Op::WriteZeroes) {
            return Err(PyValueError::new_err("the length of this I/O is that of its buffer"));
        }
        state.length = length;
        Ok(())
    }

    /// The object with the memory of a read or a write, and otherwise `None`.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.lock().buffer.as_ref().map(|buffer| buffer.clone_ref(py))
    }

    #[setter]
    fn set_buffer(&self, buffer: Py<PyAny>) -> PyResult<()> {
        if !self.op.moves_data() {
            return Err(PyValueError::new_err("only reads and writes have a buffer"));
        }
        let mut state = self.lock();
        state.check_not_in_flight()?;
        let former = state.buffer.replace(buffer);
        // It may run code of the program when it ends.
        drop(state);
        drop(former);
        Ok(())
    }

    /// Any object of the program, for example to identify the I/O after its completion.
    #[getter]
    fn data(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.lock().data.as_ref().map(|data| data.clone_ref(py))
    }

    #[setter]
    fn set_data(&self, data: Option<Py<PyAny>>) {
        let former = std::mem::replace(&mut self.lock().data, data);
        // Dropped after the lock is released, because that may run code of the program.
        drop(former);
    }

    /// The point to wait for until this write is durable (`Disk.wait_durable`). 0 if it is durable
    /// already or nothing was written.
    #[getter]
    fn durable_point(&self) -> u64 {
        self.lock().durable_point
    }

    fn __repr__(&self) -> String {
        let State { stage, offset, .. } = *self.lock();
        let stage = match stage {
            Stage::Idle => "not submitted".to_owned(),
            Stage::InFlight => "in flight".to_owned(),
            Stage::Moved(moved) => format!("{moved} bytes moved"),
            Stage::Failed(status) => format!("failed: {status}"),
        };
        format!("<forebay.Io {} at {}: {stage}>", self.op.name(), offset)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The lock is held only briefly, with the GIL, which the collector has.
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        visit.call(&state.buffer)?;
        visit.call(&self.owner)?;
        visit.call(&state.data)
    }

    fn __clear__(&self) {
        // The export of an I/O in flight has its own reference to the buffer.
        let mut state = self.lock();
        let former = (state.buffer.take(), state.data.take());
        // Dropping the objects may drop the queue of this I/O, which then ends the I/O.
        drop(state);
        drop(former);
    }
}
