//! I/O by blocking calls, one after the other: fio's engines `psync` and `sync`.
//!
//! As in fio, a call has a completion latency and no submission latency.

use forebay::{Buf, Disk, Owner};
use forebay_fio::generator::{Direction, Op, Stream};
use forebay_fio::job::Job;

use super::memory::buffers;
use super::tally::Tally;

/// The objects that the calls of a clone use.
#[derive(Debug)]
pub(super) struct Calls {
    /// None for trims.
    buf: Option<Buf>,
    owner: Option<Owner>,
}

impl Calls {
    pub(super) fn new(job: &Job, disk: &Disk, owner: Option<&Owner>) -> Self {
        Self { buf: buffers(job, disk).pop(), owner: owner.cloned() }
    }

    /// Makes blocking calls until the job has no more I/Os or its time is over.
    pub(super) fn run<const TIMED: bool>(&mut self, tally: &mut Tally<'_>, ops: &mut impl Stream) {
        while !tally.is_over() {
            let op = if tally.is_pause_due {
                let Some(direction) = ops.direction() else { return };
                let direction = tally.choose(direction);
                tally.pause(direction, 0, |_| {});
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
        let disk = tally.disk;
        let start_ns = if TIMED { tally.read_clock() } else { 0 };
        let buf = self.buf.as_deref_mut().unwrap_or_default();
        let len = buf.len().min(op.len as usize);
        let buf = &mut buf[..len];
        tally.submitted(op);
        let owner = self.owner.as_ref();
        let result = match op.direction {
            Direction::Read => match owner {
                None => disk.read_at(buf, op.offset),
                Some(owner) => owner.read_at(buf, op.offset),
            },
            Direction::Write => {
                if tally.fills {
                    tally.fill(buf, op.offset);
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
        let now_ns = if TIMED { tally.read_clock() } else { tally.read_clock_seldom() };
        tally.stats.record_submit(1, 1);
        tally.stats.record_reap(1);
        match result {
            Ok(moved) => {
                let ns = if TIMED { now_ns - start_ns } else { 0 };
                tally.end::<TIMED>(op, moved as u64, [ns; 2], || buf);
            }
            Err(error) => tally.fail(op, error),
        }
        tally.tick();
    }
}
