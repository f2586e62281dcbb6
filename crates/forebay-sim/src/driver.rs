//! The simulated driver: core's [`Driver`] over a [`Device`], one queue per hardware context.
//!
//! A command begins when it is committed, or, if the machine is full, after a later completion. In
//! half of the scenarios a turn may leave commands to the wait of a leader, which begins them, as a
//! ring does. A command completes when the engine says so. Its data is transferred when it begins
//! or completes, so that overlapping commands meet in every order. `reap` returns its completion.
//! The checkers run before each of these steps.
//!
//! Fault rules act where the `fault` driver of the library has them, above the device: a command
//! that fails or hangs never reaches it, one that comes back short reaches it with less, and a
//! delay begins when the device is done. Only a command that hangs can be cancelled.

mod offer;
mod overdue;

use crate::check::bios::Unit;
use crate::check::cover::Piece;
use crate::check::rules;
use crate::check::{Checks, broken};
use crate::device::Device;
use crate::file::SwarmFile;
use crate::heap::{Event, EventHeap};
use crate::live_tags::LiveTags;
use crate::own_call::OwnCalls;
use crate::plant::Plant;
use crate::trace::{DEVICE, Kind, code};
use forebay_core::{
    BlockStatus, Completions, Driver, Issue, IssuedRequest, MemoryHold, Op, Reap, Tag,
};
use forebay_model::{Admission, Command, FaultEffect};
use std::collections::VecDeque;
use std::time::Duration;

/// A command at the device, by the number of its tag.
#[derive(Debug)]
struct Row {
    command: Command,
    pieces: Vec<Piece>,
    /// Beside a scheduler, such requests do not get every tag (Q9).
    is_limited: bool,
    result: Result<u64, BlockStatus>,
    /// The fault that a rule injects into it.
    fault: Option<FaultEffect>,
    /// Its data was transferred.
    is_applied: bool,
    is_fua: bool,
    /// The time of issue, for a flush.
    mark: u64,
    /// The sync of a file has found an error of the file, or has made durable what it covers.
    is_synced: bool,
    /// Its blocks were lost before its own sync had checked for errors.
    is_lost: bool,
    issued_ns: u64,
    /// When a turn first found it over its time limit.
    overdue_ns: Option<u64>,
    /// A turn found that its grace period was over.
    is_given_up: bool,
    /// Orders the commands of the device.
    number: u64,
    /// The task that makes the command itself, if one does.
    own: Option<usize>,
}

/// A command that the device has accepted and the layer has not reaped.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    pub(crate) tag: usize,
    pub(crate) number: u64,
    pub(crate) op: Op,
    pub(crate) is_fua: bool,
    pub(crate) pieces: &'a [Piece],
}

impl Row {
    /// Returns whether the command reaches the device: no rule completes it before, or keeps it.
    fn is_for_device(&self) -> bool {
        !matches!(
            self.fault,
            Some(FaultEffect::Fail(_) | FaultEffect::Short(0) | FaultEffect::Hang)
        )
    }

    /// Returns how long the completion is delayed.
    fn delay_ns(&self) -> u64 {
        match self.fault {
            Some(FaultEffect::Delay(delay_ns)) => delay_ns,
            _ => 0,
        }
    }

    /// Returns the command as the device gets it.
    fn at_device(&self) -> Command {
        match self.fault {
            Some(FaultEffect::Short(len)) => Command { len, ..self.command },
            _ => self.command,
        }
    }
}

