//! One virtqueue with its requests: from a request of the layer to descriptors, and back.
//!
//! The memory of callers is not shared with the server. The data of a request passes through the
//! data area of its tag: a write's data is copied there when it is issued, a read's data is copied
//! from there when it completes. So a server never reaches memory of this process but its own
//! region, not even a server that goes on with requests after it was given up.
//!
//! A completion is believed only as far as it was checked: the id is that of a request in flight,
//! the length is possible, and the status byte has a value of the standard. If not, the caller
//! gives up the device. Data that a read did not fill, by the device's own count, reaches no
//! caller.
// It passes the addresses of segments on.
#![allow(unsafe_code)]

use super::geometry::Area;
use super::region::{BASE, Region};
use super::ring::{DESCRIPTOR, Descriptor, DriverRing, Used};
use crate::driver::vectors::Vectors;
use forebay_core::{BlockStatus, Completions, IssuedRequest, Op, Tag};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

/// The maximum number of segments of a request in the memory of callers.
pub(super) const MAX_SEGMENTS: u32 = 128;

/// The length of a range of a discard or write-zeroes, bytes.
pub(super) const RANGE: usize = 16;

/// The value of the status byte before the device writes it: none of the standard's.
const NO_STATUS: u8 = 0xff;

const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const WRITE: u16 = VRING_DESC_F_WRITE as u16;
const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

/// A request of one tag.
#[derive(Debug)]
struct Slot {
    /// The memory that a read fills.
    vectors: Vectors,
    op: Op,
    /// The length of the request, bytes, which is what its completion reports.
    len: u64,
    /// The bytes of data descriptors.
    data_len: u32,
    is_in_flight: bool,
    /// The shape of the chain in the shared memory: whether it is a read's, and the length of data.
    described: Option<(bool, u32)>,
}

/// A virtqueue and its requests.
#[derive(Debug)]
pub(super) struct Queue {
    region: Arc<Region>,
    area: Area,
    ring: DriverRing,
    slots: Box<[Slot]>,
    nr_in_flight: usize,
}

impl Queue {
    /// Returns an empty queue in zeroed memory.
    pub(super) fn new(region: Arc<Region>, area: Area, has_event_idx: bool) -> Queue {
        let slot = || Slot {
            vectors: Vectors::new(MAX_SEGMENTS),
            op: Op::Flush,
            len: 0,
            data_len: 0,
            is_in_flight: false,
            described: None,
        };
        let ring = DriverRing::new(Arc::clone(&region), area.layout, has_event_idx);
        let slots = (0..area.geometry.nr_tags).map(|_| slot()).collect();
        Queue { region, area, ring, slots, nr_in_flight: 0 }
    }

    pub(super) fn ring(&self) -> &DriverRing {
        &self.ring
    }

    pub(super) fn nr_in_flight(&self) -> usize {
        self.nr_in_flight
    }

    /// Queues a request. The device sees it after [`Queue::publish`].
    pub(super) fn begin(&mut self, rq: &IssuedRequest<'_>) {
        let tag = rq.tag.index();
        let (kind, sector) = match rq.op {
            Op::Read => (VIRTIO_BLK_T_IN, rq.start >> 9),
            Op::Write => (VIRTIO_BLK_T_OUT, rq.start >> 9),
            Op::Flush => (VIRTIO_BLK_T_FLUSH, 0),
            Op::Discard => (VIRTIO_BLK_T_DISCARD, 0),
            Op::WriteZeroes => (VIRTIO_BLK_T_WRITE_ZEROES, 0),
        };
        let data_len = self.put_data(rq);
        let slot = &mut self.slots[tag];
        assert!(!slot.is_in_flight, "a tag is issued once (K1)");
        (slot.op, slot.len, slot.data_len) = (rq.op, rq.len, data_len);
        slot.is_in_flight = true;
        self.nr_in_flight += 1;
        // The type, a reserved word, and the sector. Relaxed, here and below: the available index
        // publishes everything.
        let header = self.area.header(tag);
        self.region.u64_at(header).store(u64::from(kind).to_le(), Ordering::Relaxed);
        self.region.u64_at(header + 8).store(sector.to_le(), Ordering::Relaxed);
        self.region.u8_at(self.area.status(tag)).store(NO_STATUS, Ordering::Relaxed);
        let shape = Some((rq.op == Op::Read, data_len));
        // An equal chain is there already. Not written again, its cache lines stay with both sides.
        if std::mem::replace(&mut slot.described, shape) != shape {
            self.describe(tag, rq.op == Op::Read, data_len);
        }
        self.ring.push(self.area.geometry.head(tag));
    }

