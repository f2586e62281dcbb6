//! Waiting until what was written is on stable storage, together with everybody else who does.
// It vouches for memory that is borrowed.
#![allow(unsafe_code)]

use crate::disk::Disk;
use crate::error::IoError;
use crate::future::IoFuture;
use crate::io::{Io, segments_of};
use forebay_core::{Bio, BioFlags, LostWrites, Op};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A durable point of a disk, to be waited for: made by [`Disk::durable`].
///
/// Every write has one when it has ended ([`Completion::durable_point`]), and so does a moment
/// ([`Disk::durable_point`]). A point stands for all that had ended by then, as a record of a log
/// stands for those before it. To wait for it takes a flush that was issued after that; whose it
/// was does not matter. One flush at a time is at the device, and all that were waiting when it was
/// issued share it: group commit without a timer.
///
/// Dropping it does nothing. Any thread may wait.
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
#[must_use = "nothing is waited for until `wait` is called, or it is awaited"]
pub struct Durable {
    disk: Disk,
    point: u64,
}

impl Durable {
    pub(crate) fn new(disk: &Disk, point: u64) -> Durable {
        Durable { disk: disk.clone(), point }
    }

    /// Waits until everything up to this point is on stable storage. Returns at once if they are.
    ///
    /// # Errors
    /// Why they may not be: the flush failed; or one that would have covered them did, and nobody
    /// has acknowledged that since ([`Disk::acknowledge_loss`]).
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

/// A [`Durable`] that is awaited. What is said of [`IoFuture`] about progress, threads and dropping
/// is true for it.
#[derive(Debug)]
#[must_use = "it is submitted when it is polled"]
pub struct DurableFuture {
    /// None where there is nothing to wait for.
    flush: Option<IoFuture>,
}

impl Future for DurableFuture {
    /// As [`Durable::wait`].
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(flush) = &mut self.flush else { return Poll::Ready(Ok(())) };
        Pin::new(flush).poll(context).map(|ended| {
            let completion = ended.map_err(|error| error.refusal)?;
            completion.result?;
            Ok(())
        })
    }
}

/// Durability.
impl Disk {
    /// Makes every write that has ended durable, and all metadata of the file, as `fsync` does;
    /// [`flush`](Disk::flush) is `fdatasync`. It is never elided.
    ///
    /// # Errors
    /// As [`flush`](Disk::flush).
    pub fn fsync(&self) -> Result<(), IoError> {
        self.run_without_memory(Bio::fsync())
    }

    /// Writes `buf` at `offset`. It is durable when this returns: by the write itself where the
    /// device can do that (FUA), or by a flush after it, which others share.
    ///
    /// # Errors
    /// Why it was refused, or why it failed; also where the flush did.
    pub fn write_durable_at(&self, buf: &[u8], offset: u64) -> Result<u64, IoError> {
        let segments = segments_of(buf.as_ptr().expose_provenance(), buf.len());
        let range = Bio::range(Op::Write, offset, buf.len() as u64);
        let bio = Bio { segments, flags: BioFlags::FUA, ..range };
        // SAFETY: the memory is all of `buf`, borrowed until this returns.
        unsafe { self.run(bio) }
    }

    /// A durable point, to be waited for: of a write that has ended
    /// ([`Completion::durable_point`](crate::Completion::durable_point)), or of a moment
    /// ([`durable_point`](Disk::durable_point)).
    pub fn durable(&self, point: u64) -> Durable {
        Durable::new(self, point)
    }

    /// The durable point of now: of everything that has ended so far, whoever wrote it by this
    /// disk. 0 where every write is durable when it ends.
    pub fn durable_point(&self) -> u64 {
        match self.limits().volatile_cache {
            true => self.shared.device_state().durability().point(),
            false => 0,
        }
    }

    /// Whether everything up to this point is on stable storage for certain.
    pub fn is_durable(&self, point: u64) -> bool {
        self.shared.device_state().durability().is_durable(point)
    }

    /// Returns what a failed flush may have lost, until the loss is acknowledged: flushes that
    /// cover any of it, and waits for it, fail until then. Another flush would prove nothing: after
    /// a failed one a kernel may call pages clean that were not written.
    ///
    /// A durable write that fails counts as a failed flush where the driver makes it durable by a
    /// sync (files, NBD): the error may be that of an earlier write. So does an error that another
    /// program was told of, when a thread or a disk opens the same file later.
    pub fn lost_writes(&self) -> Option<LostWrites> {
        self.shared.device_state().durability().lost()
    }

    /// Acknowledges the losses so far, and returns them: the caller writes the data again, or does
    /// without. Flushes work again; a wait that began before this fails all the same.
    ///
    /// Losses end with the last disk that is open on a file. A disk that is opened later reports
    /// what the kernel reports to a file that is opened then.
    pub fn acknowledge_loss(&self) -> Option<LostWrites> {
        self.shared.acknowledge_loss()
    }
}