/// The state of the driver of one hardware context.
#[derive(Debug)]
pub(crate) struct DriverState {
    hctx: usize,
    rows: Vec<Row>,
    /// The rows of commands that were accepted and not reaped.
    live: LiveTags,
    /// No live command that is not overdue was issued before this time.
    oldest_ns: u64,
    /// The number of live commands that are over their time limit.
    nr_overdue: usize,
    /// The number of live commands whose grace period is over.
    nr_given_up: usize,
    /// Queued, and not committed.
    queued: Vec<usize>,
    /// Left to the next wait in the driver, which begins them.
    left: Vec<usize>,
    /// Left to a wait that did not follow. The next reap begins them.
    taken_back: Vec<usize>,
    /// Committed, but not begun because the machine is full.
    waiting: VecDeque<usize>,
    /// Done, and not reaped.
    ready: VecDeque<(Tag, Result<u64, BlockStatus>)>,
    /// A kick is pending for the thread that waits, or will wait.
    has_kick: bool,
    /// Reported as queued, and forgotten: a planted bug.
    forgotten: Vec<usize>,
    /// The memory in quarantine: the handles that the owners of its bios have, and the boxes. A box
    /// is missing if no command had its bio: then it is used again.
    held: Vec<(Option<u32>, MemoryHold)>,
    /// A wait in the driver begins the commands that were left to it.
    pub(crate) begins_in_wait: bool,
    /// The number of flushes that were reaped.
    pub(crate) nr_flushes: u64,
    /// Calls that tasks make themselves.
    pub(crate) own: OwnCalls,
}

impl DriverState {
    pub(crate) fn new(hctx: usize, depth: u32) -> DriverState {
        let command = Command { op: Op::Flush, start: 0, len: 0 };
        let row = || Row {
            command,
            pieces: Vec::new(),
            is_limited: false,
            result: Ok(0),
            fault: None,
            is_applied: false,
            is_fua: false,
            mark: 0,
            is_synced: false,
            is_lost: false,
            issued_ns: 0,
            overdue_ns: None,
            is_given_up: false,
            number: 0,
            own: None,
        };
        DriverState {
            hctx,
            rows: (0..depth).map(|_| row()).collect(),
            live: LiveTags::new(depth as usize),
            oldest_ns: u64::MAX,
            nr_overdue: 0,
            nr_given_up: 0,
            queued: Vec::new(),
            left: Vec::new(),
            taken_back: Vec::new(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            has_kick: false,
            begins_in_wait: false,
            forgotten: Vec::new(),
            held: Vec::new(),
            nr_flushes: 0,
            own: OwnCalls::default(),
        }
    }

    /// Drops all commands, and keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.live.clear();
        (self.oldest_ns, self.nr_overdue, self.nr_given_up) = (u64::MAX, 0, 0);
        self.queued.clear();
        self.left.clear();
        self.taken_back.clear();
        self.waiting.clear();
        self.ready.clear();
        (self.has_kick, self.nr_flushes) = (false, 0);
    }

