//! An open disk, with its blocking calls and its administration.
// Blocking calls pass the addresses of borrowed memory to drivers.
#![allow(unsafe_code)]

mod backend;
#[cfg(feature = "tokio")]
mod drive;
mod exact;
mod guest;
mod options;
mod scheduler;
mod tasks;
mod vectored;

pub use guest::GuestSlice;
pub use options::DiskOptions;

use crate::buf::Buf;
use crate::driver;
use crate::error::{FreezeError, IoError, OpenError, OwnerError, SpecError};
use crate::events;
use crate::extent::{Extent, ExtentKind, Extents};
use crate::future::IoFuture;
use crate::info::{DiskInfo, DiskStats};
use crate::io::{Io, segments_of};
use crate::keys::Keys;
use crate::meter::{self, DiskMeter};
use crate::owner::Owner;
use crate::queue::BioQueue;
use crate::runtime::gates::Hold;
use crate::runtime::shared::Shared;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::{
    Bio, BioFlags, BlockStatus, CostModel, Gate, LateRequest, Op, QueueLimits, SubmitErrorKind,
    WeightBy,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// An open disk. A clone is another handle of the same disk and costs little.
///
/// `Disk` is `Send` and `Sync`: any number of threads may use it at once. Only a [`BioQueue`] stays
/// on its thread. A blocking call first unplugs everything that its thread has plugged, which may
/// merge with its own I/O. Then it waits for its own I/O only.
///
/// Offsets and lengths are in bytes and must be whole logical blocks
/// ([`logical_block_size`](QueueLimits::logical_block_size)). Other I/O is refused
/// ([`IoError::Refused`]). With `direct=on`, memory that does not fit the device's alignment is
/// refused too; a [`Buf`](crate::Buf) fits every device. In a child of a fork all I/O is refused.
///
/// Counterpart in Linux: `struct gendisk`.
///
/// ```
/// let disk = forebay::Disk::open("ram:1M")?;
/// disk.write_at(&[1; 512], 4096)?;
/// disk.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Disk {
    pub(crate) shared: Arc<Shared>,
}

impl Disk {
    /// Opens the disk that a spec names. See [`Spec`] for the syntax. [`Disk::options`] accepts
    /// settings by method, paths of any bytes, and open files.
    ///
    /// # Errors
    /// Fails if the spec is invalid, or its file, device or server cannot be opened as it demands.
    /// The text of the error gives the reason and a remedy.
    pub fn open(spec: &str) -> Result<Disk, OpenError> {
        Disk::open_spec(&Spec::parse(spec)?)
    }

    /// Opens the disk that a parsed spec names.
    ///
    /// # Errors
    /// Same as [`Disk::open`].
    pub fn open_spec(spec: &Spec) -> Result<Disk, OpenError> {
        Disk::reported(spec, || Disk::open_parsed(spec))
    }

    /// Opens a disk, and reports the outcome as an event.
    fn reported(
        spec: &Spec,
        open: impl FnOnce() -> Result<Disk, OpenError>,
    ) -> Result<Disk, OpenError> {
        let _span = events::opening(spec);
        let opened = open();
        match &opened {
            Ok(disk) => events::opened(spec, disk.info().driver, disk.capacity_bytes()),
            Err(error) => events::not_opened(spec, error),
        }
        opened
    }

    fn open_parsed(spec: &Spec) -> Result<Disk, OpenError> {
        let mut keys = Keys::of(spec);
        let settings = Settings::take(&mut keys)?;
        let opened = driver::open(spec, &mut keys, &settings)?;
        keys.finish()?;
        let mut limits = opened.device.limits();
        settings.apply(&mut limits)?;
        limits.validate().map_err(|source| OpenError::Limits { spec: spec.to_string(), source })?;
        let policy = settings.policy(opened.defaults)?;
        let policy = Settings::with_depths(policy, &limits)?;
        if policy.elide && !opened.claim.is_sole() {
            return Err(OpenError::Elide { spec: spec.to_string() });
        }
        let tags = settings.tag_set(&policy)?;
        let mut features = opened.features;
        settings.amend(&mut features);
        let service = settings.service(opened.defaults);
        let opened_with = settings.opened_with(opened.defaults);
        let info = DiskInfo {
            spec: spec.to_string(),
            driver: spec.driver(),
            limits,
            policy,
            facts: opened.facts.within(&limits),
            features,
            exclusive: settings.exclusive(),
            lock: opened.claim.lock(),
            takeover_wait_ms: opened.claim.takeover_wait_ms(),
            service,
            tag_set: settings.tag_set_name().map(str::to_owned),
            notice: opened.notice,
            opened_with,
        };
        Ok(Disk::of(Shared::new(info, opened.device, service, tags, opened.claim)?))
    }

