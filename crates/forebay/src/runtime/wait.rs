//! Waiting for the ends of one's own bios.
//!
//! In an owned context the owner waits in the driver. In a shared one, one of those who wait is the
//! leader, and waits in the driver for all; the others, its followers, are parked, and told when
//! their own bios have ended. Whoever stops leading passes the baton to a follower.
//!
//! - W1 nobody parks on a context with work unless it has a leader; who would becomes it.
//! - W2 a sleeper announces itself, then looks again (at its own bios; at whether there is a
//!   leader); its partner publishes, then looks for sleepers. Both do so by changes of one word, of
//!   the mailbox or of the run state, so that one of them comes second and sees the other.
//! - W3 a baton that was received is used, or passed on.
//! - W4 who ends the leader's own bio while it is blocked kicks it, once.
//! - W5 a thread holds no token while it waits, and what it has put off is done before; or by the
//!   leader's wait itself, which begins what was left to it: one system call for both. A leader
//!   that does not wait after all sees to it that a turn begins that.
//! - W6 a leader that comes back from the driver's wait owes a turn: others reap nothing while it
//!   is kicked, and its wait may have taken the signal of a completion that no turn has reaped. It
//!   makes that turn, or passes the debt on with the baton. So who receives a baton owes one, too.

use crate::runtime::ctx::Ctx;
use crate::runtime::hctx::{Hctx, Token, now_ns};
use crate::runtime::mailbox::{Doing, Mailbox, TAGS};
use crate::runtime::primitive::thread;
use crate::runtime::shared::Shared;
use forebay_core::{Commit, Turned};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long to leave a driver alone that is busy with nothing in flight; as in Linux
/// (`BLK_MQ_RESOURCE_DELAY`).
pub(crate) const RESOURCE_DELAY: Duration = Duration::from_millis(3);

/// With this many requests at the device, a follower leaves the commit of its requests to the
/// leader, which returns with the next completion. (The kernel wakes the thread that commits for
/// the completion. That wake-up would be wasted, because the leader reaps the completion.)
///
/// What is left is committed: as long as it is not, a leader was blocked with so many requests at
/// the device. It comes back, since a completion that another takes still ends its wait, or is left
/// to its next; and each turn of a leader, of who is about to lead, and of one that finds no leader
/// blocked, commits.
const BUSY: u32 = 16;

/// Waits in an owned context until `nr` more of its bios may have ended, or for a while. The
/// owner turns it afterwards.
pub(crate) fn wait_as_owner(shared: &Shared, at: usize, turned: Turned, nr: u32) {
    if turned.nr_in_flight == 0 {
        if turned.work_left {
            std::thread::sleep(RESOURCE_DELAY);
        }
        return;
    }
    if let Some(mut token) = shared.hctx(at).try_take() {
        let nr = token.core.prepare_wait(nr);
        if let Some(mut token) = token.wait_as_owner(nr) {
            // It was kept because something was published, and that mark is gone.
            let is_timed = shared.info().is_timed();
            token.turn(now_ns(is_timed), Commit::Now, None, None);
            token.finish();
        }
    }
}

/// Waits in a shared context until `goal` bios were delivered to `mailbox`, ever.
pub(crate) fn wait_shared(shared: &Shared, ctx: &Rc<Ctx>, mailbox: &Arc<Mailbox>, goal: u64) {
    let hctx = shared.hctx(ctx.hctx());
    assert!(hctx.is_shared);
    let is_timed = shared.info().is_timed();
    let waiter = shared.waiter();
    // Who is going to do the work itself tells nobody of it.
    let commit = if waiter.can_help() { Commit::Later } else { Commit::Unless(BUSY) };
    loop {
        // Who leads from the beginning submits and waits with one call. (That nobody is blocked is
        // a guess, which spares a change of the word where somebody leads.)
        if waiter.begins() && !hctx.run.is_blocked() && hctx.run.try_lead() {
            let held = ctx.turn_and_hold(shared, now_ns(is_timed), Some(Commit::Later));
            if lead(shared, hctx, mailbox, goal, held) {
                return;
            }
        }
        waiter.offer();
        // What the thread has detached goes with it.
        ctx.turn(shared, now_ns(is_timed), Some(commit));
        let is_over = mailbox.is_reached(goal);
        // Before it leads or follows: nobody waits for this thread meanwhile, and none kicks it.
        if waiter.help(!is_over) {
            continue;
        }
        if is_over {
            // Its other bios do not wait for the leader.
            return ctx.commit(shared);
        }
        if commit == Commit::Later {
            ctx.commit(shared);
        }
        let leads = hctx.run.try_lead() || follow(hctx, mailbox, goal);
        if leads && lead(shared, hctx, mailbox, goal, None) {
            return;
        }
    }
}