    /// Returns the commands that were accepted and not reaped.
    pub(crate) fn running(&self) -> impl Iterator<Item = Running<'_>> {
        self.live.iter().map(|tag| {
            let row = &self.rows[tag];
            let &Row { number, is_fua, ref pieces, .. } = row;
            Running { tag, number, op: row.command.op, is_fua, pieces }
        })
    }

    /// Returns the number of flushes that will have been reaped when the next reap is over.
    pub(crate) fn nr_flushes_after_reap(&self) -> u64 {
        let is_flush = |(tag, _): &&(Tag, _)| self.rows[tag.index()].command.op == Op::Flush;
        self.nr_flushes + self.ready.iter().filter(is_flush).count() as u64
    }

    /// Returns whether a thread that waits for `nr` completions may return.
    pub(crate) fn is_wait_over(&self, nr: u32) -> bool {
        self.has_kick || self.ready.len() >= nr as usize
    }

    /// Returns, for a device that does nothing any more, how many commands have not begun, and how
    /// many have begun and are lost.
    pub(crate) fn nr_stuck(&self) -> (usize, usize) {
        let nr_live = self.running().count();
        let nr_left = self.nr_not_begun();
        (nr_left, nr_live.saturating_sub(nr_left + self.ready.len()))
    }

    /// Returns how many commands were left to a wait, and have not begun.
    pub(crate) fn nr_left_to_wait(&self) -> usize {
        self.left.len() + self.taken_back.len()
    }

    fn nr_not_begun(&self) -> usize {
        self.queued.len() + self.nr_left_to_wait() + self.waiting.len()
    }

    /// Takes back the commands left to a wait, because none follows. Returns whether there are any.
    pub(crate) fn take_back(&mut self) -> bool {
        self.taken_back.append(&mut self.left);
        !self.taken_back.is_empty()
    }

    /// Returns whether the command of a tag is a flush.
    pub(crate) fn is_flush(&self, tag: usize) -> bool {
        self.rows[tag].command.op == Op::Flush
    }

    /// Returns whether the driver is in its initial state.
    pub(crate) fn is_idle(&self) -> bool {
        let nr_left = self.nr_not_begun() + self.ready.len();
        nr_left == 0 && self.own.is_idle() && self.held.is_empty() && self.live.is_empty()
    }

    /// Returns whether committed commands wait until a machine has room.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Records the result of a command of a machine. Returns for how long its completion is
    /// delayed.
    pub(crate) fn set_result(&mut self, tag: usize, result: Result<u64, BlockStatus>) -> u64 {
        self.rows[tag].result = result;
        self.rows[tag].delay_ns()
    }

    /// Completes a command of a manual engine, as a success or a failure. If its sync has found an
    /// error, the command fails with that error.
    pub(crate) fn complete(
        &mut self,
        tag: usize,
        is_good: bool,
        device: &mut Device,
        checks: &mut Checks,
    ) {
        let row = &mut self.rows[tag];
        if !row.is_synced && !is_good {
            row.result = Err(BlockStatus::Io);
        }
        self.done(tag, device, checks);
    }

    /// Returns whether a command is a sync that has found no error of the file, and would find one
    /// now.
    pub(crate) fn finds_error(&self, tag: usize, device: &Device) -> bool {
        let row = &self.rows[tag];
        let is_sync = row.command.op == Op::Flush || row.is_fua;
        let has_error = |file: &SwarmFile| file.errors.has_error_for(self.hctx);
        is_sync && !row.is_synced && device.file.as_ref().is_some_and(has_error)
    }

    /// Lets a sync check the file for errors before it completes.
    pub(crate) fn check_early(&mut self, tag: usize, device: &mut Device, checks: &mut Checks) {
        end_sync(self.hctx, &mut self.rows[tag], device, checks);
    }

    /// Completes a command.
    pub(crate) fn done(&mut self, tag: usize, device: &mut Device, checks: &mut Checks) {
        assert!(self.live.contains(tag), "only a command that was begun completes");
        let row = &mut self.rows[tag];
        if row.is_for_device() {
            device.end(row.command.op);
        }
        device.stir(checks);
        end_sync(self.hctx, row, device, checks);
        apply(row, device, checks);
        let mut result = row.result;
        let len = row.command.len;
        match result {
            Err(_) if device.shows(Plant::HideFailure) => result = Ok(len),
            Ok(n) if n < len && device.shows(Plant::HideShort) => result = Ok(len),
            _ => {}
        }
        checks.trace.note_of(DEVICE, Kind::Done, tag as u64, code(result));
        if device.shows(Plant::LoseCompletion) {
            return;
        }
        let tag = match device.shows(Plant::WrongTag) {
            true => self.live.iter().next().unwrap_or(tag),
            false => tag,
        };
        match self.rows[tag].own.take() {
            Some(task) => self.own.done(task, tag, result),
            None => self.ready.push_back((Tag::from_index(tag), result)),
        }
        if device.shows(Plant::CompleteTwice) {
            self.ready.push_back((Tag::from_index(tag), result));
        }
    }
}

/// Ends the sync of a file that is a part of a command: it may report an error. A flush without an
/// error is done.
fn end_sync(hctx: usize, row: &mut Row, device: &mut Device, checks: &mut Checks) {
    let is_flush = row.command.op == Op::Flush;
    let is_sync = (is_flush || row.is_fua) && !row.is_synced;
    let Some(file) = device.file.as_mut().filter(|_| is_sync) else { return };
    row.is_lost = file.settings.has_page_cache && checks.is_struck(&row.pieces);
    if let Err(status) = file.errors.sync(hctx) {
        checks.trace.note_of(DEVICE, Kind::SyncError, hctx as u64, 0);
        row.is_synced = true;
        // io_uring may report the bytes before the failure instead of it.
        let block_size = u64::from(checks.limits.logical_block_size);
        let is_short = !is_flush && row.command.len > block_size && device.random.chance(1, 3);
        row.result = if is_short { Ok(block_size) } else { Err(status) };
    } else if is_flush && row.result.is_ok() {
        row.is_synced = true;
        complete_flush(row, row.result, device, checks);
    }
}

