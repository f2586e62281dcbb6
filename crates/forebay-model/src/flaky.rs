//! A device on which commands overtake each other and fail.
//!
//! The fault model; each fault has a probability of its own:
//!
//! - a command takes the minimum latency plus an exponential time, so commands overtake each other;
//!   a straggler takes a hundred times as long;
//! - the device is busy, or refuses a command at submission;
//! - a command fails with one of the statuses chosen for this device;
//! - a read or write moves fewer blocks than requested, or none (for a read, the end of a file);
//! - a block goes bad: commands that touch it then fail, or come back short before it. A write may
//!   repair it.

use crate::{Admission, Command, Model, Random, Service};
use alloc::vec::Vec;
use forebay_core::{BlockStatus, Op};

/// The unit of probabilities.
pub const PER_MILLION: u32 = 1_000_000;

/// The maximum number of bad blocks at a time.
const BAD_BLOCKS_MAX: usize = 8;

/// The factor by which a straggler takes longer.
const STRAGGLER_FACTOR: u64 = 100;

/// The frequency of each fault, per million commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The command fails with one of `statuses`.
    pub fail: u32,
    /// The possible statuses of a failure: a bit set, indexed as [`BlockStatus::ALL`].
    pub statuses: u16,
    /// The device is gone: [`BlockStatus::Offline`].
    pub offline: u32,
    /// The command is refused at submission.
    pub refuse: u32,
    /// The device is busy.
    pub busy: u32,
    /// Fewer blocks are moved than requested, but at least one.
    pub short: u32,
    /// No block is moved.
    pub none: u32,
    /// One block of the command goes bad.
    pub bad_block: u32,
    /// The command takes a hundred times as long.
    pub straggler: u32,
}

impl Faults {
    /// Returns a set of statuses.
    pub fn statuses(list: &[BlockStatus]) -> u16 {
        let place = |status| BlockStatus::ALL.iter().position(|known| known == status);
        list.iter().filter_map(place).fold(0, |set, place| set | 1 << place)
    }

    /// Draws a status; [`BlockStatus::Io`] if the set is empty.
    fn status(&self, random: &mut Random) -> BlockStatus {
        let nr = u64::from(self.statuses.count_ones());
        let nth = random.below(nr) as usize;
        let is_in = |place: &usize| self.statuses & (1 << place) != 0;
        let place = (0..BlockStatus::ALL.len()).filter(is_in).nth(nth);
        place.map_or(BlockStatus::Io, |place| BlockStatus::ALL[place])
    }
}

/// A device with faults. See the module documentation.
#[derive(Clone, Debug)]
pub struct Flaky {
    block: u64,
    min_ns: u64,
    mean_ns: u64,
    faults: Faults,
    /// The first bytes of the bad blocks.
    bad: Vec<u64>,
}

impl Flaky {
    /// Creates a device with the given logical block size. Its latency is `min_ns` plus an
    /// exponential part with the mean `mean_ns`.
    pub fn new(logical_block_size: u32, min_ns: u64, mean_ns: u64, faults: Faults) -> Flaky {
        let bad = Vec::with_capacity(BAD_BLOCKS_MAX);
        Flaky { block: logical_block_size.into(), min_ns, mean_ns, faults, bad }
    }

    /// Returns the result of a read or write.
    fn move_data(&mut self, command: &Command, random: &mut Random) -> Result<u64, BlockStatus> {
        let nr_blocks = command.len / self.block;
        if random.chance(self.faults.bad_block, PER_MILLION) && self.bad.len() < BAD_BLOCKS_MAX {
            self.bad.push(command.start + random.below(nr_blocks) * self.block);
        }
        if let Some(at) = self.first_bad(command) {
            if command.op == Op::Write && random.chance(1, 4) {
                self.bad.retain(|&bad| bad != at);
            }
            let good = at - command.start;
            return match good > 0 && random.chance(1, 2) {
                true => Ok(good),
                false => Err(BlockStatus::Medium),
            };
        }
        if random.chance(self.faults.none, PER_MILLION) {
            return Ok(0);
        }
        if nr_blocks > 1 && random.chance(self.faults.short, PER_MILLION) {
            return Ok(random.between(1, nr_blocks - 1) * self.block);
        }
        Ok(command.len)
    }