    /// Stores the data that the device reads. Returns the number of bytes of data descriptors.
    fn put_data(&mut self, rq: &IssuedRequest<'_>) -> u32 {
        let tag = rq.tag.index();
        let (at, max) = (self.area.data(tag), self.area.geometry.data_max as usize);
        match rq.op {
            Op::Flush => 0,
            Op::Read => {
                assert!(rq.len as usize <= max, "a request keeps its limits (K3)");
                self.slots[tag].vectors.fill(rq.segments());
                rq.len as u32
            }
            Op::Write => {
                // SAFETY: the memory of a write stays as it is until its completion (K2).
                let len = unsafe { self.region.gather(at, max, rq.segments()) };
                assert!(len as u64 == rq.len, "a request keeps its limits (K3)");
                rq.len as u32
            }
            Op::Discard | Op::WriteZeroes => {
                let mut len = 0;
                for (start, bytes) in rq.ranges() {
                    assert!(len + RANGE <= max && bytes >> 9 <= u32::MAX.into(), "limits (K3)");
                    // The sector, the number of sectors, and flags: nothing is unmapped that was
                    // not discarded.
                    self.region.u64_at(at + len).store((start >> 9).to_le(), Ordering::Relaxed);
                    let word = (bytes >> 9).to_le();
                    self.region.u64_at(at + len + 8).store(word, Ordering::Relaxed);
                    len += RANGE;
                }
                len as u32
            }
        }
    }

    /// Writes the chain of a request.
    fn describe(&mut self, tag: usize, is_read: bool, data_len: u32) {
        let Area { geometry, .. } = self.area;
        let first = geometry.head(tag);
        let table = self.area.table(tag);
        let mut nr = 0;
        let mut put = |offset: usize, len: u32, flags: u16| {
            // In a table of its own, the chain begins at index 0.
            let next = if geometry.is_indirect { nr + 1 } else { first + nr + 1 };
            let next = if flags & NEXT == 0 { 0 } else { next };
            let descriptor = Descriptor { addr: BASE + offset as u64, len, flags, next };
            match geometry.is_indirect {
                true => {
                    descriptor.store(&self.region, table + usize::from(nr) * DESCRIPTOR);
                }
                false => self.ring.describe(first + nr, descriptor),
            }
            nr += 1;
        };
        put(self.area.header(tag), 16, NEXT);
        let data = self.area.data(tag);
        let mut at = 0;
        while at < data_len {
            let len = (data_len - at).min(geometry.piece_max);
            put(data + at as usize, len, NEXT | if is_read { WRITE } else { 0 });
            at += len;
        }
        put(self.area.status(tag), 1, WRITE);
        if geometry.is_indirect {
            let len = u32::from(nr) * DESCRIPTOR as u32;
            let addr = BASE + table as u64;
            self.ring.describe(first, Descriptor { addr, len, flags: INDIRECT, next: 0 });
        }
    }

    /// Makes all queued requests visible to the device. Returns whether it wants a kick.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Appends the completed requests to `done`.
    ///
    /// # Errors
    /// Describes the first completion that cannot be. The request in question stays in flight.
    pub(super) fn take(&mut self, done: &mut Completions) -> Result<(), String> {
        loop {
            match self.ring.take(self.nr_in_flight) {
                Ok(Some(used)) => {
                    let (tag, result) = self.completed(used)?;
                    done.push(tag, result);
                }
                Ok(None) => return Ok(()),
                Err(broken) => return Err(broken.to_string()),
            }
        }
    }

    /// Checks a completion and ends its request.
    fn completed(&mut self, used: Used) -> Result<(Tag, Result<u64, BlockStatus>), String> {
        let per_tag = u32::from(self.area.geometry.descriptors_per_tag());
        let tag = (used.id / per_tag) as usize;
        let slot = self.slots.get_mut(tag).filter(|slot| slot.is_in_flight);
        let Some(slot) = slot.filter(|_| used.id.is_multiple_of(per_tag)) else {
            return Err(format!("it has used descriptor {}, which is of no request", used.id));
        };
        let status = self.region.u8_at(self.area.status(tag)).load(Ordering::Relaxed);
        let is_read = slot.op == Op::Read;
        // The status byte counts too. Some servers count the data of writes, which does no harm.
        let len_max = u64::from(slot.data_len) + 1;
        let is_ok = u32::from(status) == VIRTIO_BLK_S_OK;
        if u64::from(used.len) > len_max || is_read && is_ok && u64::from(used.len) < len_max {
            return Err(format!(
                "it has written {} bytes for a request of {len_max} bytes",
                used.len
            ));
        }
        let result = match u32::from(status) {
            VIRTIO_BLK_S_OK => Ok(slot.len),
            VIRTIO_BLK_S_IOERR => Err(BlockStatus::Io),
            VIRTIO_BLK_S_UNSUPP => Err(BlockStatus::NotSupported),
            _ => return Err(format!("it has completed a request with the status {status}")),
        };
        if is_read && is_ok {
            let (data, len) = (self.area.data(tag), slot.data_len as usize);
            // SAFETY: the memory of a read is used by no other code until its completion (K2).
            unsafe { self.region.scatter(data, len, slot.vectors.as_slice()) };
        }
        slot.is_in_flight = false;
        self.nr_in_flight -= 1;
        Ok((Tag::from_index(tag), result))
    }

    /// Ends all requests in flight: the device is gone.
    pub(super) fn fail_all(&mut self, done: &mut Completions) {
        for (tag, slot) in self.slots.iter_mut().enumerate() {
            if std::mem::take(&mut slot.is_in_flight) {
                done.push(Tag::from_index(tag), Err(BlockStatus::Offline));
            }
        }
        self.nr_in_flight = 0;
    }
}
