//! A job's thread, which keeps a fixed number of I/Os in flight, like fio's asynchronous engines.

use super::board::Board;
use super::load::SMALL_BYTES;
use crate::coroutine::Cpu;
use crate::lab::scenario::FIRST_THREAD;
use crate::runtime::mailbox::Goal;
use crate::runtime::thread::{Ended, Io, Thread};
use forebay_core::{BioFlags, Op, Priority};
use forebay_model::Random;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The number of the random stream of the first job.
const FIRST_JOB_STREAM: u64 = 16;

/// All jobs begin within this time.
const START_NS: u64 = 1_000_000;

/// An I/O of a job, in one bio or in several parts.
#[derive(Clone, Copy, Debug)]
struct JobIo {
    /// The first block.
    start: u64,
    begun_ns: u64,
    nr_submitted: u64,
    nr_ended: u64,
    waited_ns: u64,
}

/// One job, as a task.
pub(super) struct Job<'a> {
    board: Rc<Board>,
    thread: Thread<'a>,
    /// The number of the job.
    id: usize,
    random: Random,
    /// I/Os that have not ended, by their numbers.
    ios: BTreeMap<u64, JobIo>,
    nr_begun: u64,
    /// The I/O of each bio, by the bio's serial number.
    bios: BTreeMap<u64, u64>,
    /// The I/O of which parts are still to be submitted.
    current: Option<u64>,
    /// Whether requests were submitted since the thread last slept for a tag.
    is_plugged: bool,
    /// Bios that were reaped and not counted yet.
    ended: Vec<Ended>,
}

impl<'a> Job<'a> {
    /// Runs a job until the measurement has ended.
    pub(super) fn run(board: Rc<Board>, cpu: Cpu<'a>) {
        let id = cpu.id - FIRST_THREAD;
        let mut random = Random::new(board.load.seed, FIRST_JOB_STREAM + id as u64);
        cpu.spend(random.below(START_NS));
        let mut job = Job {
            thread: Thread::new(cpu),
            board,
            id,
            random,
            ios: BTreeMap::new(),
            nr_begun: 0,
            bios: BTreeMap::new(),
            current: None,
            is_plugged: false,
            ended: Vec::new(),
        };
        while job.now() < job.board.load.end_ns() {
            match job.current.is_some() || job.ios.len() < job.board.depth {
                true => job.submit(),
                false => job.reap(),
            }
        }
        job.thread.retire(&mut job.ended);
        job.count();
    }

    fn now(&self) -> u64 {
        self.thread.world.now()
    }

    /// Submits an I/O or, where threads wait for tags, its next part. Sleeps until it has a tag.
    fn submit(&mut self) {
        let costs = self.board.load.costs;
        let submit_ns = if self.current.is_none() { costs.submit_ns } else { 0 };
        let begun_ns = self.now();
        let (io, request_blocks) = self.next_part(begun_ns);
        let nr_requests = io.nr.div_ceil(request_blocks);
        let number = self.current.expect("it has a part left");
        let serial = self.thread.submit(io).expect("the device takes what the load asks for");
        self.bios.insert(serial, number);
        let of_io = self.ios.get_mut(&number).expect("it has not ended");
        of_io.nr_submitted += 1;
        if of_io.nr_submitted == self.board.nr_parts {
            self.current = None;
        }
        let io_begun_ns = of_io.begun_ns;
        let has_slept = self.wait_for_tag(io_begun_ns);
        self.is_plugged = true;
        let submit_ns = if has_slept { 0 } else { submit_ns };
        self.thread.cpu.spend(submit_ns + nr_requests * costs.tag_ns);
    }

