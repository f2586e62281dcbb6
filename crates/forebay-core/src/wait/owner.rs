//! Waits in an owned context.

use crate::hctx::{Commit, Turned};
use crate::wait::cell::NEVER;
use crate::wait::context::{Context, Step, finish, release_to_wait};
use crate::wait::lead::Host;
use crate::wait::shared::commit_all;

/// A thread that waits in an owned context, which only it ever accesses.
pub trait Owner: Context {
    /// Prepares a wait in the driver
    /// ([`HardwareContext::prepare_wait`](crate::HardwareContext::prepare_wait)).
    fn prepare_wait(&mut self, token: &mut Self::Token, nr_bios: u32) -> u32;

    /// Waits in the driver until `nr` requests can be reaped; at most until `deadline_ns`, a time
    /// of the context's clock, if given. Called without the token, by the only thread that ever
    /// takes it.
    fn wait_in_owned_driver(&mut self, nr: u32, deadline_ns: Option<u64>);

    /// Sleeps for the time after which a busy driver is asked again, but at most until
    /// `deadline_ns`, a time of the context's clock, if given.
    fn sleep(&mut self, deadline_ns: Option<u64>);

    /// Waits although nothing of the context is under way: for an event outside of it.
    #[inline]
    fn wait_outside(&mut self, _goal: u64) {}
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

/// Turns and waits in an owned context until it has no requests left. Called before the owner gives
/// the context up, after it has sent all of its requests.
pub fn drain_owned<H: Owner>(host: &mut H) {
    loop {
        let Some(mut token) = host.request_run() else { continue };
        let turned = host.turn(&mut token, Commit::Now);
        finish(host, token);
        if turned.is_drained() && !turned.work_left() {
            return;
        }
        wait_as_owner(host, turned, 1);
    }
}

/// Turns and waits in an owned context until no admitted request is left. Called before its owner
/// waits in another context: a freeze waits for these requests and keeps others out, so neither
/// wait would end.
///
/// Returns early if they may never end: if `is_gone` returns true for the device, or if another
/// gate is closed, which fails the freeze. A waker within a turn of the context returns at once.
pub fn await_admitted<H: Owner>(host: &mut H, is_gone: impl Fn() -> bool) {
    while let Some(mut token) = host.request_run() {
        let turned = host.turn(&mut token, Commit::Now);
        finish(host, token);
        let is_stranded = turned.is_stuck() && !host.run_state().gates().dispatch;
        if turned.is_drained() || is_stranded || is_gone() {
            return;
        }
        wait_as_owner(host, turned, 1);
    }
}

/// Waits in an owned context until `nr` more of its bios may have ended, or for a limited time. The
/// owner makes a turn afterwards. `turned` is the result of its last turn.
pub fn wait_as_owner<H: Owner>(host: &mut H, turned: Turned, nr: u32) {
    if turned.nr_in_flight() == 0 {
        if turned.work_left() {
            host.sleep(turned.deadline());
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
            host.wait_in_owned_driver(nr, turned.deadline());
            host.run_state().unblock();
        }
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
