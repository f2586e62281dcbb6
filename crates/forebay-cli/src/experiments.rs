//! Experimental settings: they emulate older systems or compare policies.

use forebay::{FlushPolicy, KickPolicy, PlugPolicy, Policy, RunQueuePolicy, WakePolicy};

/// Returns a disk's experimental settings: key and explanation.
pub(crate) fn of(policy: &Policy) -> Vec<(&'static str, &'static str)> {
    let wake = match policy.wake {
        WakePolicy::Stash => Some(STASH),
        WakePolicy::Batch => {
            Some("for comparison: emulates Linux 6.2 and later, which wakes waiters in batches")
        }
        WakePolicy::Single => Some("for comparison: wakes one waiter for each tag"),
        _ => None,
    };
    let plug = (policy.plug == PlugPolicy::PerLevel)
        .then_some("for comparison: the end of an inner plug ends a batch");
    let kick = match policy.kick {
        KickPolicy::PerDevice => Some("for comparison: emulates the lock of QEMU before 8.1"),
        KickPolicy::PerRequest => Some("for comparison: one system call for each request"),
        KickPolicy::LoopEnd => Some(
            "for comparison: emulates QEMU 10.2, which submits at the end \
                                     of an event loop's iteration",
        ),
        KickPolicy::Deferred => None,
    };
    let run_queue = (policy.run_queue == RunQueuePolicy::Always).then_some(
        "for comparison: emulates Linux in 2019, which queues a run for each \
                    completion",
    );
    let flush = match policy.flush {
        FlushPolicy::Requeue => Some("for comparison: tries requests during a flush, in vain"),
        FlushPolicy::Tail => Some("for comparison: emulates Linux 2.6.39"),
        FlushPolicy::Hold => None,
    };
    let all = [
        ("wake", wake),
        ("plug", plug),
        ("kick", kick),
        ("run_queue", run_queue),
        ("flush", flush),
    ];
    all.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
}

/// The explanation of `wake=stash`. The figures are those of `forebay lab tags`.
const STASH: &str = "for experiments only: starves most threads while requests wait for tags \
                     (68 of 72 in `forebay lab tags`)";

/// Returns a warning, if the policy lets threads starve.
pub(crate) fn starvation(policy: &Policy) -> Option<String> {
    (policy.wake == WakePolicy::Stash).then(|| format!("wake=stash is {STASH}; use wake=fair"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_no_experiments_and_stash_is_a_warning() {
        assert!(of(&Policy::default()).is_empty());
        let stash = Policy::default().wake(WakePolicy::Stash);
        assert_eq!(of(&stash), [("wake", STASH)]);
        assert!(starvation(&stash).is_some_and(|text| text.contains("starves most threads")));
        assert_eq!(starvation(&Policy::default().wake(WakePolicy::Batch)), None);
    }
}
