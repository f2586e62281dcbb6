//! Limit of the rate of one kind of event, which counts what it leaves out.

/// How many events pass in one interval.
pub(super) const BURST: u32 = 10;

/// The length of an interval: 5 s, as in Linux (`DEFAULT_RATELIMIT_INTERVAL`).
pub(super) const INTERVAL_NS: u64 = 5_000_000_000;

/// The events of the present interval.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    /// When the interval ends; 0 before the first event.
    until_ns: u64,
    nr_passed: u32,
    nr_left_out: u64,
}

impl RateLimit {
    /// Returns whether an event passes, with the number of those that were left out before it.
    pub(super) fn pass(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns >= self.until_ns {
            (self.until_ns, self.nr_passed) = (now_ns.saturating_add(INTERVAL_NS), 0);
        }
        if self.nr_passed == BURST {
            self.nr_left_out += 1;
            return None;
        }
        self.nr_passed += 1;
        Some(std::mem::take(&mut self.nr_left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storm_passes_a_burst_in_each_interval_and_is_counted() {
        let mut limit = RateLimit::default();
        let begin_ns = 7_000_000_000;
        for at in 0..u64::from(BURST) {
            assert_eq!(limit.pass(begin_ns + at), Some(0));
        }
        assert_eq!(limit.pass(begin_ns + 100), None);
        assert_eq!(limit.pass(begin_ns + INTERVAL_NS - 1), None);
        assert_eq!(limit.pass(begin_ns + INTERVAL_NS), Some(2), "the count is reported once");
        assert_eq!(limit.pass(begin_ns + INTERVAL_NS), Some(0));
    }
}
