//! Outer turn: one turn of a hardware context, with its inputs and with what it owes to others.
//!
//! [`HardwareContext::turn`](crate::HardwareContext::turn) makes progress. The outer turn feeds it
//! from the gates, the inbox and the tag waits, and hands its results on: ended bios to mailboxes,
//! freed tags to waiters, a kick to the leader. The order of these steps is here and nowhere else.
//! A runtime supplies the steps ([`Turning`]), with threads or with simulated tasks.

use crate::hctx::{Commit, Gates, Turned};
use crate::plant::plants;
use crate::request::QueuedBio;
use crate::run_state::RunState;
use crate::wait::cell::Notice;
use crate::wait::context::Step;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The steps of a turn, supplied by the holder of the token.
pub trait Turning {
    /// Returns the run state of the context.
    fn run_state(&self) -> &RunState;

    /// Returns the permissions of the turn ([`RunState::gates`]). Read after the token was taken,
    /// or by the change that took it.
    #[inline]
    fn gates(&self) -> Gates {
        self.run_state().gates()
    }

    /// Returns whether other threads may wait for bios of the context, one of them as its leader.
    fn is_shared(&self) -> bool;

    /// Called after some of the steps.
    #[inline]
    fn step(&mut self, _made: Step) {}

    /// Clears what has announced this turn to event loops (B1). Called before the gates are read.
    #[inline]
    fn begin(&mut self) {}

    /// Applies new limits of tags, and retries the bios of threads that ask for tags again.
    fn apply_tag_calls(&mut self);

    /// Passes the requests in the inbox to the context, then those that this thread sends. `enter`
    /// is the gate of frozen contexts.
    fn accept(&mut self, enter: bool);

    /// Calls [`HardwareContext::turn`](crate::HardwareContext::turn) with the present time, and
    /// keeps the ended bios.
    fn turn_core(&mut self, gates: Gates, commit: Commit) -> Turned;

    /// Returns whether the last turn has left a flush to a thread that waits for it
    /// ([`HardwareContext::take_left_flush`](crate::HardwareContext::take_left_flush)).
    #[inline]
    fn takes_left_flush(&mut self) -> bool {
        false
    }

    /// Wakes one of the threads that wait for the flush which was left, to make it
    /// ([`WaitCell::wake_for_flush`](super::WaitCell::wake_for_flush)). Returns false if none of
    /// them does.
    #[inline]
    fn wake_for_flush(&mut self) -> bool {
        false
    }

    /// Returns whether others rely on the turn for progress: threads that wait in a shared context,
    /// or an event loop.
    #[inline]
    fn is_watched(&self) -> bool {
        self.is_shared()
    }

    /// Returns whether the driver has completions that no wait and no descriptor will report.
    #[inline]
    fn has_unreported(&self) -> bool {
        false
    }

    /// Returns whether other threads or disks may wait for tags of this context.
    fn serves_tag_waits(&self) -> bool;

    /// Wakes the threads for which tags may be available, and records which waiters are awake
    /// already. Returns whether the leader is one of those to be woken.
    fn wake_for_tags(&mut self) -> bool;

    /// Retries the bios of the waiters that [`Turning::wake_for_tags`] has found awake. Returns
    /// false if there are none.
    fn retry_for_awake(&mut self) -> bool;

    /// Exchanges tags with other disks of a shared set. May turn again ([`Turning::turn_core`]).
    #[inline]
    fn share_tags(&mut self, _gates: Gates, _commit: Commit, _turned: &mut Turned) {}

    /// Records the result of the turn for threads that wait until the context is drained, and sets
    /// the alarm of event loops (B2).
    fn record(&mut self, gates: Gates, turned: Turned);

    /// Delivers the ended bios to their owners. Returns whether the leader is one of those to be
    /// woken.
    fn deliver(&mut self) -> bool;

    /// Arms the delayed run: the driver is busy with nothing in flight.
    fn arm_delayed_run(&mut self);

    /// Arms the wake-ups of those that wait for the context without a turn of their own: a run at
    /// this time ([`Timers::arm_deadline`](super::Timers::arm_deadline)), and the alarm of event
    /// loops (B2). Returns whether the leader must be kicked, because it may wait for longer.
    fn arm_deadline(&mut self, at_ns: u64) -> bool;

    /// Ends the leader's wait beside the driver, now or when it begins ([`crate::Driver::kick`]),
    /// and records the kick in the context (K8).
    fn kick_driver(&mut self);
}

