//! A checker of disk logs: each sector is a linearizable register (P3), and flushed data survives a
//! crash (P2). It checks whether such registers can explain a log of client operations.
//!
//! Every write has a unique [`Stamp`]. So a read identifies the write that it saw, and no search is
//! needed. The times come from any clock that all clients share: an operation takes effect at some
//! moment between its start and its end. An operation that never ended, or failed, may have taken
//! effect at any time since it began, or never: it stays open forever.
//!
//! The checker does not depend on the core: it serves the simulator, the drivers and the servers.
//! The simulator also has another register (`check/register.rs`), which checks each event as it
//! happens.
//!
//! - [`stamp`](Stamp): the contents of a sector, written and read back;
//! - `row`: the history of one sector;
//! - `zones`: whether the history can be explained, in O(n log n);
//! - `crash`: the values that a sector may hold after a crash.
//!
//! Source: P. Gibbons, E. Korach, "Testing Shared Memories", SIAM J. Comput. 26 (1997): with unique
//! values the operations on each value form a zone, and zones alone decide.

mod crash;
mod row;
mod stamp;
#[cfg(test)]
mod tests;
mod zones;

pub use crash::Crash;
pub use stamp::{Stamp, Value};

use row::Row;

/// One operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The requested operation; for a read, also its result.
    pub kind: Kind,
    /// The first sector; a flush has none.
    pub first: u64,
    /// When the client began it.
    pub began: u64,
    /// The result.
    pub end: End,
}

/// The type of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every sector gets the stamp, which is unique among the writes of that sector.
    Write {
        /// The stamp of the write.
        stamp: Stamp,
        /// The number of sectors.
        nr_sectors: u64,
        /// The write is durable when it has ended.
        fua: bool,
    },
    /// Every sector reads as zeroes from then on.
    Zero {
        /// The number of sectors.
        nr_sectors: u64,
        /// The write is durable when it has ended.
        fua: bool,
    },
    /// Every sector reads as zeroes from then on, or keeps its data.
    Trim {
        /// The number of sectors.
        nr_sectors: u64,
    },
    /// The values read, one for each sector.
    Read(Vec<Value>),
    /// A successful flush makes durable every write that had ended before the flush began.
    Flush,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Success, at that time.
    Ok(u64),
    /// The operation was refused: no part of it was or will be done.
    Refused,
    /// Unknown: the operation failed, or its client or server was gone.
    Unknown,
}

/// A contradiction in a log, for which it cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The sector.
    pub sector: u64,
    /// The broken rule.
    pub rule: Rule,
    /// The operations that contradict each other.
    pub what: String,
}

/// The rules for a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A read returns the whole data of one write to that sector.
    Whole,
    /// A read returns data that was written, or is being written.
    Written,
    /// A read returns no overwritten data, and nothing older than an earlier read returned.
    Fresh,
    /// After a crash no sector holds data older than the last flush.
    Durable,
}

/// Counts of checked operations, so that a test can require enough of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads of one sector each.
    pub reads: u64,
    /// Writes and zeroes of one sector each.
    pub writes: u64,
    /// Reads of a sector that another operation wrote at the same time.
    pub racing_reads: u64,
}

/// The sectors of a disk, with the values that they may hold when a log begins.
#[derive(Clone, Debug)]
pub struct Sectors {
    rows: Vec<Row>,
    /// The start time of the next log. It is not 0 after the death of a server, which ends no row.
    start: u64,
}

impl Sectors {
    /// Returns a disk of zeroes.
    pub fn new(nr_sectors: u64) -> Sectors {
        let rows = (0..nr_sectors).map(|_| Row::starting_with(Value::Zero)).collect();
        Sectors { rows, start: 0 }
    }

    /// Checks whether a log can be explained. The operations may be in any order.
    ///
    /// # Errors
    /// The anomaly of the lowest sector that cannot be explained.
    ///
    /// # Panics
    /// If an operation goes beyond the disk, or a stamp was used twice for a sector.
    pub fn check(&self, ops: &[Op]) -> Result<Tally, Box<Anomaly>> {
        let mut tally = Tally::default();
        for (sector, (row, before)) in self.rows_after(ops).iter().zip(&self.rows).enumerate() {
            row.check(sector as u64)?;
            tally.reads += (row.reads.len() - before.reads.len()) as u64;
            tally.writes += (row.writes.len() - before.writes.len()) as u64;
            tally.racing_reads += row.racing_reads() - before.racing_reads();
        }
        Ok(tally)
    }

    /// Returns the rows with the operations of the log added.
    fn rows_after(&self, ops: &[Op]) -> Vec<Row> {
        let mut rows = self.rows.clone();
        let good_flushes =
            ops.iter().filter(|op| matches!(op.kind, Kind::Flush) && matches!(op.end, End::Ok(_)));
        let last_flush = good_flushes.map(|op| self.start + op.began).max();
        for op in ops.iter().filter(|op| op.end != End::Refused) {
            for (nth, sector) in op.sectors().enumerate() {
                rows[sector as usize].add(op, nth, self.start);
            }
        }
        if let Some(began) = last_flush {
            rows.iter_mut().for_each(|row| row.flush(began));
        }
        rows
    }
}

impl Op {
    fn sectors(&self) -> std::ops::Range<u64> {
        let nr_sectors = match &self.kind {
            Kind::Write { nr_sectors, .. }
            | Kind::Zero { nr_sectors, .. }
            | Kind::Trim { nr_sectors } => *nr_sectors,
            Kind::Read(values) => values.len() as u64,
            Kind::Flush => 0,
        };
        self.first..self.first + nr_sectors
    }
}
