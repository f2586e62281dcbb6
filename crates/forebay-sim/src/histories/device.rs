//! A device with a volatile cache. The test rig determines when each command completes, and with
//! which result.
//!
//! A flush makes durable the writes that had been reaped before it was issued, and nothing else for
//! certain. A failed flush loses the rest. A device may refuse a flush beside other commands. The
//! [`Durable`] of the device has the states that a crash may leave.
//!
//! A device that is a file ([`FileUse`]) also loses single sectors, when their write-back fails. A
//! sync (a flush or a write with FUA) ends with a check of its description for such an error. The
//! check may come before the completion.

use crate::check::durable::Durable;
use crate::check::{Broken, Verdict, broken, rules};
use crate::file::FileErrors;
use crate::histories::script::{Kind, Letter, SECTOR, owner};
use crate::histories::{Bug, FileUse, Setting};
use crate::image::Outcome;
use forebay_core::{BlockStatus, Completions, Driver, Issue, IssuedRequest, Look, Op, Tag};
use std::time::Duration;

/// State of a bio, as the user and the device see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BioState {
    pub(crate) letter: Letter,
    /// The time of queueing, which determines what the bio makes durable.
    pub(crate) queued: u64,
    pub(crate) is_live: bool,
    /// The number of flushes that its context had completed when the bio left the plug.
    pub(crate) entered: Option<u64>,
    /// A command has its data.
    is_issued: bool,
    /// The result of the last command with its data.
    pub(crate) result: Option<Result<(), BlockStatus>>,
}

/// A command at the device.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) hctx: usize,
    tag: Tag,
    pub(crate) op: Op,
    pub(crate) is_fua: bool,
    issued: u64,
    len: u64,
    /// Its sectors, each with the number of its bio.
    pub(crate) sectors: Vec<(u64, usize)>,
    /// Orders the commands.
    pub(crate) number: usize,
    /// The error that the sync of a file has found already.
    error: Option<BlockStatus>,
}

impl Running {
    fn is_sync(&self) -> bool {
        self.op == Op::Flush || self.is_fua
    }
}

/// The device, and the state of the checkers.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) durable: Durable,
    pub(crate) bios: Vec<BioState>,
    pub(crate) running: Vec<Running>,
    /// Done, and not reaped yet.
    done: Vec<(Running, Result<u64, BlockStatus>)>,
    is_flush_queueable: bool,
    failure_loses: bool,
    file: Option<FileUse>,
    pub(crate) errors: FileErrors,
    /// The contexts that have the file open.
    is_open: [bool; 2],
    bug: Option<Bug>,
    pub(crate) nr_issued: usize,
    /// The number of flushes that each context has completed.
    pub(crate) nr_flushes: [u64; 2],
    /// The number of failures that the layer counts as failures of a flush.
    pub(crate) nr_failed_flushes: u64,
    pub(crate) broken: Option<Broken>,
}

impl Device {
    pub(crate) fn new(setting: &Setting) -> Device {
        let Setting { flush_queueable, failure_loses, file, bug, .. } = *setting;
        Device {
            durable: Durable::default(),
            bios: Vec::new(),
            running: Vec::new(),
            done: Vec::new(),
            is_flush_queueable: flush_queueable,
            failure_loses,
            file,
            errors: FileErrors::new(2),
            is_open: [false; 2],
            bug,
            nr_issued: 0,
            nr_flushes: [0; 2],
            nr_failed_flushes: 0,
            broken: None,
        }
    }

