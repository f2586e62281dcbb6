//! Durable points of a disk: waits until writes are on stable storage, with shared flushes.
// Durable writes pass the addresses of borrowed memory to drivers.
#![allow(unsafe_code)]

use crate::disk::Disk;
use crate::error::IoError;
use crate::events;
use crate::future::IoFuture;
use crate::io::{Io, segments_of};
use forebay_core::{Bio, BioFlags, LostWrites, Op};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A durable point of a disk that a caller can wait for. Made by [`Disk::durable`].
///
/// A write gets a durable point when it ends ([`Completion::durable_point`]).
/// [`Disk::durable_point`] returns the current one. A point covers all writes that had ended when
/// it was taken, like a position in a log. It is durable when a flush has succeeded that was issued
/// later, whichever thread submitted that flush. At most one flush is at the device at a time. All
/// waiters that exist when it is issued share it: group commit without a timer.
///
/// Any thread may wait, and several may wait for the same point. Dropping a `Durable` has no
/// effect.
///
/// [`Completion::durable_point`]: crate::Completion::durable_point
///
/// ```
/// let disk = forebay::Disk::open("ram:1M")?;
/// disk.write_at(&[1; 4096], 0)?;
/// disk.durable(disk.durable_point()).wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a durable point does nothing unless `wait` is called or it is awaited"]
pub struct Durable {
    disk: Disk,
    point: u64,
}

impl Durable {
    pub(crate) fn new(disk: &Disk, point: u64) -> Durable {
        Durable { disk: disk.clone(), point }
    }

    /// Waits until all writes up to this point are on stable storage. Returns at once if they are.
    /// Blocks the thread; await the `Durable` in asynchronous code.
    ///
    /// # Errors
    /// Fails if the flush fails, or if an earlier flush that covers these writes has failed and
    /// that loss is not acknowledged ([`Disk::acknowledge_loss`]).
    pub fn wait(&self) -> Result<(), IoError> {
        match self.disk.is_durable(self.point) {
            true => Ok(()),
            false => self.disk.run_without_memory(Bio::flush_up_to(self.point)),
        }
    }
}

impl IntoFuture for Durable {
    type Output = Result<(), IoError>;
    type IntoFuture = DurableFuture;

    fn into_future(self) -> DurableFuture {
        match self.disk.is_durable(self.point) {
            true => DurableFuture { flush: None },
            false => DurableFuture { flush: Some(self.disk.start(Io::flush_up_to(self.point))) },
        }
    }
}

/// The future of a [`Durable`]: ready when all writes up to its point are on stable storage.
///
/// Progress, threads and dropping are those of [`IoFuture`].
#[derive(Debug)]
#[must_use = "a flush is submitted when its future is polled"]
pub struct DurableFuture {
    /// `None` if the point was durable when the future was made.
    flush: Option<IoFuture>,
}

impl Future for DurableFuture {
    /// Same as the result of [`Durable::wait`].
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(flush) = &mut self.flush else { return Poll::Ready(Ok(())) };
        Pin::new(flush).poll(context).map(|ended| {
            let completion = ended.map_err(|error| error.kind)?;
            completion.result?;
            Ok(())
        })
    }
}

/// Durability.
impl Disk {
    /// Makes every write that ended before this call durable, with all metadata of the file, as
    /// `fsync` does. ([`flush`](Disk::flush) is `fdatasync`.) It is never elided.
    ///
    /// # Errors
    /// Same as [`flush`](Disk::flush).
    pub fn fsync(&self) -> Result<(), IoError> {
        self.run_without_memory(Bio::fsync())
    }

    /// Writes `buf` at byte `offset`, and waits until it is durable. Returns the number of bytes
    /// written. The write itself makes the data durable if the device supports that (FUA).
    /// Otherwise a flush follows, which other callers share.
    ///
    /// # Errors
    /// Fails if the write is refused, or if the write or the flush fails.
    pub fn write_durable_at(&self, buf: &[u8], offset: u64) -> Result<usize, IoError> {
        let segments = segments_of(buf.as_ptr().expose_provenance(), buf.len());
        let range = Bio::range(Op::Write, offset, buf.len() as u64);
        let bio = Bio { segments, flags: BioFlags::FUA, ..range };
        // SAFETY: the memory is all of `buf`, borrowed until this returns.
        unsafe { self.run(bio) }.map(|len| len as usize)
    }

    /// Returns a durable point that the caller can wait for. `point` is that of an ended write
    /// ([`Completion::durable_point`](crate::Completion::durable_point)) or one that
    /// [`durable_point`](Disk::durable_point) returned.
    pub fn durable(&self, point: u64) -> Durable {
        Durable::new(self, point)
    }

    /// Returns the current durable point. It covers all writes to this disk that have ended so far,
    /// by any thread. 0 if every write is durable when it ends (no volatile cache).
    pub fn durable_point(&self) -> u64 {
        match self.limits().volatile_cache {
            true => self.shared.device_state().durability().point(),
            false => 0,
        }
    }

    /// Returns whether all writes up to this point are known to be on stable storage. Never waits.
    pub fn is_durable(&self, point: u64) -> bool {
        self.shared.device_state().durability().is_durable(point)
    }

    /// Returns the range of durable points of the writes that a failed flush may have lost, until
    /// the loss is acknowledged. Until then, flushes that cover any of these writes fail, and so do
    /// waits for them. A later flush proves nothing: after a failed one the kernel may mark pages
    /// clean that it has not written.
    ///
    /// If the driver makes a durable write durable by a sync (files, NBD), a failure of that write
    /// counts as a failed flush, because the error may be that of an earlier write. A write-back
    /// error that was reported to another program also counts, once a thread or a disk opens the
    /// same file later.
    pub fn lost_writes(&self) -> Option<LostWrites> {
        self.shared.device_state().durability().lost()
    }

    /// Acknowledges all losses so far and returns their range. The caller should write the data
    /// again, or give it up. Flushes then work again. A wait that began earlier still fails.
    ///
    /// If there is a loss, and the file system may keep its errors elsewhere (network, FUSE,
    /// overlay, btrfs), this waits for a sync. Otherwise a file opened later might report the same
    /// loss again.
    ///
    /// All disks of the process on one file share its losses. Closing the last of them discards
    /// losses. A disk that is opened later reports the errors that the kernel reports to a newly
    /// opened file.
    pub fn acknowledge_loss(&self) -> Option<LostWrites> {
        let lost = self.shared.acknowledge_loss();
        if let Some(lost) = &lost {
            events::loss_acknowledged(&self.info().spec, lost.after, lost.up_to);
        }
        lost
    }
}
