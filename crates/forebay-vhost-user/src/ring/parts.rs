//! The three parts of a ring in the memory of the guest, and its indices.
//!
//! Each part is inside one region, which is found once. Accesses are atomic for the rings, and
//! volatile for descriptors.
//!
//! Indices of the device are private and written only, so the driver cannot change them.

use super::error::RingError;
use crate::memory::{GuestMemory, GuestRange, KeptRange};
use std::sync::atomic::{Ordering, fence};
use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};

/// Length of a descriptor, bytes.
pub(super) const DESCRIPTOR: usize = 16;
/// Length of a used entry, bytes.
const USED_ENTRY: usize = 8;

/// Where a ring is, and its features.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
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
    places: Places,
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
    pub(super) fn new(places: Places, base: u16, memory: &GuestMemory) -> Result<Parts, RingError> {
        let Places { size, descriptors, available, used, .. } = places;
        if !size.is_power_of_two() {
            return Err(RingError::Size(size));
        }
        if descriptors % 16 != 0 || available % 2 != 0 || used % 4 != 0 {
            return Err(RingError::NotInMemory);
        }
        let part = |addr, len: usize, align| {
            let range = memory.range(addr, len as u64).and_then(|range| range.keep(align));
            range.ok_or(RingError::NotInMemory)
        };
        let nr = usize::from(size);
        Ok(Parts {
            places,
            descriptors: part(descriptors, nr * DESCRIPTOR, 1)?,
            available: part(available, 6 + 2 * nr, 2)?,
            used: part(used, 6 + nr * USED_ENTRY, 4)?,
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
        let moved = Parts::new(self.places, self.next_available, memory)?;
        *self = Parts { next_used, published, notified, ..moved };
        Ok(())
    }

    /// Returns whether a region of the memory was truncated.
    pub(super) fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    #[inline]
    pub(super) fn size(&self) -> u16 {
        self.places.size
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
        4 + len * usize::from(index & (self.places.size - 1))
    }

    /// Returns the driver's available index.
    #[inline]
    pub(super) fn available_index(&self, ordering: Ordering) -> u16 {
        u16::from_le(self.available.u16_at(2).load(ordering))
    }

    /// Returns the entry of the available ring at an index. Relaxed: the caller has loaded an index
    /// that covers it with acquire.
    #[inline]
    pub(super) fn available_entry(&self, index: u16) -> u16 {
        let entry = self.available.u16_at(self.entry(index, 2));
        u16::from_le(entry.load(Ordering::Relaxed))
    }

    /// Returns the used index in the memory of the guest.
    pub(super) fn used_index(&self) -> u16 {
        u16::from_le(self.used.u16_at(2).load(Ordering::Acquire))
    }

    /// Returns the ring's table of descriptors.
    #[inline]
    pub(super) fn descriptors(&self) -> GuestRange<'_> {
        self.descriptors.range()
    }

    /// Appends a used entry, which the driver sees after [`publish`](Parts::publish).
    #[inline]
    pub(super) fn add_used(&mut self, head: u16, written: u32) {
        let at = self.entry(self.next_used, USED_ENTRY);
        // Relaxed: the index publishes the entry.
        self.used.store_u32(at, head.into());
        self.used.store_u32(at + 4, written);
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
        // Release pairs with the driver's acquire of the index: the entries, the statuses and the
        // data are visible before it.
        self.used.u16_at(2).store(self.next_used.to_le(), Ordering::Release);
        true
    }

    /// Asks the driver not to notify the device. With event indices it notifies once at most.
    #[inline]
    pub(super) fn disable_notifications(&mut self) {
        if !self.places.has_event_idx {
            // Relaxed: a notification too many is harmless.
            let flags = VRING_USED_F_NO_NOTIFY as u16;
            self.used.u16_at(0).store(flags.to_le(), Ordering::Relaxed);
        }
    }

    /// Asks the driver to notify the device. Returns whether requests are available already.
    #[inline]
    pub(super) fn enable_notifications(&mut self) -> bool {
        if self.places.has_event_idx {
            let event = self.used.u16_at(4 + USED_ENTRY * usize::from(self.places.size));
            event.store(self.next_available.to_le(), Ordering::Relaxed);
        } else {
            self.used.u16_at(0).store(0, Ordering::Relaxed);
        }
        // The request is stored before the index is loaded. The driver stores its index, and loads
        // the request after a fence of its own. So one side sees the other's store.
        fence(Ordering::SeqCst);
        self.available_index(Ordering::Relaxed) != self.next_available
    }

    /// Returns whether the driver wants a notification of the used entries since the last call.
    #[inline]
    pub(super) fn wants_notification(&mut self) -> bool {
        // The used index is stored before the driver's wish is loaded. The driver stores its wish,
        // and loads the index after a fence of its own. So one side sees the other's store.
        fence(Ordering::SeqCst);
        let former = std::mem::replace(&mut self.notified, self.next_used);
        let load = |offset| u16::from_le(self.available.u16_at(offset).load(Ordering::Relaxed));
        if !self.places.has_event_idx {
            return u32::from(load(0)) & VRING_AVAIL_F_NO_INTERRUPT == 0;
        }
        let event = load(4 + 2 * usize::from(self.places.size));
        // It wants one if its index is among the new entries, modulo 65536.
        let nr_new = self.next_used.wrapping_sub(former);
        self.next_used.wrapping_sub(event).wrapping_sub(1) < nr_new
    }
}
