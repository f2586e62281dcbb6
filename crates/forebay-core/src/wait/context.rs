//! The token of a hardware context as its users see it: take, turn, release.

use crate::hctx::{Commit, Turned};
use crate::plant::plants;
use crate::run_state::RunState;
use crate::wait::cell::WaitCell;

/// A step that a thread has made. It is visible to other threads, so a simulator may let another
/// task run after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A turn has read the gates.
    ReadGates,
    /// A turn has made its progress, and has not handed on its results.
    MadeProgress,
    /// The thread has no more to do with the token.
    Finished,
    /// The thread has put its requests where the token holder finds them.
    Published,
    /// The thread has sent its requests.
    Sent,
    /// The thread has announced that it parks.
    AnnouncedPark,
    /// The thread has marked its cell as listed.
    MarkedListed,
    /// The thread is in the list of followers.
    Listed,
    /// The thread has parked, or did not need to.
    Parked,
    /// The thread has announced the end of its wait.
    EndedWait,
    /// The thread has become the leader.
    BecameLeader,
    /// The leader has taken the delayed run.
    TookTimer,
    /// The leader has announced what it waits for.
    AnnouncedLead,
    /// The leader, which did not hold the token, has announced a wait in the driver, or has taken
    /// the token.
    Blocked,
    /// The leader is about to wait in the driver, without the token.
    AboutToWait,
    /// The leader looks for a follower.
    SeeksFollower,
    /// The leader has taken a follower from the list.
    TookFollower,
    /// The leader has resigned.
    Resigned,
    /// The owner of a context has prepared its wait in the driver.
    PreparedWait,
}

/// A thread (or a simulated task) at a hardware context.
///
/// The functions of this module need these operations of a runtime. They fix their order.
pub trait Context {
    /// Exclusive access to the context: the right that [`RunState`] grants.
    type Token;
    /// A thread that is parked and can become the leader.
    type Follower;

    /// Returns the run state of the context.
    fn run_state(&self) -> &RunState;

    /// Called after each step.
    #[inline]
    fn step(&mut self, _made: Step) {}

    /// Takes the token if it is free ([`RunState::try_take`]).
    fn try_take(&mut self) -> Option<Self::Token>;

    /// Requests a turn after something was published ([`RunState::run`]). Returns `None` if another
    /// thread holds the token: it turns once more.
    fn request_run(&mut self) -> Option<Self::Token>;

    /// Announces a wait in the driver, without the token ([`RunState::block`]). Returns the token
    /// if it was free.
    fn block(&mut self) -> Option<Self::Token>;

    /// Runs one turn ([`turn`](super::turn)), without requests of this thread.
    fn turn(&mut self, token: &mut Self::Token, commit: Commit) -> Turned;

    /// Commits the requests that turns have issued and not committed
    /// ([`HardwareContext::commit`](crate::HardwareContext::commit)). Returns whether that has
    /// completed some that no wait and no descriptor will report.
    #[must_use]
    fn commit_requests(&mut self, token: &mut Self::Token) -> bool;

    /// Returns whether [`Context::released`] will run wakers, or disks, which may run some. A waker
    /// is foreign code and may block on anything.
    fn runs_wakers(&self, token: &Self::Token) -> bool;

    /// Makes the driver begin the request that was left to this thread, if there is one
    /// ([`Driver::withdraw`](crate::Driver::withdraw)). Returns whether that has completed requests
    /// that no wait and no descriptor will report.
    #[inline]
    fn withdraw_own_call(&mut self, _token: &mut Self::Token) -> bool {
        false
    }

    /// Wakes the threads and tasks that turns have recorded. Called once the token is released.
    fn released(&mut self, token: Self::Token);

    /// Removes a thread from the list of followers.
    fn pop_follower(&mut self) -> Option<Self::Follower>;

    /// Returns whether the list of followers is not empty.
    fn has_followers(&self) -> bool;

    /// Returns the cell of a follower.
    fn cell_of<'a>(&'a self, follower: &'a Self::Follower) -> &'a WaitCell;

    /// Wakes a follower that has received the baton.
    fn wake_follower(&mut self, follower: Self::Follower);
}

/// Releases the token; or keeps it if something was published meanwhile: then a turn is due.
#[inline(always)]
#[must_use]
pub fn release<C: Context>(at: &mut C, token: C::Token) -> Option<C::Token> {
    release_by(at, token, RunState::release)
}

