//! A task that runs a fio job: fio's main loop, in virtual time.

use crate::coroutine::Cpu;
use crate::runtime::thread::{Ended, Io, Thread};
use crate::trace::Kind;
use crate::world::World;
use forebay_core::{BioFlags, Op};
use forebay_fio::generator::{Direction, Ops};
use forebay_fio::job::Job;
use std::rc::Rc;
use std::time::Duration;

/// One clone of a job.
#[derive(Debug)]
pub(crate) struct JobTask {
    pub(crate) job: Job,
    pub(crate) generator: Ops,
    /// The logical block size.
    pub(crate) block: u64,
}

/// Runs the job to its end.
pub(crate) fn run(cpu: Cpu<'_>, task: JobTask) {
    let (world, id) = (Rc::clone(&cpu.world), cpu.id);
    let JobTask { job, mut generator, block } = task;
    world.note(Kind::Start, id as u64, id as u64);
    let mut thread = Thread::new(cpu);
    let mut ended = Vec::new();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let end_ns = job.runtime.map_or(u64::MAX, ns);
    let depth = job.iodepth as usize;
    let mut nr_writes = 0;
    let mut is_over = false;
    while !is_over {
        is_over = submit(&mut thread, &job, &mut generator, block, &mut nr_writes);
        is_over |= world.now() >= end_ns;
        // As in fio, a full queue is drained to `iodepth_low`, in batches.
        let low = if is_over { 0 } else { job.iodepth_low as usize };
        let min = (job.iodepth_batch_complete_min as usize).max(1);
        let max = (job.iodepth_batch_complete_max as usize).max(min);
        while in_flight(&thread) >= depth || in_flight(&thread) > low && is_over {
            thread.reap(min.min(in_flight(&thread)), max, &mut ended);
            tally(&world, id, &mut ended);
            if in_flight(&thread) <= low {
                break;
            }
        }
    }
    if job.end_fsync && nr_writes > 0 {
        thread.submit(flush());
    }
    thread.retire(&mut ended);
    tally(&world, id, &mut ended);
}

/// Submits a batch, in a plug. Returns whether the job has no more I/O.
fn submit(
    thread: &mut Thread<'_>,
    job: &Job,
    generator: &mut Ops,
    block: u64,
    nr_writes: &mut u32,
) -> bool {
    let room = (job.iodepth as usize).saturating_sub(in_flight(thread));
    thread.begin_plug();
    let mut is_over = false;
    for _ in 0..room.min(job.iodepth_batch.max(1) as usize) {
        let Some(next) = generator.next() else {
            is_over = true;
            break;
        };
        let op = match next.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Trim => Op::Discard,
        };
        let (at, nr) = (next.offset / block, u64::from(next.len) / block);
        thread.submit(Io { op, block: at, nr, ..flush() });
        if op == Op::Write {
            *nr_writes += 1;
            if job.fsync > 0 && nr_writes.is_multiple_of(job.fsync) {
                thread.submit(flush());
            }
        }
    }
    thread.end_plug();
    is_over
}

fn flush() -> Io {
    let (flags, cuts) = (BioFlags::NONE, Vec::new());
    Io { op: Op::Flush, flags, block: 0, nr: 0, cuts, charge: None, point: 0 }
}

fn in_flight(thread: &Thread<'_>) -> usize {
    thread.nr_in_layer + thread.ready.len()
}

fn tally(world: &World, id: usize, ended: &mut Vec<Ended>) {
    world.tally.borrow_mut().add(id, ended);
}
