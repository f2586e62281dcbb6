//! Work between two submissions: periodic syncs, and waiting until the next I/O is due.
//!
//! Source: fio's HOWTO, the options `fsync`, `fdatasync`, `rate`, `thinktime`,
//! `serialize_overlap`. As in fio, a clone that waits for its time has nothing in flight. The I/O
//! loops check one flag, and only jobs with one of these options record their submissions.

use std::time::Duration;

use forebay_fio::generator::{Direction, Mix, Op};
use forebay_fio::job::Job;
use forebay_fio::pace::Pacer;

use super::{Sync, Tally};

/// The longest sleep between two checks of whether the job is over.
const NAP: Duration = Duration::from_millis(50);

/// State of a job's work between I/Os.
#[derive(Debug)]
pub(in crate::bench) struct Pauses {
    /// For each kind of sync, the number of writes between two syncs, or 0 for none. If two are
    /// due, the first one is made.
    sync_every: [(u32, Sync); 2],
    writes: u64,
    due: Option<Sync>,
    /// The file of the last write, which a sync is for.
    file: u16,
    pacer: Option<Pacer>,
    /// Whether each I/O may have to wait for others that overlap it.
    serializes: bool,
}

impl Pauses {
    /// Returns the state for a pass that begins at `now_ns`; `None` if the job has none of these
    /// options.
    pub(in crate::bench) fn new(job: &Job, stream: u64, now_ns: u64) -> Option<Box<Self>> {
        let mut pacer = job.pace.pacer(job.randseed, stream);
        if let Some(pacer) = &mut pacer {
            pacer.restart(now_ns);
        }
        let sync_every = [(job.fsync, Sync::All), (job.fdatasync, Sync::Data)];
        let serializes = job.serialize_overlap;
        let has_flow = job.control.flow > 0;
        let has_syncs = sync_every.iter().any(|&(every, _)| every > 0);
        (has_flow || pacer.is_some() || serializes || has_syncs).then(|| {
            Box::new(Self { sync_every, writes: 0, due: None, file: 0, pacer, serializes })
        })
    }

    /// Records a submission. Returns whether work may be due before the next one.
    fn submitted(&mut self, op: Op, now_ns: u64) -> bool {
        if op.direction == Direction::Write {
            self.writes += 1;
            self.file = op.file;
            let is_due = |(every, _): &(u32, Sync)| {
                *every > 0 && self.writes.is_multiple_of(u64::from(*every))
            };
            if self.due != Some(Sync::All)
                && let Some((_, sync)) = self.sync_every.into_iter().find(is_due)
            {
                self.due = Some(sync);
            }
        }
        let may_wait = match &mut self.pacer {
            Some(pacer) => {
                pacer.submitted(op.direction, op.len);
                pacer.may_wait(now_ns)
            }
            None => false,
        };
        self.due.is_some() || may_wait || self.serializes
    }
}

/// The I/Os to reap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Reap {
    /// All that are in flight.
    All,
    /// Those that have ended.
    Ended,
}

impl Tally<'_> {
    /// Records the submission of an I/O, if the job has an option that depends on it.
    #[inline]
    pub(in crate::bench) fn submitted(&mut self, op: Op) {
        if let Some(pauses) = &mut self.pauses {
            self.is_pause_due = pauses.submitted(op, self.now_ns) || self.flow.is_some();
        }
    }

    /// Returns the direction of the next I/O if the mix selects `wanted`. With rates, it is the
    /// direction that is behind.
    pub(in crate::bench) fn choose(&self, wanted: Direction) -> Direction {
        let other = match (self.job.rw.mix, wanted) {
            (Mix::ReadWrite, _) if matches!(self.job.rwmixread, 0 | 100) => return wanted,
            (Mix::ReadWrite, Direction::Read) => Direction::Write,
            (Mix::ReadWrite, _) => Direction::Read,
            (Mix::Only(_), _) => return wanted,
        };
        let pacer = self.pauses.as_ref().and_then(|pauses| pauses.pacer.as_ref());
        pacer.map_or(wanted, |pacer| pacer.choose(wanted, other, self.now_ns))
    }

    /// Does the work that is due before an I/O in the direction `next`. `reap` completes all of the
    /// `in_flight` I/Os, or only those that have ended.
    #[cold]
    pub(in crate::bench) fn pause(
        &mut self,
        next: Direction,
        in_flight: u32,
        mut reap: impl FnMut(&mut Self, Reap),
    ) {
        self.is_pause_due = false;
        let Some(mut pauses) = self.pauses.take() else { return };
        if let Some(sync) = pauses.due.take() {
            self.periodic_sync(sync, pauses.file, in_flight);
        }
        self.wait_for_flow(&mut reap);
        if let Some(pacer) = &mut pauses.pacer {
            let ramp_ns = self.measured_ns;
            let now_ns = self.read_clock();
            let think = pacer.think();
            let due_ns = pacer.due_ns(next);
            let waits_alone = think.is_some() || !self.job.control.offload;
            if waits_alone && (think.is_some() || due_ns > now_ns) {
                reap(self, Reap::All);
            }
            if let Some((time, busy)) = think {
                let begin_ns = self.read_clock();
                let ns = |time: Duration| begin_ns.saturating_add(time.as_nanos() as u64);
                while self.now_ns < ns(busy) && !self.is_over() {
                    self.read_clock();
                }
                self.sleep_until(ns(time));
            }
            if waits_alone {
                self.sleep_until(due_ns);
            } else {
                self.reap_until(due_ns, &mut reap);
            }
            if self.measured_ns != ramp_ns {
                // The ramp has ended meanwhile; as in fio, the rates restart.
                pacer.restart(self.now_ns);
            }
            self.is_pause_due = pacer.may_wait(self.now_ns);
        }
        self.is_pause_due |= self.flow.is_some();
        self.pauses = Some(pauses);
    }

    /// Waits while the clone is ahead of its part in its flow, and counts the next I/O.
    fn wait_for_flow(&mut self, reap: &mut impl FnMut(&mut Self, Reap)) {
        /// The sleep of a job without `flow_sleep`.
        const LEAST: Duration = Duration::from_micros(10);
        let Some(mut flow) = self.flow.take() else { return };
        if flow.is_ahead() {
            reap(self, Reap::All);
        }
        while flow.is_ahead() && !self.is_over() {
            std::thread::sleep(self.job.control.flow_sleep.clamp(LEAST, NAP));
            self.read_clock();
        }
        flow.count();
        self.flow = Some(flow);
    }

    /// Waits until this time, or until the job is over, and reaps meanwhile.
    fn reap_until(&mut self, until_ns: u64, reap: &mut impl FnMut(&mut Self, Reap)) {
        /// The longest time that an I/O has ended and is not reaped.
        const PERIOD: Duration = Duration::from_micros(20);
        while self.read_clock() < until_ns && !self.is_over() {
            reap(self, Reap::Ended);
            let left = until_ns.saturating_sub(self.now_ns);
            std::thread::sleep(Duration::from_nanos(left).min(PERIOD));
        }
    }

    /// Sleeps until this time, or until the job is over.
    pub(in crate::bench) fn sleep_until(&mut self, until_ns: u64) {
        while self.read_clock() < until_ns && !self.is_over() {
            let left = until_ns.min(self.event_ns()).saturating_sub(self.now_ns);
            std::thread::sleep(Duration::from_nanos(left).min(NAP));
        }
    }
}