    /// Makes the handle of a disk that was just opened.
    fn of(shared: Arc<Shared>) -> Disk {
        meter::list(shared.meters());
        Disk { shared }
    }

    /// Returns the properties and features of the disk.
    pub fn info(&self) -> &DiskInfo {
        self.shared.info()
    }

    /// Returns the effective limits. Their capacity is the one at open
    /// ([`Disk::capacity_bytes`]).
    pub fn limits(&self) -> &QueueLimits {
        &self.info().limits
    }

    /// Returns the size in bytes, or `None` for a file that grows (`capacity=growing`). It is the
    /// size at open, unless [`Disk::grow`] has raised it since.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.shared.capacity_bytes()
    }

    /// Reads the size of the file, the block device, the disk of a vhost-user server, the image of
    /// a cluster, or the back end ([`Backend::size_bytes`](crate::Backend::size_bytes)) again, and
    /// returns it in bytes. `None`: the disk is in memory, on an NBD server, or a snapshot of an
    /// image, and keeps its size while it is open.
    ///
    /// The disk accepts the same I/O as before. If it has grown, [`Disk::grow`] makes the new range
    /// accessible. If a file has become shorter, reads behind its end are short, and writes there
    /// make it longer again. A block device fails both.
    ///
    /// # Errors
    /// Fails if the system or the server cannot report the size, or in a child of a fork.
    pub fn reread_size(&self) -> io::Result<Option<u64>> {
        self.check_not_forked()?;
        self.shared.reread_size()
    }

    /// Accepts I/O up to `size_bytes`, in whole blocks, after the file, the block device, the disk
    /// of a vhost-user server, the image of a cluster, or the back end has grown. All threads may
    /// use the new range when this returns. A disk never shrinks, so a smaller size changes
    /// nothing.
    ///
    /// # Errors
    /// Fails if the file or device is shorter than `size_bytes`, or if the size of the disk is
    /// fixed while it is open. Fails also if the system or the server cannot report the size, or in
    /// a child of a fork.
    ///
    /// Counterpart in Linux: `set_capacity_and_notify`.
    ///
    /// ```
    /// use forebay::Disk;
    ///
    /// # let folder = std::env::temp_dir().join(format!("forebay-size-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let path = folder.join("disk.img");
    /// std::fs::write(&path, [0; 4096])?;
    /// let disk = Disk::open(&path.display().to_string())?;
    /// std::fs::OpenOptions::new().write(true).open(&path)?.set_len(8192)?;
    /// assert_eq!(disk.reread_size()?, Some(8192));
    /// assert_eq!(disk.capacity_bytes(), Some(4096));
    /// disk.grow(8192)?;
    /// assert_eq!(disk.capacity_bytes(), Some(8192));
    /// disk.write_at(&[1; 4096], 4096)?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow(&self, size_bytes: u64) -> io::Result<()> {
        self.check_not_forked()?;
        self.shared.grow(size_bytes)?;
        events::changed(&self.info().spec, "size_bytes", &size_bytes);
        Ok(())
    }

    fn check_not_forked(&self) -> io::Result<()> {
        match self.shared.is_after_fork() {
            true => Err(io::Error::other(SubmitErrorKind::Forked)),
            false => Ok(()),
        }
    }

    /// Returns the counters since the disk was opened. Does not stop I/O, so counters that change
    /// meanwhile may not match each other.
    pub fn stats(&self) -> DiskStats {
        self.shared.stats()
    }

    /// Returns a reader of the counters that does not keep the disk open.
    pub fn meter(&self) -> DiskMeter {
        DiskMeter::new(Arc::clone(self.shared.meters()))
    }

    /// Creates a completion queue on this disk, for the calling thread.
    pub fn queue(&self) -> BioQueue {
        BioQueue::new(Arc::clone(&self.shared))
    }

    /// Returns whether queues of this disk can register memory of their callers
    /// ([`BioQueue::register_memory`]). Only files that use io_uring, without `fixed_buffers`, can.
    pub fn can_register_memory(&self) -> bool {
        self.shared.can_register_memory()
    }

    /// Allocates a buffer of `len` zero bytes from the memory that the disk has registered with its
    /// device (`fixed_buffers=`). The kernel need not look up and pin such memory for each I/O. If
    /// none is free, or none is registered, the buffer is from the heap.
    ///
    /// The buffer works with every disk, and may outlive this one.
    ///
    /// # Panics
    /// Same as [`Buf::new`].
    ///
    /// ```
    /// use forebay::{Disk, Io};
    ///
    /// let disk = Disk::open("ram:1M")?; // or "disk.img?fixed_buffers=64M"
    /// let mut queue = disk.queue();
    /// queue.submit(Io::read(disk.buf(4096), 0))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn buf(&self, len: usize) -> Buf {
        let registered = self.shared.arena().and_then(|arena| Buf::new_in(arena, len));
        registered.unwrap_or_else(|| Buf::new(len))
    }

    /// Reads `buf.len()` bytes at byte `offset`, and waits until they are read. Returns the number
    /// of bytes read, which is less than `buf.len()` only at the end of a file.
    ///
    /// # Errors
    /// Fails if the read is refused, or if it ends with a failure. After a failure the contents of
    /// `buf` are unspecified.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, IoError> {
        let segments = segments_of(buf.as_mut_ptr().expose_provenance(), buf.len());
        let bio = Bio { segments, ..Bio::range(Op::Read, offset, buf.len() as u64) };
        // SAFETY: the memory is all of `buf`, borrowed mutably until this returns.
        unsafe { self.run(bio) }.map(|len| len as usize)
    }

    /// Writes `buf` at byte `offset`, and waits until it is written. Returns the number of bytes
    /// written. The data is durable after the next [`flush`](Disk::flush) that succeeds.
    ///
    /// # Errors
    /// Fails if the write is refused, or if it ends with a failure. After a failure the contents of
    /// the range are unspecified.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize, IoError> {
        let segments = segments_of(buf.as_ptr().expose_provenance(), buf.len());
        let bio = Bio { segments, ..Bio::range(Op::Write, offset, buf.len() as u64) };
        // SAFETY: the memory is all of `buf`, borrowed until this returns.
        unsafe { self.run(bio) }.map(|len| len as usize)
    }

    /// Makes every write that ended before this call durable, and waits until it is. On a file this
    /// is `fdatasync`. A thread that owns a hardware context first waits until the requests of that
    /// context have completed.
    ///
    /// # Errors
    /// Fails if the flush fails. Then all writes since the last successful flush may be lost. Later
    /// flushes fail too, until the loss is [acknowledged](Disk::acknowledge_loss).
    pub fn flush(&self) -> Result<(), IoError> {
        self.run_without_memory(Bio::flush())
    }

    /// Discards `len` bytes at byte `offset`: the device may free their space. The contents of the
    /// range afterwards depend on the device. Waits until the discard has ended.
    ///
    /// # Errors
    /// Fails if the discard is refused, or if it ends with a failure.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.run_without_memory(Bio::range(Op::Discard, offset, len))
    }

    /// Makes `len` bytes at byte `offset` read as zeroes, and waits until they do.
    ///
    /// # Errors
    /// Fails if the operation is refused, or if it ends with a failure.
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.run_without_memory(Bio::range(Op::WriteZeroes, offset, len))
    }

    /// Reports which parts of `len` bytes at byte `offset` hold data. Clears `out`, and fills it
    /// with at most `max` extents, in order and without gaps. The extents never exceed the range or
    /// the end of the disk. Unknown content is [`ExtentKind::Data`].
    ///
    /// Each extent costs a few system calls, which move no data. The call may wait for the device.
    /// It bypasses the layer: for I/O that has not ended, it may report the state before or after.
    ///
    /// # Errors
    /// [`IoError::Ended`] if the device cannot report extents, or is gone. [`IoError::Refused`] in
    /// a child of a fork.
    ///
    /// Counterparts: `SEEK_DATA` and `SEEK_HOLE` of `lseek`; `NBD_CMD_BLOCK_STATUS`.
    ///
    /// ```
    /// use forebay::{Disk, Extent, ExtentKind};
    ///
    /// let (disk, mut extents) = (Disk::open("ram:1M")?, Vec::new());
    /// disk.block_status(4096, 8192, 16, &mut extents)?;
    /// assert_eq!(extents, [Extent { len: 8192, kind: ExtentKind::Data }]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_status(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), IoError> {
        if self.shared.is_after_fork() {
            return Err(SubmitErrorKind::Forked.into());
        }
        if self.is_failed() {
            return Err(BlockStatus::Offline.into());
        }
        let len = match self.capacity_bytes() {
            Some(capacity) => len.min(capacity.saturating_sub(offset)),
            None => len.min(u64::MAX - offset),
        };
        let mut extents = Extents::new(out, len, max);
        self.shared.device().block_status(offset, &mut extents)?;
        extents.finish(ExtentKind::Data);
        Ok(())
    }

    /// Returns an I/O as a future, which submits it when it is polled. [`IoFuture`] documents what
    /// makes progress while the task sleeps: by default a thread of the disk, which the first
    /// future starts. If the I/O is refused, the future returns why.
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     struct Unpark(std::thread::Thread);
    /// #     impl std::task::Wake for Unpark {
    /// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
    /// #     }
    /// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
    /// #             std::task::Poll::Ready(output) => return output,
    /// #             std::task::Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// use forebay::{Buf, Disk, Io};
    ///
    /// let disk = Disk::open("ram:1M")?; // or "disk.img?direct=on", "/dev/vdb", ...
    /// let read = block_on(async { disk.start(Io::read(Buf::new(4096), 0)).await })?;
    /// assert_eq!(read.result, Ok(4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(&self, io: Io) -> IoFuture {
        IoFuture::new(Arc::clone(&self.shared), io)
    }

    /// Sets how many tags each hardware context may have in use (the setting `nr_requests`).
    /// Requests that have a tag keep it. At least one tag remains for I/O that is not reserved,
    /// however low the number. With a scheduler, requests with a tag wait in it, and `device_depth`
    /// of them may be at the driver at once.
    ///
    /// May be called while the disk is in use. A hardware context that a thread owns applies it at
    /// its next turn. [`Disk::info`] still returns the setting that the disk was opened with.
    ///
    /// # Errors
    /// [`SpecError::BadValue`] if the number is 0, or greater than the disk's `queue_depth`.
    ///
    /// Counterpart in Linux: `/sys/block/X/queue/nr_requests`.
    pub fn set_nr_requests(&self, nr_requests: u32) -> Result<(), SpecError> {
        if !(1..=self.info().policy.queue_depth).contains(&nr_requests) {
            return Err(SpecError::BadValue {
                key: String::from("nr_requests"),
                value: nr_requests.to_string(),
                expected: "a number from 1 to the queue_depth of the open disk".into(),
            });
        }
        self.shared.set_nr_requests(nr_requests);
        events::changed(&self.info().spec, "nr_requests", &nr_requests);
        Ok(())
    }

    /// Returns the top-level owner of I/O with this name. Adds it if there is none: without limits,
    /// and with a weight of 100. See [`Owner`].
    ///
    /// From then on all I/O of the disk passes through the queues of owners, which costs about
    /// 250 instructions for each I/O.
    ///
    /// # Errors
    /// Fails if the name is empty or that of a child of another owner, or if the disk emulates an
    /// earlier system.
    pub fn owner(&self, name: &str) -> Result<Owner, OwnerError> {
        Ok(Owner::new(Arc::clone(&self.shared), self.shared.owner(name, None)?))
    }

    /// Returns all owners of the disk, in no particular order.
    pub fn owners(&self) -> Vec<Owner> {
        let owners = self.shared.all_owners().into_iter();
        owners.map(|owner| Owner::new(Arc::clone(&self.shared), owner)).collect()
    }

    /// Sets the measure in which weights of owners divide the disk, while it is in use. Until then
    /// it is that of the keys `weight_by`, `cost_read_io_ns` and so on, and [`Disk::info`] still
    /// returns these. I/O that was started before does not count for the
    /// shares. The cost applies with
    /// [`WeightBy::Cost`](crate::WeightBy::Cost) only.
    ///
    /// Counterpart in Linux: `io.cost.model`, for cgroups.
    ///
    /// ```
    /// use forebay::{CostModel, Disk, WeightBy};
    ///
    /// let disk = Disk::open("ram:1M?nr_hw_queues=1&weight_by=ios")?;
    /// // A device of 50,000 reads and 10,000 writes per second, at 2 GB/s and 500 MB/s.
    /// disk.set_weight_by(WeightBy::Cost, CostModel::new(20_000, 500, 100_000, 2000));
    /// # Ok::<(), forebay::OpenError>(())
    /// ```
    pub fn set_weight_by(&self, by: WeightBy, cost: CostModel) {
        self.shared.set_weight_measure(by, cost);
        events::changed(&self.info().spec, "weight_by", &by.name());
    }

    /// Returns the present measure of weights. It is that of the disk's spec, unless
    /// [`Disk::set_weight_by`] has changed it since.
    pub fn weight_by(&self) -> (WeightBy, CostModel) {
        self.shared.weight_measure()
    }

    /// Freezes the disk: it admits no more I/O, and this call waits until all admitted I/O has
    /// ended. A thread that owns a hardware context has to reap its I/O meanwhile; a blocking call
    /// does so. A request whose I/O has ended because of its time limit (`io_timeout_ms`) may still
    /// be at the device.
    ///
    /// While the hold lives, blocking calls wait, submitted I/O is kept, and I/O with
    /// [`nowait`](Io::nowait) ends with [`BlockStatus::Again`](crate::BlockStatus::Again). This
    /// includes the thread that keeps the hold: its own blocking calls never return. The same is
    /// true of [`quiesce`](Disk::quiesce) and [`stop`](Disk::stop).
    ///
    /// Counterpart in Linux: `blk_mq_freeze_queue`.
    ///
    /// # Errors
    /// [`FreezeError::Quiesced`] or [`FreezeError::Stopped`] if another hold, of this thread or
    /// another, keeps admitted I/O from the driver. I/O that the driver has ends all the same, and
    /// `freeze` waits for it.
    ///
    /// ```
    /// use forebay::{Buf, Disk, FreezeError, Io};
    ///
    /// let disk = Disk::open("ram:1M")?;
    /// let mut queue = disk.queue();
    /// let quiesced = disk.quiesce();
    /// queue.submit(Io::read(Buf::new(4096), 0))?;
    /// assert!(matches!(disk.freeze(), Err(FreezeError::Quiesced { .. })));
    /// drop(quiesced);
    /// let frozen = disk.freeze()?; // the read has ended
    /// # drop(frozen);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn freeze(&self) -> Result<Hold, FreezeError> {
        self.freeze_within(None)
    }

    /// Freezes the disk as [`freeze`](Disk::freeze) does, but waits at most for `timeout`.
    ///
    /// # Errors
    /// Same as `freeze`. Also [`FreezeError::TimedOut`] if admitted I/O has not ended in that time;
    /// the disk then admits I/O again.
    pub fn freeze_timeout(&self, timeout: Duration) -> Result<Hold, FreezeError> {
        self.freeze_within(Some(timeout))
    }

    fn freeze_within(&self, timeout: Option<Duration>) -> Result<Hold, FreezeError> {
        let hold = Hold::new(&self.shared, Gate::Frozen);
        hold.await_drained(timeout)?;
        Ok(hold)
    }

    /// Quiesces the disk: after this returns, the layer passes no request to the driver. Requests
    /// that the driver already has end as usual.
    ///
    /// Counterpart in Linux: `blk_mq_quiesce_queue`.
    pub fn quiesce(&self) -> Hold {
        let hold = Hold::new(&self.shared, Gate::Quiesced);
        hold.await_turns();
        hold
    }

    /// Stops the disk: same as [`Disk::quiesce`], but does not wait for threads that are passing
    /// requests to the driver at the moment.
    ///
    /// Counterpart in Linux: `blk_mq_stop_hw_queues`.
    pub fn stop(&self) -> Hold {
        Hold::new(&self.shared, Gate::Stopped)
    }

    /// Returns whether the device is gone: some I/O has ended with
    /// [`BlockStatus::Offline`](crate::BlockStatus::Offline), or was not completed within
    /// `io_timeout_ms` and `io_timeout_grace_ms`. All I/O that is not yet at the driver
    /// ends with that status until [`Disk::revive`] is called.
    pub fn is_failed(&self) -> bool {
        self.shared.device_state().is_failed()
    }

    /// Returns why the device is gone, as a text for people. `None` if the device works, or its
    /// driver has no reason to report. For an NBD export: why the connection was given up.
    pub fn failure(&self) -> Option<String> {
        if self.shared.device_state().is_given_up() {
            return Some(self.shared.info().no_answer());
        }
        self.shared.device().failure()
    }

    /// Removes and returns the requests that have exceeded their time limit (`io_timeout_ms`) since
    /// the last call, oldest first. Keeps at most the last 256. For logs.
    pub fn take_late_requests(&self) -> Vec<LateRequest> {
        match self.shared.is_after_fork() {
            true => Vec::new(),
            false => self.shared.late().take(),
        }
    }

    /// Lets I/O reach the device again after it was gone. Call it when the device is back. A write
    /// that has ended because of its time limit may still be at the device. Until it has completed,
    /// I/O that overlaps it ends with [`BlockStatus::Offline`](crate::BlockStatus::Offline). If I/O
    /// waits behind such a request and nothing reaches the device for both time limits, the device
    /// counts as gone again.
    pub fn revive(&self) {
        self.shared.device().revived();
        if self.shared.device_state().revive() {
            events::revived(&self.info().spec);
        }
    }

    /// Submits a bio whose memory belongs to the caller, and waits until it has ended. Returns the
    /// number of bytes moved. The blocking form of [`BioQueue::submit_raw`], for callers without
    /// slices: bindings of other languages, and memory that other programs may change.
    ///
    /// # Errors
    /// Fails if the bio is refused, or if it ends with a failure.
    ///
    /// # Safety
    /// These conditions must hold until this returns:
    ///
    /// - For a write, each segment is memory that is valid for reads, and no code writes to it.
    /// - For a read, each segment is memory that is valid for writes, and no other code reads it or
    ///   writes to it.
    ///
    /// Each address must come from a pointer whose provenance is exposed.
    ///
    /// ```
    /// use forebay::{Bio, Disk, Op, Segment, Segments};
    ///
    /// let disk = Disk::open("ram:1M")?;
    /// let mut parts = [[0_u8; 512]; 2];
    /// let segments = parts.each_mut().map(|part| Segment {
    ///     addr: part.as_mut_ptr().expose_provenance(),
    ///     len: 512,
    /// });
    /// let segments = Segments::Many(segments.into());
    /// let bio = Bio { segments, ..Bio::range(Op::Read, 0, 1024) };
    /// // SAFETY: the memory is borrowed by this function, which does not use it meanwhile.
    /// assert_eq!(unsafe { disk.run_raw(bio) }?, 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn run_raw(&self, bio: Bio) -> Result<u64, IoError> {
        // The caller may use its memory again when the bio ends, so it must not end early (H2).
        let bio = Bio { flags: bio.flags.without(BioFlags::OWNED), ..bio };
        // SAFETY: the caller keeps the conditions.
        unsafe { self.run(bio) }
    }

    pub(crate) fn run_without_memory(&self, bio: Bio) -> Result<(), IoError> {
        assert!(bio.segments.as_slice().is_empty());
        // SAFETY: there is no memory.
        unsafe { self.run(bio) }.map(|_| ())
    }

    /// Submits a bio and waits until it has ended.
    ///
    /// # Safety
    /// Until this returns, the memory of `bio` must be valid for the operation. Until then no other
    /// code may write to it, nor, for a read, access it at all.
    pub(crate) unsafe fn run(&self, bio: Bio) -> Result<u64, IoError> {
        // SAFETY: the caller's obligations are passed on.
        Ok(unsafe { self.shared.run(bio) }??)
    }
}
