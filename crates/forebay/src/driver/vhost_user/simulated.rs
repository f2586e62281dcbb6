//! Simulated device for the driver's tests and fuzz target: the other side of a ring, in this
//! process.
//!
//! It reads chains as the standard says and keeps a disk in memory. A test may make it lie in any
//! way, because it writes the used ring itself.

use super::config::Config;
use super::connect::Ready;
use super::geometry::{Area, Geometry};
use super::link::Link;
use super::queue::{Spare, VhostUserDriver};
use super::region::{BASE, Region};
use super::requests::Queue;
use super::spin::Spin;
use crate::driver::Mode;
#[cfg(test)]
use crate::driver::direct::Numbers;
use crate::sys::event::Event;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

/// The variants of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) is_indirect: bool,
    pub(super) has_event_idx: bool,
}

impl Kind {
    /// All variants.
    pub(super) const ALL: [Kind; 4] = [
        Kind { is_indirect: true, has_event_idx: true },
        Kind { is_indirect: true, has_event_idx: false },
        Kind { is_indirect: false, has_event_idx: true },
        Kind { is_indirect: false, has_event_idx: false },
    ];
}

/// The number of tags of a test's queue.
pub(super) const NR_TAGS: u32 = 64;

/// One descriptor of a chain: its offset in the region, its length, and whether the device writes.
pub(super) type Part = (usize, usize, bool);

/// A chain that the device has taken and not used.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) head: u16,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) region: Arc<Region>,
    size: u16,
    /// Offsets of the three parts of the ring.
    parts: [usize; 3],
    kind: Kind,
    /// The next index of the available ring, and of the used ring.
    seen: u16,
    pub(super) used: u16,
    pub(super) disk: Vec<u8>,
    pub(super) nr_interrupts: u32,
    call: Arc<Event>,
    pub(super) kick: Arc<Event>,
    /// Signalled for an error of the ring.
    pub(super) error: Arc<Event>,
    /// The server's end of the connection.
    pub(super) peer: Option<UnixStream>,
}

/// Returns a driver and the device that serves it.
pub(super) fn pair(kind: Kind, mode: Mode) -> (VhostUserDriver, Device) {
    polling_pair(kind, mode, Duration::ZERO)
}

/// Returns a driver whose waits poll for a time, and its device.
pub(super) fn polling_pair(kind: Kind, mode: Mode, poll: Duration) -> (VhostUserDriver, Device) {
    let (link, spare, device) = unused(kind);
    (VhostUserDriver::new(&link, &spare, mode, Spin::new(poll)).expect("a queue"), device)
}

/// Returns a device, with its connection and its one queue.
pub(super) fn unused(kind: Kind) -> (Arc<Link>, Spare, Device) {
    let config = Config {
        capacity_bytes: 1 << 20,
        piece_max: 4096,
        nr_pieces_max: 8,
        block: 512,
        physical_block: 512,
        io_min: 512,
        io_opt: 0,
        nr_queues: 1,
        discard: None,
        discard_granularity: 512,
        write_zeroes: None,
        has_flush: true,
        says_write_through: false,
        is_read_only: false,
    };
    let geometry = Geometry::new(&config, kind.is_indirect, NR_TAGS, None).expect("a shape");
    let (region, _) = Region::new(geometry.queue_len()).expect("memory");
    let region = Arc::new(region);
    let area = Area::new(geometry, 0);
    let queue = Queue::new(Arc::clone(&region), area, kind.has_event_idx);
    let event = || Arc::new(Event::new().expect("a descriptor"));
    let (call, kick, error) = (event(), event(), event());
    let (ours, peer) = UnixStream::pair().expect("two sockets");
    let device = Device {
        region,
        size: area.layout.size,
        parts: area.layout.addrs().map(|addr| (addr - BASE) as usize),
        kind,
        seen: 0,
        used: 0,
        disk: vec![0; 1 << 20],
        nr_interrupts: 0,
        call: Arc::clone(&call),
        kick: Arc::clone(&kick),
        error: Arc::clone(&error),
        peer: Some(peer),
    };
    let link = Arc::new(Link::new(ours, error).expect("a socket"));
    let spare: Spare = Arc::new(Mutex::new(vec![Ready { queue, call, kick }]));
    (link, spare, device)
}

impl Device {
    fn u16(&self, offset: usize) -> u16 {
        u16::from_le(self.region.u16_at(offset).load(Ordering::Acquire))
    }

    pub(super) fn set_u16(&self, offset: usize, value: u16) {
        self.region.u16_at(offset).store(value.to_le(), Ordering::Release);
    }

    /// Asks to be kicked, or not to be.
    pub(super) fn want_kicks(&self, wanted: bool) {
        let [_, _, used] = self.parts;
        match self.kind.has_event_idx {
            true => {
                let event = if wanted { self.seen } else { self.seen.wrapping_sub(1) };
                self.set_u16(used + 4 + 8 * usize::from(self.size), event);
            }
            false => self.set_u16(used, u16::from(!wanted)),
        }
    }

