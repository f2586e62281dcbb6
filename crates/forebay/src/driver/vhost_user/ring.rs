//! Driver's side of a split virtqueue.
//!
//! Source: "Virtual I/O Device (VIRTIO) Version 1.2", 2.7. The driver writes descriptors and the
//! available ring, the device writes the used ring. All three are in memory that the device can
//! change at any time. So this side never reads back what it has written there: its indices are
//! private. It reads four things that the device writes (the used index, the used elements, and two
//! hints for notifications), and checks the first two ([`Broken`]).
//!
//! Orderings:
//!
//! - The available index is stored with release, after the descriptors and the element that it
//!   covers. The device loads it with acquire.
//! - The used index is loaded with acquire. The device stores it with release, after the element
//!   and the data.
//! - A notification is skipped if the other side says that it does not wait: [`notify`].
//!
//! All values are little-endian.

use super::notify::{self, Publisher, Request, Waiting};
use super::region::{BASE, Region};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};

/// The size of a descriptor in bytes.
pub(super) const DESCRIPTOR: usize = 16;

/// The largest ring. The standard allows 32768, but servers take no larger one than this.
pub(super) const SIZE_MAX: u16 = 1024;

/// The places of a ring's three parts in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The number of descriptors: a power of two.
    pub(super) size: u16,
    descriptors: usize,
    available: usize,
    used: usize,
}

impl Layout {
    /// Returns the layout of a ring that begins at `offset`, a multiple of 16.
    pub(super) fn new(offset: usize, size: u16) -> Layout {
        assert!(size.is_power_of_two() && size <= SIZE_MAX && offset.is_multiple_of(DESCRIPTOR));
        let available = offset + usize::from(size) * DESCRIPTOR;
        // Flags, the index, the elements, and the index at which to interrupt.
        let used = (available + 6 + 2 * usize::from(size)).next_multiple_of(64);
        Layout { size, descriptors: offset, available, used }
    }

    /// Returns the offset behind the ring.
    pub(super) fn end(&self) -> usize {
        self.used + 6 + 8 * usize::from(self.size)
    }

    /// Returns the addresses of the parts for the server: descriptors, available, used.
    pub(super) fn addrs(&self) -> [u64; 3] {
        [self.descriptors, self.available, self.used].map(|offset| BASE + offset as u64)
    }

    fn available_index(&self) -> usize {
        self.available + 2
    }

    fn available_element(&self, index: u16) -> usize {
        self.available + 4 + 2 * usize::from(index & (self.size - 1))
    }

    /// The used index at which the device interrupts, with `EVENT_IDX`.
    fn used_event(&self) -> usize {
        self.available + 4 + 2 * usize::from(self.size)
    }

    fn used_index(&self) -> usize {
        self.used + 2
    }

    fn used_element(&self, index: u16) -> usize {
        self.used + 4 + 8 * usize::from(index & (self.size - 1))
    }

    /// The available index at which the device wants a kick, with `EVENT_IDX`.
    fn available_event(&self) -> usize {
        self.used + 4 + 8 * usize::from(self.size)
    }
}

/// One descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) addr: u64,
    pub(super) len: u32,
    /// `VRING_DESC_F_*`.
    pub(super) flags: u16,
    pub(super) next: u16,
}

impl Descriptor {
    /// Stores it at an offset of the region. Relaxed: the available index publishes it.
    #[inline]
    pub(super) fn store(self, region: &Region, offset: usize) {
        let words = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        region.u64_at(offset).store(self.addr.to_le(), Ordering::Relaxed);
        region.u64_at(offset + 8).store(words.to_le(), Ordering::Relaxed);
    }
}

/// An entry of the used ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// The first descriptor of the chain. Not checked yet.
    pub(super) id: u32,
    /// The number of bytes that the device says it has written. Not checked yet.
    pub(super) len: u32,
}

/// A used ring that the device has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    nr: u16,
    nr_in_flight: u16,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { nr, nr_in_flight } = self;
        write!(f, "the used index is {nr} ahead, with {nr_in_flight} requests in flight")
    }
}

/// The part of a ring that waits need. Waits may use it while another thread uses the
/// [`DriverRing`].
#[derive(Clone, Debug)]
pub(super) struct Watch {
    region: Arc<Region>,
    layout: Layout,
    has_event_idx: bool,
}

impl Watch {
    /// Returns the device's used index. Acquire: the elements before it, and their data, are
    /// visible afterwards.
    #[inline]
    pub(super) fn used_index(&self) -> u16 {
        let index = self.region.u16_at(self.layout.used_index());
        u16::from_le(index.load(Ordering::Acquire))
    }

    /// Asks for an interrupt when the device has used `nr` elements from `taken` on. Returns
    /// whether it has already: then the caller must not sleep.
    ///
    /// Without `EVENT_IDX` each element interrupts until [`Watch::suppress`].
    pub(super) fn arm(&self, taken: u16, nr: u16) -> bool {
        notify::arm(self, taken, nr)
    }

