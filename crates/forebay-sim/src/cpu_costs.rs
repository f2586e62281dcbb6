//! Processor time of the layer, in virtual time.
//!
//! Each task has a processor of its own, which a cost occupies. A turn's costs are paid with the
//! token held, so tasks of the shared context wait for each other.

use forebay_core::parse_size;

/// The maximum of a cost, ns.
const NS_MAX: u64 = 1_000_000_000;

/// How long each action takes, ns. All are zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCosts {
    /// To make and submit a bio.
    pub submit_ns: u64,
    /// A turn of a hardware context, without the following steps.
    pub turn_ns: u64,
    /// To issue a request, in a turn.
    pub request_ns: u64,
    /// To complete a request, in a turn.
    pub complete_ns: u64,
    /// To reap a bio that has ended.
    pub reap_ns: u64,
    /// From the wake-up of a sleeping task to its next step.
    pub wake_ns: u64,
}

impl CpuCosts {
    /// The keys, in the order of the fields.
    pub const KEYS: [&str; 6] = [
        "cpu_submit_ns",
        "cpu_turn_ns",
        "cpu_request_ns",
        "cpu_complete_ns",
        "cpu_reap_ns",
        "cpu_wake_ns",
    ];

    /// The layer's own time on a disk that does nothing (`null`), with the time of the load
    /// generator. A system call, the kernel and an interrupt come on top.
    ///
    /// The instructions of each part were counted, in batches of 32 and singly. `bench` ran 17.5 of
    /// them per ns on the machine where both were measured (`bench/PROFILE.md`). So a read takes 89
    /// ns singly, and 55 ns in a batch of 32.
    pub const OF_NULL: CpuCosts = CpuCosts {
        submit_ns: 30,
        turn_ns: 35,
        request_ns: 6,
        complete_ns: 7,
        reap_ns: 11,
        wake_ns: 0,
    };

    /// Sets the cost with this key. Returns `None` if no cost has this key.
    ///
    /// # Errors
    /// The value is no number, or out of range.
    pub fn set(&mut self, key: &str, text: &str) -> Option<Result<(), String>> {
        let CpuCosts { submit_ns, turn_ns, request_ns, complete_ns, reap_ns, wake_ns } = self;
        let costs = [submit_ns, turn_ns, request_ns, complete_ns, reap_ns, wake_ns];
        let (_, cost) = CpuCosts::KEYS.iter().zip(costs).find(|(name, _)| **name == key)?;
        Some(match parse_size(text).filter(|ns| *ns <= NS_MAX) {
            Some(ns) => {
                *cost = ns;
                Ok(())
            }
            None => Err(format!("expected a number of ns from 0 to {NS_MAX}")),
        })
    }

    /// Returns the time of a turn that issues and completes so many requests.
    pub(crate) fn turn_of(&self, nr_issued: u64, nr_completed: u64) -> u64 {
        self.turn_ns + nr_issued * self.request_ns + nr_completed * self.complete_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_sets_the_cost_of_its_name() {
        let mut costs = CpuCosts::default();
        for (nth, key) in CpuCosts::KEYS.iter().enumerate() {
            assert_eq!(costs.set(key, &(nth + 1).to_string()), Some(Ok(())));
        }
        let CpuCosts { submit_ns, turn_ns, request_ns, complete_ns, reap_ns, wake_ns } = costs;
        let all = [submit_ns, turn_ns, request_ns, complete_ns, reap_ns, wake_ns];
        assert_eq!(all, [1, 2, 3, 4, 5, 6]);
        assert_eq!(costs.set("cpu_ns", "1"), None);
        assert!(costs.set("cpu_turn_ns", "-1").is_some_and(|set| set.is_err()));
        assert_eq!(costs.turn_of(2, 1), 2 + 2 * 3 + 4);
    }
}
