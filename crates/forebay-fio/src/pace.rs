//! The schedule of I/Os: `rate`, `rate_iops`, `thinktime`.
//!
//! Source: fio's HOWTO and fio 3.33. Each direction has its own schedule. It continues from the
//! time at which an I/O was due, not at which it started, so that delays are made up for. This
//! module does not read the clock: times are arguments, in nanoseconds since the job's start.

use std::time::Duration;

use crate::generator::Direction;
use crate::random::Xoshiro256;

/// The options; zero means no limit, or no pause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pace {
    /// `rate`: bytes per second, by direction.
    pub rate: [u64; 3],
    /// `rate_iops`: I/Os per second, by direction.
    pub rate_iops: [u64; 3],
    /// `rate_process=poisson`: whether gaps are exponentially distributed, with the same mean.
    pub poisson: bool,
    /// `thinktime`: the length of a pause.
    pub thinktime: Duration,
    /// `thinktime_spin`: the part of the pause in which the CPU spins.
    pub thinktime_spin: Duration,
    /// `thinktime_blocks`: I/Os between two pauses; 0 means 1.
    pub thinktime_blocks: u32,
}

impl Pace {
    /// Returns the schedule; `None` if there is neither a limit nor a pause.
    pub fn pacer(&self, seed: u64, stream: u64) -> Option<Pacer> {
        /// Keeps these draws apart from those of offsets.
        const DRAWS_KEY: u64 = 0x7261_7465_0000_0001;
        let is_free = self.rate == [0; 3] && self.rate_iops == [0; 3] && self.thinktime.is_zero();
        (!is_free).then(|| Pacer {
            pace: self.clone(),
            due_ns: [0.0; 3],
            since_thought: 0,
            draws: Xoshiro256::new(seed ^ DRAWS_KEY, stream),
        })
    }
}

/// The schedule of a clone.
#[derive(Debug, Clone)]
pub struct Pacer {
    pace: Pace,
    due_ns: [f64; 3],
    since_thought: u32,
    draws: Xoshiro256,
}

impl Pacer {
    /// Restarts the schedules at `now_ns`. Earlier delays are not made up for.
    pub fn restart(&mut self, now_ns: u64) {
        self.due_ns = [now_ns as f64; 3];
    }

