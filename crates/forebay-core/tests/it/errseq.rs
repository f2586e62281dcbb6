//! Random writes, FUA writes and flushes of several contexts on a file whose write-back sometimes
//! fails. Errors are reported as Linux reports them. The test checks that no data acknowledged as
//! durable are lost.
//!
//! The kernel keeps one error word per file (`errseq_t`, `lib/errseq.c`). Each open file stores the
//! word as of its last check. A sync fails if the word has changed since, and stores the new word.
//! A newly opened file takes the current word if its error was already reported to some open file.
//! Otherwise it takes none, so that the error is reported to it as well. A page whose write-back
//! failed is clean, and lost.

use crate::common::TestQueue;
use forebay_core::{
    Bio, BioFlags, BlockStatus, Completions, DeviceState, Driver, Issue, IssuedRequest, LostWrites,
    Op, Policy, QueueLimits, Reap, Segment, Tag,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGE: u64 = 4096;
const NR_PAGES: u64 = 1 << 20;
const NR_CONTEXTS: usize = 3;

/// The error word of a file: a counter, and whether its error was reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Word {
    counter: u64,
    is_seen: bool,
}

/// The error word that an open file stores.
type Cursor = Word;

/// The file, in the state that the kernel keeps.
#[derive(Debug, Default)]
struct File {
    stored: Vec<bool>,
    dirty: Vec<u64>,
    word: Word,
}

impl File {
    fn open(&self) -> Cursor {
        if self.word.is_seen { self.word } else { Word::default() }
    }

    fn write_back(&mut self, page: u64, fails: bool) {
        let Some(at) = self.dirty.iter().position(|dirty| *dirty == page) else { return };
        self.dirty.remove(at);
        if !fails {
            self.stored[page as usize] = true;
        } else if self.word.is_seen || self.word.counter == 0 {
            self.word = Word { counter: self.word.counter + 1, is_seen: false };
        }
    }

    /// Returns whether an error is reported.
    fn check(&mut self, cursor: &mut Cursor) -> bool {
        let is_new = self.word != *cursor;
        if is_new {
            self.word.is_seen = true;
            *cursor = self.word;
        }
        is_new
    }
}

/// A command at the file. It takes its steps one after another, between the steps of others.
#[derive(Debug)]
struct Command {
    context: usize,
    tag: Tag,
    op: Op,
    fua: bool,
    pages: Vec<u64>,
    step: u32,
    result: Option<Result<u64, BlockStatus>>,
}

/// Planted faults, which the test must find.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Plant {
    /// A failed FUA write loses nothing else.
    fua_is_no_sync: bool,
    /// FUA writes of a page cache run at the same time.
    fua_is_queueable: bool,
    /// A file that is opened later is not checked.
    no_check: bool,
}

struct World {
    file: File,
    cursors: [Cursor; NR_CONTEXTS],
    commands: Vec<Command>,
    is_direct: bool,
    state: u64,
}

impl World {
    fn below(&mut self, n: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % n
    }

    /// Takes one step of a command: its data, the write-back, or the check of the error word.
    fn step(&mut self, nth: usize) {
        let fails = self.below(12) == 0;
        let looks = self.below(2) == 0;
        let is_short = self.below(3) == 0;
        let World { file, cursors, commands, is_direct, .. } = self;
        let Command { context, op, fua, pages, step, result, .. } = &mut commands[nth];
        let len = pages.len() as u64 * PAGE;
        *step += 1;
        match (*op, *step) {
            (Op::Write, 1) if *fua && *is_direct => {
                // Direct I/O reports its own failure without the error word.
                pages.iter().for_each(|page| file.stored[*page as usize] = !fails);
                *result = fails.then_some(Err(BlockStatus::Io));
            }
            (Op::Write, 1) => {
                file.dirty.extend(&*pages);
                *result = (!*fua).then_some(Ok(len));
            }
            (Op::Write, 2) if !*is_direct => {
                pages.iter().for_each(|page| file.write_back(*page, fails));
            }
            (Op::Flush, 1) => {
                for page in file.dirty.clone() {
                    file.write_back(page, fails);
                }
            }
            (Op::Write, _) if *is_direct && !looks => *result = Some(Ok(len)),
            _ => {
                *result = Some(match file.check(&mut cursors[*context]) {
                    false => Ok(len),
                    // io_uring counts the bytes that an earlier attempt has synced, and hides the
                    // error.
                    true if is_short && len > PAGE && file.stored[pages[0] as usize] => Ok(PAGE),
                    true => Err(BlockStatus::Io),
                });
            }
        }
    }

