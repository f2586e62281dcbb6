//! Number of requests that one round takes from a ring.
//!
//! A round submits its requests together, so that adjacent ones merge. Scattered requests gain
//! nothing from that. In small rounds, the device begins with the first requests, and the driver
//! gets their answers, while the front takes the others. So a round takes few scattered requests,
//! and the next round follows at once. Each round takes twice as many as the one before, so a long
//! queue costs few rounds.
//!
//! With 32 reads in flight on a direct file, rounds that took the whole queue left the device idle
//! for a sixth of the time.

/// Maximum number of scattered requests in the first round.
const FIRST: u32 = 2;
/// Maximum number of scattered requests in any round: the size of the largest ring.
const MAX: u32 = 1024;

/// Bounds the number of scattered requests in a round.
#[derive(Debug)]
pub(super) struct Batch {
    /// First byte behind the last read or write.
    end: u64,
    nr_scattered: u32,
    limit: u32,
}

impl Batch {
    /// Creates the batch of a ring from which no request was taken yet.
    pub(super) fn new() -> Batch {
        Batch { end: 0, nr_scattered: 0, limit: FIRST }
    }

    /// Adds a read or a write. It is scattered unless it begins where the previous one ends.
    #[inline]
    pub(super) fn add(&mut self, offset: u64, len: u64) {
        self.nr_scattered += u32::from(offset != self.end);
        self.end = offset + len;
    }

    /// Returns whether the round should take no more requests.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.nr_scattered >= self.limit
    }

    /// Ends the batch of a round. The limit grows if it was reached.
    #[inline]
    pub(super) fn finish(&mut self) {
        self.limit = if self.is_full() { (2 * self.limit).min(MAX) } else { FIRST };
        self.nr_scattered = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_scattered_requests_doubles_until_a_round_takes_fewer() {
        let mut batch = Batch::new();
        let mut sizes = Vec::new();
        for nr_available in [100, 100, 100, 100, 3, 100] {
            let nr = (0..nr_available).take_while(|nr| {
                let is_full = batch.is_full();
                if !is_full {
                    batch.add((nr + 1) * 8192, 4096);
                }
                !is_full
            });
            sizes.push(nr.count());
            batch.finish();
        }
        assert_eq!(sizes, [2, 4, 8, 16, 3, 2]);
    }

    #[test]
    fn adjacent_requests_do_not_fill_a_batch() {
        let mut batch = Batch::new();
        for nr in 0..1000 {
            assert!(!batch.is_full(), "{nr} requests");
            batch.add((256 + nr) * 4096, 4096);
        }
    }
}
