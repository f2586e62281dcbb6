//! Gates: freezing, quiescing and stopping all hardware contexts of a disk.
//!
//! Several threads may hold the same gate closed. The end of the last hold opens it.
//!
//! A freeze waits for admitted requests to end. While another hold quiesces or stops the disk, an
//! admitted request that is not at the driver cannot end. Such a request is *stranded*. A freeze
//! that finds one fails, because the caller of the freeze may itself own the other hold.

use crate::plant::plants;
use crate::run_state::{Gate, RunState};

/// The number of holds on each gate of a disk.
///
/// Protected by a lock, which is also held while gates are closed and opened. Otherwise a hold that
/// ends could open the gate of a hold that has just begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds([u32; 3]);

impl Holds {
    /// Returns a gate that keeps admitted requests from the driver, if one is closed.
    pub fn dispatch_gate(&self) -> Option<Gate> {
        [Gate::Quiesced, Gate::Stopped].into_iter().find(|&gate| self.0[gate as usize] > 0)
    }

    fn begin(&mut self, gate: Gate) {
        self.0[gate as usize] += 1;
    }

    /// Returns whether the last hold on the gate has ended.
    fn end(&mut self, gate: Gate) -> bool {
        self.0[gate as usize] -= 1;
        self.0[gate as usize] == 0
    }
}

/// A disk as seen by a thread (or a simulated task) that closes and opens its gates. Contexts are
/// numbered from 0.
pub trait Gated {
    /// The error of a wait until the disk is drained.
    type Error;

    /// Returns the number of hardware contexts.
    fn nr_hctxs(&self) -> usize;

    /// Calls `change` with the numbers of holds, under their lock.
    fn with_holds<T>(&self, change: impl FnOnce(&mut Holds) -> T) -> T;

    /// Returns the run state of a context.
    fn run_state(&self, at: usize) -> &RunState;

    /// Called after the gate of a context was closed (true) or opened.
    #[inline]
    fn changed(&self, _at: usize, _gate: Gate, _is_closed: bool) {}

    /// Cancels the delayed runs of a context.
    fn cancel_runs(&self, at: usize);

    /// Returns whether the contexts belong to the parent process, before a fork.
    #[inline]
    fn is_after_fork(&self) -> bool {
        false
    }

    /// Returns whether a context is shared: any thread may turn it.
    fn is_shared(&self, at: usize) -> bool;

    /// Returns whether this thread owns a context.
    fn owns(&self, at: usize) -> bool;

    /// Requests a turn of a context that is shared or this thread's own, and makes it unless the
    /// token holder does ([`run_turn`](super::run_turn)).
    fn run_turn(&mut self, at: usize);

    /// Wakes the threads that run an owned context whose gate was opened.
    fn wake_owner(&mut self, at: usize);

    /// Returns whether the last turn of a context left no admitted request. No turn is in progress.
    fn is_drained(&self, at: usize) -> bool;

    /// Returns whether the last turn of a context left admitted requests with none at the driver.
    /// No turn is in progress.
    fn is_stranded(&self, at: usize) -> bool;

    /// Returns the error of a freeze that has found a request stranded behind this other gate.
    fn stranded(&self, behind: Gate) -> Self::Error;

    /// Lets other threads run, for a short time.
    fn pause(&mut self);

    /// Sleeps before the next check of a context that is not drained.
    ///
    /// # Errors
    /// The time limit of the wait has passed.
    fn sleep(&mut self) -> Result<(), Self::Error>;
}

/// Closes a gate on all contexts. A turn that is under way may not have seen it.
pub fn close<D: Gated>(disk: &mut D, gate: Gate) {
    disk.with_holds(|holds| {
        holds.begin(gate);
        for at in 0..disk.nr_hctxs() {
            disk.run_state(at).close(gate);
            disk.changed(at, gate, true);
        }
    });
    if gate != Gate::Frozen {
        // R4.
        (0..disk.nr_hctxs()).for_each(|at| disk.cancel_runs(at));
    }
}

/// Waits until every turn that began before the gate was closed is over (R5).
pub fn await_turns<D: Gated>(disk: &mut D) {
    for at in 0..disk.nr_hctxs() {
        while disk.run_state(at).is_running() && !plants!(SkipTurns) && !disk.is_after_fork() {
            disk.pause();
        }
    }
}

/// Waits until every request that was admitted before the disk was frozen has left its context.
///
/// # Errors
/// Another hold keeps an admitted request from ending, or the time limit has passed.
pub fn await_drained<D: Gated>(disk: &mut D) -> Result<(), D::Error> {
    for at in 0..disk.nr_hctxs() {
        while !is_drained(disk, at)? {
            disk.sleep()?;
        }
    }
    Ok(())
}

fn is_drained<D: Gated>(disk: &mut D, at: usize) -> Result<bool, D::Error> {
    if disk.is_after_fork() {
        return Ok(true);
    }
    // Otherwise there may be no thread that turns the context.
    if disk.is_shared(at) || disk.owns(at) {
        disk.run_turn(at);
    }
    // Once no turn is under way, every later turn finds the gate closed, and admits nothing (R5).
    if disk.run_state(at).is_running() {
        return Ok(false);
    }
    if disk.is_stranded(at)
        && let Some(behind) = disk.with_holds(|holds| holds.dispatch_gate())
    {
        return Err(disk.stranded(behind));
    }
    Ok(disk.is_drained(at))
}

/// Ends a hold. If it was the last one, opens the gate on all contexts and runs them, because no
/// other thread would run the requests that the gate held back (R4).
pub fn open<D: Gated>(disk: &mut D, gate: Gate) {
    let is_open = disk.with_holds(|holds| {
        let is_last = holds.end(gate);
        for at in (0..disk.nr_hctxs()).filter(|_| is_last) {
            disk.run_state(at).open(gate);
            disk.changed(at, gate, false);
        }
        is_last
    });
    if !is_open || plants!(OpenUnasked) {
        return;
    }
    for at in 0..disk.nr_hctxs() {
        match disk.is_shared(at) {
            true => disk.run_turn(at),
            // B3.
            false => disk.wake_owner(at),
        }
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
