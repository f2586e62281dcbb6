//! Test rig: the real core over the simulated device. It runs one path through a script.
//!
//! The device, its driver and the checkers are those of random scenarios. The path determines the
//! order of events, and the rig completes each command itself.

use crate::check::waits::Waits;
use crate::check::{Broken, Checks, Verdict, broken, rules};
use crate::device::{Device, Planted};
use crate::driver::{DriverState, Port};
use crate::engine::Engine;
use crate::file::{FileErrors, FileSettings, SwarmFile};
use crate::heap::EventHeap;
use crate::histories::choices::Choices;
use crate::histories::script::{Kind, Letter, NR_SECTORS, mask};
use crate::histories::{FileUse, Kinds, Scope, Setting};
use crate::plant::Plant;
use crate::runtime::submit::bio_of;
use crate::trace::Trace;
use forebay_core::{
    Backing, Commit, DeviceState, Durability, Gates, HardwareContext, Op, PlugCounters, Policy,
    QueueLimits, QueuedBio, RunCounters, SoftwareQueue, TagSet, UnplugCause,
};
use forebay_model::{FaultRules, Random};
use std::fmt;
use std::sync::Arc;

/// The size of a sector, bytes.
const SECTOR: u64 = 512;

/// The owner of all bios, for the checkers.
const OWNER: usize = 0;

/// A step of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Queue(Letter),
    Unplug,
    Done {
        op: Op,
        number: u64,
        is_good: bool,
    },
    /// The write-back of a sector fails.
    WriteBackError(u64),
    /// Another program syncs the file.
    SyncElsewhere,
    /// The user acknowledges the writes that a failed flush may have lost.
    Acknowledge,
    /// A sync finds an error, and completes later.
    Check {
        number: u64,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Queue(letter) => write!(f, "{letter}"),
            Event::Unplug => f.write_str("unplug"),
            Event::Done { op, number, is_good } => {
                let how = if *is_good { "done" } else { "failed" };
                write!(f, "command {number} ({}) {how}", op.name())
            }
            Event::WriteBackError(sector) => write!(f, "the write-back of sector {sector} fails"),
            Event::Acknowledge => f.write_str("the user acknowledges the loss"),
            Event::SyncElsewhere => f.write_str("another program syncs the file"),
            Event::Check { number } => write!(f, "command {number} finds an error of the file"),
        }
    }
}

/// A thread's software queue and a hardware context.
#[derive(Debug)]
struct Queue {
    ctx: SoftwareQueue,
    hctx: HardwareContext,
}

/// A bio of the script. Its box has the same number.
#[derive(Clone, Copy, Debug)]
struct BioState {
    letter: Letter,
    is_live: bool,
}

/// A command at the device.
#[derive(Clone, Copy, Debug)]
struct Running {
    hctx: usize,
    tag: usize,
    number: u64,
    op: Op,
    /// Its completion has no effect on durability.
    is_plain: bool,
    /// The sectors that it touches, as a bit mask.
    sectors: u64,
}

/// A disk and its device.
#[derive(Debug)]
pub(crate) struct Rig {
    limits: QueueLimits,
    policy: Policy,
    counters: (Arc<PlugCounters>, Arc<RunCounters>),
    /// The second context belongs to a second disk.
    has_second_disk: bool,
    /// The second context opens the file at its first use.
    opens_late: bool,
    bug: Option<Plant>,
    durability: Arc<Durability>,
    queues: Vec<Queue>,
    /// The drivers of the contexts.
    drivers: Vec<DriverState>,
    device: Device,
    checks: Checks,
    /// Always empty: no command has an event of its own.
    heap: EventHeap<crate::heap::Event>,
    ended: Vec<Box<QueuedBio>>,
    /// The bios of the script so far, and free boxes by number.
    bios: Vec<BioState>,
    /// The number of bios that have left the plug.
    nr_entered: usize,
    boxes: Vec<Option<Box<QueuedBio>>>,
    running: Vec<Running>,
    options: Vec<Option<Event>>,
    is_second_open: bool,
    /// The newest durable point of writes that the user got back.
    point: u64,
    now: u64,
    /// All events of the path, for the report of a fault.
    pub(crate) events: Vec<Event>,
    pub(crate) nr_crash_points: u64,
    nr_failures: u32,
    nr_write_back_errors: u32,
    /// The number of commands issued before the last event.
    nr_issued_before: u64,
}

