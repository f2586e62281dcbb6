//! Disks, with their blocking calls.

use crate::error::{closed, of_io, of_open, of_setting, of_system};
use crate::owner::{self, Owner};
use crate::queue::Queue;
use crate::{blocking, info, open, scheduling, stats, vectored};
use forebay::{BioFlags, ExtentKind, IoError, Op};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::sync::{Mutex, PoisonError};

/// An open disk. Any number of threads may use it at once; the GIL is released while a call waits.
///
/// The spec is that of the library: "disk.img?direct=on", "/dev/vdb", "nbd://host/name", "ram:64M".
/// Offsets and lengths are in bytes, and must be multiples of the logical block size. A call that
/// fails raises `OSError`.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Disk {
    /// `None` once it is closed.
    disk: Mutex<Option<forebay::Disk>>,
}

impl Disk {
    /// Returns a clone of the disk, which keeps it open while a call uses it.
    fn get(&self) -> PyResult<forebay::Disk> {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        disk.clone().ok_or_else(|| closed("disk"))
    }

    /// Runs a call without the GIL.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&forebay::Disk) -> Result<T, IoError> + Send,
    ) -> PyResult<T> {
        let disk = self.get()?;
        // The clone may be the last one. Dropping it then waits for I/O, so that happens here.
        py.detach(move || call(&disk)).map_err(of_io)
    }

    /// Runs a call with the GIL. The call releases the GIL itself.
    fn with<T>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&forebay::Disk) -> PyResult<T>,
    ) -> PyResult<T> {
        let disk = self.get()?;
        let result = call(&disk);
        py.detach(move || drop(disk));
        result
    }

    fn end(&self, py: Python<'_>) {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(move || drop(disk));
    }
}

#[pymethods]
impl Disk {
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<Disk> {
        let disk = py.detach(|| forebay::Disk::open(spec)).map_err(|error| of_open(&error))?;
        Ok(Disk { disk: Mutex::new(Some(disk)) })
    }

    /// Opens the disk that a spec names, as `Disk(spec)` does.
    #[staticmethod]
    fn open(py: Python<'_>, spec: &str) -> PyResult<Disk> {
        Disk::new(py, spec)
    }

    /// Opens a file or block device by its path: str, bytes or a path object. No character has a
    /// special meaning. The options are keys of specs, such as `direct=True`, and `driver`.
    #[staticmethod]
    #[pyo3(signature = (path, **options))]
    fn open_path(
        py: Python<'_>,
        path: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Disk> {
        Ok(Disk { disk: Mutex::new(Some(open::open_path(py, path, options)?)) })
    }

    /// Opens the file or block device of a descriptor, which is duplicated. The options are those
    /// of `open_path`.
    #[staticmethod]
    #[pyo3(signature = (fd, **options))]
    fn open_fd(py: Python<'_>, fd: i32, options: Option<&Bound<'_, PyDict>>) -> PyResult<Disk> {
        Ok(Disk { disk: Mutex::new(Some(open::open_fd(py, fd, options)?)) })
    }

    /// Reads `length` bytes at byte `offset`. Returns fewer only at the end of a file.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.with(py, |disk| blocking::read_at(py, disk, length, offset))
    }