    /// Restores the initial state, and keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.durable.reset();
        self.bios.clear();
        self.running.clear();
        self.done.clear();
        self.errors.reset();
        self.is_open = [true, self.file.is_none_or(|file| !file.opens_late)];
        (self.nr_issued, self.nr_flushes, self.nr_failed_flushes) = (0, [0; 2], 0);
        self.broken = None;
    }

    fn expect(&mut self, verdict: Verdict) {
        if let Err(broken) = verdict {
            self.broken.get_or_insert(broken);
        }
    }

    /// Opens the file for a context that has not opened it yet. Returns whether the check after
    /// that finds an error that the new description will not report.
    pub(crate) fn open(&mut self, hctx: usize) -> bool {
        if std::mem::replace(&mut self.is_open[hctx], true) {
            return false;
        }
        self.errors.open(hctx);
        let is_lost = self.bug != Some(Bug::UncheckedOpen) && self.errors.check_place().is_err();
        self.nr_failed_flushes += u64::from(is_lost);
        is_lost
    }

    /// Records that the write-back of a sector has failed.
    pub(crate) fn fail_write_back(&mut self, sector: u64) {
        self.durable.write_back_failed(sector);
        self.errors.strike();
    }

    /// Returns whether a command is a sync that has not found an error, and would find one now.
    pub(crate) fn finds_error(&self, nth: usize) -> bool {
        let running = &self.running[nth];
        running.is_sync() && running.error.is_none() && self.errors.has_error_for(running.hctx)
    }

    /// Lets a sync check its description for an error before it completes.
    pub(crate) fn check_early(&mut self, nth: usize) {
        let running = &mut self.running[nth];
        running.error = self.errors.sync(running.hctx).err();
    }

    /// Records that a bio is queued. Only its sector identifies a discard: one equal to another
    /// that is under way becomes a read.
    pub(crate) fn queue(&mut self, mut letter: Letter) -> Letter {
        let is_same = |bio: &BioState| {
            let other = bio.letter;
            bio.is_live && (other.kind, other.sector) == (Kind::Discard, letter.sector)
        };
        if letter.kind == Kind::Discard && self.bios.iter().any(is_same) {
            letter.kind = Kind::Read;
        }
        let queued = self.durable.user_mark();
        let (is_live, entered, is_issued, result) = (true, None, false, None);
        if letter.kind.op().is_write() {
            self.durable.queue(letter.sector, Letter::value(self.bios.len()));
        }
        self.bios.push(BioState { letter, queued, is_live, entered, is_issued, result });
        letter
    }

    /// Records that the queued bios have left the plug.
    pub(crate) fn unplug(&mut self) {
        let bios = self.bios.iter_mut().filter(|bio| bio.entered.is_none());
        bios.for_each(|bio| bio.entered = Some(self.nr_flushes[bio.letter.hctx]));
    }

    /// Completes a command. Its effects are recorded when it is reaped.
    pub(crate) fn complete(&mut self, nth: usize, is_good: bool) {
        if self.finds_error(nth) {
            self.check_early(nth);
        }
        let running = self.running.remove(nth);
        let result = if is_good { Ok(running.len) } else { Err(BlockStatus::Io) };
        let result = running.error.map_or(result, Err);
        self.done.push((running, result));
    }

    /// Returns whether the completion has no effect on durability.
    pub(crate) fn is_plain(&self, nth: usize) -> bool {
        let running = &self.running[nth];
        running.op != Op::Flush && !running.is_fua
    }

    fn is_busy(&self, op: Op) -> bool {
        let mut others = self.running.iter().chain(self.done.iter().map(|(running, _)| running));
        !self.is_flush_queueable && others.any(|other| op == Op::Flush || other.op == Op::Flush)
    }

    fn sectors(&self, rq: &IssuedRequest<'_>) -> Vec<(u64, usize)> {
        match rq.op {
            Op::Read | Op::Write => {
                let bios = rq.segments().map(|segment| owner(segment.addr));
                (rq.start / SECTOR..).zip(bios).collect()
            }
            _ => {
                let mut sectors: Vec<(u64, usize)> = Vec::new();
                for sector in rq.ranges().map(|(start, _)| start / SECTOR) {
                    let of_range = |nth: &usize| {
                        let bio = &self.bios[*nth];
                        let is_its = bio.letter.sector == sector && bio.letter.kind.op() == rq.op;
                        let is_due = bio.is_live && !bio.is_issued && bio.result != Some(Ok(()));
                        is_its && is_due && sectors.iter().all(|(_, other)| other != nth)
                    };
                    let bio = (0..self.bios.len()).find(of_range);
                    sectors.extend(bio.map(|bio| (sector, bio)));
                }
                sectors
            }
        }
    }

    fn issue(&mut self, hctx: usize, rq: &IssuedRequest<'_>) {
        let is_flush = |other: &Running| other.hctx == hctx && other.op == Op::Flush;
        if rq.op == Op::Flush && self.running.iter().any(is_flush) {
            self.expect(broken(rules::F1, format!("context {hctx} issued another")));
        }
        let sectors = self.sectors(rq);
        if sectors.len() as u64 * SECTOR != rq.len {
            let what = format!("{} of {} bytes at {}", rq.op.name(), rq.len, rq.start);
            self.expect(broken(rules::COVERS, what));
        }
        for &(sector, nth) in &sectors {
            self.issue_sector(rq.op, sector, nth);
        }
        let issued = self.durable.device_mark();
        self.nr_issued += 1;
        let (op, is_fua, len, number) = (rq.op, rq.fua, rq.len, self.nr_issued);
        let (tag, error) = (rq.tag, None);
        self.running.push(Running { hctx, tag, op, is_fua, issued, len, sectors, number, error });
    }

    fn issue_sector(&mut self, op: Op, sector: u64, nth: usize) {
        let bio = &mut self.bios[nth];
        let letter = bio.letter;
        let is_right = bio.is_live && !bio.is_issued && bio.result != Some(Ok(()));
        if !is_right || (letter.sector, letter.kind.op()) != (sector, op) {
            let what = format!("{op:?} of sector {sector} for bio {nth}, {letter}");
            self.expect(broken(rules::ISSUED_ONCE, what));
            return;
        }
        bio.is_issued = true;
        let queued = bio.queued;
        if letter.kind == Kind::PreflushWrite {
            // From now on its data may survive a crash.
            let verdict = self.durable.promise(queued);
            self.expect(verdict);
        }
        if op.is_write() {
            let verdict = self.durable.issue(sector, Letter::value(nth));
            self.expect(verdict);
        }
    }

    /// Records the effects of a completion that is reaped.
    fn hand_over(&mut self, running: &Running, result: Result<u64, BlockStatus>) {
        if running.op == Op::Flush {
            self.nr_flushes[running.hctx] += 1;
            match result {
                Ok(_) if self.bug == Some(Bug::LyingFlush) => {}
                Ok(_) => self.durable.flushed(running.issued),
                // Losses of the file were recorded when they happened.
                Err(_) if running.error.is_some() => {}
                Err(_) if self.failure_loses => self.durable.flush_failed(),
                Err(_) => {}
            }
        }
        let is_sync = running.op == Op::Flush || (running.is_fua && self.file.is_some());
        self.nr_failed_flushes += u64::from(is_sync && result.is_err());
        let has_page_cache = self.file.is_some_and(|file| file.page_cache);
        for &(sector, nth) in &running.sectors {
            let bio = &mut self.bios[nth];
            bio.is_issued = false;
            bio.result = Some(result.map(drop));
            let value = Letter::value(nth);
            let is_fua = running.is_fua && self.bug != Some(Bug::LyingFua);
            // Another sync may have reported the loss.
            let is_lost = has_page_cache && self.durable.is_struck(sector, value);
            let outcome = match (result, running.op) {
                (Ok(_), Op::Write) if is_fua && !is_lost => Outcome::Durable,
                (Ok(_), Op::Write) => Outcome::Cached(0),
                _ => Outcome::Unsure,
            };
            if running.op.is_write() {
                self.durable.complete(sector, value, outcome);
            }
        }
    }
}

/// The device as one hardware context sees it.
#[derive(Debug)]
pub(crate) struct Port<'a> {
    pub(crate) device: &'a mut Device,
    pub(crate) hctx: usize,
}

impl Driver for Port<'_> {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        if self.device.is_busy(rq.op) {
            return Issue::Busy;
        }
        self.device.issue(self.hctx, rq);
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _look: Look) {
        let device = &mut *self.device;
        let is_its = |done: &(Running, _)| done.0.hctx == self.hctx;
        while let Some(nth) = device.done.iter().position(is_its) {
            let (running, result) = device.done.remove(nth);
            device.hand_over(&running, result);
            done.push(running.tag, result);
        }
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {
        unreachable!("what completes is decided outside of a turn");
    }
}
