//! The three parts of a ring in the memory of the guest, and its indices.
//!
//! Each part is inside one region, which is found once: a lookup for each access would cost more
//! than all other work on a request. Accesses are those of `vm-memory`: atomic for the rings,
//! volatile for descriptors.
//!
//! Indices of the device are private and written only, so the driver cannot change them.

use super::error::RingError;
use super::notify::{self, NO_NOTIFICATIONS, Word, Words};
use crate::memory::GuestMemory;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestRegionMmap,
    MemoryRegionAddress,
};

/// Length of a descriptor, bytes.
pub(super) const DESCRIPTOR: u64 = 16;
/// Length of a used entry, bytes.
const USED_ENTRY: u64 = 8;

/// A range of the guest's memory inside one region.
#[derive(Debug)]
struct Part {
    region: Arc<GuestRegionMmap>,
    offset: u64,
}

impl Part {
    fn new(memory: &GuestMemory, addr: u64, len: u64) -> Result<Part, RingError> {
        let regions = memory.regions();
        let region = regions.find_region(GuestAddress(addr)).ok_or(RingError::NotInMemory)?;
        let offset = addr - region.start_addr().0;
        if region.len() - offset < len {
            return Err(RingError::NotInMemory);
        }
        let region = GuestRegionMmap::with_arc(region.get_mmap(), region.start_addr());
        let region = Arc::new(region.ok_or(RingError::NotInMemory)?);
        Ok(Part { region, offset })
    }

    #[inline]
    fn at(&self, offset: u64) -> MemoryRegionAddress {
        MemoryRegionAddress(self.offset + offset)
    }

    #[inline]
    fn load(&self, offset: u64, ordering: Ordering) -> Result<u16, RingError> {
        Ok(u16::from_le(self.region.load(self.at(offset), ordering)?))
    }

    #[inline]
    fn store(&self, offset: u64, value: u16, ordering: Ordering) -> Result<(), RingError> {
        Ok(self.region.store(value.to_le(), self.at(offset), ordering)?)
    }
}

/// Where a ring is, and its features.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    /// Number of descriptors: a power of two.
    pub(super) size: u16,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    pub(super) has_event_idx: bool,
}

/// The parts and the indices.
#[derive(Debug)]
pub(super) struct Parts {
    layout: RingLayout,
    descriptors: Part,
    available: Part,
    used: Part,
    next_available: u16,
    next_used: u16,
    /// The used index at the last notification that was due.
    notified: u16,
    /// The table of the regions, which watches them for truncation.
    memory: GuestMemory,
}

impl Parts {
    /// Finds the parts. Both indices begin at `base`.
    ///
    /// # Errors
    /// Fails if a part is not in the memory, or misaligned.
    pub(super) fn new(
        layout: RingLayout,
        base: u16,
        memory: &GuestMemory,
    ) -> Result<Parts, RingError> {
        let RingLayout { size, descriptors, available, used, .. } = layout;
        if !size.is_power_of_two() {
            return Err(RingError::Queue(virtio_queue::Error::InvalidSize));
        }
        if descriptors % 16 != 0 || available % 2 != 0 || used % 4 != 0 {
            return Err(RingError::NotInMemory);
        }
        let nr = u64::from(size);
        Ok(Parts {
            layout,
            descriptors: Part::new(memory, descriptors, nr * DESCRIPTOR)?,
            available: Part::new(memory, available, 6 + 2 * nr)?,
            used: Part::new(memory, used, 6 + nr * USED_ENTRY)?,
            next_available: base,
            next_used: base,
            notified: base,
            memory: memory.clone(),
        })
    }

    /// Finds the parts in other memory.
    ///
    /// # Errors
    /// Fails if a part is not there. Then the parts stay where they were.
    pub(super) fn set_memory(&mut self, memory: &GuestMemory) -> Result<(), RingError> {
        let (next_used, notified) = (self.next_used, self.notified);
        let moved = Parts::new(self.layout, self.next_available, memory)?;
        *self = Parts { next_used, notified, ..moved };
        Ok(())
    }

