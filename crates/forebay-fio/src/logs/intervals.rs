//! Intervals of a log: one after another, all of one length.

/// The interval that is open.
#[derive(Debug, Clone)]
pub(super) struct Intervals {
    /// The length; 0: there are no intervals.
    every_ms: u64,
    begin_ns: u64,
}

impl Intervals {
    pub(super) fn new(every_ms: u64) -> Self {
        Self { every_ms, begin_ns: 0 }
    }

    /// Returns whether there are intervals.
    pub(super) fn are_on(&self) -> bool {
        self.every_ms > 0
    }

    /// Returns the start of the open interval.
    pub(super) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// Returns the end of the open interval; `u64::MAX` if there are no intervals.
    pub(super) fn end_ns(&self) -> u64 {
        match self.length_ns() {
            0 => u64::MAX,
            length_ns => self.begin_ns.saturating_add(length_ns),
        }
    }

    /// Begins the first interval.
    pub(super) fn restart(&mut self, now_ns: u64) {
        self.begin_ns = now_ns;
    }

    /// Begins the next interval. Intervals follow each other without drift, unless one was missed.
    pub(super) fn next(&mut self, now_ns: u64) {
        let due_ns = self.end_ns();
        let is_near = now_ns.saturating_sub(due_ns) < self.length_ns();
        self.begin_ns = if is_near { due_ns } else { now_ns };
    }

    fn length_ns(&self) -> u64 {
        self.every_ms.saturating_mul(1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_interval_causes_no_drift_and_a_missed_one_is_left_out() {
        const MS: u64 = 1_000_000;
        let mut intervals = Intervals::new(10);
        intervals.restart(5 * MS);
        for (now_ms, begin_ms) in [(15, 15), (34, 25), (45, 45), (56, 55)] {
            intervals.next(now_ms * MS);
            assert_eq!(intervals.begin_ns(), begin_ms * MS, "{now_ms}");
            assert_eq!(intervals.end_ns(), (begin_ms + 10) * MS, "{now_ms}");
        }
        assert_eq!(Intervals::new(0).end_ns(), u64::MAX);
    }
}
