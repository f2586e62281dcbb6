//! Each sector is a linearizable register (P3), and what was flushed outlives a crash (P2): whether
//! a log of what clients did to a disk can be explained by such registers.
//!
//! Every write has a [`Stamp`] of its own, so a read names the write that it saw, and nothing has
//! to be searched. The times are any clock's that all clients share: an operation lies somewhere
//! between when it began and when it ended. One that never ended, or failed, may have been done at
//! any time since it began, or never: it stays open for ever.
//!
//! This knows nothing of the core: the same check serves the simulator, the drivers and servers.
//! The simulator has another register (`check/register.rs`), which looks at each event as it comes.
//!
//! - [`stamp`](Stamp): what is written into a sector, and what is read back;
//! - `row`: what happened to one sector;
//! - `zones`: whether that can be explained, in O(n log n);
//! - `crash`: what may be there after one.
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
    /// What was asked for, and what a read brought.
    pub kind: Kind,
    /// The first sector; a flush has none.
    pub first: u64,
    /// When it was asked for.
    pub began: u64,
    /// What became of it.
    pub end: End,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every sector gets the stamp, which no other write of that sector has.
    Write {
        /// What is written.
        stamp: Stamp,
        /// Of so many sectors.
        nr_sectors: u64,
        /// It is durable when it has ended.
        fua: bool,
    },
    /// Every sector reads as zeroes from then on.
    Zero {
        /// Of so many sectors.
        nr_sectors: u64,
        /// It is durable when it has ended.
        fua: bool,
    },
    /// Every sector reads as zeroes from then on, or is as it was.
    Trim {
        /// Of so many sectors.
        nr_sectors: u64,
    },
    /// What was read, for each sector.
    Read(Vec<Value>),
    /// What had ended before it began is durable once it has ended well.
    Flush,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Well, at that time.
    Ok(u64),
    /// It was refused, and nothing of it was done or will be.
    Refused,
    /// Nobody knows: it failed, or its client or server was gone.
    Unknown,
}

/// Why a log cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Of this sector.
    pub sector: u64,
    /// Which promise is broken.
    pub rule: Rule,
    /// The operations that contradict each other.
    pub what: String,
}

/// What a sector is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A read brings one write's data, whole, and meant for that sector.
    Whole,
    /// What is read was written, or is being written.
    Written,
    /// Nobody reads what was overwritten, nor anything older than what somebody has read.
    Fresh,
    /// After a crash nothing is older than what was flushed.
    Durable,
}

/// How much a check has looked at, so that a test can say that it was enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads of one sector each.
    pub reads: u64,
    /// Writes and zeroes of one sector each.
    pub writes: u64,
    /// Reads of a sector that another operation wrote meanwhile.
    pub racing_reads: u64,
}

/// A disk's sectors: what they may hold when a log begins.
#[derive(Clone, Debug)]
pub struct Sectors {
    rows: Vec<Row>,
    /// The time of the next log's beginning. Not 0 behind a server's death, which ends no row.
    start: u64,
}

impl Sectors {
    /// A disk of zeroes.
    pub fn new(nr_sectors: u64) -> Sectors {
        let rows = (0..nr_sectors).map(|_| Row::starting_with(Value::Zero)).collect();
        Sectors { rows, start: 0 }
    }

    /// Whether a log can be explained. The operations may come in any order.
    ///
    /// # Errors
    /// What cannot be, of the lowest sector.
    ///
    /// # Panics
    /// If an operation goes beyond the disk, or a stamp was used twice for a sector.
    pub fn check(&self, ops: &[Op]) -> Result<Tally, Box<Anomaly>> {
        let mut tally = Tally::default();
        for (sector, (row, before)) in self.told(ops).iter().zip(&self.rows).enumerate() {
            row.check(sector as u64)?;
            tally.reads += (row.reads.len() - before.reads.len()) as u64;
            tally.writes += (row.writes.len() - before.writes.len()) as u64;
            tally.racing_reads += row.racing_reads() - before.racing_reads();
        }
        Ok(tally)
    }

    /// The rows, with what the log says of each.
    fn told(&self, ops: &[Op]) -> Vec<Row> {
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
