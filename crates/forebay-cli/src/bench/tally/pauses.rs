//! Work between two submissions: periodic syncs, and waiting until the next I/O is due.
//!
//! Source: fio's HOWTO, the options `fsync`, `fdatasync`, `rate`, `thinktime`,
//! `serialize_overlap`. As in fio, a clone that waits has nothing in flight, except in a replay.
//! The I/O loops check one flag, and only jobs with one of these options record their submissions.
//!
//! A replay keeps to its [`Schedule`]. It waits with I/Os in flight and reaps them meanwhile, as
//! fio does, and it spins shortly before an I/O is due, since a sleep ends about 60 us too late.

use std::time::Duration;

use forebay_fio::generator::{Direction, Mix, Op};
use forebay_fio::iolog::{Act, Recording};
use forebay_fio::job::Job;
use forebay_fio::pace::Pacer;

use super::{Sync, Tally};
use crate::bench::replay::Schedule;

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
    /// The times of a replay.
    schedule: Option<Schedule>,
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
        let schedule = job.recording.as_ref().map(|recording| Schedule::new(recording, now_ns));
        let is_logged = job.replay.write.is_some() || schedule.is_some();
        (has_flow || pacer.is_some() || serializes || has_syncs || is_logged).then(|| {
            let (writes, due, file) = (0, None, 0);
            Box::new(Self { sync_every, writes, due, file, pacer, serializes, schedule })
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
        let has_work = self.schedule.as_ref().is_some_and(|schedule| schedule.has_work(now_ns));
        self.due.is_some() || may_wait || self.serializes || has_work
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
            if let Some(schedule) = &mut pauses.schedule
                && let Some(late_ns) = schedule.submitted(self.now_ns)
                && let Some(lateness) = &mut self.lateness
            {
                lateness.record(late_ns);
            }
            if let Some(log) = &mut self.log_writer {
                log.io(self.now_ns, op);
            }
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
            (Mix::Only(_) | Mix::Recorded(_), _) => return wanted,
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
        if let Some(schedule) = &mut pauses.schedule {
            self.keep_to(schedule, in_flight, &mut reap);
        }
        self.is_pause_due |= self.flow.is_some();
        self.pauses = Some(pauses);
    }

    /// Prepares for a replay of this log: its first step may have to wait.
    pub(in crate::bench) fn begin_replay(&mut self, recording: &Recording) {
        self.is_pause_due = true;
        if recording.is_timed() && self.job.is_timed() {
            self.lateness.get_or_insert_default();
        }
    }

    /// Makes the syncs after the last I/O of a replay.
    pub(in crate::bench) fn end_replay(&mut self) {
        let Some(mut pauses) = self.pauses.take() else { return };
        if let Some(schedule) = &mut pauses.schedule {
            self.keep_to(schedule, 0, &mut |_, _| {});
        }
        self.pauses = Some(pauses);
    }

    /// Makes the syncs of a replay that precede its next I/O, and waits until that is due.
    fn keep_to(
        &mut self,
        schedule: &mut Schedule,
        in_flight: u32,
        reap: &mut impl FnMut(&mut Self, Reap),
    ) {
        while let Some((step, due_ns)) = schedule.next_step() {
            self.spin_until(due_ns, in_flight, reap);
            let sync = match step.act {
                _ if self.is_over() => return,
                Act::Io(_) => return,
                Act::Sync => Sync::All,
                Act::Datasync => Sync::Data,
            };
            self.periodic_sync(sync, step.file, in_flight);
            schedule.advance();
        }
    }

    /// Waits until this time, or until the job is over, and reaps meanwhile. The last part of the
    /// wait spins. With I/Os in flight it also spins at first, so that their latencies are exact.
    fn spin_until(
        &mut self,
        until_ns: u64,
        in_flight: u32,
        reap: &mut impl FnMut(&mut Self, Reap),
    ) {
        /// The time before the end of the wait at which a sleep must have ended.
        const SPIN_NS: u64 = 200_000;
        /// The time for which a wait with I/Os in flight spins; few of them take longer.
        const REAP_NS: u64 = 2_000_000;
        /// The longest time that an I/O has ended and is not reaped after that.
        const PERIOD: Duration = Duration::from_micros(50);
        let start_ns = self.read_clock();
        while self.now_ns < until_ns && !self.is_over() {
            reap(self, Reap::Ended);
            let left_ns = until_ns.saturating_sub(self.read_clock());
            let is_reaping = in_flight > 0 && self.now_ns - start_ns < REAP_NS;
            if left_ns <= SPIN_NS || is_reaping {
                std::hint::spin_loop();
                continue;
            }
            let nap = if in_flight > 0 { PERIOD } else { NAP };
            let left_ns = until_ns.min(self.event_ns()).saturating_sub(self.now_ns);
            std::thread::sleep(nap.min(Duration::from_nanos(left_ns.saturating_sub(SPIN_NS))));
            self.read_clock();
        }
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
