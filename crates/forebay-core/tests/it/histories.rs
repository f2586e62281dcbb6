//! All short histories of a hardware context, with each scheduler and without one, beside a simple
//! specification ([`spec`]): reads, writes, FUA, discards, flushes, NOWAIT, and a device that
//! completes, fails, or is busy.

mod spec;

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Class, Issue, Op, Origin, Policy, Priority, QueueLimits,
    SchedulerPolicy,
};
use spec::{Command, Ended, Log};

const K4: u64 = 4096;

/// The tags of a context.
const DEPTH: u32 = 8;

/// A letter of a history: one action of a caller or of the device, and a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letter {
    Read,
    /// A read of the idle class.
    IdleRead,
    Write,
    Fua,
    Preflush,
    Discard,
    Flush,
    /// A write with NOWAIT.
    Nowait,
    /// The device completes the request that it has had for the longest time.
    CompleteOldest,
    CompleteNewest,
    /// The device fails its oldest request.
    Fail,
    /// The device refuses the next request once.
    Busy,
}

use Letter::*;

impl Letter {
    const ALL: [Letter; 12] = [
        Read,
        IdleRead,
        Write,
        Fua,
        Preflush,
        Discard,
        Flush,
        Nowait,
        CompleteOldest,
        CompleteNewest,
        Fail,
        Busy,
    ];

    /// Returns the operation and the flags of a letter that submits a bio.
    fn op(self) -> Option<(Op, BioFlags)> {
        Some(match self {
            Read | IdleRead => (Op::Read, BioFlags::NONE),
            Write => (Op::Write, BioFlags::NONE),
            Fua => (Op::Write, BioFlags::FUA),
            Preflush => (Op::Write, BioFlags::PREFLUSH),
            Discard => (Op::Discard, BioFlags::NONE),
            Flush => (Op::Flush, BioFlags::NONE),
            Nowait => (Op::Write, BioFlags::NOWAIT),
            CompleteOldest | CompleteNewest | Fail | Busy => return None,
        })
    }

    fn class(self) -> Class {
        if self == IdleRead { Class::Idle } else { Class::BestEffort }
    }
}

/// A context and its device.
#[derive(Clone, Copy, Debug)]
struct Setup {
    limits: QueueLimits,
    policy: Policy,
}

fn setup(scheduler: SchedulerPolicy, device_depth: u32, nr_requests: u32) -> Setup {
    let limits = limits()
        .volatile_cache(true)
        .discard_granularity(4096)
        .max_discard_sectors(1 << 20)
        .max_discard_segments(3);
    let policy = Policy::default().queue_depth(DEPTH).scheduler(scheduler);
    let policy = policy.device_depth(Some(device_depth)).nr_requests(Some(nr_requests));
    Setup { limits, policy }
}

/// A context in the middle of a history.
struct Run {
    bench: Bench,
    log: Log,
}

impl Run {
    fn new(setup: Setup) -> Run {
        let mut bench = Bench::new(setup.limits, setup.policy);
        // Room for any depth of a domain (KY2), and no deadline comes near.
        bench.turn_at(1000);
        Run { bench, log: Log::new(setup.limits, setup.policy) }
    }

    /// Makes a step. Returns `false` if the letter has no effect now.
    fn step(&mut self, letter: Letter) -> bool {
        let nr_running = self.bench.toy.running.len();
        self.log.now += 1;
        match letter {
            CompleteOldest if nr_running > 0 => self.complete(0, true),
            CompleteNewest if nr_running > 1 => self.complete(nr_running - 1, true),
            Fail if nr_running > 0 => self.complete(0, false),
            Busy if self.bench.toy.answers.is_empty() => {
                self.bench.toy.answers.push_back(Issue::Busy);
                return true;
            }
            CompleteOldest | CompleteNewest | Fail | Busy => return false,
            _ => self.submit(letter),
        }
        self.record();
        true
    }

    fn submit(&mut self, letter: Letter) {
        let (op, flags) = letter.op().expect("it submits");
        let is_idle =
            self.log.bios.iter().all(|bio| bio.end.is_some()) && self.bench.toy.answers.is_empty();
        let (id, page) = self.log.submit(letter, is_idle);
        let (start, len) = if op == Op::Flush { (0, 0) } else { (page * K4, K4) };
        let priority = Priority::new(letter.class(), 4).expect("a level");
        let origin = Origin::NONE.with_priority(priority);
        let bio = self.bench.bio(op, start, len, id);
        assert!(self.bench.queue_bio(Bio { flags, origin, ..bio }, 0));
        self.bench.turn();
    }