    /// Suppresses interrupts. With `EVENT_IDX` there is nothing to do: a request is for one
    /// interrupt, and it is past. (After 65536 further elements there is one more.)
    pub(super) fn suppress(&self) {
        if !self.has_event_idx {
            self.set_flags(VRING_AVAIL_F_NO_INTERRUPT as u16);
        }
    }

    /// Relaxed: a hint, and [`notify::arm`] has a fence.
    fn set_flags(&self, flags: u16) {
        self.region.u16_at(self.layout.available).store(flags.to_le(), Ordering::Relaxed);
    }
}

impl Waiting for Watch {
    #[inline]
    fn index(&self) -> u16 {
        self.used_index()
    }

    /// The device has a full barrier between its store of the index and its load of the request.
    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn ask(&self, element: u16) {
        match self.has_event_idx {
            true => {
                let event = self.region.u16_at(self.layout.used_event());
                event.store(element.to_le(), Ordering::Relaxed);
            }
            false => self.set_flags(0),
        }
    }
}

impl Publisher for Watch {
    /// Release: the device's acquire of the index makes elements and descriptors visible.
    #[inline]
    fn store_index(&self, index: u16) {
        let place = self.region.u16_at(self.layout.available_index());
        place.store(index.to_le(), Ordering::Release);
    }

    /// The device has a full barrier between its store of the event index and its load of the
    /// available index.
    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn request(&self) -> Request {
        let Watch { region, layout, has_event_idx } = self;
        // Relaxed, twice: hints, ordered by the fence.
        match has_event_idx {
            true => {
                let event = region.u16_at(layout.available_event()).load(Ordering::Relaxed);
                Request::Event(u16::from_le(event))
            }
            false => {
                let flags = u16::from_le(region.u16_at(layout.used).load(Ordering::Relaxed));
                Request::Flag(flags & VRING_USED_F_NO_NOTIFY as u16 == 0)
            }
        }
    }
}

/// A ring, as its one user has it.
#[derive(Debug)]
pub(super) struct DriverRing {
    watch: Watch,
    /// The index behind the last element in the available ring.
    next: u16,
    /// The index that the device has seen.
    published: u16,
    /// The index of the next element to take from the used ring.
    taken: u16,
    /// The used index, as far as it was loaded.
    used: u16,
}

impl DriverRing {
    /// Returns a ring in zeroed memory. Interrupts are suppressed.
    pub(super) fn new(region: Arc<Region>, layout: Layout, has_event_idx: bool) -> DriverRing {
        let watch = Watch { region, layout, has_event_idx };
        watch.suppress();
        // Otherwise the first element interrupts: a used event of 0.
        watch.ask(u16::MAX);
        watch.suppress();
        DriverRing { watch, next: 0, published: 0, taken: 0, used: 0 }
    }

    /// Returns the part for waits.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Returns the index of the next element to take.
    #[inline]
    pub(super) fn taken(&self) -> u16 {
        self.taken
    }

    /// Stores an entry of the descriptor table.
    #[inline]
    pub(super) fn describe(&self, index: u16, descriptor: Descriptor) {
        let Watch { region, layout, .. } = &self.watch;
        assert!(index < layout.size, "a descriptor is in the table");
        descriptor.store(region, layout.descriptors + usize::from(index) * DESCRIPTOR);
    }

    /// Appends a chain, by its first descriptor, to the available ring. The device sees it after
    /// [`DriverRing::publish`].
    #[inline]
    pub(super) fn push(&mut self, head: u16) {
        let Watch { region, layout, .. } = &self.watch;
        let element = region.u16_at(layout.available_element(self.next));
        // Relaxed: the index publishes it.
        element.store(head.to_le(), Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
    }

    /// Makes all chains visible to the device. Returns whether it wants to be kicked for them.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let (new, old) = (self.next, self.published);
        if new == old {
            return false;
        }
        self.published = new;
        notify::publish(&self.watch, old, new)
    }

    /// Takes the oldest element of the used ring, with `nr_in_flight` chains at the device.
    ///
    /// # Errors
    /// Fails if the device has used more chains than it has.
    #[inline]
    pub(super) fn take(&mut self, nr_in_flight: usize) -> Result<Option<Used>, Broken> {
        if self.taken == self.used {
            self.used = self.watch.used_index();
            let nr = self.used.wrapping_sub(self.taken);
            if usize::from(nr) > nr_in_flight {
                self.used = self.taken;
                return Err(Broken { nr, nr_in_flight: nr_in_flight as u16 });
            }
            if nr == 0 {
                return Ok(None);
            }
        }
        let Watch { region, layout, .. } = &self.watch;
        let element = layout.used_element(self.taken);
        self.taken = self.taken.wrapping_add(1);
        // Relaxed, twice: the acquire of the used index orders them.
        let id = u32::from_le(region.u32_at(element).load(Ordering::Relaxed));
        let len = u32::from_le(region.u32_at(element + 4).load(Ordering::Relaxed));
        Ok(Some(Used { id, len }))
    }
}
