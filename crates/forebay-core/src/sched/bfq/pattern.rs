//! How the owner of a queue submits: whether its next request is worth waiting for.
//!
//! Counterparts in Linux: `bfq_update_io_thinktime` and `bfq_update_io_seektime`
//! (`block/bfq-iosched.c`), with the same constants.

/// Requests that begin farther than this from the end of the one before are seeks.
const SEEK_BYTES: u64 = 400 << 10;

/// The most seeks among 32 requests of a sequential stream.
const SEEKS_MAX: u32 = 19;

/// The pattern of the requests in a queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Pattern {
    /// The end of the request that was inserted last.
    last_end: u64,
    /// Which of the last 32 requests were seeks, as bits.
    seeks: u32,
    /// The mean time from the end of the last request to the insertion of the next.
    think_ns: u64,
    /// When the last request was completed.
    ended_ns: Option<u64>,
    /// The last request that went was a read.
    reads: bool,
}

impl Pattern {
    /// Records the insertion of a request. `is_quiet`: no other is queued or at the device. A
    /// longer time than twice `idle_ns` counts as that.
    pub(super) fn inserted(
        &mut self,
        start: u64,
        len: u64,
        now: u64,
        is_quiet: bool,
        idle_ns: u64,
    ) {
        if let Some(ended_ns) = self.ended_ns
            && is_quiet
        {
            let sample_ns = now.saturating_sub(ended_ns).min(idle_ns.saturating_mul(2));
            self.think_ns = self.think_ns - self.think_ns / 8 + sample_ns / 8;
        }
        let is_seek = start.abs_diff(self.last_end) > SEEK_BYTES;
        self.seeks = self.seeks << 1 | u32::from(is_seek);
        self.last_end = start + len;
    }

    /// Records that a queued request has grown up to `end`.
    pub(super) fn grown(&mut self, end: u64) {
        self.last_end = end;
    }

    /// Records that a request went.
    pub(super) fn went(&mut self, is_read: bool) {
        self.reads = is_read;
    }

    /// Records that a request is done.
    pub(super) fn ended(&mut self, now: u64) {
        self.ended_ns = Some(now);
    }

    /// Returns when the last request was done, or 0.
    pub(super) fn ended_ns(&self) -> u64 {
        self.ended_ns.unwrap_or(0)
    }

    /// Returns whether the owner reads sequentially.
    pub(super) fn is_stream(&self) -> bool {
        self.reads && self.seeks.count_ones() <= SEEKS_MAX
    }

    /// Returns whether the next request is expected within `idle_ns`, and is worth that time.
    /// `weights_differ`: without the wait, a reader of a high weight would lose its share.
    pub(super) fn is_awaited(&self, idle_ns: u64, weights_differ: bool) -> bool {
        self.reads && self.think_ns <= idle_ns && (weights_differ || self.is_stream())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Submits `nr` reads, each `think_ns` after the end of the one before.
    fn submit(pattern: &mut Pattern, nr: u64, distance: u64, think_ns: u64) {
        for nth in 0..nr {
            let now = nth * (think_ns + MS);
            pattern.inserted(nth * (4096 + distance), 4096, now, true, 8 * MS);
            pattern.went(true);
            pattern.ended(now + MS);
        }
    }

    #[test]
    fn reader_is_awaited_if_it_is_sequential_and_quick() {
        let mut pattern = Pattern::default();
        submit(&mut pattern, 40, 0, 2 * MS);
        assert!(pattern.is_stream() && pattern.is_awaited(8 * MS, false));
        pattern.went(false);
        assert!(!pattern.is_awaited(8 * MS, true), "the last request was a write");
        let mut slow = Pattern::default();
        submit(&mut slow, 40, 0, 12 * MS);
        assert!(slow.is_stream() && !slow.is_awaited(8 * MS, true));
        submit(&mut slow, 40, 0, 2 * MS);
        assert!(slow.is_awaited(8 * MS, false), "it has become quick");
    }

    #[test]
    fn random_reader_is_awaited_only_among_owners_of_different_weights() {
        let mut pattern = Pattern::default();
        submit(&mut pattern, 40, 1 << 20, MS);
        assert!(!pattern.is_stream() && !pattern.is_awaited(8 * MS, false));
        assert!(pattern.is_awaited(8 * MS, true));
    }
}
