//! Waits in a shared context.

use crate::hctx::Commit;
use crate::wait::context::Step;
use crate::wait::context::{Context, commit_and_turn, finish, run_turn};
use crate::wait::lead::{Host, follow, lead};

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
            commit_and_turn(at, &mut token);
            finish(at, token);
        }
        // The token holder turns once more, because of this mark, and commits in that turn.
        None => run_turn(at),
    }
}
