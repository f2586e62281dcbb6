//! Where bios live from queue to end: a slab of a capacity fixed at open.
//!
//! The capacity is the layer's admission limit. A bio that finds no slot is given back to its
//! caller (`Refusal::WouldBlock`), so that memory is bounded and nothing is allocated per I/O.

use crate::bio::{Bio, Segment};
use crate::status::BlockStatus;
use alloc::vec::Vec;

/// Which slot of the slab a bio is in. Given out again after the bio has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BioId(u32);

impl BioId {
    /// The slot's number, below the capacity of the slab: an index for tables beside the slab.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn from_index(index: usize) -> BioId {
        assert!(index < NONE as usize);
        BioId(index as u32)
    }
}

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct BioSlot {
    pub(crate) bio: Bio,
    /// The next bio of the same request, or of the free list.
    next: u32,
    /// How many requests still cover a part of this bio. It ends when there are none.
    pub(crate) parts: u32,
    /// Which of the runtime's completion queues is told of the end.
    pub(crate) owner: u32,
    /// The bytes from the start that are known good; `bio.len` until something fell short.
    pub(crate) good_len: u64,
    /// Why the bytes after `good_len` are not good; `None` there means end of file.
    pub(crate) status: Option<BlockStatus>,
    pub(crate) queued_ns: u64,
    in_use: bool,
}

#[derive(Debug)]
pub(crate) struct BioSlab {
    slots: Vec<BioSlot>,
    free: u32,
    nr_used: u32,
    capacity: u32,
}

impl BioSlab {
    pub(crate) fn new(capacity: u32) -> BioSlab {
        assert!(capacity > 0 && capacity < NONE);
        BioSlab { slots: Vec::with_capacity(capacity as usize), free: NONE, nr_used: 0, capacity }
    }

    pub(crate) fn nr_used(&self) -> u32 {
        self.nr_used
    }

    pub(crate) fn is_full(&self) -> bool {
        self.nr_used == self.capacity
    }

    /// Puts `bio` into a free slot. The caller has checked that there is one.
    #[inline]
    pub(crate) fn insert(&mut self, bio: Bio, owner: u32, now: u64) -> BioId {
        assert!(!self.is_full());
        let good_len = bio.len;
        let slot = BioSlot {
            bio,
            next: NONE,
            parts: 1,
            owner,
            good_len,
            status: None,
            queued_ns: now,
            in_use: true,
        };
        self.nr_used += 1;
        if self.free == NONE {
            self.slots.push(slot);
            return BioId(self.slots.len() as u32 - 1);
        }
        let id = self.free;
        let place = &mut self.slots[id as usize];
        assert!(!place.in_use);
        self.free = place.next;
        *place = slot;
        BioId(id)
    }

    /// Frees the slot of a bio that has ended.
    #[inline]
    pub(crate) fn remove(&mut self, id: BioId) {
        let slot = &mut self.slots[id.index()];
        assert!(slot.in_use && slot.parts == 0, "a bio ends exactly once");
        slot.in_use = false;
        slot.next = self.free;
        if let crate::bio::Segments::Many(_) = slot.bio.segments {
            slot.bio.segments = crate::bio::Segments::None;
        }
        self.free = id.0;
        self.nr_used -= 1;
    }

    #[inline]
    pub(crate) fn get(&self, id: BioId) -> &BioSlot {
        let slot = &self.slots[id.index()];
        debug_assert!(slot.in_use);
        slot
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: BioId) -> &mut BioSlot {
        let slot = &mut self.slots[id.index()];
        debug_assert!(slot.in_use);
        slot
    }

    /// Makes `next` follow `id` within a request.
    #[inline]
    pub(crate) fn link(&mut self, id: BioId, next: BioId) {
        self.get_mut(id).next = next.0;
    }

    #[inline]
    pub(crate) fn next(&self, id: BioId) -> Option<BioId> {
        let next = self.get(id).next;
        (next != NONE).then_some(BioId(next))
    }

    /// The segments of a chain of bios from `skip` bytes into the first, `len` bytes of them.
    #[inline]
    pub(crate) fn segments(&self, head: BioId, skip: u64, len: u64) -> ChainSegments<'_> {
        ChainSegments { slab: self, bio: Some(head), index: 0, skip, left: len }
    }
}

/// The segments of a chain of bios, cut to a range of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct ChainSegments<'a> {
    slab: &'a BioSlab,
    bio: Option<BioId>,
    index: usize,
    skip: u64,
    left: u64,
}

impl Iterator for ChainSegments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        while self.left > 0 {
            let id = self.bio?;
            let segments = self.slab.get(id).bio.segments.as_slice();
            let Some(segment) = segments.get(self.index) else {
                self.bio = self.slab.next(id);
                self.index = 0;
                continue;
            };
            self.index += 1;
            let segment_len = u64::from(segment.len);
            // Empty segments go by here as well.
            if self.skip >= segment_len {
                self.skip -= segment_len;
                continue;
            }
            // Both fit: they are at most the segment's own length.
            let skip = self.skip as u32;
            let len = (segment_len - self.skip).min(self.left) as u32;
            self.skip = 0;
            self.left -= u64::from(len);
            return Some(Segment { addr: segment.addr + skip as usize, len });
        }
        None
    }
}