/// Records the blocks that a completed flush makes durable.
fn complete_flush(
    row: &Row,
    result: Result<u64, BlockStatus>,
    device: &mut Device,
    checks: &mut Checks,
) {
    if result.is_ok() && device.shows(Plant::LieFlush) {
        return;
    }
    checks.complete_flush(row.mark, result);
}

/// Transfers the data of a command, once.
fn apply(row: &mut Row, device: &mut Device, checks: &mut Checks) {
    if std::mem::replace(&mut row.is_applied, true) {
        return;
    }
    let block_size = u64::from(checks.limits.logical_block_size);
    let nr_sure = row.result.unwrap_or(0) / block_size;
    let is_exact =
        matches!(row.fault, Some(FaultEffect::Fail(_) | FaultEffect::Short(_) | FaultEffect::Hang));
    device.apply(row.command.op, &row.pieces, (nr_sure, is_exact), &mut checks.bios);
}

/// The driver as a turn sees it: its state, the device, and the checkers.
#[derive(Debug)]
pub(crate) struct Port<'a> {
    pub(crate) state: &'a mut DriverState,
    pub(crate) device: &'a mut Device,
    pub(crate) checks: &'a mut Checks,
    pub(crate) heap: &'a mut EventHeap<Event>,
    pub(crate) now: u64,
    /// A kick is on its way to a thread that has not returned yet.
    pub(crate) is_kicked: bool,
}

impl Port<'_> {
    /// Returns the fault that a rule injects into a request. A transfer is cut to whole blocks.
    fn fault(&mut self, rq: &IssuedRequest<'_>) -> Option<FaultEffect> {
        let block_size = u64::from(self.checks.limits.logical_block_size);
        let fault = match self.device.faults.effect(rq)? {
            FaultEffect::Short(len) if !rq.op.moves_data() || len >= rq.len => return None,
            FaultEffect::Short(len) => FaultEffect::Short(len - len % block_size),
            fault => fault,
        };
        self.checks.note(Kind::Inject, rq.tag.index() as u64, rq.start);
        Some(fault)
    }

    /// Records a command that the device has accepted, or has refused for good.
    fn take(
        &mut self,
        rq: &IssuedRequest<'_>,
        command: Command,
        fault: Option<FaultEffect>,
        is_refused: bool,
    ) {
        let Port { state, device, checks, now, .. } = self;
        if rq.op == Op::Flush {
            let is_flush = |tag: &usize| state.rows[*tag].command.op == Op::Flush;
            checks.check_flush(state.hctx, state.live.iter().filter(is_flush).count());
        }
        state.live.insert(rq.tag.index());
        state.oldest_ns = state.oldest_ns.min(*now);
        let row = &mut state.rows[rq.tag.index()];
        (row.command, row.is_applied) = (command, false);
        row.fault = fault;
        (row.is_fua, row.mark) = (rq.fua, checks.issue(rq.op, &row.pieces, is_refused));
        let verdict = checks.owners.issue(&row.pieces, &checks.bios, *now);
        checks.expect(verdict);
        let verdict = checks.owner_depths.issue(&row.pieces, &checks.bios, is_refused);
        checks.expect(verdict);
        for piece in &row.pieces {
            checks.order.issue(state.hctx, piece.slot, &checks.bios);
        }
        (row.is_synced, row.is_lost) = (false, false);
        (row.issued_ns, row.overdue_ns, row.is_given_up) = (*now, None, false);
        row.own = None;
        device.nr_issued += 1;
        row.number = device.nr_issued;
        if let Some(file) = device.file.as_mut().filter(|_| rq.op.is_write()) {
            row.pieces.iter().for_each(|piece| file.write(piece.block));
        }
    }

    /// Commits all queued commands; each begins as soon as the device has room. Those that were
    /// left to a wait go first.
    pub(crate) fn begin(&mut self) {
        let DriverState { queued, left, taken_back, .. } = &mut *self.state;
        taken_back.append(left);
        taken_back.append(queued);
        self.begin_taken_back();
    }

    /// Begins the commands that were left to the wait of a leader, which now begins.
    pub(crate) fn begin_left(&mut self) {
        if !self.device.shows(Plant::ForgetLeft) && self.state.take_back() {
            self.begin_taken_back();
        }
    }

    fn begin_taken_back(&mut self) {
        let Port { state, device, checks, .. } = self;
        if state.taken_back.is_empty() || device.shows(Plant::ForgetCommit) {
            return;
        }
        checks.note(Kind::Commit, state.hctx as u64, state.taken_back.len() as u64);
        state.waiting.extend(state.taken_back.drain(..));
        self.begin_waiting();
    }

    /// Begins the command that was left to a task, as soon as the device has room.
    pub(crate) fn begin_own(&mut self, tag: usize) {
        self.checks.note(Kind::OwnCall, self.state.hctx as u64, tag as u64);
        self.state.waiting.push_back(tag);
        self.begin_waiting();
    }

    /// Commits the command that was left to a task, instead of leaving it there.
    pub(crate) fn withdraw_own(&mut self, tag: usize) {
        self.state.rows[tag].own = None;
        self.state.queued.push(tag);
        self.begin();
    }

    /// Begins committed commands while the device has room.
    pub(crate) fn begin_waiting(&mut self) {
        let Port { state, device, checks, heap, now, .. } = self;
        while let Some(&tag) = state.waiting.front() {
            let row = &mut state.rows[tag];
            let done = Event::Done { hctx: state.hctx, tag };
            if !row.is_for_device() {
                state.waiting.pop_front();
                row.result = match row.fault {
                    Some(FaultEffect::Fail(status)) => Err(status),
                    // Until it is cancelled.
                    Some(FaultEffect::Hang) => continue,
                    _ => Ok(0),
                };
                heap.add(*now, done);
                continue;
            }
            let Device { engine, random, .. } = &mut **device;
            let command = row.at_device();
            if !engine.may_begin(&command, *now) {
                return;
            }
            state.waiting.pop_front();
            let begun = engine.begin((state.hctx, tag), &command, *now, random);
            row.result = begun.result;
            if random.chance(1, 2) {
                apply(row, device, checks);
            }
            match begun.done_at_ns {
                Some(at_ns) => heap.add(at_ns.saturating_add(row.delay_ns()), done),
                None => device.schedule_next(heap, *now),
            }
        }
    }
}