    /// Returns the next bio, of a new I/O or of the current one, and the blocks of a request.
    fn next_part(&mut self, now: u64) -> (Io, u64) {
        let Board { load, block, part_bytes, .. } = &*self.board;
        let (io_bytes, bytes) = match load.is_small(self.id) {
            true => (SMALL_BYTES, SMALL_BYTES),
            false => (load.block_bytes, *part_bytes),
        };
        let random = &mut self.random;
        let number = *self.current.get_or_insert_with(|| {
            let place = random.below(load.device.capacity_bytes / io_bytes);
            let start = place * (io_bytes / block);
            let (nr_submitted, nr_ended) = (0, 0);
            let io = JobIo { start, begun_ns: now, nr_submitted, nr_ended, waited_ns: 0 };
            self.ios.insert(self.nr_begun, io);
            self.nr_begun += 1;
            self.nr_begun - 1
        });
        let nr = bytes / block;
        let io = &self.ios[&number];
        let first = io.start + io.nr_submitted * nr;
        let (flags, cuts) = (BioFlags::NONE, Vec::new());
        let io = Io {
            op: Op::Read,
            flags,
            block: first,
            nr,
            cuts,
            charge: None,
            point: 0,
            priority: Priority::default(),
        };
        (io, self.board.request_bytes / block)
    }

    /// Sleeps while the last bio lacks a tag, if threads wait for tags. Returns whether it slept.
    /// Its I/O began at `begun_ns`.
    fn wait_for_tag(&mut self, begun_ns: u64) -> bool {
        let world = Rc::clone(&self.thread.world);
        let task = self.thread.id;
        if !world.mailboxes[task].cell.lacks_tags() {
            return false;
        }
        if std::mem::take(&mut self.is_plugged)
            && let Some(run_queue) = &world.run_queue
        {
            run_queue.queue(&world);
        }
        let (nr_before, now) = (world.scheduler.nr_sleeps_of(task), world.now());
        self.thread.wait_for(Goal::TagsOfContext);
        self.board.slept_for_tag(now, world.scheduler.nr_sleeps_of(task) - nr_before);
        let end_ns = self.board.load.end_ns();
        if world.now() >= end_ns {
            self.board.still_waits(end_ns - begun_ns);
        }
        true
    }

    /// Reaps the I/Os that have ended. Sleeps if there are none.
    ///
    /// In Linux the last part of an I/O wakes the thread. Here the thread waits for the number of
    /// bios that the I/O nearest its end still lacks: no I/O can end earlier.
    fn reap(&mut self) {
        let (world, task) = (Rc::clone(&self.thread.world), self.thread.id);
        let (nr_before, now) = (world.scheduler.nr_sleeps_of(task), world.now());
        let nr_ios = self.ios.len();
        self.thread.reap(self.nr_missing(), usize::MAX, &mut self.ended);
        self.board.slept_for_completions(now, world.scheduler.nr_sleeps_of(task) - nr_before);
        self.count();
        let nr_reaped = (nr_ios - self.ios.len()) as u64;
        self.thread.cpu.spend(nr_reaped * self.board.load.costs.reap_ns);
    }

    /// Returns the smallest number of bios that an I/O in flight lacks.
    fn nr_missing(&self) -> usize {
        let nr_parts = self.board.nr_parts;
        match nr_parts {
            1 => 1,
            _ => {
                let missing = self.ios.values().map(|io| nr_parts - io.nr_ended);
                missing.min().expect("the job has I/Os in flight") as usize
            }
        }
    }

    /// Counts the bios that were reaped, with the times at which the layer ended them.
    fn count(&mut self) {
        for bio in self.ended.drain(..) {
            assert_eq!(bio.result, Ok(bio.len), "a machine does not fail");
            let number = self.bios.remove(&bio.serial).expect("it was submitted");
            let io = self.ios.get_mut(&number).expect("it has not ended");
            io.nr_ended += 1;
            io.waited_ns += bio.waited_ns;
            if io.nr_ended == self.board.nr_parts {
                self.board.ended(self.id, (io.begun_ns, bio.ended_ns), io.waited_ns);
                self.ios.remove(&number);
            }
        }
    }
}
