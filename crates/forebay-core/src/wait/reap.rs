//! Reaping: a thread waits until enough bios of its queue have ended.

use crate::hctx::{Commit, Turned};
use crate::plant::plants;
use crate::wait::cell::TAGS;

/// A queue of bios, as seen by its owner, the thread that reaps it.
pub trait Reaper {
    /// Returns whether the hardware context of the queue is shared.
    fn is_shared(&self) -> bool;

    /// Returns whether the thread may run turns.
    #[inline]
    fn can_turn(&self) -> bool {
        true
    }

    /// Returns how many bios have ended and can be reaped.
    fn nr_ready(&self) -> usize;

    /// Returns how many bios were submitted and are not ready to be reaped.
    fn nr_in_layer(&self) -> usize;

    /// Returns how many bios [`Reaper::take_mail`] has taken in total.
    fn nr_mailed(&self) -> u64;

    /// Takes the bios that turns of other threads have delivered. They are then ready.
    fn take_mail(&mut self);

    /// Returns whether the time limit of this reap is over. Waits of the queue then return early.
    #[inline]
    fn is_timed_out(&self) -> bool {
        false
    }

    /// Returns whether bios of the queue wait for tags, so that their thread has to sleep.
    fn lacks_tags(&self) -> bool;

    /// Detaches the requests of this disk from the thread's plug, for the turn that follows, and
    /// sends those of other disks (I4, D5).
    fn unplug(&mut self);

    /// Runs one or more turns with the requests that were detached. Returns the result of the first
    /// turn, or `None` if another thread holds the token and makes the turn instead.
    fn turn(&mut self, commit: Commit) -> Option<Turned>;

    /// Called instead of a turn, because enough bios are ready.
    #[inline]
    fn skip_turn(&mut self) {}

    /// Commits what turns of this thread have left uncommitted.
    fn commit(&mut self);

    /// Waits in a shared context until the goal is reached, for example
    /// [`TAGS`](crate::wait::TAGS).
    fn wait(&mut self, goal: u64);

    /// Waits in an owned context until `nr` more of its bios may have ended
    /// ([`wait_as_owner`](super::wait_as_owner)).
    fn wait_as_owner(&mut self, turned: Turned, nr: u32);
}

/// Waits until at least `min` bios of the queue are ready, or all of them, or until its time limit
/// is over ([`Reaper::is_timed_out`]). With `min` = 0 it never waits. Unplugs and turns first,
/// unless enough bios are ready. Returns how many bios to reap, at most `max`.
///
/// # Panics
/// Panics if `min` is greater than `max`.
#[inline(always)]
pub fn reap<R: Reaper>(queue: &mut R, min: usize, max: usize) -> usize {
    assert!(min <= max);
    queue.take_mail();
    let nr_ready = queue.nr_ready();
    if nr_ready < max && (nr_ready < min || min == 0) && queue.can_turn() {
        unplug_and_wait(queue, min);
        return queue.nr_ready().min(max);
    }
    queue.skip_turn();
    nr_ready.min(max)
}

/// Unplugs and turns at least once. Waits until `min` bios are ready, or none is left in the layer,
/// or the time limit is over.
#[inline(never)]
pub fn unplug_and_wait<R: Reaper>(queue: &mut R, min: usize) {
    if !plants!(ReapPlugged) {
        queue.unplug();
    }
    let is_shared = queue.is_shared();
    loop {
        // In an owned context the wait commits.
        let later = queue.nr_ready() < min && !is_shared;
        let turned = queue.turn(if later { Commit::Later } else { Commit::Now });
        if min > 0 && is_shared {
            wait_for_tags(queue);
        }
        queue.take_mail();
        let (nr_ready, nr_in_layer) = (queue.nr_ready(), queue.nr_in_layer());
        if nr_ready >= min || nr_in_layer == 0 || queue.is_timed_out() {
            if later {
                queue.commit();
            }
            return;
        }
        let nr_missing = min - nr_ready;
        if is_shared {
            let goal = queue.nr_mailed() + nr_missing.min(nr_in_layer) as u64;
            queue.wait(goal);
            queue.take_mail();
        } else if let Some(turned) = turned {
            // If bios of other queues are in flight, any completion may be one of theirs.
            let all_ours = nr_in_layer as u64 >= turned.nr_in_flight().into();
            let nr = if all_ours { u32::try_from(nr_missing).unwrap_or(u32::MAX) } else { 1 };
            queue.wait_as_owner(turned, nr);
        }
    }
}

/// Waits in a shared context until no bio of the queue lacks tags. Has an effect only where threads
/// wait for tags (`wake` other than `fair`).
#[inline]
pub fn wait_for_tags<R: Reaper>(queue: &mut R) {
    if queue.lacks_tags() {
        queue.unplug();
        queue.wait(TAGS);
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
