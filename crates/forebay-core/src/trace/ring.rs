//! The ring of a trace: one writer, one reader, and no lock.
//!
//! Counterpart in Linux: the relay buffers of `kernel/trace/blktrace.c`, one for each processor.
//! Here each software queue and each hardware context has one. The writer never waits: if the ring
//! is full, it counts the record as lost, and writes a record of the count as soon as there is
//! room. So the reader finds the count where the records are missing.
//!
//! `head` and `tail` count all records that were ever written and read. Their difference is at most
//! the capacity, so each place has one of two owners. The writer owns the places from `head` on, up
//! to `tail` plus the capacity. It releases a place by the store of `head` (release), and the
//! reader's load of `head` (acquire) makes the words of that place visible. The reader gives a
//! place back by the store of `tail` (release), after its loads of the words. The writer's load of
//! `tail` (acquire) orders its next stores to that place behind them. The words are atomics, so
//! that even a wrong order would not be undefined behaviour. `models.rs` checks both directions.

#[cfg(all(test, blk_loom))]
mod models;

use super::record::{NR_WORDS, TraceEvent, TraceRecord};
use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence};
use alloc::boxed::Box;
use alloc::sync::Arc;

/// How many places the reader gives back at once.
const NR_AT_ONCE: u64 = 64;

/// The shared part of a ring.
#[derive(Debug)]
struct Ring {
    places: Box<[[AtomicU64; NR_WORDS]]>,
    /// The number of records written so far. Changed by the writer.
    head: AtomicU64,
    /// The number of records read so far. Changed by the reader.
    tail: AtomicU64,
    /// The number of records that found no room. Changed by the writer.
    nr_lost: AtomicU64,
    /// 1 after the reader has ended.
    is_closed: AtomicU32,
}

impl Ring {
    /// Returns the capacity in records, a power of two.
    fn capacity(&self) -> u64 {
        self.places.len() as u64
    }

    /// Returns the words of the record with this number.
    #[inline(always)]
    fn place(&self, number: u64) -> &[AtomicU64; NR_WORDS] {
        &self.places[number as usize & (self.places.len() - 1)]
    }
}

/// The end of a ring that writes records.
#[derive(Debug)]
pub struct TraceWriter {
    ring: Arc<Ring>,
    head: u64,
    /// The number of the first record that may have no place: `tail` when it was last read, plus
    /// the capacity.
    room_end: u64,
    /// How many records were lost since the last one that was written.
    nr_lost_since: u64,
    /// Added to the time of each record.
    delay_ns: u64,
    last_ns: u64,
}

/// The end of a ring that reads records.
#[derive(Debug)]
pub struct TraceReader {
    ring: Arc<Ring>,
    tail: u64,
}

/// Creates a ring with room for at least `capacity` records of 32 bytes, and at least 2.
fn ring(capacity: usize, delay_ns: u64) -> (TraceWriter, TraceReader) {
    let capacity = capacity.max(2).next_power_of_two();
    let ring = Arc::new(Ring {
        places: (0..capacity).map(|_| [0; NR_WORDS].map(AtomicU64::new)).collect(),
        head: AtomicU64::new(0),
        tail: AtomicU64::new(0),
        nr_lost: AtomicU64::new(0),
        is_closed: AtomicU32::new(0),
    });
    let writer = TraceWriter {
        ring: Arc::clone(&ring),
        head: 0,
        room_end: capacity as u64,
        nr_lost_since: 0,
        delay_ns,
        last_ns: 0,
    };
    (writer, TraceReader { ring, tail: 0 })
}

impl TraceWriter {
    /// Creates a ring for a software queue, with room for at least `capacity` records of 32 bytes.
    pub fn for_queue(capacity: usize) -> (TraceWriter, TraceReader) {
        ring(capacity, 0)
    }

