//! The choice between syncs that each thread makes alone, and shared ones.
//!
//! The kernel runs cheap syncs of several threads beside each other, and shared ones, one at a
//! time, would be slower. Dear ones gain as many times as there are threads. The time of a sync
//! does not show which is the case: it contains the wait for other syncs and for a processor. So
//! both modes are tried for a short time each. If the shared syncs win clearly, or twice, by syncs
//! per second, they are used for a longer time, and otherwise those alone. Then both are tried
//! again.
//!
//! A trial begins when all syncs of the other mode have ended. On a busy machine one trial may be
//! slow by chance, so the better one of two counts for the syncs alone.
//!
//! The counters order nothing, and two files may have them in common, so they only guide. A handler
//! of signals that interrupts a sync alone and never returns leaves one counted as running. So a
//! trial waits for the end of the others only for a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The shortest trial, in nanoseconds and in syncs.
const TRIAL_NS: u64 = 10_000_000;
const TRIAL_SYNCS: u32 = 16;

/// The shortest time between trials, in nanoseconds, and in times that the last ones took.
const PERIOD_NS: u64 = 1_000_000_000;
const PERIOD_TRIALS: u64 = 16;

/// The longest wait for the end of syncs of the other mode, in nanoseconds.
const DRAIN_NS: u64 = 1_000_000_000;

/// Shared syncs win a pair of trials if their rate is at least this percentage of the rate of
/// separate ones.
const GAIN_MIN: u64 = 125;

/// They win clearly with this percentage.
const GAIN_CLEAR: u64 = 400;

/// The number of pairs of trials that they have to win otherwise.
const NR_WINS: u32 = 2;

/// The mode of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The thread makes its own.
    Separate,
    Shared,
    /// As [`Mode::Separate`], and not counted: shared syncs have lost the trials.
    Settled,
}

/// The phases of a choice, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    TrySeparate,
    TryShared,
    Chosen,
}

/// The choice for a file.
#[derive(Debug)]
pub(super) struct Choice {
    /// A [`Mode`] as a number.
    mode: AtomicU32,
    /// The counted syncs that run: separate ones, and shared ones.
    nr_running: [AtomicU32; 2],
    /// The time from which on the phase may end.
    end_ns: AtomicU64,
    /// The counted syncs that have ended in the phase.
    nr_ended: AtomicU32,
    phases: Mutex<Phases>,
}

#[derive(Debug)]
struct Phases {
    phase: Phase,
    /// The time at which the phase began to count. `None` while syncs of the other mode run.
    began_ns: Option<u64>,
    /// The time since which it waits for them.
    since_ns: Option<u64>,
    /// The time at which the trials began.
    first_ns: Option<u64>,
    /// The most syncs per second in the trials of those alone.
    rate_separate: u64,
    /// The pairs of trials that shared syncs have won.
    nr_wins: u32,
}

impl Phases {
    const FIRST: Phases = Phases {
        phase: Phase::TrySeparate,
        began_ns: None,
        since_ns: None,
        first_ns: None,
        rate_separate: 0,
        nr_wins: 0,
    };

    /// Begins the next phase, after one with so many syncs per second. Returns whether its syncs
    /// are shared.
    fn next(&mut self, rate: u64) -> bool {
        (self.began_ns, self.since_ns) = (None, None);
        match self.phase {
            Phase::TrySeparate => {
                self.rate_separate = self.rate_separate.max(rate);
                self.phase = Phase::TryShared;
                true
            }
            Phase::TryShared => {
                let gain = rate.saturating_mul(100) / self.rate_separate.max(1);
                let is_win = gain >= GAIN_MIN;
                self.nr_wins += if gain >= GAIN_CLEAR { NR_WINS } else { is_win.into() };
                let is_decided = !is_win || self.nr_wins >= NR_WINS;
                self.phase = if is_decided { Phase::Chosen } else { Phase::TrySeparate };
                is_decided && is_win
            }
            Phase::Chosen => {
                *self = Phases::FIRST;
                false
            }
        }
    }
}