    /// Takes a step that no context has requested.
    fn elsewhere(&mut self) {
        let nr_dirty = self.file.dirty.len() as u64;
        match self.below(8) {
            0 => {
                // Another program opens the file and syncs it.
                let fails = self.below(4) == 0;
                let mut cursor = self.file.open();
                for page in self.file.dirty.clone() {
                    self.file.write_back(page, fails);
                }
                self.file.check(&mut cursor);
            }
            1 | 2 if nr_dirty > 0 => {
                let nth = self.below(nr_dirty) as usize;
                let fails = self.below(6) == 0;
                self.file.write_back(self.file.dirty[nth], fails);
            }
            _ => {}
        }
    }
}

/// The driver of one context.
struct Port {
    world: Arc<Mutex<World>>,
    context: usize,
}

impl Driver for Port {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let first = rq.start / PAGE;
        self.world.lock().unwrap().commands.push(Command {
            context: self.context,
            tag: rq.tag,
            op: rq.op,
            fua: rq.fua,
            pages: (first..first + rq.len / PAGE).collect(),
            step: 0,
            result: None,
        });
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    /// Returns some of the completed commands, in any order.
    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        let mut world = self.world.lock().unwrap();
        let mut nth = 0;
        while nth < world.commands.len() {
            let command = &world.commands[nth];
            let is_done = command.context == self.context && command.result.is_some();
            if is_done && world.below(2) == 0 {
                let command = world.commands.swap_remove(nth);
                done.push(command.tag, command.result.expect("it is done"));
            } else {
                nth += 1;
            }
        }
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {}
}

/// A write that has ended successfully, from the point of view of the user.
#[derive(Debug)]
struct Written {
    pages: Vec<u64>,
    /// The durable point; 0 if the write is durable already.
    point: u64,
}

struct Run {
    world: Arc<Mutex<World>>,
    device: Arc<DeviceState>,
    limits: QueueLimits,
    plant: Plant,
    contexts: Vec<Option<(TestQueue, Port)>>,
    /// The error word stored by the place's open file, which is used only for checks.
    cursor: Cursor,
    next_page: u64,
    /// The bios by their user data: the pages of a write, or the point that a flush covers.
    bios: Vec<(Vec<u64>, u64)>,
    written: Vec<Written>,
    acknowledged: Vec<LostWrites>,
    nr_broken: usize,
    nr_promises: usize,
}

impl Run {
    fn new(seed: u64, is_direct: bool, plant: Plant) -> Run {
        let limits = QueueLimits::default()
            .capacity_bytes(Some(NR_PAGES * PAGE))
            .volatile_cache(true)
            .fua(true)
            .fua_is_sync(!plant.fua_is_no_sync)
            .fua_queueable(is_direct || plant.fua_is_queueable);
        let mut world = World {
            file: File { stored: vec![false; 1 << 14], ..File::default() },
            cursors: [Cursor::default(); NR_CONTEXTS],
            commands: Vec::new(),
            is_direct,
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        };
        let device = Arc::new(DeviceState::new(NR_CONTEXTS as u32));
        let cursor = world.file.open();
        world.cursors[0] = world.file.open();
        let mut run = Run {
            world: Arc::new(Mutex::new(world)),
            device,
            limits,
            plant,
            contexts: (0..NR_CONTEXTS).map(|_| None).collect(),
            cursor,
            next_page: 0,
            bios: Vec::new(),
            written: Vec::new(),
            acknowledged: Vec::new(),
            nr_broken: 0,
            nr_promises: 0,
        };
        run.open(0);
        run
    }

    fn below(&self, n: u64) -> u64 {
        self.world.lock().unwrap().below(n)
    }

    /// Opens the file for a thread's context, and checks the place's open file.
    fn open(&mut self, at: usize) {
        let mut world = self.world.lock().unwrap();
        world.cursors[at] = world.file.open();
        if !self.plant.no_check && world.file.check(&mut self.cursor) {
            self.device.durability().flush_failed();
        }
        drop(world);
        let policy = Policy::default().queue_depth(8).flush_pending_ns(50);
        let queue = TestQueue::with_device(self.limits, policy, at as u32, &self.device);
        let port = Port { world: Arc::clone(&self.world), context: at };
        self.contexts[at] = Some((queue, port));
    }

