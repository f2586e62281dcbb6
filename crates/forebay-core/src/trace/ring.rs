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

use super::probe::{ProbeSwitch, TraceProbe};
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
    /// Sees each record too, before the ring does, while its switch is on.
    probe: Option<Arc<dyn TraceProbe>>,
    probe_switch: ProbeSwitch,
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
        probe: None,
        probe_switch: ProbeSwitch::off(),
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

    /// Creates a writer whose records only a probe sees.
    pub fn for_probe(probe: Arc<dyn TraceProbe>) -> TraceWriter {
        // A reader that is dropped closes the ring.
        ring(0, 0).0.with_probe(Some(probe))
    }

    /// Passes each record to this probe too. The writer then lives as long as its reader or its
    /// probe wants records.
    #[must_use]
    pub fn with_probe(self, probe: Option<Arc<dyn TraceProbe>>) -> TraceWriter {
        let probe_switch = probe.as_ref().map_or(ProbeSwitch::off(), |probe| probe.switch());
        TraceWriter { probe, probe_switch, ..self }
    }

    /// Returns whether the reader has not ended.
    pub(super) fn is_open(&self) -> bool {
        // Relaxed: nothing depends on when the writer sees it.
        self.ring.is_closed.load(Ordering::Relaxed) == 0
    }

    /// Writes a packed record, or counts it as lost if the ring is full. Returns false if nothing
    /// wants records any more; then it has written nothing.
    #[inline(always)]
    pub(super) fn push(&mut self, [time_ns, start, len, rest]: [u64; NR_WORDS]) -> bool {
        let is_probed = self.probe_switch.is_on();
        if is_probed {
            self.probe([time_ns, start, len, rest]);
        }
        if !self.is_open() {
            return is_probed || self.end();
        }
        self.last_ns = (self.last_ns + 1).max(time_ns + self.delay_ns);
        if self.nr_lost_since != 0 && !self.has_noted_loss() || !self.has_room(1) {
            self.lose();
            return true;
        }
        self.put([self.last_ns, start, len, rest]);
        true
    }

    /// Passes a packed record to the probe.
    #[cold]
    #[inline(never)]
    fn probe(&self, record: [u64; NR_WORDS]) {
        if let Some(probe) = &self.probe {
            probe.record(&TraceRecord::unpack(record));
        }
    }

    /// Notes that neither a reader nor a probe wants records. Returns false.
    #[cold]
    #[inline(never)]
    fn end(&self) -> bool {
        self.probe.iter().for_each(|probe| probe.end());
        false
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
mod tests;
