//! Contract of drivers: the public traits, and their connection with the layer.
//!
//! The rules K1-K8 below are those of `forebay_core::Driver`, in words for authors of unsafe code.
//!
//! - [`facts`]: the facts about a driver that do not change;
//! - [`wait`]: how threads wait for the completions of a queue;
//! - [`forward`]: wrappers of drivers;
//! - [`device`]: a driver as a device of the layer;
//! - [`checked`]: a driver that is not trusted, with a check of each completion.
// The traits are unsafe.
#![allow(unsafe_code)]

mod checked;
mod device;
mod facts;
mod forward;
mod wait;

pub(crate) use checked::Checked;
pub(crate) use device::DriverDevice;
pub use facts::Facts;
pub use wait::{BlockingWait, Wait};

use crate::driver::Mode;
use crate::extent::Extents;
use forebay_core::{BlockStatus, Completions, IssuedRequest, Reap, Tag};
use std::io;

/// An open device, whose queues access the memory of requests by address.
///
/// [`Disk::with_driver`](crate::Disk::with_driver) opens a disk on it. Each hardware context of the
/// disk has one [`Queue`]. A device that can work with owned requests should implement the safe
/// trait [`Backend`](crate::Backend) instead; a driver is for devices that need addresses, tags or
/// a wait of their own.
///
/// No method has a default. So a wrapper of another driver does not compile until it passes on, or
/// replaces, each method; [`forward!`](crate::driver::forward) passes them on.
///
/// # Safety
/// The layer frees the memory of a request, or lets other code use it, after its completion was
/// reaped. It trusts the driver to be done with it. For each queue, the implementor promises:
///
/// - K5 each request that [`Queue::queue_rq`] accepts completes exactly once, in any order, and the
///   driver does not access its memory after the completion;
/// - K6 a completion of `n` bytes means that the first `n` bytes of the request were moved (unless
///   [`DiskFacts::keeps_data`](crate::DiskFacts::keeps_data) is false). For a write it also means
///   that no others were, if the limits say
///   [`exact_counts`](crate::QueueLimits::exact_counts). A short count is a multiple of the logical
///   block size;
/// - K7 no method of a driver, and no thread of it that the layer may wait for, uses the disk.
///   Completions leave the driver through [`Queue::reap`] only.
///
/// A write that completes after a successful flush began may be volatile; each one that completed
/// before the flush was issued is durable when the flush completes. A request with
/// [`fua`](IssuedRequest::fua) is durable when it completes. A flush with
/// [`metadata`](IssuedRequest::metadata) includes metadata.
///
/// In return, the layer promises:
///
/// - K1 a tag is issued again only after its completion was reaped;
/// - K2 the memory of a request stays valid, and no other code uses it, until its completion was
///   reaped. If the queue is dropped because of a time limit, the memory stays valid forever;
/// - K3 requests keep the limits of [`Facts::limits`];
/// - K4 a series of [`Queue::queue_rq`] is followed by [`Queue::commit_rqs`];
/// - K8 after a kick ([`BlockingWait::kick`]), [`Queue::reap`] is called when the waiting thread
///   has returned.
///
/// # Checks
/// The layer checks each completion of a driver of this kind: its tag is in flight, and its count
/// is at most the length of the request. A driver that breaks this, or panics in a method or the
/// destructor of a queue, aborts the process with one line on the standard error stream, because
/// its requests may still use memory that would be freed. A request that never completes keeps its
/// memory, and every wait for it continues, unless the disk has a time limit
/// ([`Policy::io_timeout_ns`](crate::Policy::io_timeout_ns)).
///
/// # Forks
/// A child of a fork calls no method of a queue, and drops none. It may drop the driver:
/// [`kit::ForkGuard`](crate::driver::kit::ForkGuard) detects that.
///
/// ```
/// use forebay::driver::{
///     Answer, Completions, Driver, Facts, IssuedRequest, Mode, Queue, Reap, Tag, Wait,
/// };
/// use forebay::{BlockStatus, Disk, Extents, Op, Policy, QueueLimits};
/// use std::io;
///
/// /// A disk that reads as ones, and ignores writes.
/// struct Ones;
/// struct OnesQueue(Completions);
///
/// // SAFETY: each request completes once, with all of its bytes, before `queue_rq` returns.
/// unsafe impl Driver for Ones {
///     type Queue = OnesQueue;
///
///     fn facts(&self) -> Facts {
///         Facts::new("ones", QueueLimits::default().capacity_bytes(Some(1 << 20)))
///     }
///
///     fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(OnesQueue, Wait)> {
///         Ok((OnesQueue(Completions::new(depth)), Wait::AtOnce))
///     }
///
///     fn block_status(&self, _: u64, _: &mut Extents<'_>) -> Result<(), BlockStatus> {
///         Ok(())
///     }
///
///     fn size_bytes(&self) -> io::Result<Option<u64>> {
///         Ok(None)
///     }
///
///     fn failure(&self) -> Option<String> {
///         None
///     }
/// }
///
/// // SAFETY: as above.
/// unsafe impl Queue for OnesQueue {
///     fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
///         for segment in rq.segments().filter(|_| rq.op == Op::Read) {
///             let memory = std::ptr::with_exposed_provenance_mut::<u8>(segment.addr);
///             // SAFETY: the memory of a read is valid for writes until it completes (K2).
///             unsafe { memory.write_bytes(1, segment.len as usize) };
///         }
///         self.0.push(rq.tag, Ok(rq.len));
///         Answer::Queued
///     }
///
///     fn commit_rqs(&mut self) {}
///
///     fn reap(&mut self, done: &mut Completions, _how: Reap) {
///         done.append(&mut self.0);
///     }
///
///     fn cancel(&mut self, _tag: Tag) -> bool {
///         false
///     }
///
///     fn has_ready(&self) -> bool {
///         !self.0.is_empty()
///     }
///
///     fn nr_syscalls(&self) -> Option<u64> {
///         None
///     }
/// }
///
/// let disk = Disk::with_driver(Ones, Policy::default())?;
/// let mut read = [0; 512];
/// disk.read_at(&mut read, 4096)?;
/// assert_eq!(read, [1; 512]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Counterpart in Linux: `struct blk_mq_tag_set`.
pub unsafe trait Driver: Send + Sync + 'static {
    /// The type of the queues.
    type Queue: Queue;

    /// Returns the facts that do not change. Called once, at open.
    fn facts(&self) -> Facts;

    /// Opens a queue for requests with the tags 0 to `depth - 1`, and returns how a thread waits
    /// for its completions. All queues of a driver wait in the same way. With [`Mode::Owned`], the
    /// calling thread is the only one that uses the queue.
    ///
    /// # Errors
    /// The system's error if it has no resources for another queue. The disk is not opened if this
    /// is its first queue. Otherwise the thread that would own the queue shares the first one.
    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<(Self::Queue, Wait)>;

    /// Describes the contents from byte `offset` on: each [`Extents::push`] describes the next
    /// bytes, until [`Extents::left`] is 0. The rest counts as data. May wait for the device. Any
    /// thread may call this at any time, even while queues work.
    ///
    /// # Errors
    /// The status with which the report of extents fails.
    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus>;

    /// Returns the present size in bytes, for [`Disk::reread_size`](crate::Disk::reread_size) and
    /// [`Disk::grow`](crate::Disk::grow), which accepts I/O up to it. `None`: the size is that of
    /// the limits, and cannot change. May wait for the device.
    ///
    /// # Errors
    /// The error of a device that cannot report its size now.
    fn size_bytes(&self) -> io::Result<Option<u64>>;

    /// Returns why the device is gone, if it is gone and the reason is known: the text of
    /// [`Disk::failure`](crate::Disk::failure). A request that completes with
    /// [`BlockStatus::Offline`] makes the disk fail.
    fn failure(&self) -> Option<String>;
}

