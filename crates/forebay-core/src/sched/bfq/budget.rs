//! How many bytes a slice may move (BF7).

use crate::scheduling::BfqParams;

/// The automatic budget before the first measurement, as in Linux (`bfq_default_max_budget`).
const FIRST_BYTES: u64 = 8 << 20;

/// The range of automatic budgets.
const MIN_BYTES: u64 = 512 << 10;
const MAX_BYTES: u64 = 256 << 20;

/// The budget of a slice.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// The budget that the user has set.
    set: Option<u64>,
    timeout_ns: u64,
    /// The mean rate of slices that read sequentially, in bytes per second. 0 without one.
    bytes_per_s: u64,
    /// The bytes and the time of such slices since the last measurement.
    bytes: u64,
    took_ns: u64,
}

impl Budget {
    pub(super) fn new(params: &BfqParams) -> Budget {
        let set = (params.max_budget > 0).then(|| u64::from(params.max_budget) * 512);
        Budget { set, timeout_ns: params.timeout_sync_ns, bytes_per_s: 0, bytes: 0, took_ns: 0 }
    }

    /// Returns the budget of a slice that begins now.
    pub(super) fn bytes(&self) -> u64 {
        match (self.set, self.bytes_per_s) {
            (Some(set), _) => set,
            (None, 0) => FIRST_BYTES,
            (None, bytes_per_s) => {
                let in_time = u128::from(bytes_per_s) * u128::from(self.timeout_ns);
                let bytes = in_time * 3 / 4 / 1_000_000_000;
                u64::try_from(bytes).unwrap_or(MAX_BYTES).clamp(MIN_BYTES, MAX_BYTES)
            }
        }
    }

    /// Records what the device has moved during a slice that read sequentially. A measurement takes
    /// a quarter of `timeout_sync`, in one slice or several.
    pub(super) fn measured(&mut self, bytes: u64, took_ns: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.took_ns = self.took_ns.saturating_add(took_ns);
        if self.took_ns == 0 || self.took_ns < self.timeout_ns / 4 {
            return;
        }
        let rate = u128::from(self.bytes) * 1_000_000_000 / u128::from(self.took_ns);
        (self.bytes, self.took_ns) = (0, 0);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.bytes_per_s = match self.bytes_per_s {
            0 => rate,
            mean => mean - mean / 8 + rate / 8,
        };
    }

    /// Returns what a slice costs that moved `bytes` in `took_ns` (BF5).
    pub(super) fn cost(&self, bytes: u64, took_ns: u64, budget: u64) -> u64 {
        let is_slow = took_ns >= self.timeout_ns && bytes < budget / 3 * 2;
        if is_slow { budget } else { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn automatic_budget_follows_the_rate_of_sequential_slices() {
        let mut budget = Budget::new(&BfqParams::default());
        assert_eq!(budget.bytes(), 8 << 20);
        budget.measured(4_000_000, 25 * MS);
        assert_eq!(budget.bytes(), 8 << 20, "25 ms are less than a quarter of 125 ms");
        budget.measured(12_000_000, 75 * MS);
        assert_eq!(budget.bytes(), 15_000_000, "160 MB/s for 93.75 ms");
        (0..60).for_each(|_| budget.measured(8_000_000, 100 * MS));
        let bytes = budget.bytes();
        assert!((7_500_000..7_520_000).contains(&bytes), "{bytes}");
        (0..99).for_each(|_| budget.measured(0, 100 * MS));
        assert_eq!(budget.bytes(), 512 << 10);
    }

    #[test]
    fn budget_that_is_set_stays() {
        let mut budget = Budget::new(&BfqParams::default().max_budget(100));
        budget.measured(16_000_000, 100 * MS);
        assert_eq!(budget.bytes(), 51_200);
    }

    #[test]
    fn slice_that_uses_its_time_and_not_its_budget_costs_the_whole_budget() {
        let budget = Budget::new(&BfqParams::default());
        assert_eq!(budget.cost(4096, 130 * MS, 9_000_000), 9_000_000);
        assert_eq!(budget.cost(7_000_000, 130 * MS, 9_000_000), 7_000_000);
        assert_eq!(budget.cost(4096, 50 * MS, 9_000_000), 4096);
    }
}
