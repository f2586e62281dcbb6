//! The disk: what a user opens, and its blocking calls.
// It vouches for borrowed memory.
#![allow(unsafe_code)]

use crate::buf::Buf;
use crate::driver;
use crate::error::{FreezeError, IoError, OpenError, SpecError};
use crate::extent::{Extent, ExtentKind, Extents};
use crate::future::IoFuture;
use crate::info::{DiskInfo, DiskStats};
use crate::io::{Io, segments_of};
use crate::keys::Keys;
use crate::queue::BioQueue;
use crate::runtime::gates::Hold;
use crate::runtime::shared::Shared;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::{Bio, BlockStatus, Gate, Op, QueueLimits, Refusal};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// An open disk. Handles are cheap to clone and name the same disk.
///
/// Blocking calls wait for their own I/O; everything that the thread has plugged goes first, and
/// merges with it. Any number of threads may use a disk at once: it is `Send` and `Sync`, and what
/// stays on its thread is a [`BioQueue`].
///
/// Offsets and lengths are bytes, and whole logical blocks
/// ([`logical_block_size`](QueueLimits::logical_block_size)); what is not is refused. So is, with
/// `direct=on`, memory that does not suit the device (a [`Buf`](crate::Buf) does); and all I/O in a
/// child of a fork.
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
    /// Opens the disk that a spec names. See [`Spec`] for the grammar.
    ///
    /// # Errors
    /// What is wrong with the spec, or with what it names, and what to do.
    pub fn open(spec: &str) -> Result<Disk, OpenError> {
        Disk::open_spec(&Spec::parse(spec)?)
    }

    /// Opens the disk that a parsed spec names.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn open_spec(spec: &Spec) -> Result<Disk, OpenError> {
        let mut keys = Keys::of(spec);
        let settings = Settings::take(&mut keys)?;
        let opened = driver::open(spec, &mut keys, &settings)?;
        keys.finish()?;
        let mut limits = opened.device.limits();
        settings.apply(&mut limits);
        limits.validate().map_err(|source| OpenError::Limits { spec: spec.to_string(), source })?;
        let policy = settings.policy(opened.defaults)?;
        if policy.elide && !opened.claim.is_sole() {
            return Err(OpenError::Elide { spec: spec.to_string() });
        }
        let tags = settings.tag_set(&policy)?;
        let mut features = opened.features;
        settings.amend(&mut features);
        let info = DiskInfo {
            spec: spec.to_string(),
            driver: spec.driver(),
            limits,
            policy,
            facts: opened.facts.within(&limits),
            features,
            exclusive: settings.exclusive(),
            notice: opened.notice,
        };
        let service = settings.service(opened.defaults);
        Ok(Disk { shared: Shared::new(info, opened.device, service, tags, opened.claim)? })
    }

    /// What the disk is and can do.
    pub fn info(&self) -> &DiskInfo {
        self.shared.info()
    }

    /// The limits in force.
    pub fn limits(&self) -> &QueueLimits {
        &self.info().limits
    }

    /// The size, bytes; `None` where it grows.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.limits().capacity_bytes
    }

    /// The counters so far.
    pub fn stats(&self) -> DiskStats {
        self.shared.stats()
    }

    /// A new queue of completions on this disk.
    pub fn queue(&self) -> BioQueue {
        BioQueue::new(Arc::clone(&self.shared))
    }

    /// A buffer of `len` zero bytes, from the memory that the disk has registered with its device
    /// (`fixed_buffers=`), which spares the device looking it up for each I/O; from the heap where
    /// that is used up, or there is none. It suits every disk, and may outlive this one.
    ///
    /// # Panics
    /// As [`Buf::new`].
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

    /// Reads `buf.len()` bytes from `offset` on. Says how many: fewer only at the end of a file.
    ///
    /// # Errors
    /// Why it was refused, or why it failed: what `buf` holds then is not known.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<u64, IoError> {
        let segments = segments_of(buf.as_mut_ptr().expose_provenance(), buf.len());
        let bio = Bio { segments, ..Bio::range(Op::Read, offset, buf.len() as u64) };
        // SAFETY: the memory is all of `buf`, borrowed mutably until this returns.
        unsafe { self.run(bio) }
    }

    /// Writes `buf` at `offset`. It is durable after the next [`flush`](Disk::flush).
    ///
    /// # Errors
    /// Why it was refused, or why it failed.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<u64, IoError> {
        let segments = segments_of(buf.as_ptr().expose_provenance(), buf.len());
        let bio = Bio { segments, ..Bio::range(Op::Write, offset, buf.len() as u64) };
        // SAFETY: the memory is all of `buf`, borrowed until this returns.
        unsafe { self.run(bio) }
    }

    /// Makes every write that has ended durable; of a file, as `fdatasync` does.
    ///
    /// # Errors
    /// Why it failed: then nothing is known of what was written since the last flush. Also where an
    /// earlier one did, as long as nobody has [acknowledged](Disk::acknowledge_loss) that.
    pub fn flush(&self) -> Result<(), IoError> {
        self.run_without_memory(Bio::flush())
    }

    /// Says that `len` bytes from `offset` on are not needed any more. What they read as is the
    /// disk's choice.
    ///
    /// # Errors
    /// Why it was refused, or why it failed.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.run_without_memory(Bio::range(Op::Discard, offset, len))
    }

    /// Makes `len` bytes from `offset` on read as zeroes.
    ///
    /// # Errors
    /// Why it was refused, or why it failed.
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.run_without_memory(Bio::range(Op::WriteZeroes, offset, len))
    }

    /// Tells what is known of `len` bytes from `offset` on: `out`, whose contents are forgotten,
    /// gets at most `max` extents, front to back, without gaps, never more than was asked for and
    /// never beyond the end of the disk. What is unknown is [`ExtentKind::Data`]. Costs a few
    /// system calls for each extent, none of which moves data; may wait for the device, beside the
    /// layer: what was submitted and has not ended may be told as it was before.
    ///
    /// # Errors
    /// [`IoError::Ended`]: why the device cannot tell. [`IoError::Refused`]: in a child of a fork.
    ///
    /// Counterparts: `SEEK_DATA` and `SEEK_HOLE`; `NBD_CMD_BLOCK_STATUS`.
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
        if self.shared.is_foreign() {
            return Err(Refusal::Forked.into());
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

    /// Makes the progress that can be made at once on the I/O of futures, and of all others that
    /// share a hardware context. Never waits.
    pub fn poll(&self) {
        self.shared.poll_shared();
    }

    /// Returns a descriptor for an event loop: when it is readable, [`poll`](Disk::poll) is due. It
    /// is readable at first. From the first call on the event loop drives the disk: futures start
    /// no thread, and a thread that a future has started ends. (`service=on` keeps its thread.)
    ///
    /// None if the driver's completions are there at once, or come by the clock (`model`, and `ram`
    /// with service times: their futures use a thread of the disk); if the system has no room for a
    /// descriptor; and in a child of a fork.
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.poll_fd()
    }

    /// Changes how many requests each hardware context may have at the driver at once (the setting
    /// `nr_requests`). What is there already stays. May be called while the disk is in use; a
    /// context that a thread owns hears of it at its next turn. [`Disk::info`] goes on to say what
    /// the disk was opened with, and one tag is left to those that are not reserved, however few.
    ///
    /// # Errors
    /// [`SpecError::BadValue`] if it is none, or more than the `queue_depth` that the disk was
    /// opened with.
    ///
    /// Counterpart in Linux: `/sys/block/X/queue/nr_requests`.
    pub fn set_nr_requests(&self, nr_requests: u32) -> Result<(), SpecError> {
        if !(1..=self.info().policy.queue_depth).contains(&nr_requests) {
            return Err(SpecError::BadValue {
                key: String::from("nr_requests"),
                value: nr_requests.to_string(),
                expected: "a number of 1 to the queue_depth of the open disk",
            });
        }
        self.shared.set_nr_requests(nr_requests);
        Ok(())
    }

    /// Freezes the disk: it admits no more I/O, and this call waits until all admitted I/O has
    /// ended. A thread that owns a hardware context has to reap its I/O meanwhile.
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

    /// As [`freeze`](Disk::freeze), but waits for `timeout` at most.
    ///
    /// # Errors
    /// As `freeze`; and [`FreezeError::TimedOut`] if admitted I/O has not ended in that time. Then
    /// the disk admits I/O again.
    pub fn freeze_timeout(&self, timeout: Duration) -> Result<Hold, FreezeError> {
        self.freeze_within(Some(timeout))
    }

    fn freeze_within(&self, timeout: Option<Duration>) -> Result<Hold, FreezeError> {
        let hold = Hold::new(&self.shared, Gate::Frozen);
        hold.await_drained(timeout)?;
        Ok(hold)
    }

    /// Quiesces the disk: once this returns, no request is handed to the driver. What is in flight
    /// there ends as usual.
    ///
    /// Counterpart in Linux: `blk_mq_quiesce_queue`.
    pub fn quiesce(&self) -> Hold {
        let hold = Hold::new(&self.shared, Gate::Quiesced);
        hold.await_turns();
        hold
    }

    /// Stops the disk: as [`Disk::quiesce`], without waiting for requests that are being handed
    /// over at the moment.
    ///
    /// Counterpart in Linux: `blk_mq_stop_hw_queues`.
    pub fn stop(&self) -> Hold {
        Hold::new(&self.shared, Gate::Stopped)
    }

    /// Whether the device is gone: some I/O ended with
    /// [`BlockStatus::Offline`](crate::BlockStatus::Offline). Everything that is not at the driver
    /// ends so until [`Disk::revive`] is called.
    pub fn is_failed(&self) -> bool {
        self.shared.device_state().is_failed()
    }

    /// Why the device is gone, in the device's own words, if it is and there are any: of an NBD
    /// server, why the connection to it was given up.
    pub fn failure(&self) -> Option<String> {
        self.shared.device().failure()
    }

    /// Says that a device that was gone is back.
    pub fn revive(&self) {
        self.shared.device_state().revive();
    }

    pub(crate) fn run_without_memory(&self, bio: Bio) -> Result<(), IoError> {
        assert!(bio.segments.as_slice().is_empty());
        // SAFETY: there is no memory.
        unsafe { self.run(bio) }.map(|_| ())
    }

    /// # Safety
    /// The memory of `bio` is valid for the operation, and nobody else uses it as the operation
    /// excludes, until this returns.
    pub(crate) unsafe fn run(&self, bio: Bio) -> Result<u64, IoError> {
        // SAFETY: the caller's obligations are passed on.
        Ok(unsafe { self.shared.run(bio) }??)
    }
}