    /// Counts an I/O that is being submitted.
    pub fn submitted(&mut self, direction: Direction, bytes: u32) {
        if !self.pace.thinktime.is_zero() {
            self.since_thought += 1;
        }
        let at = direction.index();
        let gap_ns = match (self.pace.rate[at], self.pace.rate_iops[at]) {
            (0, 0) => return,
            (0, iops) => 1e9 / iops as f64,
            (rate, _) => f64::from(bytes) * 1e9 / rate as f64,
        };
        let factor = match self.pace.poisson {
            // Above 0, so that the logarithm is finite.
            true => -((((self.draws.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64).ln()),
            false => 1.0,
        };
        self.due_ns[at] += gap_ns * factor;
    }

    /// Returns the time at which the next I/O of this direction may start.
    pub fn due_ns(&self, direction: Direction) -> u64 {
        self.due_ns[direction.index()] as u64
    }

    /// Returns the direction of the next I/O, if the mix chose `wanted`: that one, unless it must
    /// wait and the other must wait less. So each direction keeps its rate, whatever the mix.
    pub fn choose(&self, wanted: Direction, other: Direction, now_ns: u64) -> Direction {
        let due = |direction: Direction| self.due_ns[direction.index()].max(now_ns as f64);
        if due(other) < due(wanted) { other } else { wanted }
    }

    /// Returns whether an I/O of any direction would have to wait at `now_ns`.
    pub fn may_wait(&self, now_ns: u64) -> bool {
        self.due_ns.iter().any(|&due| due as u64 > now_ns) || self.is_time_to_think()
    }

    /// Returns the length of a pause and of its busy part, if a pause is due. The count of I/Os
    /// then restarts.
    pub fn think(&mut self) -> Option<(Duration, Duration)> {
        if !self.is_time_to_think() {
            return None;
        }
        self.since_thought = 0;
        Some((self.pace.thinktime, self.pace.thinktime_spin.min(self.pace.thinktime)))
    }

    fn is_time_to_think(&self) -> bool {
        !self.pace.thinktime.is_zero() && self.since_thought >= self.pace.thinktime_blocks.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_limits_there_is_nothing_to_keep_to() {
        assert!(Pace::default().pacer(1, 0).is_none());
    }

    #[test]
    fn ios_are_spread_evenly_and_each_direction_by_itself() {
        let pace = Pace { rate_iops: [1000, 500, 0], ..Pace::default() };
        let mut pacer = pace.pacer(1, 0).expect("limits");
        assert!(!pacer.may_wait(0), "the first may begin at once");
        for _ in 0..10 {
            pacer.submitted(Direction::Read, 4096);
            pacer.submitted(Direction::Write, 65_536);
            pacer.submitted(Direction::Trim, 4096);
        }
        let due = Direction::ALL.map(|direction| pacer.due_ns(direction));
        assert_eq!(due, [10_000_000, 20_000_000, 0]);
        assert!(pacer.may_wait(19_999_999) && !pacer.may_wait(20_000_000));
    }

    #[test]
    fn a_direction_that_has_to_wait_lets_the_other_go_first() {
        let pace = Pace { rate_iops: [1000, 500, 0], ..Pace::default() };
        let mut pacer = pace.pacer(1, 0).expect("limits");
        let (read, write) = (Direction::Read, Direction::Write);
        assert_eq!(pacer.choose(write, read, 0), write, "both may go: the mix decides");
        pacer.submitted(write, 4096);
        assert_eq!(pacer.choose(write, read, 0), read);
        assert_eq!(pacer.choose(write, read, 2_000_000), write);
        pacer.submitted(read, 4096);
        assert_eq!(pacer.choose(write, read, 0), read, "it is due first");
    }

    #[test]
    fn without_pauses_ios_between_them_are_not_counted() {
        let pace = Pace { rate_iops: [1; 3], ..Pace::default() };
        let mut pacer = pace.pacer(1, 0).expect("limits");
        pacer.since_thought = u32::MAX;
        pacer.submitted(Direction::Read, 4096);
        assert_eq!(pacer.think(), None);
    }

    #[test]
    fn bytes_count_by_their_number() {
        let pace = Pace { rate: [1 << 20, 0, 0], ..Pace::default() };
        let mut pacer = pace.pacer(1, 0).expect("limits");
        pacer.submitted(Direction::Read, 1 << 19);
        pacer.submitted(Direction::Read, 1 << 18);
        assert_eq!(pacer.due_ns(Direction::Read), 750_000_000);
    }

    #[test]
    fn drawn_gaps_have_the_same_mean_and_differ() {
        let pace = Pace { rate_iops: [1000, 0, 0], poisson: true, ..Pace::default() };
        let mut pacer = pace.pacer(1, 0).expect("limits");
        let mut gaps = Vec::new();
        for _ in 0..20_000 {
            let before = pacer.due_ns(Direction::Read);
            pacer.submitted(Direction::Read, 4096);
            gaps.push((pacer.due_ns(Direction::Read) - before) as f64);
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation =
            (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // In an exponential distribution both are the same.
        assert!((mean / 1e6 - 1.0).abs() < 0.03 && (deviation / 1e6 - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn pauses_come_after_so_many() {
        let (time, spin) = (Duration::from_millis(2), Duration::from_millis(9));
        let pace =
            Pace { thinktime: time, thinktime_spin: spin, thinktime_blocks: 2, ..Pace::default() };
        let mut pacer = pace.pacer(1, 0).expect("a pause");
        pacer.submitted(Direction::Read, 1);
        assert_eq!((pacer.may_wait(0), pacer.think()), (false, None));
        pacer.submitted(Direction::Read, 1);
        assert_eq!((pacer.may_wait(0), pacer.think()), (true, Some((time, time))));
        assert_eq!((pacer.may_wait(0), pacer.think()), (false, None));
    }
}