    /// Takes the next available chain.
    pub(super) fn next(&mut self) -> Option<Chain> {
        let [descriptors, available, _] = self.parts;
        if self.u16(available + 2) == self.seen {
            return None;
        }
        let head = self.u16(available + 4 + 2 * usize::from(self.seen % self.size));
        self.seen = self.seen.wrapping_add(1);
        let mut parts = Vec::new();
        let (mut table, mut at) = (descriptors, head);
        loop {
            let offset = table + 16 * usize::from(at);
            let addr = u64::from_le(self.region.u64_at(offset).load(Ordering::Relaxed));
            let words = u64::from_le(self.region.u64_at(offset + 8).load(Ordering::Relaxed));
            let (len, flags, next) = (words as u32, (words >> 32) as u16, (words >> 48) as u16);
            let place = (addr - BASE) as usize;
            if u32::from(flags) & VRING_DESC_F_INDIRECT != 0 {
                (table, at) = (place, 0);
                continue;
            }
            parts.push((place, len as usize, u32::from(flags) & VRING_DESC_F_WRITE != 0));
            if u32::from(flags) & VRING_DESC_F_NEXT == 0 {
                assert!(parts.len() <= usize::from(self.size), "a chain fits the ring");
                return Some(Chain { head, parts });
            }
            at = next;
        }
    }

    fn byte(&self, offset: usize) -> u8 {
        self.region.u8_at(offset).load(Ordering::Relaxed)
    }

    fn word(&self, offset: usize) -> u64 {
        u64::from_le(self.region.u64_at(offset).load(Ordering::Relaxed))
    }

    /// Performs the request of a chain on the disk. Returns the number of bytes written.
    pub(super) fn perform(&mut self, chain: &Chain) -> u32 {
        let [header, data @ .., status] = chain.parts.as_slice() else { panic!("{chain:?}") };
        assert_eq!((header.1, header.2, status.1, status.2), (16, false, 1, true));
        let (kind, sector) = (self.word(header.0) as u32, self.word(header.0 + 8) as usize);
        let mut at = sector * 512;
        let mut written = 1;
        for &(offset, len, is_written) in data {
            assert_eq!(is_written, kind == 0, "only a read's data is written");
            for nth in 0..len {
                match kind {
                    0 => {
                        let byte = self.disk[at + nth];
                        self.region.u8_at(offset + nth).store(byte, Ordering::Relaxed);
                    }
                    1 => self.disk[at + nth] = self.byte(offset + nth),
                    _ => {}
                }
            }
            if kind == 0 {
                written += len as u32;
            }
            if kind == 11 || kind == 13 {
                for range in (offset..offset + len).step_by(16) {
                    let (start, sectors) = (self.word(range) as usize, self.word(range + 8));
                    assert_eq!(sectors >> 32, 0, "no flags");
                    self.disk[start * 512..][..sectors as usize * 512].fill(0);
                }
            }
            at += len;
        }
        self.region.u8_at(status.0).store(0, Ordering::Relaxed);
        written
    }

    /// Puts an element into the used ring, and interrupts if that is wanted.
    pub(super) fn put_used(&mut self, id: u32, len: u32) {
        let [_, available, used] = self.parts;
        let element = used + 4 + 8 * usize::from(self.used % self.size);
        self.region.u32_at(element).store(id.to_le(), Ordering::Relaxed);
        self.region.u32_at(element + 4).store(len.to_le(), Ordering::Relaxed);
        let old = self.used;
        self.used = self.used.wrapping_add(1);
        self.set_u16(used + 2, self.used);
        fence(Ordering::SeqCst);
        let is_wanted = match self.kind.has_event_idx {
            true => self.u16(available + 4 + 2 * usize::from(self.size)) == old,
            false => self.u16(available) & 1 == 0,
        };
        if is_wanted {
            self.nr_interrupts += 1;
            self.call.signal();
        }
    }

    /// Returns the event with which the device interrupts.
    #[cfg(test)]
    pub(super) fn call(&self) -> &Event {
        &self.call
    }

    /// Writes some random words anywhere in the ring and the parts of each tag.
    #[cfg(test)]
    pub(super) fn scribble(&mut self, numbers: &mut Numbers) {
        for _ in 0..1 + numbers.below(64) {
            let offset = numbers.below(40_000) as usize & !7;
            let value = numbers.below(u64::MAX) & [u64::MAX, 0xff, 0xffff_0000][offset / 8 % 3];
            self.region.u64_at(offset).store(value, Ordering::Relaxed);
        }
    }

    /// Sets the used index, whatever is in the ring.
    pub(super) fn set_used(&mut self, index: u16) {
        self.used = index;
        let [_, _, used] = self.parts;
        self.set_u16(used + 2, index);
    }

    /// Returns the places of the used ring.
    #[cfg(fuzzing)]
    pub(super) fn used_ring(&self) -> std::ops::Range<usize> {
        let [_, _, used] = self.parts;
        used..used + 6 + 8 * usize::from(self.size)
    }

    /// Performs and completes everything that is available. Returns how many chains.
    pub(super) fn serve(&mut self) -> usize {
        let mut nr = 0;
        while let Some(chain) = self.next() {
            let len = self.perform(&chain);
            self.put_used(chain.head.into(), len);
            nr += 1;
        }
        nr
    }
}
