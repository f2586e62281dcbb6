//! Owners: submitters of I/O on one disk, with limits and weights.
// The blocking calls pass the addresses of buffers to drivers.
#![allow(unsafe_code)]

use crate::error::{IoError, OwnerError};
use crate::future::IoFuture;
use crate::io::{Io, segments_of};
use crate::runtime::shared::Shared;
use crate::segment_list::{list, run_with_list};
use crate::sys::clock;
use forebay_core::{Bio, Limits, Op, Origin, OwnerStats};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// An owner of I/O on a disk: a tenant, a connection, a job. Made by
/// [`Disk::owner`](crate::Disk::owner).
///
/// Its [limits](Owner::set_limits) bound how much I/O it starts per second, and its
/// [weight](Owner::set_weight) is its share while several owners wait for the device. An owner may
/// have [children](Owner::child): their I/O counts against its limits too, and they divide its
/// share among themselves. A [latency goal](Limits::latency_target_us) limits the I/O that its
/// siblings have in flight.
///
/// I/O that a limit holds back waits in the layer. It has no tag, I/O of other owners overtakes it,
/// and [`freeze`](crate::Disk::freeze) does not wait for it. I/O with [`nowait`](Io::nowait) ends
/// with [`BlockStatus::Again`](crate::BlockStatus::Again) instead. Flushes, and I/O that may use a
/// [reserved](Io::reserved) tag, are free and wait for no limit.
///
/// A handle keeps the disk open. All handles of an owner are equal, and may be used by any thread.
/// The owner exists until [`remove`](Owner::remove), or until the disk is closed.
///
/// Counterpart in Linux: a cgroup, with `io.max` for limits, `io.weight` for weights and
/// `io.latency` for latency goals.
///
/// ```
/// use forebay::{Disk, Limits, Rate};
///
/// let disk = Disk::open("ram:1M")?;
/// let tenant = disk.owner("tenant-a")?;
/// let mut limits = Limits::default();
/// limits.both.iops = Rate::per_s(500);
/// limits.write.bps = Rate::per_s(10 << 20);
/// tenant.set_limits(&limits)?;
/// tenant.write_at(&[7; 4096], 0)?;
/// assert_eq!(tenant.stats().bytes, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Owner {
    shared: Arc<Shared>,
    owner: Arc<forebay_core::Owner>,
}

impl Owner {
    pub(crate) fn new(shared: Arc<Shared>, owner: Arc<forebay_core::Owner>) -> Owner {
        Owner { shared, owner }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.owner.name()
    }

    /// Returns the owner above this one. `None` if there is none.
    pub fn parent(&self) -> Option<Owner> {
        let parent = self.owner.parent()?;
        Some(Owner::new(Arc::clone(&self.shared), Arc::clone(parent)))
    }

    /// Returns the owner with this name below this one. Adds it if there is none: without limits,
    /// and with a weight of 100.
    ///
    /// # Errors Same as [`Disk::owner`](crate::Disk::owner). Also fails if this owner was removed,
    /// or if it is on the lowest of the 8 levels that there may be.
    pub fn child(&self, name: &str) -> Result<Owner, OwnerError> {
        let owner = self.shared.owner(name, Some(&self.owner))?;
        Ok(Owner::new(Arc::clone(&self.shared), owner))
    }

    /// Returns the limits. Each burst is a number, also where it was the default.
    pub fn limits(&self) -> Limits {
        self.owner.limits()
    }

    /// Sets all limits. They apply together, beside those of the owners above. Units are I/Os or
    /// bytes per second; a rate of 0 is no limit. Waiting I/O is checked against the new limits: at
    /// once in the shared hardware context and in event loops, and with the next completion where a
    /// thread that owns a context waits in the driver.
    ///
    /// In any time `t` an owner starts at most `burst + rate * t`, plus its largest I/O: I/O starts
    /// when the bucket is not negative, and the bucket keeps the debt. I/Os that merged in a plug
    /// start together, and count each.
    ///
    /// A latency goal bounds no I/O of this owner. While at least one in ten of its I/Os takes
    /// longer than the goal, its siblings without a goal, or with a looser one, may have fewer I/Os
    /// in flight: half as many after each window of 100 ms, and at least one. So may I/O without an
    /// owner, if this owner has no parent. Later windows give the depth back. The numbers hold in
    /// each hardware context.
    ///
    /// # Errors
    /// [`OwnerError::Limit`] if a burst has no rate. Nothing is changed then.
    pub fn set_limits(&self, limits: &Limits) -> Result<(), OwnerError> {
        self.shared.set_owner_limits(&self.owner, limits)
    }

    /// Returns the weight.
    pub fn weight(&self) -> u32 {
        self.owner.weight()
    }

    /// Sets the weight: the share of this owner among its siblings, while each has I/O that waits.
    /// An owner without I/O saves no credit; the others divide its share at once. I/O without an
    /// owner counts as that of an owner of weight 100.
    ///
    /// Weights divide the tags of the disk, by the time that a typical device needs for the I/O. So
    /// they have an effect only while the disk has more I/O than tags (`nr_requests`).
    ///
    /// # Errors
    /// [`OwnerError::Weight`] if the weight is not 1 to 10,000, and [`OwnerError::Contexts`] if the
    /// disk has several hardware contexts, because weights order the I/O of one.
    pub fn set_weight(&self, weight: u32) -> Result<(), OwnerError> {
        self.shared.set_owner_weight(&self.owner, weight)
    }