/// Returns the limits of the device.
fn limits(setting: &Setting) -> QueueLimits {
    let plain = QueueLimits::default();
    let max_sectors = if setting.is_splitting { 1 } else { plain.max_sectors };
    plain
        .max_sectors(max_sectors)
        .capacity_bytes(Some(1 << 20))
        .discard_granularity(512)
        .max_discard_sectors(1 << 10)
        .max_discard_segments(4)
        .volatile_cache(true)
        .fua(setting.fua)
        .fua_is_sync(setting.file.is_some())
        .fua_queueable(!setting.file.is_some_and(|file| file.page_cache))
        .flush_queueable(setting.flush_queueable)
}

impl Rig {
    pub(crate) fn new(setting: &Setting, nr_hctxs: usize) -> Rig {
        let limits = limits(setting);
        let policy = Policy::default()
            .queue_depth(setting.queue_depth)
            .nr_hw_queues(nr_hctxs as u32)
            .flush(setting.flush)
            .elide(setting.elide)
            .iostats(false);
        // The path determines when the file has errors.
        let of_file = |file: FileUse| FileSettings {
            has_page_cache: file.page_cache,
            write_back_error: 0,
            sync_elsewhere: 0,
        };
        let planted = Planted { plant: setting.bug, of: 1, random: Random::new(0, 1) };
        let device = Device::new(
            Engine::Manual,
            Random::new(0, 0),
            limits.flush_queueable,
            setting.file.map(|file| SwarmFile::new(of_file(file), nr_hctxs)),
            FaultRules::new(Vec::new(), Random::new(0, 0)),
            planted,
        );
        let driver = |at| DriverState::new(at, policy.queue_depth + 1);
        Rig {
            limits: setting.bug.map_or(limits, |bug| bug.limits(limits)),
            policy,
            counters: (Arc::default(), Arc::default()),
            has_second_disk: setting.file.is_some_and(|file| file.second_disk),
            opens_late: setting.file.is_some_and(|file| file.opens_late),
            bug: setting.bug,
            durability: Arc::default(),
            queues: Vec::new(),
            drivers: (0..nr_hctxs).map(driver).collect(),
            device,
            checks: Checks::new(Trace::new(0), limits, &policy, 0, Waits::new(1, 1)),
            heap: EventHeap::default(),
            ended: Vec::new(),
            bios: Vec::new(),
            nr_entered: 0,
            boxes: Vec::new(),
            running: Vec::new(),
            options: Vec::new(),
            is_second_open: false,
            point: 0,
            now: 0,
            events: Vec::new(),
            nr_crash_points: 0,
            nr_failures: 0,
            nr_write_back_errors: 0,
            nr_issued_before: 0,
        }
    }

    /// Opens a new disk, on a device without writes.
    fn open(&mut self) {
        let (limits, policy) = (self.limits, self.policy);
        let backing = Backing::shared(policy.nr_hw_queues);
        self.durability = Arc::clone(backing.durability());
        let open_disk = || Arc::new(DeviceState::on(&backing, policy.nr_hw_queues));
        let first = open_disk();
        let queue = |index| {
            let tags = Arc::new(TagSet::new(policy.queue_depth));
            let (plugs, runs) = (Arc::clone(&self.counters.0), Arc::clone(&self.counters.1));
            let is_of_first = index == 0 || !self.has_second_disk;
            let state = if is_of_first { Arc::clone(&first) } else { open_disk() };
            let hctx = HardwareContext::new(limits, policy, index, state, tags, runs);
            Queue { ctx: SoftwareQueue::new(limits, policy, plugs), hctx }
        };
        self.queues.clear();
        self.queues.extend((0..policy.nr_hw_queues).map(queue));
        self.drivers.iter_mut().for_each(DriverState::reset);
        self.device.reset(Random::new(0, 0));
        self.checks.reset();
        self.bios.clear();
        self.nr_entered = 0;
        self.running.clear();
        self.events.clear();
        self.is_second_open = !self.opens_late;
        (self.now, self.point, self.nr_crash_points) = (0, 0, 0);
        (self.nr_failures, self.nr_write_back_errors) = (0, 0);
    }