impl Choice {
    pub(super) const fn new() -> Choice {
        Choice {
            mode: AtomicU32::new(Mode::Separate as u32),
            nr_running: [AtomicU32::new(0), AtomicU32::new(0)],
            end_ns: AtomicU64::new(0),
            nr_ended: AtomicU32::new(0),
            phases: Mutex::new(Phases::FIRST),
        }
    }

    fn mode(&self) -> Mode {
        let mode = self.mode.load(Ordering::Relaxed);
        let all = [Mode::Separate, Mode::Shared];
        all.into_iter().find(|it| *it as u32 == mode).unwrap_or(Mode::Settled)
    }

    /// Begins a sync. Returns its mode.
    pub(super) fn begin(&self) -> Mode {
        let mode = self.mode();
        if mode != Mode::Settled {
            self.nr_running[mode as usize].fetch_add(1, Ordering::Relaxed);
        }
        mode
    }

    /// Ends a sync, at this time. Returns whether [`advance`](Choice::advance) is due.
    pub(super) fn end(&self, mode: Mode, now_ns: u64) -> bool {
        let is_over = now_ns >= self.end_ns.load(Ordering::Relaxed);
        if mode == Mode::Settled {
            return is_over;
        }
        self.nr_running[mode as usize].fetch_sub(1, Ordering::Relaxed);
        let nr = self.nr_ended.fetch_add(1, Ordering::Relaxed) + 1;
        nr >= TRIAL_SYNCS && is_over
    }

    /// Begins to count in a phase, or begins the next one. The caller has blocked its signals.
    pub(super) fn advance(&self, now_ns: u64) {
        let Ok(mut phases) = self.phases.try_lock() else { return };
        let Some(began_ns) = phases.began_ns else {
            let other = if self.mode() == Mode::Shared { Mode::Separate } else { Mode::Shared };
            let nr_other = self.nr_running[other as usize].load(Ordering::Relaxed);
            let since = *phases.since_ns.get_or_insert(now_ns);
            if nr_other == 0 || now_ns >= since + DRAIN_NS {
                self.begin_count(&mut phases, now_ns);
            }
            return;
        };
        // Several threads may see the end of a phase at once. The first one has begun the next.
        let is_counted = self.mode() != Mode::Settled;
        let is_short = is_counted && self.nr_ended.load(Ordering::Relaxed) < TRIAL_SYNCS;
        if is_short || now_ns < self.end_ns.load(Ordering::Relaxed) {
            return;
        }
        let time = now_ns.saturating_sub(began_ns).max(1);
        let nr = u64::from(self.nr_ended.swap(0, Ordering::Relaxed));
        let rate = nr.saturating_mul(1_000_000_000) / time;
        let is_shared = phases.next(rate);
        let mode = match phases.phase {
            _ if is_shared => Mode::Shared,
            Phase::Chosen => Mode::Settled,
            _ => Mode::Separate,
        };
        self.end_ns.store(0, Ordering::Relaxed);
        if mode == Mode::Settled {
            self.begin_count(&mut phases, now_ns);
        }
        self.mode.store(mode as u32, Ordering::Relaxed);
    }

