//! Wait protocol: how threads wait for their own bios to end.
//!
//! In an owned context the owner waits in the driver. In a shared context one of the waiting
//! threads is the leader, and waits in the driver for all. The other waiters are its followers:
//! they park until their own bios have ended. A thread that stops leading passes the baton to a
//! follower.
//!
//! - W1 No thread parks on a context with work unless the context has a leader. A thread that would
//!   park becomes the leader instead.
//! - W2 A sleeper announces itself, then checks again (its own bios, or whether there is a leader).
//!   Its partner publishes, then checks for sleepers. Both do so by changes of one word, of the
//!   mailbox or of the run state, so one of them comes second and sees the other.
//! - W3 A thread that receives a baton uses it or passes it on.
//! - W4 A thread that ends the leader's own bio while the leader is blocked kicks it, once.
//! - W5 A thread holds no token while it waits. It commits what it has deferred before it waits; or
//!   the leader's wait itself begins what was left to it, with one system call for both. A leader
//!   that does not wait after all ensures that a turn begins those requests.
//! - W6 A leader that returns from the driver's wait owes a turn. Other threads reap nothing while
//!   it is kicked, and its wait may have consumed the signal of a completion that no turn has
//!   reaped. The leader makes that turn, or passes the debt on with the baton. So a thread that
//!   receives a baton owes a turn, too.

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

/// Delay before the next run when a driver is busy with nothing in flight, as in Linux
/// (`BLK_MQ_RESOURCE_DELAY`).
pub(crate) const RESOURCE_DELAY: Duration = Duration::from_millis(3);

/// With this many requests in flight, a follower leaves the commit of its requests to the leader,
/// which returns with the next completion. (The kernel wakes the committing thread for that
/// completion. The wake-up would be wasted, because the leader reaps the completion.)
///
/// The uncommitted requests do get committed. While they are uncommitted, a leader was blocked with
/// this many requests in flight. That leader comes back: a completion that another thread reaps
/// still ends its wait, or is left to its next wait. A turn commits if it is made by a leader or by
/// a thread about to lead, or if it finds no leader blocked.
const BUSY: u32 = 16;

/// Waits in an owned context until `nr` more of its bios may have ended, or for a limited time. The
/// owner makes a turn afterwards.
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
            // The token was kept because something was published, and `release_to_wait` has cleared
            // that mark.
            let is_timed = shared.info().is_timed();
            token.turn(now_ns(is_timed), Commit::Now, None, None);
            token.finish();
        }
    }
}

/// Waits in a shared context until the total number of bios delivered to `mailbox` reaches `goal`.
pub(crate) fn wait_shared(shared: &Shared, ctx: &Rc<Ctx>, mailbox: &Arc<Mailbox>, goal: u64) {
    let hctx = shared.hctx(ctx.hctx());
    assert!(hctx.is_shared);
    let is_timed = shared.info().is_timed();
    let waiter = shared.waiter();
    // A thread that will help with the work itself does not notify other threads of it.
    let commit = if waiter.can_help() { Commit::Later } else { Commit::Unless(BUSY) };
    loop {
        // A thread that leads from the start submits and waits with one call. (`is_blocked` is only
        // a guess. It avoids a write to the run word while another thread leads.)
        if waiter.begins() && !hctx.run.is_blocked() && hctx.run.try_lead() {
            let held = ctx.turn_and_hold(shared, now_ns(is_timed), Some(Commit::Later));
            if lead(shared, hctx, mailbox, goal, held) {
                return;
            }
        }
        waiter.offer();
        // Sends the requests that the thread has detached.
        ctx.turn(shared, now_ns(is_timed), Some(commit));
        let is_over = mailbox.is_reached(goal);
        // Before the thread leads or follows: until then no thread waits for it, and none kicks it.
        if waiter.help(!is_over) {
            continue;
        }
        if is_over {
            // The thread's other bios do not wait for the leader.
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

/// Same as [`wait_shared`], until no bio of this mailbox lacks tags. Under policies where threads
/// wait for tags, a thread calls this before it waits for its bios to end.
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

/// Ends the wait. If the thread was woken and still lacks tags, it was woken for tags: it asks for
/// a turn that tries again.
fn end_wait(hctx: &Hctx, mailbox: &Mailbox) -> Doing {
    let doing = mailbox.end_wait();
    if doing == Doing::Told && mailbox.lacks_tags() {
        hctx.ask_again(mailbox);
    }
    doing
}

/// Leads: waits in the driver, for all, until the goal is reached, then passes the baton (W3).
/// `held` is the token, if the caller has turned with it. Returns false if the thread had to stop
/// leading before its goal was reached.
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
        // `try_take` leaves no mark: a token holder at work reaps as well.
        held = held.or_else(|| hctx.try_take().map(turn));
        if let Some((token, turned)) = &mut held {
            if !token.wakes_tasks() {
                // The wait below begins the requests; or the turn that follows, if there is no
                // wait.
                token.leave_to_wait(turned);
            }
            if token.wakes_tasks() {
                break;
            }
            // Requests may be on their way to the inbox even if no delayed run is due.
            timeout = (turned.nr_in_flight == 0).then_some(RESOURCE_DELAY);
        } else {
            // Until the token holder has reaped, the driver reports that there is something to
            // reap.
            thread::yield_now();
        }
        mailbox.begin_wait(goal, Doing::Leading);
        let kept = block(hctx, held.map(|(token, _)| token));
        if kept.is_none() {
            // W2. A later delivery kicks (W4).
            if !mailbox.is_reached(goal) && !mailbox.is_told() {
                shared.waiter().wait(hctx.delay_left().or(timeout));
            }
            hctx.run.unblock();
            owes_turn.set(true);
        }
        end_wait(hctx, mailbox);
        // The token was kept because something was published, and `block` has cleared that mark.
        held = kept.map(turn);
    }
    stop_leading(shared, hctx, held.map(|(token, _)| token), owes_turn.get());
    mailbox.is_reached(goal)
}

/// Passes the baton. Afterwards no requests are left to a wait (W5), and no turn is owed (W6).
///
/// The token is released last: that runs wakers, which are foreign code and may wait for I/O that
/// needs a leader. For the same reason a leader with wakers to run stops leading first.
fn stop_leading(shared: &Shared, hctx: &Hctx, mut held: Option<Token<'_>>, owes_turn: bool) {
    if let Some(token) = &mut held {
        token.commit();
    }
    let is_due = shared.waiter().take_back();
    let is_passed = hctx.hand_off();
    if is_due || owes_turn && !is_passed {
        // If this thread holds the token, this leaves a mark, and the turn follows.
        hctx.run_turn();
    }
    if let Some(token) = held {
        token.finish();
    }
}

/// Announces that this thread is about to wait in the driver, and releases the token if it has it.
/// Keeps or takes the token if something was published meanwhile: a turn is due.
fn block<'a>(hctx: &'a Hctx, token: Option<Token<'a>>) -> Option<Token<'a>> {
    match token {
        None => hctx.block(),
        Some(token) => token.release_to_wait(),
    }
}

#[cfg(test)]
#[path = "wait_models.rs"]
pub(crate) mod models;