impl Driver for Port<'_> {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        if !self.check(rq) {
            // The run ends with this step, so the command is not checked further.
            return Issue::Failed(BlockStatus::Io);
        }
        self.device.stir(self.checks);
        let command = Command { op: rq.op, start: rq.start, len: rq.len };
        let fault = self.fault(rq);
        let is_busy = self.device.is_busy_with(rq.op);
        let Device { engine, random, .. } = &mut *self.device;
        let admission = match fault {
            Some(FaultEffect::Busy) => Admission::Busy,
            Some(FaultEffect::Fail(_) | FaultEffect::Short(0) | FaultEffect::Hang) => {
                Admission::Taken
            }
            _ if is_busy => Admission::Busy,
            _ => engine.admit(&command, self.now, random),
        };
        let tag = rq.tag.index();
        let kind = match admission {
            Admission::Taken => Kind::Issue,
            Admission::Busy => Kind::Busy,
            Admission::Refused(_) => Kind::Fail,
        };
        self.checks.note(kind, tag as u64, rq.start);
        match admission {
            Admission::Busy if self.device.shows(Plant::ForgetBusy) => {
                self.state.forgotten.push(tag);
                Issue::Queued
            }
            Admission::Busy => Issue::Busy,
            Admission::Taken => {
                self.take(rq, command, fault, false);
                if self.state.rows[tag].is_for_device() {
                    self.device.begin(rq.op);
                }
                if let Some(task) = self.state.own.leave(rq, &mut self.device.random) {
                    self.state.rows[tag].own = Some(task);
                    return Issue::Begun;
                }
                self.state.queued.push(tag);
                Issue::Queued
            }
            Admission::Refused(status) => {
                self.take(rq, command, None, true);
                self.hand_over(tag, Err(status));
                Issue::Failed(status)
            }
        }
    }

    fn commit_rqs(&mut self) {
        self.begin();
    }

    fn leave_to_wait(&mut self) {
        let DriverState { queued, left, begins_in_wait, .. } = &mut *self.state;
        match begins_in_wait {
            true => left.append(queued),
            false => self.begin(),
        }
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        if how == Reap::Full {
            self.begin_taken_back();
        }
        if self.is_kicked {
            let what = format!("context {}", self.state.hctx);
            self.checks.expect(broken(rules::K8, what));
        }
        self.state.has_kick = false;
        self.device.stir(self.checks);
        self.state.own.take_results(&mut self.state.ready);
        while let Some((tag, result)) = self.state.ready.pop_front() {
            self.checks.note(Kind::Complete, tag.index() as u64, code(result));
            let is_live = self.state.live.contains(tag.index());
            let is_flush = is_live && self.state.is_flush(tag.index());
            self.state.nr_flushes += u64::from(is_flush);
            self.hand_over(tag.index(), result);
            done.push(tag, result);
        }
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {
        unreachable!("a task waits between turns, not in one");
    }

    /// Completes a command that hangs by a rule. The device cancels no other one.
    fn cancel(&mut self, tag: Tag) -> bool {
        self.begin();
        let Port { state, heap, now, .. } = self;
        let (hctx, tag) = (state.hctx, tag.index());
        let row = &mut state.rows[tag];
        let hangs = row.fault == Some(FaultEffect::Hang) && row.own.is_none();
        if hangs {
            row.result = Err(BlockStatus::Timeout);
            state.waiting.retain(|&waiting| waiting != tag);
            heap.add(*now, Event::Done { hctx, tag });
        }
        hangs
    }

    fn withdraw(&mut self) {
        unreachable!("tasks call `withdraw_own` instead");
    }

    fn kick(&mut self) {
        self.state.has_kick = true;
    }
}