    /// Begins to count in a phase.
    fn begin_count(&self, phases: &mut Phases, now_ns: u64) {
        let first = *phases.first_ns.get_or_insert(now_ns);
        let time = match phases.phase {
            Phase::Chosen => PERIOD_NS.max(now_ns.saturating_sub(first) * PERIOD_TRIALS),
            _ => TRIAL_NS,
        };
        phases.began_ns = Some(now_ns);
        self.nr_ended.store(0, Ordering::Relaxed);
        self.end_ns.store(now_ns + time, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes syncs one after the other, of which each takes a time, in nanoseconds, that depends on
    /// its mode. Returns the times at which the mode has changed, in milliseconds.
    fn changes(separate_ns: u64, shared_ns: u64, end_ns: u64) -> Vec<(Mode, u64)> {
        let choice = Choice::new();
        let (mut now, mut changes) = (0, vec![(Mode::Separate, 0)]);
        while now < end_ns {
            let mode = choice.begin();
            let shown = if mode == Mode::Shared { mode } else { Mode::Separate };
            if changes.last().is_some_and(|(last, _)| *last != shown) {
                changes.push((shown, now / 1_000_000));
            }
            now += if mode == Mode::Shared { shared_ns } else { separate_ns };
            if choice.end(mode, now) {
                choice.advance(now);
            }
        }
        changes
    }

    #[test]
    fn cheap_syncs_are_shared_only_during_trials() {
        let expected = [(Mode::Separate, 0), (Mode::Shared, 10), (Mode::Separate, 20)];
        let changes = changes(10_000, 50_000, 2_000_000_000);
        assert_eq!(changes[..3], expected);
        let (mode, at) = changes[3];
        assert!(mode == Mode::Shared && (1030..1040).contains(&at), "{changes:?}");
        assert_eq!(changes.len(), 5);
    }

    #[test]
    fn dear_syncs_are_shared_between_trials() {
        // A clear win ends the trials at once; a smaller one needs another pair.
        for (shared_ns, nr_pairs) in [(100_000, 1), (500_000, 2)] {
            let changes = changes(1_000_000, shared_ns, 2_000_000_000);
            let modes: Vec<_> = changes.iter().map(|(mode, _)| *mode).collect();
            assert_eq!(modes, [Mode::Separate, Mode::Shared].repeat(2 * nr_pairs));
            let chosen = 2 * nr_pairs - 1;
            assert!(changes[chosen + 1].1 - changes[chosen].1 > 1000, "{changes:?}");
        }
    }

    #[test]
    fn trials_of_slow_syncs_take_a_small_part_of_the_time() {
        let changes = changes(10_000_000, 5_000_000, 60_000_000_000);
        let trials: Vec<_> = changes.iter().filter(|(mode, _)| *mode == Mode::Separate).collect();
        assert!(trials.len() <= 16, "{changes:?}");
    }

    #[test]
    fn trial_begins_when_the_syncs_of_the_other_mode_have_ended() {
        let choice = Choice::new();
        let slow = choice.begin();
        let mut now = 0;
        let mut make = |nr: u32| {
            for _ in 0..nr {
                let mode = choice.begin();
                now += 1_000_000;
                if choice.end(mode, now) {
                    choice.advance(now);
                }
            }
            u32::from(choice.mode() == Mode::Shared)
        };
        assert_eq!(make(100), 1, "shared syncs are tried, and have not begun to count");
        assert_eq!(make(900), 1);
        choice.end(slow, 1_000_000_000);
        assert_eq!(make(100), 0, "their trial has ended");
        let _interrupted = choice.begin();
        assert!((0..20_000).any(|_| make(1) == 1), "shared syncs are tried again");
        assert_eq!(make(1100), 0, "the trial has not waited for the sync that never ends");
    }

    #[test]
    fn threads_that_see_the_end_of_a_phase_at_once_end_it_once() {
        let choice = Choice::new();
        let mut now = 0;
        for _ in 0..20_000 {
            let modes = [choice.begin(), choice.begin()];
            now += 20_000;
            let are_due = modes.map(|mode| choice.end(mode, now));
            are_due.iter().filter(|is_due| **is_due).for_each(|_| choice.advance(now));
            let (phase, began) = {
                let phases = choice.phases.lock().expect("no panic");
                (phases.phase, phases.began_ns)
            };
            if phase == Phase::Chosen {
                // Both modes made as many syncs in the same time.
                assert_eq!(choice.mode(), Mode::Settled);
                assert!(began.is_some_and(|began| began <= now && now - began <= 2 * PERIOD_NS));
                assert!(now >= 2 * TRIAL_NS);
            }
        }
        assert!(now < PERIOD_NS, "{now}: the choice lasts until the end");
        assert_eq!(choice.mode(), Mode::Settled);
    }
}
