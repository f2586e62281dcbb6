//! Counters that only emulated behaviour of earlier systems has ([`Emulation`]).
//!
//! [`Emulation`]: crate::Emulation

/// The names of the counters, which are also those in JSON reports.
const NAMES: [&str; 7] = [
    "tag_wakeups",
    "vain_wakeups",
    "tag_sleeps",
    "run_arms",
    "run_rearms",
    "run_cancels",
    "worker_runs",
];

/// The counters of emulated behaviour, by name. All are 0 if the disk emulates nothing.
///
/// With `wake` other than `fair`:
///
/// - `tag_wakeups`: threads woken because tags were free;
/// - `vain_wakeups`: woken threads that found no tag;
/// - `tag_sleeps`: how many times a thread slept until it was woken for tags.
///
/// With `run_queue=always`:
///
/// - `run_arms`: how many times a run was queued: once per completed command;
/// - `run_rearms`: how many times a run was already queued, and was removed and added again;
/// - `run_cancels`: runs removed because the disk was stopped or quiesced;
/// - `worker_runs`: runs that the worker took off the list. It makes or skips them like any other
///   run.
///
/// `run_arms` equals `run_rearms` plus `run_cancels` plus `worker_runs`, plus one while a run is
/// queued.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EmulationStats([u64; NAMES.len()]);

impl EmulationStats {
    /// Returns the counter with this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        place(name).map(|place| self.0[place])
    }

    /// Returns all counters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.0)
    }

    /// Adds to a counter.
    ///
    /// # Panics
    /// Panics if there is no counter with this name.
    pub fn add(&mut self, name: &str, nr: u64) {
        self.0[place(name).expect("a counter of emulated behaviour")] += nr;
    }
}

fn place(name: &str) -> Option<usize> {
    NAMES.iter().position(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_and_returned_by_name() {
        let mut stats = EmulationStats::default();
        stats.add("tag_sleeps", 2);
        stats.add("worker_runs", 1);
        stats.add("tag_sleeps", 3);
        assert_eq!((stats.get("tag_sleeps"), stats.get("run_arms")), (Some(5), Some(0)));
        assert_eq!(stats.get("nonsense"), None);
        let counted: u64 = stats.iter().map(|(_, nr)| nr).sum();
        assert_eq!(counted, 6);
    }
}
