//! Commands that were given up and may change the device (H6), or sync it.

/// A range of such a command, in blocks. That of a flush is empty.
#[derive(Clone, Copy, Debug)]
struct Range {
    block: u64,
    nr: u64,
    /// When the command completed; `u64::MAX`: it is at the driver.
    ended_at: u64,
}

/// The commands at drivers that were given up, and those that have completed since.
///
/// The layer keeps one range for all of them, which only grows.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    ranges: Vec<Range>,
    /// The first block of all that were given up, and the one after the last.
    all: Option<(u64, u64)>,
}

impl GivenUp {
    pub(super) fn clear(&mut self) {
        *self = GivenUp::default();
    }

    /// Records that a command with these ranges, as (first block, number), is given up.
    pub(super) fn add(&mut self, ranges: impl Iterator<Item = (u64, u64)>) {
        for (block, nr) in ranges {
            self.ranges.push(Range { block, nr, ended_at: u64::MAX });
            if nr == 0 {
                continue;
            }
            let (from, to) = self.all.unwrap_or((block, block));
            self.all = Some((from.min(block), to.max(block + nr)));
        }
    }

    /// Records that such a command has completed at `now`. No bio that is in the layer was queued
    /// before `oldest_at`.
    pub(super) fn complete(
        &mut self,
        ranges: impl Iterator<Item = (u64, u64)>,
        now: u64,
        oldest_at: u64,
    ) {
        for ended in ranges {
            let is_it =
                |range: &&mut Range| range.ended_at == u64::MAX && (range.block, range.nr) == ended;
            let range = self.ranges.iter_mut().find(is_it).expect("it was given up");
            range.ended_at = now;
        }
        self.ranges.retain(|range| range.ended_at > oldest_at);
    }

    /// Returns whether one was at the driver at some time after `since`.
    pub(super) fn any(&self, since: u64) -> bool {
        self.ranges.iter().any(|range| range.ended_at > since)
    }

    /// Returns whether one was at the driver at some time after `since`, and the range of all of
    /// them overlaps these blocks.
    pub(super) fn overlap(&self, block: u64, nr: u64, since: u64) -> bool {
        self.any(since) && self.all.is_some_and(|(from, to)| from < block + nr && block < to)
    }
}