/// A queue of a [`Driver`]: one for each hardware context, used by one thread at a time. Meanwhile
/// another thread may wait for its completions ([`Wait`]).
///
/// The layer drops a queue when all of its requests were reaped, or have exceeded their time limit.
///
/// # Safety
/// The implementor keeps K5 to K7 of [`Driver`]. No method blocks, and none panics. After a panic
/// of the layer, the queue may be dropped with requests in flight: then it waits until they are
/// done, or aborts the process, because their memory may be freed next. With a completion list,
/// [`wait_for_all`](crate::driver::kit::CompletionList::wait_for_all) is that wait.
///
/// Counterpart in Linux: `struct blk_mq_ops`.
pub unsafe trait Queue: Send {
    /// Accepts a request. `last` is a hint that no other request follows at once, so a driver that
    /// gathers batches may begin. A driver may rely on `commit_rqs` alone.
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Answer;

    /// Begins everything that was queued, if possible with at most one system call for the batch.
    fn commit_rqs(&mut self);

    /// Appends completions to `done`, in the order of completion. With [`Reap::Full`], it appends
    /// all that are present, by a system call if needed, and a poll descriptor is not readable
    /// afterwards because of them.
    fn reap(&mut self, done: &mut Completions, how: Reap);

    /// Asks the device to give up the request of a tag in flight. The request still completes:
    /// with [`BlockStatus::Timeout`] if it was given up, or else with its own result. Begins
    /// everything that was queued. Returns false if the device cannot be asked.
    fn cancel(&mut self, tag: Tag) -> bool;

    /// Returns whether completions can be reaped that no wait announces. The layer calls this after
    /// it has issued requests, and reaps until there are none.
    fn has_ready(&self) -> bool;

    /// Returns the number of system calls made for this queue since it was opened, for reports. It
    /// includes the calls of the [`BlockingWait`] that [`BlockingWait::nr_syscalls`] does not
    /// count. A queue that returns `None` does so from the first call on: it makes no system calls,
    /// does not report them, or leaves the count to its wait.
    fn nr_syscalls(&self) -> Option<u64>;
}

/// The answer of [`Queue::queue_rq`]. Counterpart in Linux: `blk_status_t`.
//
// The core's `Issue` without `Begun`: no driver of this contract leaves a request to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accepted. A completion will follow.
    Queued,
    /// Not accepted: the layer tries again when a request has completed, or after 3 ms.
    Busy,
    /// Not accepted: the request fails with this status, and no completion follows.
    Failed(BlockStatus),
}
