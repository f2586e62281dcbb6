//! Diagnosis of a stall: which rule was broken, as far as the final state shows it.
//!
//! Causes near the device are checked first: a task that waits for something that never comes
//! breaks no rule itself. So tags of the budget come last, because they are freed when bios have
//! ended.

use super::{Broken, Verdict, broken, rules};
use crate::runtime::hctx::Hctx;
use crate::runtime::mailbox::Goal;
use crate::world::World;
use forebay_core::WaitId;
use forebay_core::wait::WaitState;

/// Returns the broken rule. `how` describes how the stall was noticed.
pub(crate) fn why(world: &World, how: &str) -> Broken {
    find(world).err().unwrap_or_else(|| {
        let nr_live = world.checks().bios.nr_live();
        Broken::new(rules::NO_STALL, format!("{how}; {nr_live} bios are in the layer"))
    })
}

fn find(world: &World) -> Verdict {
    world.hctxs.iter().try_for_each(|hctx| commands(hctx))?;
    world.hctxs.iter().try_for_each(|hctx| gathering(hctx))?;
    // A bio that gathers is admitted, so it explains a freeze that waits.
    world.hctxs.iter().try_for_each(|hctx| frozen(world, hctx))?;
    world.hctxs.iter().try_for_each(|hctx| lost_run(world, hctx))?;
    (0..world.mailboxes.len()).try_for_each(|task| sleeper(world, task))?;
    leader(&world.hctxs[0])?;
    world.hctxs.iter().try_for_each(|hctx| lines(world, hctx))?;
    world.hctxs.iter().try_for_each(|hctx| held(world, hctx))?;
    world.checks().waits.why_asleep()
}

/// Checks the commands at the driver.
fn commands(hctx: &Hctx) -> Verdict {
    let at = hctx.at;
    let inner = hctx.inner.borrow();
    let Some(inner) = &*inner else { return Ok(()) };
    let (nr_queued, nr_lost) = inner.driver.nr_stuck();
    if nr_lost > 0 {
        return broken(rules::COMPLETES, format!("context {at}: {nr_lost} have not"));
    }
    if nr_queued > 0 && inner.core.nr_uncommitted() > 0 {
        return broken(rules::W5, format!("context {at}: {nr_queued} commands are not committed"));
    }
    let nr_left = inner.driver.nr_left_to_wait();
    if nr_left > 0 {
        return broken(rules::W5, format!("context {at}: {nr_left} commands wait for a leader"));
    }
    if nr_queued > 0 {
        return broken(rules::COMMITS, format!("context {at}: {nr_queued} have not begun"));
    }
    Ok(())
}

/// Checks for a frozen context that is not drained although only bios wait that have an owner.
fn frozen(world: &World, hctx: &Hctx) -> Verdict {
    let inner = hctx.inner.borrow();
    let Some(inner) = &*inner else { return Ok(()) };
    let is_kept = !hctx.is_drained.get() && inner.driver.is_idle() && !hctx.run.gates().enter;
    let checks = world.checks();
    match is_kept && checks.owners.has_waiting(hctx.at, &checks.bios) {
        true => broken(rules::OW3, format!("context {}, with nothing at the device", hctx.at)),
        false => Ok(()),
    }
}

/// Checks that a task will read the inbox if it is not empty.
pub(crate) fn lost_run(world: &World, hctx: &Hctx) -> Verdict {
    let is_run_due = hctx.run.is_running() || hctx.nr_publishing.get() > 0;
    match is_run_due || hctx.inbox.borrow().is_empty() {
        true => Ok(()),
        false => world.checks().runs.lost_run(hctx.at),
    }
}

/// Checks the tasks that lack tags of a context although it has free ones.
fn lines(world: &World, hctx: &Hctx) -> Verdict {
    let inner = hctx.inner.borrow();
    let Some(inner) = &*inner else { return Ok(()) };
    let nr_reserved = world.disk.policy.nr_reserved.min(inner.nr_requests - 1);
    let nr_free = inner.core.nr_free_tags().saturating_sub(nr_reserved);
    if !inner.core.has_lines() || nr_free == 0 || !hctx.run.gates().dispatch {
        return Ok(());
    }
    let tasks = 0..world.mailboxes.len();
    let sleepers: Vec<_> =
        tasks.filter(|&task| inner.core.lacks_tags(WaitId(task as u64))).collect();
    world.checks().lines.why_asleep(hctx.at, nr_free, &sleepers)
}

/// Checks for a split bio that waits for more tags than there are: all are free.
fn gathering(hctx: &Hctx) -> Verdict {
    let inner = hctx.inner.borrow();
    let Some(inner) = &*inner else { return Ok(()) };
    match inner.driver.is_idle() && hctx.run.gates().dispatch && inner.core.gathers_more_tags() {
        true => broken(
            rules::T10,
            format!("context {}: a split bio waits for more tags than there are", hctx.at),
        ),
        false => Ok(()),
    }
}

/// Checks for requests held back for a flush while the device is idle. Requests are held back only
/// if the device takes a flush on its own.
fn held(world: &World, hctx: &Hctx) -> Verdict {
    let inner = hctx.inner.borrow();
    let Some(inner) = &*inner else { return Ok(()) };
    let is_kept = !hctx.is_drained.get() && inner.driver.is_idle() && hctx.run.gates().dispatch;
    match is_kept && !world.disk.limits.flush_queueable {
        true => broken(rules::F5, format!("context {}, with nothing at the device, is", hctx.at)),
        false => Ok(()),
    }
}

/// Checks for a leader that waits in the driver without completions to come, and was not kicked for
/// a delayed run.
fn leader(hctx: &Hctx) -> Verdict {
    let Some((task, _)) = hctx.waiter.get() else { return Ok(()) };
    let comes_back = hctx.waits_until_ns.get().is_some() || hctx.run.is_kicked();
    match hctx.timers.is_set() && !comes_back {
        true => broken(rules::W4, format!("task {task}, which has a delayed run to make, was not")),
        false => Ok(()),
    }
}

/// Checks a sleeping task: it should be awake, or should lead.
fn sleeper(world: &World, task: usize) -> Verdict {
    let mailbox = &world.mailboxes[task];
    let (doing, goal) = (mailbox.cell.state(), mailbox.goal.get());
    if !world.scheduler.is_asleep(task) || goal == Goal::None {
        return Ok(());
    }
    let leads = |hctx: &Hctx| hctx.waiter.get().is_some_and(|(waiter, _)| waiter == task);
    if doing == WaitState::Woken || mailbox.is_reached(goal) {
        return match world.hctxs.iter().any(|hctx| leads(hctx)) {
            true => broken(rules::W4, format!("task {task}, which is in the driver, was not")),
            false => broken(rules::W2, format!("task {task} sleeps, and was not")),
        };
    }
    if doing.is_parked() && mailbox.is_following.get() && !world.hctxs[0].run.has_leader() {
        return match mailbox.cell.is_listed() {
            true => broken(rules::W1, format!("task {task} has")),
            false => broken(rules::W3, format!("task {task} was called, and has not got it")),
        };
    }
    Ok(())
}