    /// Reads into a writable buffer from byte `offset` on, without a copy. Returns the number of
    /// bytes, fewer than the buffer has only at the end of a file.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<u64> {
        self.with(py, |disk| blocking::readinto(disk, buffer, offset))
    }

    /// Writes a buffer at byte `offset`, and returns the number of bytes. The data is durable after
    /// the next `flush` that succeeds, or at once if `durable` is set.
    #[pyo3(signature = (data, offset, *, durable=false))]
    fn write_at(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        offset: u64,
        durable: bool,
    ) -> PyResult<u64> {
        self.with(py, |disk| blocking::write_at(disk, data, offset, durable))
    }

    /// Reads into several writable buffers, one after the other, from byte `offset` on: one I/O.
    /// Returns the number of bytes.
    fn readv(&self, py: Python<'_>, buffers: &Bound<'_, PyAny>, offset: u64) -> PyResult<u64> {
        let kind = (Op::Read, BioFlags::NONE);
        self.with(py, |disk| vectored::transfer(disk, kind, buffers, offset))
    }

    /// Writes several buffers, one after the other, at byte `offset`: one I/O. Returns the number
    /// of bytes.
    #[pyo3(signature = (buffers, offset, *, durable=false))]
    fn writev(
        &self,
        py: Python<'_>,
        buffers: &Bound<'_, PyAny>,
        offset: u64,
        durable: bool,
    ) -> PyResult<u64> {
        let kind = (Op::Write, if durable { BioFlags::FUA } else { BioFlags::NONE });
        self.with(py, |disk| vectored::transfer(disk, kind, buffers, offset))
    }

    /// Returns which parts of a range hold data: a list of at most `max` pairs of a length and
    /// "data", "zero" or "hole", in order and without gaps.
    #[pyo3(signature = (offset, length, *, max=1024))]
    fn block_status(
        &self,
        py: Python<'_>,
        offset: u64,
        length: u64,
        max: usize,
    ) -> PyResult<Vec<(u64, &'static str)>> {
        let extents = self.wait(py, move |disk| {
            let mut extents = Vec::new();
            disk.block_status(offset, length, max, &mut extents).map(|()| extents)
        })?;
        let pair = |extent: forebay::Extent| {
            let kind = match extent.kind {
                ExtentKind::Data => "data",
                ExtentKind::Zero => "zero",
                ExtentKind::Hole => "hole",
            };
            (extent.len, kind)
        };
        Ok(extents.into_iter().map(pair).collect())
    }

    /// Makes every write that ended before this call durable. After a failure, writes since the
    /// last successful flush may be lost, and later flushes fail too, until `acknowledge_loss`.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, forebay::Disk::flush)
    }

    /// Does the same as `flush`, and makes all metadata of the file durable too.
    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, forebay::Disk::fsync)
    }

    /// Discards `length` bytes at byte `offset`: the device may free their space.
    fn discard(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.wait(py, move |disk| disk.discard(offset, length))
    }

    /// Makes `length` bytes at byte `offset` read as zeroes.
    fn write_zeroes(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.wait(py, move |disk| disk.write_zeroes(offset, length))
    }

    /// Waits until everything up to a durable point is durable: see `Io.durable_point`. Callers
    /// that wait at the same time share a flush.
    fn wait_durable(&self, py: Python<'_>, point: u64) -> PyResult<()> {
        self.wait(py, move |disk| disk.durable(point).wait())
    }

    /// Acknowledges that writes were lost, so that later flushes can succeed. Returns whether any
    /// were.
    fn acknowledge_loss(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait(py, |disk| Ok(disk.acknowledge_loss().is_some()))
    }

    /// Reads the size of the file or block device again. If it has grown, the disk accepts I/O up
    /// to the new size.
    fn grow(&self, py: Python<'_>) -> PyResult<()> {
        let disk = self.get()?;
        let grown = py.detach(move || match disk.reread_size()? {
            Some(size) => disk.grow(size),
            None => Ok(()),
        });
        grown.map_err(|error| of_system(&error))
    }

    /// Lets I/O reach the device again after it was gone (`info()["failed"]`).
    fn revive(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, |disk| {
            disk.revive();
            Ok(())
        })
    }

    /// The size in bytes, or `None` for a file that grows (`capacity=growing`).
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, |disk| Ok(disk.capacity_bytes()))
    }

    /// Returns the properties, features and settings of the disk.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with(py, |disk| info::info(py, disk))
    }

    /// Returns the counters since the disk was opened. Names that end in `_ns` are nanoseconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with(py, |disk| stats::stats(py, &disk.stats()))
    }

    /// Returns the owner of I/O with this name. Adds it if the disk has none: without limits, and
    /// with a weight of 100.
    fn owner(&self, py: Python<'_>, name: &str) -> PyResult<Owner> {
        let disk = self.get()?;
        owner::open(py.detach(move || disk.owner(name)))
    }

    /// Returns a list of all owners, in no particular order.
    fn owners(&self, py: Python<'_>) -> PyResult<Vec<Owner>> {
        let disk = self.get()?;
        Ok(py.detach(move || disk.owners()).into_iter().map(Owner::new).collect())
    }

    /// Returns the present settings of the scheduler as a dict, by their keys in specs.
    fn scheduler<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with(py, |disk| scheduling::scheduler(py, disk))
    }

    /// Changes the scheduler, or its settings, while the disk is in use: `scheduler="mq-deadline"`,
    /// `device_depth=8` and other keys of specs. Settings that are not given stay. The call waits
    /// until admitted I/O has ended, for at most `timeout` seconds.
    #[pyo3(signature = (*, timeout=None, **settings))]
    fn set_scheduler(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        scheduling::set_scheduler(py, self.get()?, timeout, settings)
    }

    /// Sets how many requests may be at the device at once, in each hardware context: the setting
    /// `nr_requests`, 1 to `queue_depth`.
    fn set_nr_requests(&self, py: Python<'_>, nr_requests: u32) -> PyResult<()> {
        let disk = self.get()?;
        let set = py.detach(move || disk.set_nr_requests(nr_requests));
        set.map_err(|error| of_setting(&error))
    }

    /// Returns the present measure of weights as a dict, by its keys in specs.
    fn weight_by<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with(py, |disk| scheduling::weight_by(py, disk))
    }

    /// Sets the measure in which weights of owners divide the disk: `weight_by="ios"` and other
    /// keys of specs. Settings that are not given stay.
    #[pyo3(signature = (**settings))]
    fn set_weight_by(&self, py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        scheduling::set_weight_by(py, self.get()?, settings)
    }

    /// Opens a completion queue for the calling thread.
    fn queue(&self, py: Python<'_>) -> PyResult<Queue> {
        self.with(py, |disk| Ok(Queue::open(py, disk)))
    }

    /// Closes the disk. Calls of other threads and open queues keep it open until they end. Does
    /// not flush.
    fn close(&self, py: Python<'_>) {
        self.end(py);
    }

    /// True if the disk is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> bool {
        self.end(py);
        false
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let text = self.with(py, |disk| Ok(format!("<forebay.Disk {}>", disk.info().spec)));
        text.unwrap_or_else(|_| "<forebay.Disk closed>".to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Dropping the last clone waits for I/O in flight, also without an interpreter.
        Python::try_attach(|py| self.end(py));
    }
}
