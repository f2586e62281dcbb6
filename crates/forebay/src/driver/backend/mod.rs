//! Devices of the library's users: the safe trait [`Backend`], and the driver above it.
//!
//! A back end gets batches of owned requests and ends each of them when it is done: inside of
//! [`Backend::submit`], later, or on another thread. The driver keeps the contract of
//! [`Driver`](crate::driver::Driver) whatever a back end does: the types of [`request`] allow at
//! most one end (K5), counts are checked (K6), and ends outside `submit` only reach a list (K7).
//!
//! - [`request`]: a request and its end, and a batch of requests;
//! - [`body`]: operation, range and memory of a request; [`handle`]: the bodies of a queue, and the
//!   only handle of each;
//! - [`memory`]: access to the memory of a request;
//! - [`queue_state`]: state that the requests of a queue share, and where they go when they end;
//!   [`at_once`]: those that end inside `submit`;
//! - [`driver`]: the device and its queues; [`failure`]: why a back end has failed;
//! - [`stall`]: waits for requests that never end, and their report;
//! - [`future`]: back ends made of futures.

mod at_once;
mod body;
mod driver;
mod failure;
mod future;
mod handle;
mod memory;
mod queue_state;
mod request;
mod stall;
#[cfg(test)]
pub(crate) mod tests;

use crate::extent::Extents;
use crate::info::DiskFacts;
pub(crate) use driver::BackendDriver;
use forebay_core::BlockStatus;
pub use future::AsyncBackend;
pub use request::{Batch, Request};
pub use stall::Stall;
use std::io;
use std::time::Duration;

/// Returns the spec of the disk of a back end, for reports.
pub(crate) fn spec(backend: &dyn Backend) -> String {
    format!("backend:{}", backend.name())
}

/// A device of your own: the layer plugs, merges and batches above it, and it moves the data.
///
/// [`Disk::with_backend`](crate::Disk::with_backend) opens a disk on it, and
/// [`DiskOptions::open_backend`](crate::DiskOptions::open_backend) does so with the options of a
/// disk, such as a service thread. All interfaces of the library then work on that disk, and so
/// does the server.
///
/// # Threads
/// Any thread that uses the disk may call [`submit`](Backend::submit), several at once if the disk
/// has several hardware contexts. Requests may end on any thread.
///
/// `submit` runs inside the layer, which issues nothing else on the hardware context meanwhile. So
/// it should return soon: pass long work to a thread. It may use other disks. It must not wait for
/// I/O of its own disk, which would never end. If it uses its own disk in any other way from the
/// same thread, the process may abort.
///
/// # Failures
/// If `submit` panics, or a thread panics while it has a request, these requests end with
/// [`BlockStatus::Offline`]. The disk fails, and [`Disk::failure`](crate::Disk::failure) gives the
/// reason. Other disks continue. If `submit` panics after it has ended all of its requests, one of
/// them fails. After [`Disk::revive`](crate::Disk::revive) the back end gets requests again.
///
/// # Closing
/// The last handle of the disk waits until each request has ended, as it does for every device, and
/// then drops the back end. If no request ends for 10 s, the wait is reported
/// ([`report_stall`](Backend::report_stall)). A back end that may never end a request needs a time
/// limit ([`Policy::io_timeout_ns`](crate::Policy::io_timeout_ns)). Then I/O with buffers of the
/// library ends with [`BlockStatus::Timeout`] at the end of the limit and its grace period. The
/// close leaks the rest: the buffers ([`leaked_bufs`](crate::leaked_bufs)), and the back end. I/O
/// with borrowed memory, such as [`Disk::read_at`](crate::Disk::read_at), waits for its request
/// regardless: the request may still write to that memory.
///
/// ```
/// use forebay::{Backend, Batch, Disk, Op, Policy, QueueLimits};
/// use std::sync::Mutex;
///
/// /// A disk in memory.
/// struct Memory(Mutex<Vec<u8>>);
///
/// impl Backend for Memory {
///     fn name(&self) -> &str {
///         "memory"
///     }
///
///     fn submit(&self, batch: &mut Batch<'_>) {
///         let mut bytes = self.0.lock().unwrap();
///         for mut request in batch {
///             let range = request.offset() as usize..(request.offset() + request.len()) as usize;
///             match request.op() {
///                 Op::Read => request.copy_from(0, &bytes[range]),
///                 Op::Write => request.copy_to(0, &mut bytes[range]),
///                 _ => {}
///             }
///             request.complete(Ok(()));
///         }
///     }
/// }
///
/// let limits = QueueLimits::default().capacity_bytes(Some(1 << 20));
/// let disk = Disk::with_backend(Memory(Mutex::new(vec![0; 1 << 20])), limits, Policy::default())?;
/// disk.write_at(&[7; 512], 4096)?;
/// let mut read = [0; 512];
/// disk.read_at(&mut read, 4096)?;
/// assert_eq!(read, [7; 512]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Backend: Send + Sync + 'static {
    /// Returns the name of the back end, for reports. The spec of the disk is `backend:NAME`.
    fn name(&self) -> &str;

    /// Begins these requests, in any order. They keep the limits of the disk. Each ends when it is
    /// [completed](Request::complete) or dropped, now or later, on any thread.
    ///
    /// Requests that overlap may be in flight at once, as on any disk. Those that remain in `batch`
    /// end with an I/O error.
    fn submit(&self, batch: &mut Batch<'_>);

    /// Returns known properties of the disk. By default they are those of a disk that keeps its
    /// data, and has nothing special. Called once, at open.
    fn facts(&self) -> DiskFacts {
        DiskFacts::default()
    }

    /// Describes the contents from byte `offset` on: each [`Extents::push`] describes the next
    /// bytes, until [`Extents::left`] is 0. The rest counts as data, and by default all of it.
    ///
    /// Any thread may call this at any time, also during [`submit`](Backend::submit). It may wait.
    ///
    /// # Errors
    /// The status with which the report of extents fails.
    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        let _ = (offset, extents);
        Ok(())
    }

    /// Returns the present size in bytes, for [`Disk::reread_size`](crate::Disk::reread_size) and
    /// [`Disk::grow`](crate::Disk::grow), which accepts I/O up to it. By default `None`: the size
    /// is that of the limits, and cannot change.
    ///
    /// # Errors
    /// The error of a back end that cannot report its size now.
    fn size_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Returns why the device is gone, if it is gone and the reason is known: the text of
    /// [`Disk::failure`](crate::Disk::failure). By default there is none. A request that ends with
    /// [`BlockStatus::Offline`] makes the disk fail.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Reports a wait for requests that the back end does not end: a thread closes the disk, drops
    /// a queue, or waits in a blocking call or for completions, and for
    /// [`stall_time`](Backend::stall_time) no request of the hardware context has ended, except
    /// inside of [`submit`](Backend::submit). By default this writes one line to the standard error
    /// stream.
    ///
    /// Called once for each such period, on the thread that waits. It must not use the disk. A
    /// panic is ignored. The wait continues, because the requests may still use memory of the
    /// caller.
    fn report_stall(&self, stall: &Stall) {
        stall.print();
    }

    /// Returns the time after which a wait is reported if no request ends. The default is 10 s. A
    /// time below 10 ms counts as 10 ms.
    ///
    /// After a panic of the library during I/O, the process aborts if the back end does not end its
    /// requests within this time.
    fn stall_time(&self) -> Duration {
        Duration::from_secs(10)
    }
}
