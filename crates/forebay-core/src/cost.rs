//! Cost of an I/O, which weights divide among owners.
//!
//! Counterpart in Linux: the linear model of `blk-iocost.c`, which has a cost for each I/O and one
//! for each page, for reads and writes, and for sequential and random I/O. Here all I/O of one
//! direction has the same two constants.

use crate::bio::Op;

/// A linear cost model of a device: a fixed time for each request, even if it joins several I/Os,
/// plus a time for each byte.
///
/// Discards and write-zeroes cost as much as a write of no bytes, because no data is transferred.
/// A flush is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CostModel {
    /// Nanoseconds for each read request.
    pub read_io_ns: u64,
    /// Picoseconds for each byte read. 1000 are 1 GB/s.
    pub read_byte_ps: u64,
    /// Nanoseconds for each write request.
    pub write_io_ns: u64,
    /// Picoseconds for each byte written.
    pub write_byte_ps: u64,
}

impl Default for CostModel {
    /// Returns a device of 100,000 I/Os and 1 GB per second, in either direction.
    fn default() -> CostModel {
        CostModel::new(10_000, 1000, 10_000, 1000)
    }
}

/// The measure in which weights divide a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WeightBy {
    /// Bytes of reads, writes, discards and write-zeroes.
    Bytes,
    /// I/Os.
    Ios,
    /// Time of the device, by its [`CostModel`].
    #[default]
    Cost,
}

impl WeightBy {
    /// All measures.
    pub const ALL: [WeightBy; 3] = [WeightBy::Bytes, WeightBy::Ios, WeightBy::Cost];

    /// Returns the name used in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            WeightBy::Bytes => "bytes",
            WeightBy::Ios => "ios",
            WeightBy::Cost => "cost",
        }
    }
}

impl CostModel {
    /// Creates a model: nanoseconds for each read, picoseconds for each byte read, and the same for
    /// writes.
    pub const fn new(
        read_io_ns: u64,
        read_byte_ps: u64,
        write_io_ns: u64,
        write_byte_ps: u64,
    ) -> CostModel {
        CostModel { read_io_ns, read_byte_ps, write_io_ns, write_byte_ps }
    }

    /// Returns the cost of a request that joins `nr_ios` I/Os: bytes, I/Os, or picoseconds of one
    /// request. Sums that overflow are `u64::MAX`.
    #[inline]
    pub const fn cost(&self, by: WeightBy, op: Op, nr_ios: u32, bytes: u64) -> u64 {
        if matches!(op, Op::Flush) {
            return 0;
        }
        let (io_ns, byte_ps) = match op {
            Op::Read => (self.read_io_ns, self.read_byte_ps),
            _ => (self.write_io_ns, self.write_byte_ps),
        };
        let transferred = if op.moves_data() { bytes } else { 0 };
        match by {
            WeightBy::Bytes => bytes,
            WeightBy::Ios => nr_ios as u64,
            WeightBy::Cost => {
                io_ns.saturating_mul(1000).saturating_add(byte_ps.saturating_mul(transferred))
            }
        }
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn cost_has_a_part_for_each_io_and_each_byte_of_its_direction() {
        let model = CostModel::new(20, 3, 50, 7);
        let by = |by, op| model.cost(by, op, 1, 4096);
        for (op, expected) in [
            (Op::Read, 20_000 + 3 * 4096),
            (Op::Write, 50_000 + 7 * 4096),
            (Op::Discard, 50_000),
            (Op::WriteZeroes, 50_000),
        ] {
            assert_eq!(by(WeightBy::Cost, op), expected, "{op:?}");
            assert_eq!((by(WeightBy::Bytes, op), by(WeightBy::Ios, op)), (4096, 1), "{op:?}");
        }
        assert_eq!(WeightBy::ALL.map(|measure| by(measure, Op::Flush)), [0; 3]);
        let huge = CostModel::new(u64::MAX, u64::MAX, 0, 0);
        assert_eq!(huge.cost(WeightBy::Cost, Op::Read, 1, u64::MAX), u64::MAX);
        assert_eq!(WeightBy::ALL.map(WeightBy::name), ["bytes", "ios", "cost"]);
    }
}