/// Runs one turn: accepts new requests, makes all possible progress, delivers the ended bios, and
/// kicks the leader if it has to act. The caller holds the token.
// Always inlined: the steps of a runtime decide how much of it is left.
#[inline(always)]
pub fn turn<T: Turning>(at: &mut T, commit: Commit) -> Turned {
    at.begin();
    let gates = at.gates();
    let gates = Gates {
        enter: gates.enter || plants!(EnterFrozen),
        dispatch: gates.dispatch || plants!(DispatchQuiesced),
        reap: gates.reap || plants!(ReapKicked),
    };
    let commit = match commit {
        // Without a leader in the driver no thread would commit the remaining requests.
        Commit::Unless(_) if !at.run_state().is_blocked() => Commit::Now,
        commit => commit,
    };
    at.step(Step::ReadGates);
    at.apply_tag_calls();
    at.accept(gates.enter);
    let mut turned = at.turn_core(gates, commit);
    if at.is_watched() {
        turned = finish_progress(at, gates, commit, turned);
    }
    at.step(Step::MadeProgress);
    let mut kick = at.serves_tag_waits() && serve_tag_waits(at, gates, commit, &mut turned);
    at.record(gates, turned);
    kick |= turned.is_stuck();
    // W7.
    if let Some(at_ns) = turned.deadline() {
        kick |= !plants!(SkipDeadline) && at.arm_deadline(at_ns);
    }
    kick |= at.deliver() && !plants!(SkipOwnKick);
    // Kick a leader that waits in the driver: for its own bio (W4), for requests that no completion
    // moves on, and for an earlier deadline (W7).
    if kick && at.is_shared() {
        kick_leader(at, turned);
    }
    turned
}

/// Hands freed tags on: to threads that wait for tags, or to other disks. For threads that are
/// awake already, another turn tries at once. Returns whether the leader must be kicked.
#[cold]
fn serve_tag_waits<T: Turning>(
    at: &mut T,
    gates: Gates,
    commit: Commit,
    turned: &mut Turned,
) -> bool {
    let mut to_leader = false;
    loop {
        to_leader |= at.wake_for_tags();
        while at.retry_for_awake() {
            *turned = turn_again(at, gates, commit);
            to_leader |= at.wake_for_tags();
        }
        at.share_tags(gates, commit, turned);
        // Requests that were issued for the waiters may have completed where no wait reports it.
        if !gates.reap || !at.has_unreported() {
            return to_leader;
        }
        *turned = turn_again(at, gates, commit);
    }
}

/// Turns once more, for waiters.
fn turn_again<T: Turning>(at: &mut T, gates: Gates, commit: Commit) -> Turned {
    let turned = at.turn_core(gates, commit);
    finish_progress(at, gates, commit, turned)
}

/// Makes the progress that others rely on, after a turn of a context that they wait for: the driver
/// may have completed requests that no wait reports, and a flush may be left.
#[inline(never)]
fn finish_progress<T: Turning>(
    at: &mut T,
    gates: Gates,
    commit: Commit,
    mut turned: Turned,
) -> Turned {
    loop {
        // That turn may leave the next flush.
        while at.is_shared() && at.takes_left_flush() && !hands_over_flush(at) {
            turned = at.turn_core(gates, commit);
        }
        if !gates.reap || !at.has_unreported() {
            return turned;
        }
        turned = at.turn_core(gates, commit);
    }
}

/// Hands a flush that was left to a thread that waits for it, which makes the system call itself.
/// (A ring would wake a thread of the kernel, and that thread the waiting one.) Returns false if no
/// such thread is parked: then another turn issues the flush. So does any turn before that of the
/// woken thread.
#[cold]
fn hands_over_flush<T: Turning>(at: &mut T) -> bool {
    at.wake_for_flush()
}

#[inline(never)]
fn kick_leader<T: Turning>(at: &mut T, turned: Turned) {
    if turned.is_stuck() {
        // Armed before the kick: the woken leader reads the timer.
        at.arm_delayed_run();
    }
    if !plants!(SkipKick) && at.run_state().kick() {
        at.kick_driver();
    }
}

/// Calls `deliver` for each owner with its next bios of `ended`, in order. Returns whether one of
/// the results was [`Notice::Kick`].
#[inline]
pub fn deliver_each(
    ended: &mut Vec<Box<QueuedBio>>,
    mut deliver: impl FnMut(u64, &mut dyn Iterator<Item = Box<QueuedBio>>) -> Notice,
) -> bool {
    let mut to_leader = false;
    let mut bios = ended.drain(..).peekable();
    while let Some(bio) = bios.next() {
        let owner = bio.owner();
        let is_same = |bio: &QueuedBio| bio.owner() == owner || plants!(WrongMailbox);
        let same = core::iter::from_fn(|| bios.next_if(|bio| is_same(bio)));
        to_leader |= deliver(owner, &mut core::iter::once(bio).chain(same)) == Notice::Kick;
    }
    to_leader
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
