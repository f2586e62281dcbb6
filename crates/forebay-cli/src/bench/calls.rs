//! I/O by blocking calls, one after the other: fio's engines `psync` and `sync`.
//!
//! As in fio, a call has a completion latency and no submission latency.
//!
//! The blocking calls of the library have no priority. With a priority, each call is one I/O of a
//! queue and a wait for it.

use forebay::{BioQueue, Buf, Disk, Io, IoError, Owner};
use forebay_fio::generator::{Direction, Op, Stream};
use forebay_fio::job::Job;

use super::memory::{buffers, replacement};
use super::priority::Prioritiser;
use super::queued::transfer;
use super::tally::Tally;

/// The objects that the calls of a clone use.
#[derive(Debug)]
pub(super) struct Calls {
    /// None if the job only trims.
    buf: Option<Buf>,
    /// For each file, the owner of the I/Os, if it has limits or a weight.
    owners: Vec<Option<Owner>>,
    /// The queues for calls with a priority, one for each file, if not all have the usual one.
    queues: Option<Box<(Vec<BioQueue>, Prioritiser)>>,
}

impl Calls {
    pub(super) fn new(
        job: &Job,
        disks: &[(&Disk, Option<&Owner>)],
        priorities: Option<Prioritiser>,
    ) -> Self {
        let all_queues = || disks.iter().map(|(disk, _)| disk.queue()).collect();
        let queues = priorities.map(|priorities| Box::new((all_queues(), priorities)));
        let owners = disks.iter().map(|(_, owner)| owner.cloned()).collect();
        Self { buf: buffers(job, disks[0].0).pop(), owners, queues }
    }

    /// Makes blocking calls until the job has no more I/Os or its time is over.
    pub(super) fn run<const TIMED: bool>(&mut self, tally: &mut Tally<'_>, ops: &mut impl Stream) {
        while !tally.is_over() {
            let op = if tally.is_pause_due {
                let Some(direction) = ops.direction() else { return };
                let direction = ops.possible_direction(tally.choose(direction));
                tally.pause(direction, 0, |_, _| {});
                if tally.is_over() {
                    return;
                }
                ops.next_as(direction)
            } else {
                ops.next()
            };
            let Some(op) = op else { return };
            self.call::<TIMED>(tally, op);
        }
    }

    fn call<const TIMED: bool>(&mut self, tally: &mut Tally<'_>, op: Op) {
        let start_ns = if TIMED { tally.read_clock() } else { 0 };
        tally.submitted(op);
        let owner = self.owners[usize::from(op.file)].as_ref();
        let result = match &mut self.queues {
            Some(prioritised) => call_queued(tally, prioritised, owner, &op, &mut self.buf),
            None => call_disk(tally, owner, &op, self.buf.as_deref_mut().unwrap_or_default()),
        };
        let now_ns = if TIMED { tally.read_clock() } else { tally.read_clock_seldom() };
        tally.stats.record_submit(1, 1);
        tally.stats.record_reap(1);
        match result {
            Ok(moved) => {
                let ns = if TIMED { now_ns - start_ns } else { 0 };
                let queues = self.queues.as_ref();
                let ioprio = || queues.map_or(0, |queues| queues.1.of_slot(0));
                tally.end::<TIMED>(op, moved, [ns; 2], ioprio, || part(&self.buf, &op));
            }
            Err(error) => tally.fail(op, error),
        }
        tally.tick();
    }
}

/// Returns the memory of an I/O.
fn part<'a>(buf: &'a Option<Buf>, op: &Op) -> &'a [u8] {
    let buf = buf.as_deref().unwrap_or_default();
    &buf[..buf.len().min(op.len as usize)]
}

/// Makes one blocking call. Returns the number of bytes moved.
fn call_disk(
    tally: &mut Tally<'_>,
    owner: Option<&Owner>,
    op: &Op,
    buf: &mut [u8],
) -> Result<u64, IoError> {
    let disk = tally.disks[usize::from(op.file)];
    let len = buf.len().min(op.len as usize);
    let buf = &mut buf[..len];
    let moved = match op.direction {
        Direction::Read => match owner {
            None => disk.read_at(buf, op.offset),
            Some(owner) => owner.read_at(buf, op.offset),
        },
        Direction::Write => {
            if tally.fills {
                tally.fill(buf, op);
            }
            match owner {
                None => disk.write_at(buf, op.offset),
                Some(owner) => owner.write_at(buf, op.offset),
            }
        }
        Direction::Trim => {
            let (offset, len) = (op.offset, op.len.into());
            let ended = match owner {
                None => disk.discard(offset, len),
                Some(owner) => owner.discard(offset, len),
            };
            ended.map(|()| op.len as usize)
        }
    };
    moved.map(|moved| moved as u64)
}

/// Submits one I/O with its priority, and waits for it. Returns the number of bytes moved.
#[inline(never)]
fn call_queued(
    tally: &Tally<'_>,
    (queues, priorities): &mut (Vec<BioQueue>, Prioritiser),
    owner: Option<&Owner>,
    op: &Op,
    buf: &mut Option<Buf>,
) -> Result<u64, IoError> {
    let queue = &mut queues[usize::from(op.file)];
    let io = match op.direction {
        // A trim leaves the buffer here.
        Direction::Trim => Io::discard(op.offset, op.len.into()),
        _ => transfer(tally, op, buf.take().unwrap_or_else(|| replacement(tally.job))),
    };
    let io = priorities.apply(io, op, 0);
    let submitted = match owner {
        None => queue.submit(io),
        Some(owner) => queue.submit_for(owner, io),
    };
    if let Err(refused) = submitted {
        *buf = refused.io.into_buf().or(buf.take());
        return Err(IoError::Refused(refused.kind));
    }
    let mut result = Ok(0);
    queue.reap_with(1, 1, |completion| {
        *buf = completion.buf.or(buf.take());
        result = completion.result.map_err(IoError::Ended);
    });
    result
}
