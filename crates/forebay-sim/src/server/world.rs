//! The phases of a run: clients work until the phase ends, and then the power fails, or the server
//! dies or is stopped.

use super::context::{Context, Event};
use super::device::Device;
use super::disk::Disk;
use super::host::{Outside, SharedOutside, Transport};
use super::memory::Memory;
use super::rules::{P2, P3};
use super::scenario::{DiskScenario, Ending};
use super::store::SECTOR;
use super::trace::{Kind, Met};
use crate::check::{Broken, Verdict};
use crate::sectors::{Anomaly, Crash, Op, Rule, Sectors, Value};
use forebay_core::{Policy, QueueLimits};
use std::cell::RefCell;
use std::rc::Rc;

/// The limit of events: a run that has not ended by then never will.
const NR_EVENTS_MAX: u64 = 10_000_000;

/// Actions of the clients, and the data that they have read.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) ops: Vec<Op>,
    /// Replies in this phase.
    pub(crate) nr_answers: u64,
}

/// The parts of a world that do not depend on the protocol.
#[derive(Debug)]
pub(crate) struct Stage<T: Transport> {
    pub(crate) outside: SharedOutside<T>,
    limits: QueueLimits,
    policy: Policy,
    sectors: Sectors,
    endings: Vec<Ending>,
}

impl<T: Transport> Stage<T> {
    pub(crate) fn new(
        cx: Context,
        disk: DiskScenario,
        transport: T,
        endings: Vec<Ending>,
    ) -> Stage<T> {
        let DiskScenario { limits, policy, model, failure_loses, nr_bios, .. } = disk;
        let device = Device::new(model, &limits, failure_loses);
        let sectors = Sectors::new(device.store.nr_sectors());
        let disk = Disk::open(limits, policy, device, nr_bios);
        let outside = Rc::new(RefCell::new(Outside { cx, disk, transport }));
        Stage { outside, limits, policy, sectors, endings }
    }

    /// Calls `look` with the clock and the trace of the run.
    pub(crate) fn with_context<R>(&self, look: impl FnOnce(&mut Context) -> R) -> R {
        look(&mut self.outside.borrow_mut().cx)
    }

    /// Completes a command of the device.
    pub(crate) fn done(&self, hctx: usize, tag: usize) {
        let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
        disk.done(hctx, tag, cx);
    }
}

/// A world of clients and a server.
pub(crate) trait World {
    /// Everything between the clients and the server.
    type Transport: Transport;
    /// The kinds of events of the protocol.
    type Met: Kind;
    /// The rule that a run without an end breaks.
    const ENDS: &'static str;
    /// The rule that something left behind breaks.
    const DRAINS: &'static str;
    /// Whether the clients go on after the end of a server, with the next one.
    const CLIENTS_OUTLIVE_SERVER: bool;

    fn stage(&self) -> &Stage<Self::Transport>;
    fn stage_mut(&mut self) -> &mut Stage<Self::Transport>;
    fn log_mut(&mut self) -> &mut Log;

    /// Begins a phase.
    fn begin(&mut self);

    /// Handles an event.
    fn fire(&mut self, event: Event) -> Verdict;

    /// Stops the server, and makes the clients send no more.
    fn stop(&mut self);

    /// Checks the final state: no event is left, so every client and the server must have finished.
    fn check_over(&self) -> Verdict;

    /// Handles the end of all clients by a crash.
    fn forget(&mut self);

    /// Starts a new server on the same device.
    fn restart(&mut self);
}

/// Runs all phases.
pub(crate) fn run<W: World>(world: &mut W) -> Verdict {
    for ending in std::mem::take(&mut world.stage_mut().endings) {
        world.log_mut().nr_answers = 0;
        world.begin();
        phase(world, ending)?;
        crash(world, ending)?;
    }
    Ok(())
}