    /// Creates a ring for a hardware context.
    ///
    /// A bio may be queued and issued at the same time, and readers of traces sort by time. So the
    /// records of a context get times that are 1 ns later. The times of all rings grow by at least
    /// 1 ns from record to record, as `blkrawverify` demands.
    pub fn for_context(capacity: usize) -> (TraceWriter, TraceReader) {
        ring(capacity, 1)
    }

    /// Returns whether the reader has not ended.
    pub(super) fn is_open(&self) -> bool {
        // Relaxed: nothing depends on when the writer sees it.
        self.ring.is_closed.load(Ordering::Relaxed) == 0
    }

    /// Writes a packed record, or counts it as lost if the ring is full. Returns false if the
    /// reader has ended; then it has written nothing.
    #[inline(always)]
    pub(super) fn push(&mut self, [time_ns, start, len, rest]: [u64; NR_WORDS]) -> bool {
        if !self.is_open() {
            return false;
        }
        self.last_ns = (self.last_ns + 1).max(time_ns + self.delay_ns);
        if self.nr_lost_since != 0 && !self.has_noted_loss() || !self.has_room(1) {
            self.lose();
            return true;
        }
        self.put([self.last_ns, start, len, rest]);
        true
    }

    /// Counts a record as lost.
    #[cold]
    #[inline(never)]
    fn lose(&mut self) {
        self.nr_lost_since += 1;
        // Relaxed: a count. Only this thread changes it.
        let nr_lost = self.ring.nr_lost.load(Ordering::Relaxed) + 1;
        self.ring.nr_lost.store(nr_lost, Ordering::Relaxed);
    }

    /// Writes a record of the records that were lost, if there is room for it and for another one.
    /// Returns whether it did.
    #[cold]
    #[inline(never)]
    fn has_noted_loss(&mut self) -> bool {
        if !self.has_room(2) {
            return false;
        }
        let nr_lost = core::mem::take(&mut self.nr_lost_since);
        self.put(TraceRecord::note(TraceEvent::Lost, nr_lost, self.last_ns).pack());
        self.last_ns += 1;
        true
    }

    /// Returns whether `nr` places are free.
    #[inline(always)]
    fn has_room(&mut self, nr: u64) -> bool {
        self.head + nr <= self.room_end || self.has_new_room(nr)
    }

    #[cold]
    #[inline(never)]
    fn has_new_room(&mut self, nr: u64) -> bool {
        self.room_end = self.ring.tail.load(Ordering::Acquire) + self.ring.capacity();
        self.head + nr <= self.room_end
    }

    /// Writes a record to the next place, which is free.
    #[inline(always)]
    fn put(&mut self, record: [u64; NR_WORDS]) {
        let place = self.ring.place(self.head);
        for (word, value) in place.iter().zip(record) {
            word.store(value, Ordering::Relaxed);
        }
        self.head += 1;
        self.ring.head.store(self.head, Ordering::Release);
    }
}

impl TraceReader {
    /// Returns the oldest record that was not read yet; `None` if all were.
    pub fn pop(&mut self) -> Option<TraceRecord> {
        if self.tail == self.ring.head.load(Ordering::Acquire) {
            return None;
        }
        let record = self.read();
        self.ring.tail.store(self.tail, Ordering::Release);
        Some(record)
    }

    /// Passes all records that were written before the call to `out`, oldest first, and returns
    /// their number.
    pub fn drain(&mut self, mut out: impl FnMut(TraceRecord)) -> u64 {
        let head = self.ring.head.load(Ordering::Acquire);
        let nr = head - self.tail;
        while self.tail < head {
            let end = head.min(self.tail + NR_AT_ONCE);
            while self.tail < end {
                out(self.read());
            }
            self.ring.tail.store(self.tail, Ordering::Release);
        }
        nr
    }

