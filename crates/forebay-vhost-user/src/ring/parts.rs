//! The three parts of a ring in the memory of the guest, and its indices.
//!
//! Each part is inside one region, which is found once. Accesses are atomic for the rings, and
//! volatile for descriptors.
//!
//! Indices of the device are private and written only, so the driver cannot change them.

use super::error::RingError;
use super::layout::{AVAILABLE_ENTRY, DESCRIPTOR, Part, RING_HEADER, USED_ENTRY};
use super::notify::{self, NO_NOTIFICATIONS, Word, Words};
use crate::memory::{GuestMemory, GuestRange, KeptRange, prefetch};
use std::sync::atomic::{AtomicU16, Ordering, fence};
use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};

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
    descriptors: KeptRange,
    available: KeptRange,
    used: KeptRange,
    next_available: u16,
    next_used: u16,
    /// The used index in the memory of the guest.
    published: u16,
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
            return Err(RingError::Size(size));
        }
        // `align`: of the accesses in this process, where regions may be aligned differently.
        let place = |part: Part, addr: u64, align| {
            if !addr.is_multiple_of(part.alignment()) {
                return Err(RingError::NotInMemory);
            }
            let range = memory.range(addr, part.len(size)).and_then(|range| range.keep(align));
            range.ok_or(RingError::NotInMemory)
        };
        Ok(Parts {
            layout,
            descriptors: place(Part::Descriptors, descriptors, 1)?,
            available: place(Part::Available, available, 2)?,
            used: place(Part::Used, used, 4)?,
            next_available: base,
            next_used: base,
            published: base,
            notified: base,
            memory: memory.clone(),
        })
    }

    /// Finds the parts in other memory.
    ///
    /// # Errors
    /// Fails if a part is not there. Then the parts stay where they were.
    pub(super) fn set_memory(&mut self, memory: &GuestMemory) -> Result<(), RingError> {
        let (next_used, published, notified) = (self.next_used, self.published, self.notified);
        let moved = Parts::new(self.layout, self.next_available, memory)?;
        *self = Parts { next_used, published, notified, ..moved };
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
        (self.next_used, self.published, self.notified) = (index, index, index);
    }

    /// Returns the offset of an entry of `len` bytes in the available or the used ring.
    #[inline]
    fn entry(&self, index: u16, len: usize) -> usize {
        RING_HEADER + len * usize::from(index & (self.layout.size - 1))
    }

    /// Returns the entry of the available ring at an index. Relaxed: the caller has loaded an index
    /// that covers it with acquire.
    #[inline]
    pub(super) fn available_entry(&self, index: u16) -> u16 {
        let entry = self.available.u16_at(self.entry(index, AVAILABLE_ENTRY));
        u16::from_le(entry.load(Ordering::Relaxed))
    }

    /// Returns the used index in the memory of the guest.
    pub(super) fn used_index(&self) -> u16 {
        self.load(Word::UsedIndex, Ordering::Acquire)
    }

    /// Returns the ring's table of descriptors.
    #[inline]
    pub(super) fn descriptors(&self) -> GuestRange<'_> {
        self.descriptors.range()
    }

    /// Prefetches a descriptor of the ring's table. Any index is harmless.
    #[inline]
    pub(super) fn prefetch_descriptor(&self, index: u16) {
        prefetch(self.descriptors().addr_at(DESCRIPTOR * usize::from(index)));
    }

    /// Appends a used entry, which the driver sees after [`publish`](Parts::publish).
    #[inline]
    pub(super) fn add_used(&mut self, head: u16, written: u32) {
        let at = self.entry(self.next_used, USED_ENTRY);
        // Relaxed: the index publishes the entry.
        self.used.store_pair(at, [head.into(), written]);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Returns the number of used entries that the driver does not see yet.
    #[inline]
    pub(super) fn nr_unpublished(&self) -> u16 {
        self.next_used.wrapping_sub(self.published)
    }

    /// Makes all used entries visible to the driver. Returns whether there were new ones.
    ///
    /// One store for several entries: a driver that polls takes the cache line of the index, and
    /// each store brings it back.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if std::mem::replace(&mut self.published, self.next_used) == self.next_used {
            return false;
        }
        notify::publish(self, self.next_used);
        true
    }

    /// Returns whether the driver wants a notification of the used entries since the last call.
    #[inline]
    pub(super) fn wants_notification(&mut self) -> bool {
        let former = std::mem::replace(&mut self.notified, self.next_used);
        notify::is_wanted(self, former, self.next_used)
    }
}

impl Parts {
    /// Returns a word.
    #[inline]
    fn word(&self, word: Word) -> &AtomicU16 {
        let nr = usize::from(self.layout.size);
        match word {
            Word::AvailableFlags => self.available.u16_at(0),
            Word::AvailableIndex => self.available.u16_at(2),
            Word::UsedEvent => self.available.u16_at(RING_HEADER + AVAILABLE_ENTRY * nr),
            Word::UsedFlags => self.used.u16_at(0),
            Word::UsedIndex => self.used.u16_at(2),
            Word::AvailableEvent => self.used.u16_at(RING_HEADER + USED_ENTRY * nr),
        }
    }
}

impl Words for Parts {
    #[inline]
    fn load(&self, word: Word, ordering: Ordering) -> u16 {
        u16::from_le(self.word(word).load(ordering))
    }

    #[inline]
    fn store(&self, word: Word, value: u16, ordering: Ordering) {
        self.word(word).store(value.to_le(), ordering);
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