    /// Returns the hash over the events of the last path.
    pub(crate) fn hash(&self) -> u64 {
        self.checks.trace.hash()
    }

    /// Runs one path through the script, to the end.
    pub(crate) fn run(
        &mut self,
        script: &[Letter],
        scope: &Scope,
        choices: &mut Choices,
    ) -> Verdict {
        self.open();
        let mut steps = steps(script);
        // The number of the plain command whose completion was the last event.
        let mut last_plain = None;
        loop {
            self.find_running();
            self.find_options(steps.peek().is_some(), scope, last_plain);
            let event = match self.options.len() {
                0 if self.running.is_empty() => return self.check_end(),
                // This path is equivalent to one with an earlier completion.
                0 => return Ok(()),
                nr => self.options[choices.choose(nr)],
            };
            let event = event.unwrap_or_else(|| steps.next().expect("a step is left"));
            let plain = self.act(event)?;
            let is_forced = scope.eager_reads && matches!(event, Event::Done { op: Op::Read, .. });
            last_plain = if is_forced && plain.is_some() { last_plain } else { plain };
            let is_unflushed = |sector| self.checks.durable.is_unflushed(sector);
            if choices.is_new() && (0..NR_SECTORS).any(is_unflushed) {
                self.nr_crash_points += 1;
            }
        }
    }

    /// Lists the commands at the device, oldest first.
    fn find_running(&mut self) {
        self.running.clear();
        for (hctx, driver) in self.drivers.iter().enumerate() {
            self.running.extend(driver.running().map(|running| {
                let is_plain = running.op != Op::Flush && !running.is_fua;
                let masks = running.pieces.iter().map(|piece| mask(piece.block, piece.nr as u64));
                let sectors = masks.fold(0, |all, mask| all | mask);
                let (tag, number, op) = (running.tag, running.number, running.op);
                Running { hctx, tag, number, op, is_plain, sectors }
            }));
        }
        self.running.sort_unstable_by_key(|running| running.number);
    }

    /// Lists the possible next events. `None` is the next step of the script.
    fn find_options(&mut self, has_step: bool, scope: &Scope, last_plain: Option<u64>) {
        self.options.clear();
        let running = &self.running;
        let done = |running: &Running, is_good| {
            Some(Event::Done { op: running.op, number: running.number, is_good })
        };
        if scope.eager_reads
            && let Some(read) = running.iter().find(|running| running.op == Op::Read)
        {
            return self.options.push(done(read, true));
        }
        if has_step {
            self.options.push(None);
        }
        // The order of completions of plain commands, one after another, has no effect: only the
        // oldest first is tried, unless another event can come between.
        let something_else = has_step || !running.iter().all(|running| running.is_plain);
        let oldest_plain = running.iter().find(|running| running.is_plain);
        let oldest_plain = oldest_plain.map(|running| running.number);
        for running in running {
            let is_out_of_order = last_plain.is_some_and(|last| running.number < last)
                || !something_else && Some(running.number) != oldest_plain;
            if running.is_plain && (is_out_of_order || self.comes_before(running)) {
                continue;
            }
            self.options.push(done(running, true));
            let may_fail = !scope.writes_fail || matches!(running.op, Op::Write | Op::Flush);
            if may_fail && self.nr_failures < scope.failures_max {
                self.options.push(done(running, false));
            }
        }
        if scope.kinds == Kinds::Points && something_else && self.durability.lost().is_some() {
            self.options.push(Some(Event::Acknowledge));
        }
        if scope.write_back_errors_max > 0 && something_else {
            self.find_errors(scope.write_back_errors_max);
        }
    }