    /// Returns how much I/O the owner has started, without that of its children, and what it waited
    /// for.
    pub fn stats(&self) -> OwnerStats {
        self.owner.stats()
    }

    /// Returns whether each of its own limits has its whole burst again, as for a new owner. While
    /// this is false, an owner that replaces this one could start more than its limits allow.
    pub fn has_full_burst(&self) -> bool {
        self.owner.has_full_burst(clock::now_ns())
    }

    /// Removes the owner from its disk. I/O that waits for its limits goes on without any.
    ///
    /// I/O that other handles submit for it afterwards has no owner, until another one is added: it
    /// may count against that one.
    ///
    /// # Errors
    /// Fails if the owner has children, or was removed before.
    pub fn remove(self) -> Result<(), OwnerError> {
        self.shared.remove_owner(self.owner.id(), &self.owner)
    }

    /// Returns the origin of this owner's I/O, with the usual priority, for
    /// [`Bio::origin`](crate::Bio::origin) and [`Io::origin`]. It is valid on this disk only.
    pub fn origin(&self) -> Origin {
        Origin::NONE.with_owner(self.owner.id().number())
    }

    /// Starts an I/O of this owner, as [`Disk::start`](crate::Disk::start) does.
    pub fn start(&self, io: Io) -> IoFuture {
        IoFuture::new(Arc::clone(&self.shared), io.of_owner(self.origin()))
    }

    /// Reads as [`Disk::read_at`](crate::Disk::read_at) does, for this owner.
    ///
    /// # Errors
    /// Same as [`Disk::read_at`](crate::Disk::read_at).
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, IoError> {
        let segments = segments_of(buf.as_mut_ptr().expose_provenance(), buf.len());
        let bio = Bio { segments, ..Bio::range(Op::Read, offset, buf.len() as u64) };
        // SAFETY: the memory is all of `buf`, borrowed mutably until this returns.
        unsafe { self.run(bio) }
    }

    /// Writes as [`Disk::write_at`](crate::Disk::write_at) does, for this owner.
    ///
    /// # Errors
    /// Same as [`Disk::write_at`](crate::Disk::write_at).
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize, IoError> {
        let segments = segments_of(buf.as_ptr().expose_provenance(), buf.len());
        let bio = Bio { segments, ..Bio::range(Op::Write, offset, buf.len() as u64) };
        // SAFETY: the memory is all of `buf`, borrowed until this returns.
        unsafe { self.run(bio) }
    }

    /// Discards as [`Disk::discard`](crate::Disk::discard) does, for this owner.
    ///
    /// # Errors
    /// Same as [`Disk::discard`](crate::Disk::discard).
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        // SAFETY: there is no memory.
        unsafe { self.run(Bio::range(Op::Discard, offset, len)) }.map(|_| ())
    }

    /// Writes zeroes as [`Disk::write_zeroes`](crate::Disk::write_zeroes) does, for this owner.
    ///
    /// # Errors
    /// Same as [`Disk::write_zeroes`](crate::Disk::write_zeroes).
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), IoError> {
        // SAFETY: there is no memory.
        unsafe { self.run(Bio::range(Op::WriteZeroes, offset, len)) }.map(|_| ())
    }

    /// Reads as [`Disk::read_vectored_at`](crate::Disk::read_vectored_at) does, for this owner.
    ///
    /// # Errors
    /// Same as [`Disk::read_at`](crate::Disk::read_at).
    pub fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<usize, IoError> {
        let parts = bufs.iter_mut().map(|buf| (buf.as_mut_ptr().expose_provenance(), buf.len()));
        let (segments, len) = list(parts);
        let bio = Bio { segments, origin: self.origin(), ..Bio::range(Op::Read, offset, len) };
        // SAFETY: the memory is that of the slices, borrowed mutably until this returns.
        unsafe { run_with_list(&self.shared, bio) }.map(|len| len as usize)
    }

    /// Writes as [`Disk::write_vectored_at`](crate::Disk::write_vectored_at) does, for this owner.
    ///
    /// # Errors
    /// Same as [`Disk::write_at`](crate::Disk::write_at).
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, IoError> {
        let parts = bufs.iter().map(|buf| (buf.as_ptr().expose_provenance(), buf.len()));
        let (segments, len) = list(parts);
        let bio = Bio { segments, origin: self.origin(), ..Bio::range(Op::Write, offset, len) };
        // SAFETY: the memory is that of the slices, borrowed until this returns.
        unsafe { run_with_list(&self.shared, bio) }.map(|len| len as usize)
    }

    /// Submits a bio of this owner and waits until it has ended.
    ///
    /// # Safety
    /// Until this returns, the memory of `bio` must be valid for the operation. Until then no other
    /// code may write to it, nor, for a read, access it at all.
    unsafe fn run(&self, bio: Bio) -> Result<usize, IoError> {
        let bio = Bio { origin: self.origin(), ..bio };
        // SAFETY: the caller's obligations are passed on.
        let len = unsafe { self.shared.run(bio) }??;
        Ok(len as usize)
    }

    /// Returns whether this is an owner of that disk.
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }
}

impl Eq for Owner {}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("name", &self.name()).finish_non_exhaustive()
    }
}