    /// Returns whether a region of the memory was truncated.
    pub(super) fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    #[inline]
    pub(super) fn size(&self) -> u16 {
        self.layout.size
    }

    #[inline]
    pub(super) fn next_available(&self) -> u16 {
        self.next_available
    }

    #[inline]
    pub(super) fn set_next_available(&mut self, index: u16) {
        self.next_available = index;
    }

    #[inline]
    pub(super) fn next_used(&self) -> u16 {
        self.next_used
    }

    pub(super) fn set_next_used(&mut self, index: u16) {
        (self.next_used, self.notified) = (index, index);
    }

    /// Returns the entry of the available ring at an index. Relaxed: the caller has loaded an index
    /// that covers it with acquire.
    #[inline]
    pub(super) fn available_entry(&self, index: u16) -> Result<u16, RingError> {
        let entry = u64::from(index & (self.layout.size - 1));
        self.available.load(4 + 2 * entry, Ordering::Relaxed)
    }

    /// Returns the used index in the memory of the guest.
    pub(super) fn used_index(&self) -> Result<u16, RingError> {
        self.used.load(2, Ordering::Acquire)
    }

    /// Reads descriptor `index` of the ring's table, which must be below its size.
    #[inline]
    pub(super) fn descriptor(&self, index: u16) -> Result<Descriptor, RingError> {
        let at = self.descriptors.at(DESCRIPTOR * u64::from(index));
        Ok(self.descriptors.region.read_obj(at)?)
    }

    /// Appends a used entry.
    #[inline]
    pub(super) fn add_used(&mut self, head: u16, written: u32) -> Result<(), RingError> {
        let entry = u64::from(self.next_used & (self.layout.size - 1));
        let at = 4 + USED_ENTRY * entry;
        let region = &self.used.region;
        // Relaxed: the index publishes the entry.
        region.store(u32::from(head).to_le(), self.used.at(at), Ordering::Relaxed)?;
        region.store(written.to_le(), self.used.at(at + 4), Ordering::Relaxed)?;
        self.next_used = self.next_used.wrapping_add(1);
        notify::publish(self, self.next_used)
    }

    /// Returns whether the driver wants a notification of the used entries since the last call.
    #[inline]
    pub(super) fn wants_notification(&mut self) -> Result<bool, RingError> {
        let former = std::mem::replace(&mut self.notified, self.next_used);
        notify::is_wanted(self, former, self.next_used)
    }
}

impl Parts {
    /// Returns the part and the offset of a word.
    #[inline]
    fn place(&self, word: Word) -> (&Part, u64) {
        let nr = u64::from(self.layout.size);
        match word {
            Word::AvailableFlags => (&self.available, 0),
            Word::AvailableIndex => (&self.available, 2),
            Word::UsedEvent => (&self.available, 4 + 2 * nr),
            Word::UsedFlags => (&self.used, 0),
            Word::UsedIndex => (&self.used, 2),
            Word::AvailableEvent => (&self.used, 4 + USED_ENTRY * nr),
        }
    }
}

impl Words for Parts {
    type Error = RingError;

    #[inline]
    fn load(&self, word: Word, ordering: Ordering) -> Result<u16, RingError> {
        let (part, offset) = self.place(word);
        part.load(offset, ordering)
    }

    #[inline]
    fn store(&self, word: Word, value: u16, ordering: Ordering) -> Result<(), RingError> {
        let (part, offset) = self.place(word);
        part.store(offset, value, ordering)
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn has_event_idx(&self) -> bool {
        self.layout.has_event_idx
    }
}

// The flags of both sides that `notify` uses.
const _: () = assert!(VRING_AVAIL_F_NO_INTERRUPT == NO_NOTIFICATIONS as u32);
const _: () = assert!(VRING_USED_F_NO_NOTIFY == NO_NOTIFICATIONS as u32);
