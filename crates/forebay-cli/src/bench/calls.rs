//! I/O by blocking calls, one after the other: fio's engines `psync` and `sync`.
//!
//! As there, a call has a completion latency and no submission latency.

use forebay::{Buf, Disk};
use forebay_fio::generator::{Direction, Op};
use forebay_fio::job::Job;
use forebay_fio::verify;

use super::memory::buffers;
use super::tally::Tally;

/// What the calls of a clone use.
#[derive(Debug)]
pub(super) struct Calls {
    /// None for trims.
    buf: Option<Buf>,
}

impl Calls {
    pub(super) fn new(job: &Job, disk: &Disk) -> Self {
        Self { buf: buffers(job, disk).pop() }
    }

    /// Makes calls until there are no more I/Os, or until `end_ns`.
    pub(super) fn run(
        &mut self,
        tally: &mut Tally<'_>,
        ops: &mut impl Iterator<Item = Op>,
        end_ns: u64,
    ) {
        while !tally.is_over(end_ns) {
            let Some(op) = ops.next() else { return };
            if tally.is_flush_due() {
                tally.periodic_flush(0);
            }
            self.call(tally, op);
        }
    }

    fn call(&mut self, tally: &mut Tally<'_>, op: Op) {
        let disk = tally.disk;
        let start_ns = tally.read_clock();
        let buf = self.buf.as_deref_mut().unwrap_or_default();
        let result = match op.direction {
            Direction::Read => disk.read_at(buf, op.offset),
            Direction::Write => {
                if tally.job.verify {
                    verify::fill(buf, op.offset, tally.stamp);
                }
                tally.writes_since_flush += 1;
                disk.write_at(buf, op.offset)
            }
            Direction::Trim => disk.discard(op.offset, op.len.into()).map(|()| op.len.into()),
        };
        let now_ns = tally.read_clock();
        tally.stats.record_submit(1, 1);
        tally.stats.record_reap(1);
        match result {
            Ok(moved) => tally.end(op, moved, now_ns - start_ns, now_ns - start_ns, buf),
            Err(error) => tally.fail(op, error),
        }
        tally.stats.tick(now_ns);
        tally.gauge.set(&tally.stats);
    }
}
