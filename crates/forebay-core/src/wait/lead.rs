//! Following and leading: the two ways to wait in a shared context.

use crate::hctx::{Commit, Turned};
use crate::plant::plants;
use crate::wait::cell::{WaitCell, WaitState};
use crate::wait::context::{self, Context, Step};
use crate::wait::timers::Timers;
use core::time::Duration;

/// Delay before the next run when a driver is busy with nothing in flight, as in Linux
/// (`BLK_MQ_RESOURCE_DELAY`).
pub const RESOURCE_DELAY: Duration = Duration::from_millis(3);

/// A thread (or a simulated task) that can park at a hardware context.
pub trait Sleeper: Context {
    /// Returns the thread's cell.
    fn cell(&self) -> &WaitCell;

    /// Returns whether the wait is over.
    #[inline]
    fn is_over(&self, goal: u64) -> bool {
        self.cell().is_reached(goal)
    }

    /// Sleeps until the cell's state is not one of a parked owner ([`WaitState::is_parked`]).
    fn park(&mut self);

    /// Returns whether the thread makes a flush itself if it is woken for that.
    #[inline]
    fn parks_for_flush(&self) -> bool {
        false
    }

    /// Called when the thread was woken to make a flush. A turn follows, with the offer to make it.
    #[inline]
    fn was_woken_for_flush(&mut self) {}

    /// Adds the thread to the list of followers.
    fn push_follower(&mut self);

    /// Records that this thread was woken for tags and is running. A turn follows.
    fn ask_for_tags(&mut self);
}

/// A thread (or a simulated task) that can lead.
pub trait Leader: Sleeper {
    /// Returns the delayed run of the context, and its deadline.
    fn timers(&self) -> &Timers;

    /// Returns the present time of the timers' clock.
    fn now_ns(&self) -> u64;

    /// Leaves the requests that turns have issued and not committed to the wait beside the driver
    /// that follows ([`HardwareContext::leave_to_wait`](crate::HardwareContext::leave_to_wait)).
    /// Returns whether the driver has completed some of them, which the wait would not report.
    fn leave_to_wait(&mut self, token: &mut Self::Token) -> bool;

    /// Ensures that requests left to a wait begin although no wait follows. Returns whether a turn
    /// has to begin them.
    #[inline]
    fn take_back(&mut self) -> bool {
        false
    }

    /// Lets other threads run.
    fn yield_now(&mut self);

    /// Waits beside the driver of a shared context until there is a completion or a kick; at most
    /// for this time, if given.
    fn wait_in_driver(&mut self, timeout_ns: Option<u64>);

    /// Returns whether the thread waits for bios of its own. If nothing is in flight, these may be
    /// on their way to the inbox, so its wait in the driver is limited to [`RESOURCE_DELAY`].
    #[inline]
    fn waits_for_bios(&self) -> bool {
        true
    }

    /// Ends the wait that this thread has announced. Returns false if another thread has ended it,
    /// and has stopped leading in place of this one
    /// ([`RunState::resign_for_blocked`](crate::RunState::resign_for_blocked)).
    #[inline]
    fn unblock(&mut self) -> bool {
        self.run_state().unblock();
        true
    }
}

/// A thread (or a simulated task) that waits for bios of its own at a hardware context.
pub trait Host: Leader {
    /// Runs one turn with the requests that this thread has detached from its plug. If another
    /// thread holds the token, publishes them and returns `None`: that thread turns once more.
    fn turn_with_own(&mut self, commit: Commit) -> Option<(Self::Token, Turned)>;

    /// Returns whether the wait beside the driver begins requests left to it with no call of its
    /// own. Then a thread that leads from the start submits and waits with one call.
    #[inline]
    fn begins(&self) -> bool {
        false
    }

    /// Offers to make the I/O of a request that this thread sends in its next turn. Returns whether
    /// an offer was made. If so, the caller calls [`Host::make_own_call`] after that turn.
    #[inline]
    fn offer(&mut self) -> bool {
        false
    }

    /// Ends the offer. If the driver has left a request to this thread
    /// ([`Issue::Begun`](crate::Issue::Begun)), makes its I/O, which may block, and returns true.
    /// This thread must then make a turn, which reaps the result. Called without the token.
    #[inline]
    fn make_own_call(&mut self) -> bool {
        false
    }
}