    fn queue(&mut self, at: usize) {
        let number = self.bios.len() as u64;
        let point = self.device.durability().point();
        let (nr, kind) = (1 + self.below(3), self.below(8));
        let pages: Vec<u64> = (self.next_page..self.next_page + nr).collect();
        let memory = Segment { addr: 1 << 20, len: (nr * PAGE) as u32 };
        let write = Bio::data(Op::Write, pages[0] * PAGE, memory);
        let (bio, of_bio) = match kind {
            0..4 => (write, (pages, 0)),
            4 | 5 => (Bio { flags: BioFlags::FUA, ..write }, (pages, 0)),
            6 => (Bio::flush(), (Vec::new(), point)),
            _ => {
                let point = self.below(point) + 1;
                (Bio::flush_up_to(point), (Vec::new(), point))
            }
        };
        // A page between two writes keeps them from merging.
        self.next_page += nr + 1;
        self.bios.push(of_bio);
        let (queue, _) = self.contexts[at].as_mut().expect("it is open");
        queue.queue_bio(Bio { user_data: number, ..bio }, 0, number).expect("a good bio");
    }

    fn turn(&mut self, at: usize, now: u64) {
        let Some((queue, port)) = self.contexts[at].as_mut() else { return };
        let ended = queue.turn_on(port, now);
        for (number, op, result, point) in ended {
            let (pages, promised) = self.bios[number as usize].clone();
            match (op, result.is_ok()) {
                (Op::Write, true) if point == 0 => {
                    let world = self.world.lock().unwrap();
                    let is_stored = pages.iter().all(|page| world.file.stored[*page as usize]);
                    self.nr_promises += 1;
                    self.nr_broken += usize::from(!is_stored);
                }
                (Op::Write, true) => self.written.push(Written { pages, point }),
                (Op::Flush, true) => self.check(promised),
                _ => {}
            }
        }
    }

    /// Checks the promise that everything up to `point` is durable.
    fn check(&mut self, point: u64) {
        let world = self.world.lock().unwrap();
        for written in self.written.iter().filter(|written| written.point <= point) {
            let Written { pages, point } = written;
            let is_in = |lost: &LostWrites| lost.after < *point && *point <= lost.up_to;
            let is_stored = pages.iter().all(|page| world.file.stored[*page as usize]);
            let is_excused = self.acknowledged.iter().any(is_in);
            self.nr_promises += 1;
            self.nr_broken += usize::from(!is_stored && !is_excused);
        }
    }

    fn step(&mut self, now: u64) {
        let at = self.below(NR_CONTEXTS as u64) as usize;
        match self.below(16) {
            0..6 if self.contexts[at].as_ref().is_some_and(|(queue, _)| queue.nr_bios() < 12) => {
                self.queue(at);
            }
            6 if at > 0 && self.contexts[at].is_none() => self.open(at),
            7 if at > 0 && self.contexts[at].as_ref().is_some_and(|(q, _)| q.nr_bios() == 0) => {
                self.contexts[at] = None;
            }
            8 => self.world.lock().unwrap().elsewhere(),
            9 if self.below(8) == 0 => {
                self.acknowledged.extend(self.device.durability().acknowledge_loss());
            }
            10 => {
                let point = self.device.durability().durable();
                if self.device.durability().is_durable(point) {
                    self.check(point);
                }
            }
            _ => {
                let mut world = self.world.lock().unwrap();
                let is_running = |command: &Command| command.result.is_none();
                let nr = world.commands.iter().filter(|command| is_running(command)).count();
                if nr > 0 {
                    let nth = world.below(nr as u64) as usize;
                    let mut running =
                        (0..world.commands.len()).filter(|nth| is_running(&world.commands[*nth]));
                    let nth = running.nth(nth).expect("it runs");
                    drop(running);
                    world.step(nth);
                }
            }
        }
        self.turn(at, now);
    }
}

/// Returns how many promises were broken, and the number of promises.
fn run(is_direct: bool, plant: Plant) -> (usize, usize) {
    let mut sum = (0, 0);
    for seed in 1..=60 {
        let mut run = Run::new(seed, is_direct, plant);
        (0..2000).for_each(|now| run.step(now));
        sum = (sum.0 + run.nr_broken, sum.1 + run.nr_promises);
    }
    sum
}

#[test]
fn acknowledged_durable_data_is_stored_under_any_failure() {
    for is_direct in [false, true] {
        let (nr_broken, nr_promises) = run(is_direct, Plant::default());
        assert_eq!(nr_broken, 0, "direct: {is_direct}");
        assert!(nr_promises > 1000, "direct: {is_direct}: {nr_promises}");
    }
}

#[test]
fn planted_false_reports_of_file_errors_are_found() {
    let sync = Plant { fua_is_no_sync: true, ..Plant::default() };
    let queueable = Plant { fua_is_queueable: true, ..Plant::default() };
    let check = Plant { no_check: true, ..Plant::default() };
    for (is_direct, plant) in
        [(false, sync), (true, sync), (false, queueable), (false, check), (true, check)]
    {
        assert!(run(is_direct, plant).0 > 0, "direct: {is_direct}, {plant:?}");
    }
}
