//! Waits in a shared context.

use crate::hctx::Commit;
use crate::wait::context::Step;
use crate::wait::context::{Context, commit_and_turn, finish, run_turn};
use crate::wait::lead::{Host, follow, lead};

/// Waits in a shared context until the goal is reached. Sends the requests that the thread has
/// detached first.
///
/// A thread that waits for one request may make its I/O itself ([`Host::offer`]). Then it neither
/// leads nor follows: it turns before the I/O, and again after it.
///
/// With `nr_busy` requests in flight, a follower leaves the commit of its requests to the leader,
/// which returns with the next completion. (The kernel wakes the committing thread for that
/// completion. The wake-up would be wasted, because the leader reaps the completion.) The
/// uncommitted requests do get committed. While they are uncommitted, a leader was blocked with
/// this many requests in flight. That leader comes back: a completion that another thread reaps
/// still ends its wait, or is left to its next wait. A turn commits if it is made by a leader or by
/// a thread about to lead, or if it finds no leader blocked.
pub fn wait_shared<H: Host>(host: &mut H, goal: u64, nr_busy: u32) {
    let mut has_made_call = false;
    loop {
        let offers = host.offer();
        let by_itself = offers || has_made_call;
        // A thread that leads from the start submits and waits with one call. (`is_blocked` is only
        // a guess. It avoids a write to the run word while another thread leads.)
        let may_lead = !by_itself && host.begins() && !host.run_state().is_blocked();
        if may_lead && host.run_state().try_lead() {
            let held = host.turn_with_own(Commit::Later);
            if lead(host, goal, held) {
                return;
            }
        }
        // This thread's own I/O may take long, so it commits everything first.
        let commit = if by_itself { Commit::Now } else { Commit::Unless(nr_busy) };
        // Sends the requests that the thread has detached.
        if let Some((token, _)) = host.turn_with_own(commit) {
            finish(host, token);
        }
        // Before the thread leads or follows: until then no thread waits for it, and none kicks it.
        has_made_call = offers && host.make_own_call();
        if has_made_call {
            continue;
        }
        if host.is_over(goal) {
            return match by_itself {
                true => {}
                // The thread's other bios must not wait for the leader to commit.
                false => commit_all(host),
            };
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
            commit_and_turn(at, &mut token);
            finish(at, token);
        }
        // The token holder turns once more, because of this mark, and commits in that turn.
        None => run_turn(at),
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