    fn first_bad(&self, command: &Command) -> Option<u64> {
        let range = command.start..command.start + command.len;
        self.bad.iter().copied().filter(|at| range.contains(at)).min()
    }
}

impl Model for Flaky {
    fn admit(&mut self, _: &Command, random: &mut Random) -> Admission {
        if random.chance(self.faults.busy, PER_MILLION) {
            return Admission::Busy;
        }
        match random.chance(self.faults.refuse, PER_MILLION) {
            true => Admission::Refused(self.faults.status(random)),
            false => Admission::Taken,
        }
    }

    fn serve(&mut self, command: &Command, now: u64, random: &mut Random) -> Service {
        let mut time_ns = self.min_ns + random.exponential(self.mean_ns);
        if random.chance(self.faults.straggler, PER_MILLION) {
            time_ns *= STRAGGLER_FACTOR;
        }
        let result = if random.chance(self.faults.offline, PER_MILLION) {
            Err(BlockStatus::Offline)
        } else if random.chance(self.faults.fail, PER_MILLION) {
            Err(self.faults.status(random))
        } else if command.op.moves_data() && command.len > 0 {
            self.move_data(command, random)
        } else {
            Ok(command.len)
        };
        Service { done_at_ns: now + time_ns, result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Command = Command { op: Op::Read, start: 8192, len: 16384 };

    fn results(faults: Faults) -> Vec<Result<u64, BlockStatus>> {
        let mut model = Flaky::new(4096, 10, 90, faults);
        let mut random = Random::new(3, 0);
        (0..1000).map(|_| model.serve(&READ, 0, &mut random).result).collect()
    }

    #[test]
    fn without_faults_all_succeeds_and_is_reordered() {
        let mut model = Flaky::new(4096, 10, 90, Faults::default());
        let mut random = Random::new(1, 0);
        let served: Vec<_> = (0..100).map(|now| model.serve(&READ, now, &mut random)).collect();
        assert!(served.iter().all(|service| service.result == Ok(16384)));
        assert!(!served.is_sorted_by_key(|service| service.done_at_ns));
        assert!(served.iter().zip(0..).all(|(service, now)| service.done_at_ns >= now + 10));
    }

    #[test]
    fn failures_have_the_statuses_asked_for() {
        let statuses = [BlockStatus::NoSpace, BlockStatus::Timeout];
        let set = Faults::statuses(&statuses);
        let results = results(Faults { fail: PER_MILLION / 2, statuses: set, ..Faults::default() });
        for status in statuses {
            let nr = results.iter().filter(|result| **result == Err(status)).count();
            assert!((200..300).contains(&nr), "{nr} of {status:?}");
        }
    }

    #[test]
    fn short_counts_are_whole_blocks() {
        let results = results(Faults { short: PER_MILLION, ..Faults::default() });
        let expected = |result: &Result<u64, _>| matches!(result, Ok(4096 | 8192 | 12288));
        assert!(results.iter().all(expected));
    }

    #[test]
    fn a_bad_block_stays_bad_for_readers() {
        let mut model =
            Flaky::new(4096, 0, 0, Faults { bad_block: PER_MILLION, ..Faults::default() });
        let mut random = Random::new(5, 0);
        let one = Command { len: 4096, ..READ };
        assert_eq!(model.serve(&one, 0, &mut random).result, Err(BlockStatus::Medium));
        model.faults = Faults::default();
        for _ in 0..100 {
            assert_eq!(model.serve(&one, 0, &mut random).result, Err(BlockStatus::Medium));
        }
        let next = Command { start: 12288, ..one };
        assert_eq!(model.serve(&next, 0, &mut random).result, Ok(4096));
    }
}