    /// Lists the possible events of a file that affect a sync, running or to come.
    fn find_errors(&mut self, errors_max: u32) {
        let Rig { device, drivers, checks, .. } = self;
        let Some(file) = &device.file else { return };
        if self.nr_write_back_errors < errors_max {
            let dirty = (0..NR_SECTORS).filter(|&sector| checks.durable.is_dirty(sector));
            self.options.extend(dirty.map(|sector| Some(Event::WriteBackError(sector))));
        }
        if file.errors.is_unseen() {
            self.options.push(Some(Event::SyncElsewhere));
        }
        let finds = |running: &&Running| drivers[running.hctx].finds_error(running.tag, device);
        let finds = self.running.iter().filter(finds);
        self.options.extend(finds.map(|running| Some(Event::Check { number: running.number })));
    }

    /// Returns whether the completion of this command would have had the same effect just before
    /// the last event. That event must be the queueing of a bio without a flush. The command was
    /// running before it, does not touch the bio's sector, and no bio with a flush is waiting.
    fn comes_before(&self, running: &Running) -> bool {
        let Some(Event::Queue(letter)) = self.events.last() else { return false };
        let is_flush = |bio: &BioState| bio.is_live && bio.letter.kind.has_flush();
        !letter.kind.has_flush()
            && running.number <= self.nr_issued_before
            && running.sectors & letter.sectors() == 0
            && !self.bios.iter().any(is_flush)
    }

    /// Performs one event, and then the turns. Returns the number of the completed command if it
    /// was a plain one and nothing was issued since.
    fn act(&mut self, event: Event) -> Result<Option<u64>, Broken> {
        self.events.push(event);
        self.now += 10;
        let nr_issued = self.device.nr_issued;
        self.nr_issued_before = nr_issued;
        let mut plain = None;
        let mut first = 0;
        match event {
            Event::Queue(letter) => {
                self.queue(letter);
                if !letter.is_plugged {
                    self.unplug();
                }
                first = letter.hctx;
            }
            Event::Unplug => {
                self.unplug();
                for Queue { ctx, hctx } in &mut self.queues {
                    ctx.unplug(UnplugCause::Outermost, 1, self.now);
                    hctx.accept_from(ctx, true);
                }
            }
            Event::Done { number, is_good, .. } => {
                let Running { hctx, tag, is_plain, .. } = self.find(number);
                first = hctx;
                plain = is_plain.then_some(number);
                self.nr_failures += u32::from(!is_good);
                let Rig { drivers, device, checks, .. } = self;
                drivers[hctx].complete(tag, is_good, device, checks);
            }
            Event::WriteBackError(sector) => {
                self.nr_write_back_errors += 1;
                self.checks.durable.write_back_failed(sector);
                self.file_errors().strike();
            }
            Event::SyncElsewhere => self.file_errors().sync_elsewhere(),
            Event::Acknowledge => {
                let lost = self.durability.acknowledge_loss();
                self.checks.acknowledge(lost.expect("there is a loss"));
            }
            Event::Check { number } => {
                let Running { hctx, tag, .. } = self.find(number);
                let Rig { drivers, device, checks, .. } = self;
                drivers[hctx].check_early(tag, device, checks);
            }
        }
        let nr_hctxs = self.queues.len();
        // After a while every context retries a busy device.
        let nr_turns = if nr_hctxs == 1 { 1 } else { 2 * nr_hctxs };
        for nth in 0..nr_turns {
            self.turn((first + nth) % nr_hctxs)?;
        }
        self.checks.durable.check_durable_point(&self.durability)?;
        (0..NR_SECTORS).try_for_each(|sector| self.checks.durable.check_block(sector))?;
        Ok(plain.filter(|_| nr_issued == self.device.nr_issued))
    }

    /// Returns the command with this number.
    fn find(&self, number: u64) -> Running {
        let running = self.running.iter().find(|running| running.number == number);
        *running.expect("the command of an event runs")
    }

    fn file_errors(&mut self) -> &mut FileErrors {
        &mut self.device.file.as_mut().expect("a file has errors").errors
    }

    /// Opens the file for the second context, at its first use.
    fn open_second(&mut self, hctx: usize) {
        if hctx == 0 || std::mem::replace(&mut self.is_second_open, true) {
            return;
        }
        self.file_errors().open(hctx);
        if self.bug != Some(Plant::UncheckedOpen) {
            self.device.check_place(&self.durability, &mut self.checks);
        }
    }

