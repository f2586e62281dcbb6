//! Wait protocol: how threads wait for their own bios to end.
//!
//! In an owned context the owner waits in the driver. In a shared context one of the waiting
//! threads is the leader, and waits in the driver for all. The other waiters are its followers:
//! they park until their own bios have ended. A thread that stops leading passes the baton to a
//! follower.
//!
//! The functions here fix the order of the steps. The library makes the steps with threads, the
//! simulator with tasks in virtual time ([`Turning`], [`Context`], [`Sleeper`], [`Host`],
//! [`Owner`]). None of the functions blocks by itself: only the steps of a host do.
//!
//! - W1 No thread parks on a context with work unless the context has a leader. A thread that would
//!   park becomes the leader instead.
//! - W2 A sleeper announces itself, then checks again (its own bios, or whether there is a leader).
//!   Its partner publishes, then checks for sleepers. Both do so by changes of one word, of the
//!   cell or of the run state, so one of them comes second and sees the other.
//! - W3 A thread that receives a baton uses it or passes it on.
//! - W4 A thread that ends the leader's own bio while the leader is blocked kicks it, once.
//! - W5 A thread holds no token while it waits. It commits what it has deferred before it waits; or
//!   the leader's wait itself begins what was left to it, with one system call for both. A leader
//!   that does not wait after all ensures that a turn begins those requests.
//! - W6 A leader that returns from the driver's wait owes a turn. Other threads reap nothing while
//!   it is kicked, and its wait may have consumed the signal of a completion that no turn has
//!   reaped. The leader makes that turn, or passes the debt on with the baton. So a thread that
//!   receives a baton owes a turn, too.
//! - W7 A thread that waits in the driver waits no longer than until the context's next deadline
//!   ([`Turned::deadline`]). A turn that leaves an earlier deadline kicks the leader.

mod cell;
mod context;
mod lead;
mod timers;
mod turn;

pub use cell::{NEVER, Notice, TAGS, WaitCell, WaitState};
pub use context::{
    Context, Step, block, commit, finish, hand_off, release, release_to_wait, run_turn,
};
pub use lead::{Host, RESOURCE_DELAY, Sleeper, follow, lead};
pub use timers::Timers;
pub use turn::{Turning, deliver_each, turn};

use crate::hctx::{Commit, Turned};

/// A thread that waits in an owned context, which only it ever accesses.
pub trait Owner: Context {
    /// Prepares a wait in the driver
    /// ([`HardwareContext::prepare_wait`](crate::HardwareContext::prepare_wait)).
    fn prepare_wait(&mut self, token: &mut Self::Token, nr_bios: u32) -> u32;

    /// Waits in the driver until `nr` requests can be reaped; at most until `deadline`, a time of
    /// the context's clock, if given. Called without the token, by the only thread that ever takes
    /// it.
    fn wait_as_owner(&mut self, nr: u32, deadline: Option<u64>);

    /// Sleeps for the time after which a busy driver is asked again.
    fn sleep(&mut self);

    /// Waits although nothing of the context is under way: for an event outside of it.
    #[inline]
    fn wait_outside(&mut self, _goal: u64) {}
}

/// Waits in a shared context until the goal is reached. Sends the requests that the thread has
/// detached first.
///
/// With `nr_busy` requests in flight, a follower leaves the commit of its requests to the leader,
/// which returns with the next completion. (The kernel wakes the committing thread for that
/// completion. The wake-up would be wasted, because the leader reaps the completion.) The
/// uncommitted requests do get committed. While they are uncommitted, a leader was blocked with
/// this many requests in flight. That leader comes back: a completion that another thread reaps
/// still ends its wait, or is left to its next wait. A turn commits if it is made by a leader or by
/// a thread about to lead, or if it finds no leader blocked.
pub fn wait_shared<H: Host>(host: &mut H, goal: u64, nr_busy: u32) {
    // A thread that will help with the work itself does not notify other threads of it.
    let commit = if host.can_help() { Commit::Later } else { Commit::Unless(nr_busy) };
    loop {
        // A thread that leads from the start submits and waits with one call. (`is_blocked` is only
        // a guess. It avoids a write to the run word while another thread leads.)
        if host.begins() && !host.run_state().is_blocked() && host.run_state().try_lead() {
            let held = host.turn_with_own(Commit::Later);
            if lead(host, goal, held) {
                return;
            }
        }
        host.offer();
        // Sends the requests that the thread has detached.
        if let Some((token, _)) = host.turn_with_own(commit) {
            finish(host, token);
        }
        let is_over = host.is_over(goal);
        // Before the thread leads or follows: until then no thread waits for it, and none kicks it.
        if host.help(!is_over) {
            continue;
        }
        if is_over {
            // The thread's other bios do not wait for the leader.
            return commit_all(host);
        }
        if commit == Commit::Later {
            commit_all(host);
        }
        host.step(Step::Sent);
        let leads = host.run_state().try_lead() || follow(host, goal);
        if leads && lead(host, goal, None) {
            return;
        }
    }
}

/// Commits what turns of this thread have left uncommitted.
pub fn commit_all<C: Context>(at: &mut C) {
    match at.try_take() {
        Some(mut token) => {
            commit(at, &mut token);
            finish(at, token);
        }
        // The token holder turns once more, because of this mark, and commits in that turn.
        None => run_turn(at),
    }
}

/// Waits in an owned context until the goal is reached. Sends the requests that the thread has
/// detached first.
pub fn wait_owned<H: Host + Owner>(host: &mut H, goal: u64) {
    loop {
        let turned = host.turn_with_own(Commit::Later).map(|(token, turned)| {
            finish(host, token);
            turned
        });
        if host.is_over(goal) {
            return commit_all(host);
        }
        match turned {
            None => {}
            Some(turned) if turned.is_idle() => host.wait_outside(goal),
            Some(turned) => {
                let nr_missing = match goal {
                    NEVER.. => 1,
                    goal => goal.saturating_sub(host.cell().nr_delivered()).max(1),
                };
                wait_as_owner(host, turned, u32::try_from(nr_missing).unwrap_or(u32::MAX));
            }
        }
    }
}

/// Waits in an owned context until `nr` more of its bios may have ended, or for a limited time. The
/// owner makes a turn afterwards. `turned` is the result of its last turn.
pub fn wait_as_owner<H: Owner>(host: &mut H, turned: Turned, nr: u32) {
    if turned.nr_in_flight == 0 {
        if turned.work_left {
            host.sleep();
        }
        return;
    }
    let Some(mut token) = host.try_take() else { return };
    let nr = host.prepare_wait(&mut token, nr);
    host.step(Step::PreparedWait);
    match release_to_wait(host, token) {
        // The token was kept because something was published, and that mark is cleared.
        Some(mut token) => {
            host.turn(&mut token, Commit::Now);
            finish(host, token);
        }
        None => {
            // W7.
            host.wait_as_owner(nr, turned.deadline());
            host.run_state().unblock();
        }
    }
}
