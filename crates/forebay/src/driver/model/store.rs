//! Bytes of a modelled device: terabytes of address space, of which little is ever written.
//!
//! A read of memory that was never written would still cost the kernel a page of its page tables
//! for each 2 MiB, and random reads of a large disk would fill memory with them. So one bit for
//! each such range records whether it was ever written. A read of an unwritten range returns zeroes
//! without access to the memory.
// It follows the addresses of segments.
#![allow(unsafe_code)]

use crate::driver::memory::Memory;
use crate::extent::{ExtentKind, Extents};
use forebay_core::{IssuedRequest, Op};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The range of one bit, bytes: the range that one page of the kernel's page tables maps.
const RANGE: u64 = 2 << 20;

#[derive(Debug)]
pub(super) struct Store {
    memory: Memory,
    /// One bit for each range: set once the range was written, and never cleared.
    ///
    /// Relaxed: a writer sets it before the write completes. A reader that depends on the write has
    /// observed that completion through the layer's own synchronization, so it sees the bit as
    /// well. A read concurrent with a write may return either data, as on any disk.
    is_written: Box<[AtomicU64]>,
}

impl Store {
    pub(super) fn new(len: u64) -> io::Result<Store> {
        let nr_words = len.div_ceil(RANGE).div_ceil(64);
        let is_written = (0..nr_words).map(|_| AtomicU64::new(0)).collect();
        Ok(Store { memory: Memory::new(len)?, is_written })
    }

    /// Moves the data of a read or write.
    pub(super) fn move_data(&self, rq: &IssuedRequest<'_>) {
        let mut ranges = rq.start / RANGE..(rq.start + rq.len).div_ceil(RANGE);
        if rq.op == Op::Write {
            ranges.for_each(|range| self.mark(range));
        } else if !ranges.any(|range| self.is_marked(range)) {
            for segment in rq.segments() {
                let memory = std::ptr::with_exposed_provenance_mut::<u8>(segment.addr);
                // SAFETY: a read's segments are valid for writes of their length, and nothing else
                // uses them, by the layer's promise K2.
                unsafe { memory.write_bytes(0, segment.len as usize) };
            }
            return;
        }
        self.memory.move_data(rq);
    }

    /// Zeroes a range and returns its memory to the system.
    pub(super) fn zero(&self, start: u64, len: u64) {
        let end = start + len;
        let mut from = start;
        while from < end {
            // One call covers adjacent written ranges.
            let is_marked = self.is_marked(from / RANGE);
            let mut to = end.min((from / RANGE + 1) * RANGE);
            while to < end && self.is_marked(to / RANGE) == is_marked {
                to = end.min(to + RANGE);
            }
            if is_marked {
                self.memory.zero(from, to - from);
            }
            from = to;
        }
    }

    /// Adds the extents that were never written, from `offset` on.
    pub(super) fn block_status(&self, offset: u64, extents: &mut Extents<'_>) {
        let nr_ranges = self.is_written.len() as u64 * 64;
        let mut at = offset;
        while extents.left() > 0 && at / RANGE < nr_ranges {
            let kind = match self.is_marked(at / RANGE) {
                true => ExtentKind::Data,
                false => ExtentKind::Hole,
            };
            let end = (at / RANGE + 1) * RANGE;
            extents.push(end - at, kind);
            at = end;
        }
    }

    fn mark(&self, range: u64) {
        let (word, bit) = (&self.is_written[(range / 64) as usize], 1 << (range % 64));
        // The bit is usually set already. A load then leaves the cache line shared between
        // processors.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn is_marked(&self, range: u64) -> bool {
        self.is_written[(range / 64) as usize].load(Ordering::Relaxed) & (1 << (range % 64)) != 0
    }
}
