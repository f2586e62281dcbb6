//! Time and events: the program's calls, completions, and deadlines.
//!
//! The program has a processor of its own, which its calls occupy. Another thread reaps completions
//! and passes held bios on at their deadline, up to `late_ns` after the event.

use super::HoldSummary;
use super::checks::Checks;
use super::io::Io;
use super::layer::Layer;
use super::load::HoldLoad;
use super::met::Met;
use super::plant::HoldPlant;
use super::program::{Call, Program};
use crate::check::{Broken, Verdict, rules as layer_rules};
use crate::trace::Trace;
use forebay_model::Random;

/// The smallest size of the disk, if the device has none of its own.
const CAPACITY: u64 = 1 << 30;

/// The unit of addresses, bytes.
const BLOCK: u32 = 512;

/// The state of the program.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// It makes its next call at this time.
    Runs { at: u64 },
    /// It waits for so many bios that have ended.
    Waits { nr: u32 },
    /// All of its bios were taken.
    Over,
}

/// An event of the other thread: the cause's time, and the time at which it is processed.
type Late = Option<(u64, u64)>;

/// A program, the layer and the device.
#[derive(Debug)]
pub(super) struct World {
    load: HoldLoad,
    program: Program,
    doing: Doing,
    /// The program waits for all bios before its next call.
    drains: bool,
    layer: Layer,
    io: Io,
    /// When completions are reaped, and when held bios are passed on.
    reap: Late,
    expire: Late,
    random: Random,
}

impl World {
    pub(super) fn new(seed: u64, load: HoldLoad, plant: Option<HoldPlant>) -> World {
        let capacity = load.device.capacity_bytes().unwrap_or(CAPACITY);
        let mut limits = load.device.limits(capacity, BLOCK);
        if let Some(max_sectors) = load.max_sectors {
            limits = limits.max_sectors(max_sectors.min(limits.max_sectors));
        }
        let checks = Checks::new(seed, load.hold.unwrap_or_default(), load.late_ns);
        World {
            program: Program::new(&load, capacity, Random::new(seed, 1)),
            doing: Doing::Runs { at: 0 },
            drains: false,
            layer: Layer::new(&load, limits, plant),
            io: Io::new(load.device.build(BLOCK), checks, Random::new(seed, 2)),
            reap: None,
            expire: None,
            random: Random::new(seed, 4),
            load,
        }
    }

    /// Runs the program to its end.
    pub(super) fn run(&mut self) -> Verdict {
        while !self.is_over() {
            let Some(at) = self.next_at() else {
                let what = format!("{:?}, {} bios left", self.doing, self.layer.nr_owned());
                return Err(Broken::new(layer_rules::NO_STALL, what));
            };
            self.io.pass_to(at);
            self.process();
            self.check()?;
        }
        self.io.checks.finish();
        if self.layer.check_invariants() > 0 || self.layer.has_held() {
            self.io.checks.fail(layer_rules::DRAINED, String::from("bios are left"));
        }
        self.check()
    }

    fn check(&mut self) -> Verdict {
        self.io.checks.take_broken().map_or(Ok(()), Err)
    }

    fn is_over(&self) -> bool {
        matches!(self.doing, Doing::Over) && self.io.is_idle()
    }

    /// Returns the time of the next event.
    fn next_at(&mut self) -> Option<u64> {
        let now = self.io.now;
        let completion = self.io.has_done().then_some(now);
        self.reap = self.late(self.reap, completion);
        self.expire = self.late(self.expire, self.layer.deadline());
        let program = match self.doing {
            Doing::Runs { at } => Some(at),
            Doing::Waits { .. } | Doing::Over => None,
        };
        let late = [self.reap, self.expire].into_iter().flatten().map(|(_, at)| at);
        let others = [self.io.next_at(), self.layer.turn_at(), program];
        late.chain(others.into_iter().flatten()).min().map(|at| at.max(now))
    }

    /// Returns when an event with this cause is processed. A cause that has changed is a new one;
    /// completions are reaped together with the first of them.
    fn late(&mut self, before: Late, cause: Option<u64>) -> Late {
        let cause = cause?;
        match before {
            Some((of, at)) if of == cause || of < cause && cause <= at => Some((of, at)),
            _ => Some((cause, cause + self.random.below(self.load.late_ns + 1))),
        }
    }

    /// Processes the events that are due.
    fn process(&mut self) {
        let World { layer, io, reap, expire, .. } = self;
        let now = io.now;
        let is_due = |late: &mut Late| late.take_if(|(_, at)| *at <= now).is_some();
        if is_due(reap) || layer.turn_at().is_some_and(|at| at <= now) {
            layer.reap(io);
        }
        if is_due(expire) && layer.deadline().is_some_and(|deadline| deadline <= now) {
            layer.expire(io);
        }
        match self.doing {
            Doing::Runs { at } if at <= now => self.run_program(),
            Doing::Waits { nr } if layer.nr_ready() >= nr => self.end_wait(),
            _ => {}
        }
    }

    /// Makes the program's next call.
    fn run_program(&mut self) {
        let nr_owned = self.layer.nr_owned();
        if self.drains || self.program.is_over() {
            self.drains = false;
            return self.wait(nr_owned);
        }
        if nr_owned >= self.load.depth {
            return self.wait(self.load.nr_awaited.min(nr_owned));
        }
        let nr_sent = self.io.nr_sent();
        let io = &mut self.io;
        match self.program.call(self.load.depth - nr_owned) {
            Call::Submit(bio) => self.layer.submit(io, bio),
            Call::Plug(bios) => self.layer.plug(io, bios),
            Call::Pause(ns) => {
                if self.layer.has_held() {
                    io.checks.met(Met::Pause);
                }
                self.doing = Doing::Runs { at: io.now + ns };
                return;
            }
            Call::Drain => self.drains = true,
        }
        let nr_requests = (self.io.nr_sent() - nr_sent) as u64;
        let costs = self.load.costs;
        let cost = costs.call_ns + nr_requests * costs.request_ns;
        self.doing = Doing::Runs { at: self.io.now + cost };
    }

    /// Waits for so many bios that have ended.
    fn wait(&mut self, nr: u32) {
        self.layer.prepare_wait(&mut self.io, nr);
        self.doing = Doing::Waits { nr };
        if self.layer.nr_ready() >= nr {
            self.end_wait();
        }
    }

    fn end_wait(&mut self) {
        self.layer.take_ready();
        self.doing = match self.program.is_over() && self.layer.nr_owned() == 0 {
            true => Doing::Over,
            false => Doing::Runs { at: self.io.now + self.load.costs.call_ns },
        };
    }

    /// Takes the first broken rule.
    pub(super) fn take_broken(&mut self) -> Option<Broken> {
        self.io.checks.take_broken()
    }

    pub(super) fn trace(&self) -> &Trace {
        &self.io.checks.trace
    }

    pub(super) fn summary(&mut self) -> HoldSummary {
        let requests = self.io.take_sent();
        let checks = &self.io.checks;
        HoldSummary {
            now_ns: self.io.now,
            hash: checks.trace.hash(),
            nr_held: checks.counts().of(Met::Held),
            requests,
            met: checks.counts().list(),
        }
    }
}