/// Runs until no event is left, or the phase ends.
fn phase<W: World>(world: &mut W, ending: Ending) -> Verdict {
    let nr_answers_max = match ending {
        Ending::Quiet => u64::MAX,
        Ending::PowerCut(nr) | Ending::ServerDies(nr) | Ending::ServerStops(nr) => nr,
    };
    if run_until(world, nr_answers_max)? {
        return check_quiet(world);
    }
    if let Ending::ServerStops(_) = ending {
        {
            let Outside { cx, disk, .. } = &mut *world.stage().outside.borrow_mut();
            cx.note(Met::ServerStops, disk.is_busy().into(), 0);
        }
        world.stop();
        run_until(world, u64::MAX)?;
        check_quiet(world)?;
    }
    Ok(())
}

/// Runs until the clients have received `nr_answers_max` replies, or no event is left. Returns
/// whether no event is left.
fn run_until<W: World>(world: &mut W, nr_answers_max: u64) -> Result<bool, Broken> {
    let mut nr_events = 0;
    while world.log_mut().nr_answers < nr_answers_max {
        let event = world.stage().with_context(Context::next);
        let Some(event) = event else { return Ok(true) };
        world.fire(event)?;
        nr_events += 1;
        if nr_events > NR_EVENTS_MAX {
            return Err(Broken::new(W::ENDS, "events without an end".into()));
        }
    }
    Ok(false)
}

fn check_quiet<W: World>(world: &mut W) -> Verdict {
    world.check_over()?;
    let ops = std::mem::take(&mut world.log_mut().ops);
    {
        let Stage { outside, sectors, .. } = world.stage();
        let Outside { cx, disk, .. } = &mut *outside.borrow_mut();
        disk.check_drained(W::DRAINS)?;
        let tally = sectors.check(&ops).map_err(|found| anomaly(&found))?;
        if tally.racing_reads > 0 {
            cx.note(Met::RacingReads, tally.racing_reads, tally.reads);
        }
    }
    world.log_mut().ops = ops;
    Ok(())
}

/// Cuts the power or kills the server, and then checks what the disk holds.
fn crash<W: World>(world: &mut W, ending: Ending) -> Verdict {
    let (crash, found) = {
        let Outside { cx, disk, .. } = &mut *world.stage().outside.borrow_mut();
        let is_busy = disk.is_busy();
        if disk.nr_merged() > 0 {
            cx.note(Met::Merged, disk.nr_merged(), 0);
        }
        disk.abandon(cx);
        let crash = if let Ending::ServerDies(_) | Ending::ServerStops(_) = ending {
            if matches!(ending, Ending::ServerDies(_)) {
                cx.note(Met::ServerDies, is_busy.into(), 0);
            }
            disk.device.store.forget_losses();
            Crash::Server
        } else {
            let nr_lost = disk.device.store.cut(&mut cx.random);
            cx.note(if is_busy { Met::PowerCutBusy } else { Met::PowerCut }, nr_lost, 0);
            if nr_lost > 0 {
                cx.note(Met::PowerCutLoses, nr_lost, 0);
            }
            Crash::Power
        };
        cx.forget();
        (crash, found(disk))
    };
    if crash == Crash::Power || !W::CLIENTS_OUTLIVE_SERVER {
        let ops = std::mem::take(&mut world.log_mut().ops);
        let sectors = &mut world.stage_mut().sectors;
        sectors.crash(&ops, crash, &found).map_err(|found| anomaly(&found))?;
        world.forget();
    }
    let Stage { outside, limits, policy, .. } = world.stage();
    outside.borrow_mut().disk.reopen(*limits, *policy);
    world.restart();
    Ok(())
}

/// Returns the value of every sector.
fn found<M: Memory>(disk: &Disk<M>) -> Vec<Value> {
    let store = &disk.device.store;
    (0..store.nr_sectors()).map(|sector| Value::of(sector, store.read(sector))).collect()
}

fn anomaly(anomaly: &Anomaly) -> Broken {
    let rule = if anomaly.rule == Rule::Durable { P2 } else { P3 };
    let Anomaly { sector, rule: which, what } = anomaly;
    Broken::new(rule, format!("sector {sector} (byte {}), {which:?}: {what}", sector * SECTOR))
}