impl Port<'_> {
    /// Records the result of a command for its blocks, as the layer gets it.
    fn hand_over(&mut self, tag: usize, result: Result<u64, BlockStatus>) {
        let Port { state, checks, device, .. } = self;
        let row = &mut state.rows[tag];
        if !state.live.remove(tag) {
            // The core ignores such a completion.
            return;
        }
        checks.owner_depths.complete(&row.pieces);
        state.nr_overdue -= usize::from(row.overdue_ns.is_some());
        state.nr_given_up -= usize::from(row.is_given_up);
        checks.progress_at = checks.trace.step;
        if row.is_given_up && row.command.op != Op::Read {
            checks.bios.unblock(row.ranges());
        }
        // H4: the status for the bios.
        let is_overdue = row.overdue_ns.is_some();
        let for_bios = result.map_err(|status| match is_overdue {
            true => BlockStatus::Timeout,
            false => status,
        });
        if result == Err(BlockStatus::Offline) {
            checks.bios.offline();
        }
        if let Err(status) = for_bios {
            checks.bios.failed(row.command.op, status);
            checks.retries.failed();
        }
        let nr_blocks = row.pieces.iter().map(|piece| piece.nr as u64).sum::<u64>();
        let is_whole = result == Ok(nr_blocks * u64::from(checks.limits.logical_block_size));
        if device.file.is_some() && row.is_fua && !is_whole {
            // It counts as a failed sync.
            checks.bios.flush_failed(result.err().unwrap_or(BlockStatus::Io));
        }
        if result == Ok(0) && row.command.len > 0 {
            checks.bios.moved_none();
        }
        let block_size = u64::from(checks.limits.logical_block_size);
        let nr_moved = (result.unwrap_or(0) / block_size) as usize;
        let rest = match (for_bios, row.command.op) {
            (Err(status), _) => Unit::Failed(status),
            (Ok(0), Op::Read) => Unit::EndOfFile,
            (Ok(0), _) => Unit::Failed(BlockStatus::Io),
            (Ok(_), _) => Unit::Idle,
        };
        checks.complete_units(&row.pieces, nr_moved, rest);
        match row.command.op {
            Op::Flush if row.is_synced => {}
            Op::Flush => complete_flush(row, result, device, checks),
            op if op.is_write() => {
                let is_fua = row.is_fua && !row.is_lost && !device.shows(Plant::IgnoreFua);
                checks.complete_write(op, is_fua, &row.pieces, nr_moved);
            }
            _ => {}
        }
    }
}