/// As [`wait_shared`], until nothing of this mailbox lacks tags. Threads wait so before they wait
/// for ends, where it is threads that wait for tags.
pub(crate) fn wait_for_tags(shared: &Shared, ctx: &Rc<Ctx>, mailbox: &Arc<Mailbox>) {
    wait_shared(shared, ctx, mailbox, TAGS);
}

/// Parks until the goal is reached, or no thread leads. Returns whether the caller has the baton.
pub(crate) fn follow(hctx: &Hctx, mailbox: &Arc<Mailbox>, goal: u64) -> bool {
    mailbox.begin_wait(goal, Doing::Parked);
    hctx.list_follower(mailbox);
    // W2.
    if !mailbox.is_reached(goal) && hctx.run.has_leader() {
        mailbox.park();
    }
    end_wait(hctx, mailbox) == Doing::Baton
}

/// Awake again. Who was told, and lacks tags, was told of tags: a turn is due that tries.
fn end_wait(hctx: &Hctx, mailbox: &Mailbox) -> Doing {
    let doing = mailbox.end_wait();
    if doing == Doing::Told && mailbox.lacks_tags() {
        hctx.ask_again(mailbox);
    }
    doing
}

/// Waits in the driver, for all, until the goal is reached; then passes the baton (W3). `held` is
/// the token, of who has turned with it. False: it had to stop before.
fn lead<'a>(
    shared: &'a Shared,
    hctx: &'a Hctx,
    mailbox: &Mailbox,
    goal: u64,
    mut held: Option<(Token<'a>, Turned)>,
) -> bool {
    let is_timed = shared.info().is_timed();
    // W6.
    let owes_turn = Cell::new(held.is_none());
    let turn = |mut token: Token<'a>| {
        owes_turn.set(false);
        hctx.timer.begin();
        let turned = token.turn(now_ns(is_timed), Commit::Later, None, None);
        (token, turned)
    };
    while !mailbox.is_reached(goal) {
        let mut timeout = None;
        // Without a mark: a holder that is at work reaps as well.
        held = held.or_else(|| hctx.try_take().map(turn));
        if let Some((token, turned)) = &mut held {
            if !token.wakes_tasks() {
                // The wait below begins it; or the turn that follows, where there is none.
                token.leave_to_wait(turned);
            }
            if token.wakes_tasks() {
                break;
            }
            // Something may be on its way to the inbox even where no delayed run is due.
            timeout = (turned.nr_in_flight == 0).then_some(RESOURCE_DELAY);
        } else {
            // Until its holder has reaped, the driver says that there is something to reap.
            thread::yield_now();
        }
        mailbox.begin_wait(goal, Doing::Leading);
        let kept = block(hctx, held.map(|(token, _)| token));
        if kept.is_none() {
            // W2; a delivery that comes later kicks (W4).
            if !mailbox.is_reached(goal) && !mailbox.is_told() {
                shared.waiter().wait(hctx.delay_left().or(timeout));
            }
            hctx.run.unblock();
            owes_turn.set(true);
        }
        end_wait(hctx, mailbox);
        // It was kept because something was published, and that mark is gone.
        held = kept.map(turn);
    }
    stop_leading(shared, hctx, held.map(|(token, _)| token), owes_turn.get());
    mailbox.is_reached(goal)
}

/// Passes the baton. Nothing is left to a wait afterwards (W5), and no turn is owed (W6).
///
/// The token is given back last: that runs wakers, code of others, which may wait for I/O that
/// needs a leader. For the same reason a leader that has some to run stops first.
fn stop_leading(shared: &Shared, hctx: &Hctx, mut held: Option<Token<'_>>, owes_turn: bool) {
    if let Some(token) = &mut held {
        token.commit();
    }
    let is_due = shared.waiter().take_back();
    let is_passed = hctx.hand_off();
    if is_due || owes_turn && !is_passed {
        // Where we hold the token, this leaves a mark, and the turn follows.
        hctx.run_turn();
    }
    if let Some(token) = held {
        token.finish();
    }
}

/// Says that we are going to wait in the driver, and gives up the token, if we have it; or keeps
/// it, where something was published meanwhile: a turn is due.
fn block<'a>(hctx: &'a Hctx, token: Option<Token<'a>>) -> Option<Token<'a>> {
    match token {
        None => hctx.block(),
        Some(token) => token.release_to_wait(),
    }
}

#[cfg(test)]
#[path = "wait_models.rs"]
pub(crate) mod models;