    /// Completes the nth of the running requests.
    fn complete(&mut self, nth: usize, is_good: bool) {
        let at = self.bench.toy.running[nth];
        let seen = &self.bench.toy.seen[at];
        let result = match (is_good, seen.op) {
            (true, _) => Ok(seen.len),
            // A failed request may be tried again bio by bio; a flush is not.
            (false, Op::Flush) => Err(BlockStatus::Io),
            (false, _) => Err(BlockStatus::Medium),
        };
        self.log.commands[at].done = Some((self.log.now, is_good));
        self.bench.complete(nth, result);
    }

    /// Records what the device got and which bios ended.
    fn record(&mut self) {
        for seen in &self.bench.toy.seen[self.log.commands.len()..] {
            let pages = |(start, len): &(u64, u64)| start / K4..(start + len) / K4;
            let pages = seen.ranges.iter().flat_map(pages).collect();
            let is_flush = seen.op == Op::Flush;
            let (is_fua, issued_at) = (seen.fua, self.log.now);
            self.log.commands.push(Command { pages, is_flush, is_fua, issued_at, done: None });
        }
        for (id, result) in self.bench.ends() {
            self.log.end(id, Ended { at: self.log.now, result });
        }
        self.log.check_device();
    }

    /// Completes what is left, and checks the whole history.
    fn finish(mut self) {
        self.bench.toy.answers.clear();
        self.log.now += 1;
        self.bench.turn();
        self.record();
        while !self.bench.toy.running.is_empty() {
            self.log.now += 1;
            self.complete(0, true);
            self.record();
        }
        assert_eq!(self.bench.queue.nr_bios(), 0, "the device is idle, and bios wait");
        self.log.check();
    }
}

/// Goes through all histories that begin with `begin`, and go on with `nr` letters that have an
/// effect. Returns their number.
fn all(setup: Setup, begin: &[Letter], letters: &[Letter], nr: usize) -> u64 {
    let mut history = vec![0; nr];
    let mut nr_histories = 0;
    loop {
        let mut run = Run::new(setup);
        let rest = history.iter().map(|nth: &usize| letters[*nth]);
        run.log.history = begin.iter().copied().chain(rest).collect();
        begin.iter().for_each(|letter| assert!(run.step(*letter), "{letter:?} has an effect"));
        let idle = (0..nr).find(|at| !run.step(letters[history[*at]]));
        if idle.is_none() {
            run.finish();
            nr_histories += 1;
        }
        // The next history begins otherwise than this one up to the letter without effect.
        let mut at = idle.unwrap_or(nr - 1);
        history[at + 1..].fill(0);
        while history[at] + 1 == letters.len() {
            history[at] = 0;
            match at.checked_sub(1) {
                Some(before) => at = before,
                None => return nr_histories,
            }
        }
        history[at] += 1;
    }
}

/// Goes through all histories of a kind, with each scheduler, and where FUA and flushes are as
/// simple as can be for the device, and as hard.
fn with_each_scheduler(
    depths: &[(u32, u32)],
    begin: &[Letter],
    letters: &[Letter],
    nr: usize,
    nr_least: u64,
) {
    for scheduler in [SchedulerPolicy::None, SchedulerPolicy::MqDeadline, SchedulerPolicy::Kyber] {
        for (device_depth, nr_requests) in depths {
            for is_native in [false, true] {
                let mut setup = setup(scheduler, *device_depth, *nr_requests);
                setup.limits = setup.limits.fua(is_native).flush_queueable(is_native);
                let nr = all(setup, begin, letters, nr);
                assert!(nr >= nr_least, "{nr} histories");
            }
        }
    }
}

#[test]
fn all_histories_of_four_steps_keep_the_rules() {
    with_each_scheduler(&[(1, DEPTH), (2, DEPTH), (2, 2)], &[], &Letter::ALL, 4, 10_000);
}

#[test]
fn all_histories_of_five_steps_with_failures_keep_the_rules() {
    let letters = [Read, Write, Fua, Discard, Flush, CompleteOldest, Fail, Busy];
    with_each_scheduler(&[(1, DEPTH)], &[], &letters, 5, 10_000);
}

#[test]
fn all_histories_of_five_steps_on_a_dirty_cache_keep_the_rules() {
    let letters = [Write, Fua, Preflush, Flush, CompleteOldest, CompleteNewest, Fail];
    with_each_scheduler(&[(2, DEPTH)], &[Write, CompleteOldest], &letters, 5, 4_000);
}