/// Parks until the goal is reached, or no thread leads. Returns whether the caller has the baton.
pub fn follow<H: Sleeper>(host: &mut H, goal: u64) -> bool {
    let makes_flush = host.parks_for_flush();
    let state = if makes_flush { WaitState::ParkedForFlush } else { WaitState::Parked };
    host.cell().begin_wait(goal, state);
    host.step(Step::AnnouncedPark);
    if host.cell().list() {
        host.step(Step::MarkedListed);
        host.push_follower();
        host.step(Step::Listed);
    }
    // W2.
    if !host.is_over(goal) && (plants!(ParkBlindly) || host.run_state().has_leader()) {
        host.park();
    }
    host.step(Step::Parked);
    let state = end_wait(host);
    if makes_flush && state == WaitState::Woken && !host.is_over(goal) {
        host.was_woken_for_flush();
    }
    state == WaitState::Baton
}

/// Ends the wait. If the thread was woken and still lacks tags, it was woken for tags: it asks for
/// a turn that tries again.
fn end_wait<H: Sleeper>(host: &mut H) -> WaitState {
    let state = host.cell().end_wait();
    if state == WaitState::Woken && host.cell().lacks_tags() {
        host.step(Step::EndedWait);
        if !plants!(AskNoMore) {
            host.ask_for_tags();
        }
    }
    state
}

/// Leads: waits in the driver, for all, until the goal is reached, then passes the baton (W3).
/// `held` is the token, if the caller has turned with it. Returns false if the thread had to stop
/// leading before its goal was reached.
pub fn lead<H: Leader>(host: &mut H, goal: u64, mut held: Option<(H::Token, Turned)>) -> bool {
    host.step(Step::BecameLeader);
    // W6.
    let mut owes_turn = held.is_none();
    while !host.is_over(goal) {
        let mut timeout = None;
        if held.is_none() {
            // This leaves no mark: a token holder at work reaps as well.
            held = host.try_take().map(|token| turn_as_leader(host, token));
        }
        if let Some((token, turned)) = &mut held {
            owes_turn = false;
            let commits = !host.runs_wakers(token) && !plants!(LeaveCommit);
            if commits && host.leave_to_wait(token) {
                *turned = host.turn(token, Commit::Now);
            }
            if host.runs_wakers(token) {
                break;
            }
            // Requests may be on their way to the inbox even if no delayed run is due.
            let is_limited = turned.nr_in_flight() == 0 && host.waits_for_bios();
            timeout = is_limited.then_some(RESOURCE_DELAY.as_nanos() as u64);
        } else {
            // Until the token holder has reaped, the driver reports that there is something to
            // reap.
            host.yield_now();
        }
        host.cell().begin_wait(goal, WaitState::Leading);
        host.step(Step::AnnouncedLead);
        let kept = context::block(host, held.map(|(token, _)| token));
        if kept.is_none() {
            host.step(Step::AboutToWait);
            // W2. A later delivery kicks (W4).
            if !host.is_over(goal) && host.cell().state() != WaitState::Woken {
                let until_run = host.timers().wait_ns(|| host.now_ns());
                host.wait_in_driver(until_run.into_iter().chain(timeout).min());
            }
            if !host.unblock() {
                // The other thread makes the turn that is due.
                end_wait(host);
                return host.is_over(goal);
            }
            owes_turn = true;
        }
        end_wait(host);
        // The token was kept because something was published, and `block` has cleared that mark.
        held = kept.map(|token| match plants!(LeaveKept) {
            true => (token, Turned::NOTHING),
            false => turn_as_leader(host, token),
        });
    }
    owes_turn &= held.is_none();
    stop_leading(host, held.map(|(token, _)| token), owes_turn);
    host.is_over(goal)
}

fn turn_as_leader<H: Leader>(host: &mut H, mut token: H::Token) -> (H::Token, Turned) {
    host.timers().take();
    host.step(Step::TookTimer);
    let turned = host.turn(&mut token, Commit::Later);
    (token, turned)
}

/// Passes the baton. Afterwards no requests are left to a wait (W5), and no turn is owed (W6).
///
/// The token is released last: that runs wakers, which are foreign code and may wait for I/O that
/// needs a leader. For the same reason a leader with wakers to run stops leading first.
fn stop_leading<H: Leader>(host: &mut H, mut held: Option<H::Token>, owes_turn: bool) {
    if let Some(token) = &mut held {
        context::commit_and_turn(host, token);
    }
    let is_due = host.take_back();
    let is_passed = context::hand_off(host);
    if is_due || owes_turn && !is_passed {
        // If this thread holds the token, this leaves a mark, and the turn follows.
        context::run_turn(host);
    }
    if let Some(token) = held {
        context::finish(host, token);
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