    fn queue(&mut self, mut letter: Letter) {
        self.open_second(letter.hctx);
        // A discard that overlaps another one becomes a read: only its range identifies it.
        if letter.kind == Kind::Discard && !self.checks.bios.is_range_free(letter.sector, letter.nr)
        {
            letter.kind = Kind::Read;
        }
        let slot = self.bios.len() as u32;
        if self.boxes.len() == self.bios.len() {
            assert_eq!(self.checks.bios.new_row(OWNER), slot);
            self.boxes.push(None);
        }
        self.bios.push(BioState { letter, is_live: true });
        let bio = bio_of(&letter.io(self.point), slot, SECTOR, self.checks.bios.next_serial());
        self.checks.queue_bio(slot, &bio, self.now);
        let new_box = || QueuedBio::new(OWNER as u64, slot);
        let mut boxed = self.boxes[slot as usize].take().unwrap_or_else(new_box);
        boxed.fill(bio);
        let Queue { ctx, hctx } = &mut self.queues[letter.hctx];
        let taken = ctx.queue_bio(boxed, u32::from(letter.is_plugged), self.now);
        assert!(taken.is_ok(), "a good bio is not refused");
        hctx.accept_from(ctx, true);
    }

    /// Records that the queued bios leave the plug.
    fn unplug(&mut self) {
        for slot in self.nr_entered..self.bios.len() {
            let nr_flushes = self.drivers[self.bios[slot].letter.hctx].nr_flushes;
            self.checks.bios.row_mut(slot as u32).nr_flushes_before = nr_flushes;
        }
        self.nr_entered = self.bios.len();
    }

    fn turn(&mut self, at: usize) -> Verdict {
        let mut port = Port {
            state: &mut self.drivers[at],
            device: &mut self.device,
            checks: &mut self.checks,
            heap: &mut self.heap,
            now: self.now,
            is_kicked: false,
        };
        let mut ended = std::mem::take(&mut self.ended);
        self.queues[at].hctx.turn(&mut port, self.now, Gates::OPEN, Commit::Now, &mut ended);
        for boxed in ended.drain(..) {
            self.end(boxed)?;
        }
        self.ended = ended;
        self.checks.broken.take().map_or(Ok(()), Err)
    }

    /// Checks the end of a bio: it has its own result, and the promise of durability holds.
    fn end(&mut self, boxed: Box<QueuedBio>) -> Verdict {
        let slot = boxed.number();
        let bio = &mut self.bios[slot as usize];
        let letter = bio.letter;
        if !std::mem::replace(&mut bio.is_live, false) {
            return broken(rules::F7, format!("bio {slot}, {letter}"));
        }
        self.checks.check_flush_wait(slot, self.drivers[letter.hctx].nr_flushes);
        self.checks.end_bio(&boxed, false)?;
        self.checks.bios.reap(slot, OWNER)?;
        self.point = self.point.max(boxed.durable_point());
        self.boxes[slot as usize] = Some(boxed);
        Ok(())
    }

    /// Checks the final state: no event is possible any more.
    fn check_end(&self) -> Verdict {
        if let Some(nth) = self.bios.iter().position(|bio| bio.is_live) {
            let letter = self.bios[nth].letter;
            let was_forgotten = letter.kind.has_flush() && self.checks.bios.has_flush_failed();
            let rule = if was_forgotten { rules::F7 } else { rules::F5 };
            return broken(rule, format!("bio {nth}, {letter}, waits for nothing"));
        }
        for Queue { hctx, .. } in &self.queues {
            if hctx.check_invariants() > 0 {
                return broken(rules::DRAINED, String::from("a bio is left in a context"));
            }
        }
        Ok(())
    }
}

/// Returns the steps of a script: its bios, and the end of each plug.
fn steps(script: &[Letter]) -> std::iter::Peekable<impl Iterator<Item = Event>> {
    let steps = script.iter().enumerate().flat_map(|(nth, letter)| {
        let is_last = script.get(nth + 1).is_none_or(|next| !next.is_plugged);
        let unplug = (letter.is_plugged && is_last).then_some(Event::Unplug);
        std::iter::once(Event::Queue(*letter)).chain(unplug)
    });
    steps.peekable()
}
