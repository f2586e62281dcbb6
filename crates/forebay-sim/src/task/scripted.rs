//! A task that runs the steps of a script.

use crate::coroutine::Cpu;
use crate::differential::script::{self, Outcome, SECTOR, ScriptBio, Step};
use crate::runtime::thread::{Io, Thread};
use crate::trace::Kind;
use forebay_core::Op;
use forebay_model::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The longest time until the first step of a task, ns.
const START_NS: [u64; 3] = [1, 1_000, 20_000];

/// The time for which a task keeps a gate closed, ns.
const HOLD_NS: [u64; 3] = [200, 5_000, 50_000];

/// The results of all tasks.
#[derive(Debug)]
pub(crate) struct Log {
    /// The bios of each thread: the result, and the values of the simulator that were read.
    threads: Vec<Vec<Option<script::Ended>>>,
    /// The bio with each serial number, which the simulator's values contain: thread and number.
    serials: BTreeMap<u64, (usize, usize)>,
}

impl Log {
    pub(crate) fn new(nr_threads: usize) -> Log {
        Log { threads: vec![Vec::new(); nr_threads], serials: BTreeMap::new() }
    }

    /// Returns the outcome, with the script's values in place of the simulator's.
    pub(crate) fn outcome(&self, sectors: impl Iterator<Item = u64>, is_lost: bool) -> Outcome {
        let convert = |value: u64| match value {
            0 => 0,
            value => {
                let (serial, unit) = crate::check::bios::split_value(value);
                let (thread, nth) = self.serials[&serial];
                script::value(thread, nth, unit)
            }
        };
        let ended = |ended: &Option<script::Ended>| {
            let script::Ended { result, values } = ended.clone().expect("all bios have ended");
            let is_read = result.is_some_and(|result| result.is_ok());
            let values = values.into_iter().filter(|_| is_read).map(convert).collect();
            script::Ended { result, values }
        };
        let thread = |bios: &Vec<_>| bios.iter().map(ended).collect();
        let threads = self.threads.iter().map(thread).collect();
        Outcome { threads, sectors: sectors.map(convert).collect(), is_lost }
    }
}

/// Runs the steps of one thread.
pub(crate) fn run(cpu: Cpu<'_>, steps: &[Step], log: &Rc<RefCell<Log>>, mut random: Random) {
    let (world, id) = (Rc::clone(&cpu.world), cpu.id);
    let start_ns = random.pick(&START_NS);
    cpu.sleep(random.below(start_ns));
    world.note(Kind::Start, id as u64, id as u64);
    let (thread, slots) = (Thread::new(cpu), Vec::new());
    let mut task = Scripted { thread, log, slots, nr_ended: 0, closes: false, random };
    for step in steps {
        task.perform(step);
    }
    let mut ended = Vec::new();
    task.thread.retire(&mut ended);
    task.note(&ended);
}

struct Scripted<'a, 'l> {
    thread: Thread<'a>,
    log: &'l Rc<RefCell<Log>>,
    /// The box of each bio, in the order of submission.
    slots: Vec<u32>,
    nr_ended: usize,
    /// It does not reap the rest.
    closes: bool,
    random: Random,
}

impl Scripted<'_, '_> {
    fn perform(&mut self, step: &Step) {
        match step {
            Step::Submit(bio) => self.submit(*bio),
            Step::Plugged(bios) => {
                self.thread.begin_plug();
                bios.iter().for_each(|bio| self.submit(*bio));
                self.thread.end_plug();
            }
            Step::Reap(nr) => {
                let nr = (*nr).min(self.slots.len() - self.nr_ended);
                let mut ended = Vec::new();
                self.thread.reap(nr, nr, &mut ended);
                self.note(&ended);
            }
            Step::Hold(gate) => {
                let closed_ns = self.random.pick(&HOLD_NS);
                self.thread.close_and_open(*gate, closed_ns, false);
            }
            Step::Acknowledge => self.thread.acknowledge(),
            Step::Close => self.closes = true,
        }
    }

    fn submit(&mut self, bio: ScriptBio) {
        let ScriptBio { op, flags, sector, nr } = bio;
        let io = Io {
            op,
            flags,
            block: sector,
            nr,
            cuts: Vec::new(),
            charge: None,
            point: 0,
            priority: forebay_core::Priority::default(),
        };
        let (thread, nth) = (self.thread.id, self.slots.len());
        let slot = self.thread.add_box();
        self.slots.push(slot);
        self.log.borrow_mut().threads[thread].push(None);
        let serial = self.thread.submit(io).expect("a script has valid bios");
        self.log.borrow_mut().serials.insert(serial, (thread, nth));
    }

    /// Records bios that were reaped.
    fn note(&mut self, ended: &[crate::runtime::thread::Ended]) {
        self.nr_ended += ended.len();
        let checks = self.thread.world.checks();
        let mut log = self.log.borrow_mut();
        for ended in ended {
            let nth = self.slots.iter().position(|slot| *slot == ended.slot);
            let nth = nth.expect("a bio of this thread");
            let values = checks.bios.row(ended.slot).values.clone();
            let is_whole = |len| len == values.len() as u64 * SECTOR;
            let is_read = checks.bios.row(ended.slot).op == Op::Read;
            assert!(!is_read || ended.result.is_err() || ended.result.is_ok_and(is_whole));
            let result = (!self.closes).then_some(ended.result);
            log.threads[self.thread.id][nth] = Some(script::Ended { result, values });
        }
    }
}