/// Releases the token and announces that this thread, the leader or the owner, is about to wait
/// beside the driver. Keeps the token if something was published meanwhile: then a turn is due.
#[inline]
#[must_use]
pub fn release_to_wait<C: Context>(at: &mut C, token: C::Token) -> Option<C::Token> {
    release_by(at, token, RunState::release_to_wait)
}

/// Releases the token by `change`, which returns whether the run state allowed it. Returns the
/// token if it did not.
#[inline(always)]
fn release_by<C: Context>(
    at: &mut C,
    mut token: C::Token,
    change: impl FnOnce(&RunState) -> bool,
) -> Option<C::Token> {
    if at.runs_wakers(&token) {
        token = withdraw_and_turn(at, token);
    }
    if !change(at.run_state()) {
        return Some(token);
    }
    at.released(token);
    None
}

/// Withdraws the request that was left to this thread, before wakers run.
#[cold]
fn withdraw_and_turn<C: Context>(at: &mut C, mut token: C::Token) -> C::Token {
    if at.withdraw_own_call(&mut token) {
        at.turn(&mut token, Commit::Now);
    }
    token
}

/// Releases the token; runs turns first as long as something is published meanwhile.
#[inline(always)]
pub fn finish<C: Context>(at: &mut C, token: C::Token) {
    at.step(Step::Finished);
    if let Some(kept) = release(at, token) {
        turn_and_finish(at, kept);
    }
}

#[cold]
fn turn_and_finish<C: Context>(at: &mut C, mut token: C::Token) {
    loop {
        at.turn(&mut token, Commit::Now);
        at.step(Step::Finished);
        match release(at, token) {
            None => return,
            Some(kept) => token = kept,
        }
    }
}

/// Requests a turn, and makes it unless the token holder does.
pub fn run_turn<C: Context>(at: &mut C) {
    if let Some(mut token) = at.request_run() {
        at.turn(&mut token, Commit::Now);
        finish(at, token);
    }
}

/// Changes a context with the token, which this thread takes and releases. Calls `pause` while
/// another thread holds it. The caller runs a turn afterwards.
pub fn change<C: Context>(
    at: &mut C,
    mut pause: impl FnMut(&mut C),
    change: impl FnOnce(&mut C, &mut C::Token),
) {
    loop {
        if let Some(mut token) = at.try_take() {
            change(at, &mut token);
            return finish(at, token);
        }
        pause(at);
    }
}

/// Publishes work with `push`, because another thread holds the token, and requests a turn (R2).
/// Returns the token if it has become free.
pub fn publish<C: Context>(at: &mut C, push: impl FnOnce(&mut C)) -> Option<C::Token> {
    if plants!(RunFirst) {
        let token = at.request_run();
        at.step(Step::Published);
        push(at);
        return token;
    }
    push(at);
    at.step(Step::Published);
    at.request_run()
}

/// Commits the requests that turns have issued and not committed. If the commit itself completes
/// some, another turn ends them: neither a descriptor nor another thread's wait would report them.
pub fn commit_and_turn<C: Context>(at: &mut C, token: &mut C::Token) {
    if at.commit_requests(token) {
        at.turn(token, Commit::Now);
    }
}

/// Announces that this thread, the leader, is about to wait in the driver, and releases the token
/// if it has it. Keeps or takes the token if something was published meanwhile: a turn is due.
pub fn block<C: Context>(at: &mut C, token: Option<C::Token>) -> Option<C::Token> {
    if let Some(token) = token {
        return release_to_wait(at, token);
    }
    // A token holder turns once more, and that turn finds this thread blocked. The turn may find a
    // busy driver, and leave work with nothing in flight, which no wait would report.
    let token = at.block();
    at.step(Step::Blocked);
    token
}

/// Makes a follower the leader in place of the caller. Without a follower the context has no leader
/// afterwards. Returns whether another thread leads now, which then owes a turn (W6).
pub fn hand_off<C: Context>(at: &mut C) -> bool {
    loop {
        at.step(Step::SeeksFollower);
        if let Some(follower) = at.pop_follower() {
            at.cell_of(&follower).unlist();
            at.step(Step::TookFollower);
            if !plants!(DropBaton) && at.cell_of(&follower).give_baton() {
                at.wake_follower(follower);
                return true;
            }
            continue;
        }
        at.run_state().resign();
        at.step(Step::Resigned);
        // A follower that listed itself before the resignation still saw a leader: check again
        // (W2).
        if !at.has_followers() {
            return false;
        }
        if !at.run_state().try_lead() {
            return true;
        }
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
