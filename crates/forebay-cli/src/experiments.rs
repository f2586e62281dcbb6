//! Experimental settings: they emulate older systems or compare policies.

use forebay::{Knob, Policy};

/// The experimental values: key, value and explanation.
const EXPERIMENTS: [(&str, &str, &str); 10] = [
    ("wake", "stash", STASH),
    (
        "wake",
        "batch",
        "for comparison: emulates Linux 6.2 and later, which wakes waiters in batches",
    ),
    ("wake", "single", "for comparison: wakes one waiter for each tag"),
    ("plug", "per-level", "for comparison: the end of an inner plug ends a batch"),
    ("kick", "per-device", "for comparison: emulates the lock of QEMU before 8.1"),
    ("kick", "per-request", "for comparison: one system call for each request"),
    (
        "kick",
        "loop-end",
        "for comparison: emulates QEMU 10.2, which submits at the end of an event loop's iteration",
    ),
    (
        "run_queue",
        "always",
        "for comparison: emulates Linux in 2019, which queues a run for each completion",
    ),
    ("flush", "requeue", "for comparison: tries requests during a flush, in vain"),
    ("flush", "tail", "for comparison: emulates Linux 2.6.39"),
];

/// Returns a disk's experimental settings: key and explanation.
pub(crate) fn of(policy: &Policy) -> Vec<(&'static str, &'static str)> {
    let is_set = |key, value: &str| Knob::named(key).is_some_and(|knob| knob.get(policy) == value);
    let set = EXPERIMENTS.into_iter().filter(|&(key, value, _)| is_set(key, value));
    set.map(|(key, _, text)| (key, text)).collect()
}

/// The explanation of `wake=stash`. The figures are those of `forebay lab tags`.
const STASH: &str = "for experiments only: starves most threads while requests wait for tags \
                     (68 of 72 in `forebay lab tags`)";

/// Returns a warning, if the policy lets threads starve.
pub(crate) fn starvation(policy: &Policy) -> Option<String> {
    let is_stash = of(policy).contains(&("wake", STASH));
    is_stash.then(|| format!("wake=stash is {STASH}; use wake=fair"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_no_experiments_and_stash_is_a_warning() {
        assert!(of(&Policy::default()).is_empty());
        let with_wake = |wake| {
            let mut policy = Policy::default();
            assert!(Knob::named("wake").is_some_and(|knob| knob.set(&mut policy, wake)));
            policy
        };
        let stash = with_wake("stash");
        assert_eq!(of(&stash), [("wake", STASH)]);
        assert!(starvation(&stash).is_some_and(|text| text.contains("starves most threads")));
        assert_eq!(starvation(&with_wake("batch")), None);
    }

    #[test]
    fn experiments_are_values_of_settings() {
        for (key, value, _) in EXPERIMENTS {
            let knob = Knob::named(key).expect(key);
            assert!(knob.set(&mut Policy::default(), value), "{key}={value}");
            assert_ne!(knob.get(&Policy::default()), value, "{key}={value} is the default");
        }
    }
}
