//! The test rig: the real core over the device. It runs one path through a script.

use crate::check::{Verdict, broken, rules};
use crate::histories::choices::Choices;
use crate::histories::device::{BioState, Device, Port};
use crate::histories::script::{Kind, Letter, NR_SECTORS};
use crate::histories::{Bug, Scope, Setting};
use crate::image::Outcome;
use forebay_core::{
    Backing, Commit, DeviceState, Durability, Gates, HardwareContext, Op, PlugCounters, Policy,
    QueueLimits, QueuedBio, RunCounters, SoftwareQueue, TagSet, UnplugCause,
};
use std::fmt;
use std::sync::Arc;

/// A step of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Queue(Letter),
    Unplug,
    Done {
        op: Op,
        number: usize,
        is_good: bool,
    },
    /// The write-back of a sector fails.
    WriteBackError(u64),
    /// Another program syncs the file.
    SyncElsewhere,
    /// A sync finds an error, and completes later.
    Check {
        number: usize,
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

/// A disk and its device.
#[derive(Debug)]
pub(crate) struct Rig {
    limits: QueueLimits,
    policy: Policy,
    counters: (Arc<PlugCounters>, Arc<RunCounters>),
    /// The second context belongs to a second disk.
    has_second_disk: bool,
    durability: Arc<Durability>,
    queues: Vec<Queue>,
    device: Device,
    ended: Vec<Box<QueuedBio>>,
    /// Free boxes.
    boxes: Vec<Box<QueuedBio>>,
    options: Vec<Option<Event>>,
    now: u64,
    /// All events of the path, for the report of a fault.
    pub(crate) events: Vec<Event>,
    pub(crate) nr_crash_points: u64,
    nr_failures: u32,
    nr_write_back_errors: u32,
    /// The number of commands issued before the last event.
    nr_issued_before: usize,
}

fn limits(setting: &Setting) -> QueueLimits {
    let has_page_cache = setting.file.is_some_and(|file| file.page_cache);
    QueueLimits {
        capacity_bytes: Some(1 << 20),
        discard_granularity: 512,
        max_discard_sectors: 1 << 10,
        max_discard_segments: 4,
        volatile_cache: true,
        fua: setting.fua,
        fua_is_sync: setting.file.is_some() && setting.bug != Some(Bug::UndeclaredSync),
        fua_queueable: !has_page_cache || setting.bug == Some(Bug::UndeclaredCache),
        flush_queueable: setting.flush_queueable,
        ..QueueLimits::default()
    }
}

impl Rig {
    pub(crate) fn new(setting: &Setting, nr_hctxs: usize) -> Rig {
        let limits = limits(setting);
        let policy = Policy {
            queue_depth: setting.queue_depth,
            nr_hw_queues: nr_hctxs as u32,
            flush: setting.flush,
            elide: setting.elide,
            iostats: false,
            ..Policy::default()
        };
        Rig {
            limits,
            policy,
            counters: (Arc::default(), Arc::default()),
            has_second_disk: setting.file.is_some_and(|file| file.second_disk),
            durability: Arc::default(),
            queues: Vec::new(),
            device: Device::new(setting),
            ended: Vec::new(),
            boxes: Vec::new(),
            options: Vec::new(),
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
        self.device.reset();
        self.events.clear();
        (self.now, self.nr_crash_points) = (0, 0);
        (self.nr_failures, self.nr_write_back_errors) = (0, 0);
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
            self.find_options(steps.peek().is_some(), scope, last_plain);
            let event = match self.options.len() {
                0 if self.device.running.is_empty() => return self.check_end(),
                // This path is equivalent to one with an earlier completion.
                0 => return Ok(()),
                nr => self.options[choices.choose(nr)],
            };
            let event = event.unwrap_or_else(|| steps.next().expect("a step is left"));
            let plain = self.act(event)?;
            let is_forced = scope.eager_reads && matches!(event, Event::Done { op: Op::Read, .. });
            last_plain = if is_forced && plain.is_some() { last_plain } else { plain };
            if choices.is_new() {
                self.nr_crash_points += 1;
            }
        }
    }

    /// Lists the possible next events. `None` is the next step of the script.
    fn find_options(&mut self, has_step: bool, scope: &Scope, last_plain: Option<usize>) {
        self.options.clear();
        let device = &self.device;
        let done = |nth: usize, is_good| {
            let running = &device.running[nth];
            Some(Event::Done { op: running.op, number: running.number, is_good })
        };
        let running = || 0..device.running.len();
        if scope.eager_reads
            && let Some(nth) = running().find(|&nth| device.running[nth].op == Op::Read)
        {
            return self.options.push(done(nth, true));
        }
        if has_step {
            self.options.push(None);
        }
        // The order of completions of plain commands, one after another, has no effect: only the
        // oldest first is tried, unless another event can come between.
        let is_plain = |nth: &usize| device.is_plain(*nth);
        let something_else = has_step || !running().all(|nth| is_plain(&nth));
        let oldest_plain = running().find(is_plain);
        for nth in running() {
            let number = device.running[nth].number;
            let is_out_of_order = last_plain.is_some_and(|last| number < last)
                || !something_else && Some(nth) != oldest_plain;
            if (is_out_of_order || self.comes_before(nth)) && is_plain(&nth) {
                continue;
            }
            self.options.push(done(nth, true));
            let op = device.running[nth].op;
            let may_fail = !scope.writes_fail || matches!(op, Op::Write | Op::Flush);
            if may_fail && self.nr_failures < scope.failures_max {
                self.options.push(done(nth, false));
            }
        }
        if scope.write_back_errors_max > 0 && something_else {
            self.find_errors(scope.write_back_errors_max);
        }
    }

    /// Lists the possible events of a file that affect a sync, running or to come.
    fn find_errors(&mut self, errors_max: u32) {
        let device = &self.device;
        if self.nr_write_back_errors < errors_max {
            let dirty = (0..NR_SECTORS).filter(|&sector| device.durable.is_dirty(sector));
            self.options.extend(dirty.map(|sector| Some(Event::WriteBackError(sector))));
        }
        if device.errors.is_unseen() {
            self.options.push(Some(Event::SyncElsewhere));
        }
        let finds = (0..device.running.len()).filter(|&nth| device.finds_error(nth));
        let check = |nth: usize| Some(Event::Check { number: device.running[nth].number });
        self.options.extend(finds.map(check));
    }

    /// Returns whether the completion of this command would have had the same effect just before
    /// the last event. That event must be the queueing of a bio without a flush. The command was
    /// running before it, does not touch the bio's sector, and no bio with a flush is waiting.
    fn comes_before(&self, nth: usize) -> bool {
        let Some(Event::Queue(letter)) = self.events.last() else { return false };
        let running = &self.device.running[nth];
        let is_flush = |bio: &BioState| bio.is_live && bio.letter.kind.has_flush();
        !letter.kind.has_flush()
            && running.number <= self.nr_issued_before
            && running.sectors.iter().all(|&(sector, _)| sector != letter.sector)
            && !self.device.bios.iter().any(is_flush)
    }

    /// Performs one event, and then the turns. Returns the number of the completed command if it
    /// was a plain one and nothing was issued since.
    fn act(&mut self, event: Event) -> Result<Option<usize>, crate::check::Broken> {
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
                    self.device.unplug();
                }
                first = letter.hctx;
            }
            Event::Unplug => {
                self.device.unplug();
                for Queue { ctx, hctx } in &mut self.queues {
                    ctx.unplug(UnplugCause::Outermost, 1, self.now);
                    hctx.accept_from(ctx, true);
                }
            }
            Event::Done { number, is_good, .. } => {
                let nth = self.device.running.iter().position(|other| other.number == number);
                let nth = nth.expect("a command that completes runs");
                first = self.device.running[nth].hctx;
                plain = self.device.is_plain(nth).then_some(number);
                self.nr_failures += u32::from(!is_good);
                self.device.complete(nth, is_good);
            }
            Event::WriteBackError(sector) => {
                self.nr_write_back_errors += 1;
                self.device.fail_write_back(sector);
            }
            Event::SyncElsewhere => self.device.errors.sync_elsewhere(),
            Event::Check { number } => {
                let nth = self.device.running.iter().position(|other| other.number == number);
                self.device.check_early(nth.expect("a sync that checks runs"));
            }
        }
        let nr_hctxs = self.queues.len();
        // After a while every context retries a busy device.
        let nr_turns = if nr_hctxs == 1 { 1 } else { 2 * nr_hctxs };
        for nth in 0..nr_turns {
            self.turn((first + nth) % nr_hctxs)?;
        }
        self.device.durable.check_durable_point(&self.durability)?;
        (0..NR_SECTORS).try_for_each(|sector| self.device.durable.check_block(sector))?;
        Ok(plain.filter(|_| nr_issued == self.device.nr_issued))
    }

    fn queue(&mut self, letter: Letter) {
        if self.device.open(letter.hctx) {
            self.durability.flush_failed();
        }
        let nth = self.device.bios.len();
        let letter = self.device.queue(letter);
        let mut boxed = self.boxes.pop().unwrap_or_else(|| QueuedBio::new(0, 0));
        boxed.fill(letter.bio(nth));
        let Queue { ctx, hctx } = &mut self.queues[letter.hctx];
        let taken = ctx.queue_bio(boxed, u32::from(letter.is_plugged), self.now);
        assert!(taken.is_ok(), "a good bio is not refused");
        hctx.accept_from(ctx, true);
    }

    fn turn(&mut self, at: usize) -> Verdict {
        let mut port = Port { device: &mut self.device, hctx: at };
        let core = &mut self.queues[at].hctx;
        core.turn(&mut port, self.now, Gates::OPEN, Commit::Now, &mut self.ended);
        for boxed in self.ended.drain(..) {
            end(&mut self.device, &boxed)?;
            self.boxes.push(boxed);
        }
        match self.device.broken.take() {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    /// Checks the final state: no event is possible any more.
    fn check_end(&self) -> Verdict {
        if let Some(nth) = self.device.bios.iter().position(|bio| bio.is_live) {
            let letter = self.device.bios[nth].letter;
            let was_forgotten = letter.kind.has_flush() && self.device.nr_failed_flushes > 0;
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

/// Checks the end of a bio: it has its own result, and the promise of durability holds.
fn end(device: &mut Device, boxed: &QueuedBio) -> Verdict {
    let nth = boxed.bio().user_data as usize;
    let bio = &mut device.bios[nth];
    let (letter, queued, entered) = (bio.letter, bio.queued, bio.entered.unwrap_or_default());
    if !std::mem::replace(&mut bio.is_live, false) {
        return broken(rules::F7, format!("bio {nth}, {letter}"));
    }
    let is_good = boxed.result().is_ok();
    let moves_nothing = letter.kind == Kind::Flush;
    let has_flush = letter.kind.has_flush();
    let is_right = match bio.result {
        Some(Ok(())) | None if is_good => moves_nothing || bio.result.is_some(),
        Some(Err(_)) => !is_good,
        _ => has_flush && device.nr_failed_flushes > 0,
    };
    if !is_right {
        let what = format!("bio {nth}, {letter}, ended with {:?}", boxed.result());
        let is_flush = has_flush && !is_good;
        return broken(if is_flush { rules::F3 } else { rules::OWN_RESULT }, what);
    }
    let nr_flushes = device.nr_flushes[letter.hctx] - entered;
    if letter.kind == Kind::Flush && nr_flushes > 2 {
        return broken(rules::F6, format!("bio {nth}, {letter}, waited for {nr_flushes}"));
    }
    if letter.kind.op().is_write() {
        let outcome = match letter.kind {
            Kind::WriteFua if is_good => Outcome::Durable,
            Kind::Write | Kind::PreflushWrite if is_good => Outcome::Cached(boxed.durable_point()),
            _ => Outcome::Unsure,
        };
        device.durable.end(letter.sector, Letter::value(nth), outcome)?;
    }
    match letter.kind {
        Kind::Flush | Kind::PreflushWrite if is_good => device.durable.promise(queued),
        _ => Ok(()),
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