    /// Reads the oldest record that was not read yet. There is one.
    #[inline(always)]
    fn read(&mut self) -> TraceRecord {
        let mut words = [0; NR_WORDS];
        for (word, place) in words.iter_mut().zip(self.ring.place(self.tail)) {
            *word = place.load(Ordering::Relaxed);
        }
        self.tail += 1;
        TraceRecord::unpack(words)
    }

    /// Returns how many records found no room so far. Those of the end of a trace have no record
    /// ([`TraceEvent::Lost`]).
    pub fn nr_lost(&self) -> u64 {
        self.ring.nr_lost.load(Ordering::Relaxed)
    }

    /// Returns the capacity in records.
    pub fn capacity(&self) -> u64 {
        self.ring.capacity()
    }

    /// Returns whether the writer is gone. After that, one more [`drain`](Self::drain) reads all
    /// that is left.
    pub fn has_ended(&self) -> bool {
        let is_gone = Arc::strong_count(&self.ring) == 1;
        if is_gone {
            // Pairs with the release of the writer's drop: its last records are visible.
            fence(Ordering::Acquire);
        }
        is_gone
    }

    /// Ends the trace: the writer stops at its next record. So does dropping the reader.
    pub fn close(&self) {
        self.ring.is_closed.store(1, Ordering::Relaxed);
    }
}

impl Drop for TraceReader {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn packed(number: u64) -> [u64; NR_WORDS] {
        TraceRecord::note(TraceEvent::Unplug, number, number).pack()
    }

    #[test]
    fn ring_returns_records_in_order_and_counts_those_without_room() {
        let (mut writer, mut reader) = TraceWriter::for_queue(4);
        assert_eq!(reader.pop(), None);
        (0..7).for_each(|number| assert!(writer.push(packed(number))));
        let mut got = Vec::new();
        assert_eq!(reader.drain(|record| got.push((record.event, record.len))), 4);
        assert_eq!(got, [0, 1, 2, 3].map(|number| (TraceEvent::Unplug, number)));
        assert_eq!(reader.nr_lost(), 3);
        assert!(writer.push(packed(7)));
        got.clear();
        reader.drain(|record| got.push((record.event, record.len)));
        assert_eq!(got, [(TraceEvent::Lost, 3), (TraceEvent::Unplug, 7)]);
        assert_eq!(reader.nr_lost(), 3);
    }

    #[test]
    fn lost_count_waits_for_room_for_two_records() {
        let (mut writer, mut reader) = TraceWriter::for_queue(2);
        (0..3).for_each(|number| assert!(writer.push(packed(number))));
        assert_eq!(reader.pop().map(|record| record.len), Some(0));
        assert!(writer.push(packed(3)));
        assert_eq!(reader.pop().map(|record| record.len), Some(1));
        assert_eq!((reader.pop(), reader.nr_lost()), (None, 2));
        assert!(writer.push(packed(4)));
        let kinds: Vec<_> =
            core::iter::from_fn(|| reader.pop()).map(|it| (it.event, it.len)).collect();
        assert_eq!(kinds, [(TraceEvent::Lost, 2), (TraceEvent::Unplug, 4)]);
    }

    #[test]
    fn records_of_a_context_are_later_and_their_times_grow() {
        let (mut writer, mut reader) = TraceWriter::for_context(8);
        for number in [5, 9, 7] {
            assert!(writer.push(packed(number)));
        }
        let times: Vec<_> = core::iter::from_fn(|| reader.pop()).map(|it| it.time_ns).collect();
        assert_eq!(times, [6, 10, 11]);
    }

    #[test]
    fn writer_stops_after_the_reader_has_closed_and_reader_sees_that_it_is_gone() {
        let (mut writer, mut reader) = TraceWriter::for_queue(8);
        assert!(writer.push(packed(1)));
        reader.close();
        assert!(!writer.push(packed(2)) && !reader.has_ended());
        drop(writer);
        assert!(reader.has_ended());
        assert_eq!((reader.pop().map(|it| it.len), reader.pop()), (Some(1), None));
    }
}
