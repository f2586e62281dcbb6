//! Queues of threads that wait for tags: the wake policies that Linux has, and had.
//!
//! Under [`WakePolicy::Fair`] bios wait for tags in the backlog, and nothing here is used. Under
//! the other policies threads wait, as in Linux, where a thread sleeps inside submission. Requests
//! without a tag stay in a queue of their thread. While the thread is awake, its queue takes free
//! tags ahead of sleeping threads (*barging*). Then it sleeps as well. Freed tags wake some of the
//! sleepers, as the policy decides. A woken thread tries again, and may find no tag.
//!
//! So there are two kinds of queues: the requests of a thread, oldest first; and the threads that
//! sleep, in a [`TagWaits`], from which a policy chooses.
//!
//! Only the holder of the token does all of this, so T2 needs no further steps: no tag is freed
//! between a failed try and the entry in [`TagWaits`]. Nothing here allocates, unless more requests
//! or threads wait than ever before.

use crate::hctx::admission::owner_queues::{NR_OWNERS_USUAL, OwnerQueues};
use crate::plant::plants;
use crate::request::{Request, Splits};
use crate::tag::{TagWaits, Wait, WaitId, WakePolicy};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The queues of all threads that lack tags.
#[derive(Debug)]
pub(super) struct ThreadQueues {
    waits: TagWaits,
    /// By the owner of their bios. Between turns none is empty.
    lines: OwnerQueues<ThreadQueue>,
    /// Owners that may take tags, in the order of their requests.
    awake: VecDeque<u64>,
    /// Owners to wake.
    woken: Vec<WaitId>,
    /// Owners that began (true) or ceased to lack tags, in order.
    changes: Vec<(WaitId, bool)>,
    /// The owner of the newest request that was moved to the backlog and is still there; and
    /// whether that was in its queue before the thread slept, and whether its wait was noted.
    moved: Option<(u64, bool, bool)>,
    /// How many tags are in use, as of the last call.
    nr_busy: u32,
}

/// The state of one thread's queue.
#[derive(Clone, Copy, Debug)]
struct ThreadQueue {
    /// How many requests, from the oldest on, were there when the thread last went to sleep or ran
    /// again.
    nr_old: usize,
    /// For how many requests, from the oldest on, a trace has noted that they wait.
    nr_noted: usize,
    state: State,
}

impl Default for ThreadQueue {
    fn default() -> ThreadQueue {
        ThreadQueue { nr_old: 0, nr_noted: 0, state: State::Awake { was_woken: false } }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The thread is trying. `was_woken`: it slept before, and has got no tag since.
    Awake { was_woken: bool },
    /// The thread waits to be woken.
    Asleep,
    /// The thread was woken and has not tried again yet.
    Woken,
}

impl ThreadQueues {
    /// Creates the queues for a set of `depth` tags that threads can wait for. Returns none for a
    /// policy under which threads do not wait.
    pub(super) fn new(policy: WakePolicy, depth: u32) -> Option<ThreadQueues> {
        (policy != WakePolicy::Fair).then(|| ThreadQueues {
            waits: TagWaits::new(policy, depth),
            lines: OwnerQueues::new(),
            awake: VecDeque::with_capacity(NR_OWNERS_USUAL),
            woken: Vec::with_capacity(NR_OWNERS_USUAL),
            // An owner may begin and cease in one turn.
            changes: Vec::with_capacity(2 * NR_OWNERS_USUAL),
            moved: None,
            nr_busy: 0,
        })
    }

    /// Replaces the policy by [`TagWaits::stash_v1`].
    pub(super) fn emulate_stash_v1(&mut self) {
        assert!(self.is_empty(), "no thread waits yet");
        self.waits = TagWaits::stash_v1(self.waits.depth());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns all requests in the queues.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.lines.iter()
    }

    /// Adds a request that a thread has just submitted: so the thread is awake. If its queue sleeps
    /// already, the request does too.
    pub(super) fn push(&mut self, rq: Request, splits: &Splits) {
        let owner = rq.head(splits).owner();
        if self.lines.insert(owner) {
            self.awake.push_back(owner);
        }
        self.lines.push_back(owner, rq);
    }

    /// Marks the thread of `id` as running. It tries again to get tags.
    pub(super) fn awake(&mut self, id: WaitId) {
        let Some(state) = self.lines.get(id.0).map(|line| line.state) else { return };
        if state == State::Asleep {
            // The thread runs without a wake-up, so none is used for it.
            self.note_woken(|waits, out| _ = waits.remove(id, &mut |id| out(id)));
        }
        if !matches!(state, State::Awake { .. }) {
            let was_woken = state == State::Woken;
            self.set(id.0, State::Awake { was_woken });
            self.awake.push_back(id.0);
        }
    }

    /// Marks all threads as running, because their requests need no tag to end.
    pub(super) fn awake_all(&mut self, splits: &Splits) {
        let owners: Vec<u64> = self.lines.iter().map(|rq| rq.head(splits).owner()).collect();
        owners.into_iter().for_each(|owner| self.awake(WaitId(owner)));
    }

    /// Returns whether an owner has a request without a tag.
    pub(super) fn has(&self, id: WaitId) -> bool {
        self.lines.get(id.0).is_some()
    }

    /// Moves the oldest request of the first queue that is awake to the empty backlog. Returns how
    /// many wake-ups that makes: see [`ThreadQueues::remove`].
    pub(super) fn move_one(&mut self, backlog: &mut VecDeque<Request>) -> u64 {
        let mut nr_woken = 0;
        self.moved = None;
        while let Some(&owner) = self.awake.front() {
            if let Some(rq) = self.lines.pop_front(owner) {
                let line = self.line(owner);
                let is_old = line.nr_old > 0;
                line.nr_old = line.nr_old.saturating_sub(1);
                let is_noted = line.nr_noted > 0;
                line.nr_noted = line.nr_noted.saturating_sub(1);
                self.moved = Some((owner, is_old, is_noted));
                backlog.push_back(rq);
                break;
            }
            self.awake.pop_front();
            nr_woken += self.remove(owner);
        }
        nr_woken
    }

    /// Records that the oldest of the `nr_backlog` requests in the backlog has got a tag. Returns
    /// whether it had to wait for the tag in a queue. A request that does not wait, or waits for
    /// its class, is in no queue, and goes ahead of those that are.
    pub(super) fn took_one(&mut self, nr_backlog: usize) -> bool {
        self.waits.took(1);
        self.nr_busy += 1;
        let Some((owner, is_old, _)) = self.moved.filter(|_| nr_backlog == 1) else { return false };
        if let Some(line) = self.lines.get_mut(owner)
            && matches!(line.state, State::Awake { .. })
        {
            line.state = State::Awake { was_woken: false };
        }
        is_old
    }

    /// Takes back a request that was moved to the backlog and got no tag, or not for all of its
    /// parts. Also takes in the rest of a NOWAIT bio that was cut: its first part is at the driver,
    /// and the rest waits like any other request.
    pub(super) fn take_back(&mut self, rq: Request, splits: &Splits) {
        let owner = rq.head(splits).owner();
        // A write that has waited for others of its kind (Q9) may be in front of the moved request.
        let moved = self.moved.take_if(|moved| moved.0 == owner);
        if self.lines.insert(owner) {
            self.awake.push_back(owner);
        }
        if plants!(TakeBackLast) {
            self.lines.push_back(owner, rq);
        } else {
            self.lines.push_front(owner, rq);
        }
        let line = self.line(owner);
        let is_old = moved.map_or(line.state == State::Asleep, |(_, is_old, _)| is_old);
        line.nr_old += usize::from(is_old);
        line.nr_noted += usize::from(moved.is_some_and(|(_, _, is_noted)| is_noted));
    }

    /// Removes queues that have nothing left. Returns how many wake-ups that makes.
    pub(super) fn remove_empty(&mut self) -> u64 {
        if self.awake.is_empty() {
            self.moved = None;
            return 0;
        }
        let mut nr_woken = 0;
        let mut awake = core::mem::take(&mut self.awake);
        awake.retain(|&owner| {
            let has_some = self.lines.len(owner) > 0;
            if !has_some {
                nr_woken += self.remove(owner);
            }
            has_some
        });
        self.awake = awake;
        self.moved = None;
        nr_woken
    }

    /// Removes a queue that is empty. If a wake-up of its thread was not used for a tag, another
    /// thread gets the wake-up (T5): the woken thread's request had nothing to do at the device, or
    /// now waits for its class. Returns how many wake-ups that makes.
    fn remove(&mut self, owner: u64) -> u64 {
        self.changes.push((WaitId(owner), false));
        let line = self.lines.remove(owner);
        if line.is_none_or(|line| line.state != State::Awake { was_woken: true }) {
            return 0;
        }
        let nr_busy = self.nr_busy;
        self.note_woken(|waits, out| waits.donate(1, nr_busy, &mut |id| out(id)))
    }

    /// Passes each request that waits to `note`, once.
    pub(super) fn note_waits(&mut self, mut note: impl FnMut(&Request)) {
        self.lines.for_each(|line, requests| {
            requests.skip(line.nr_noted).for_each(|rq| {
                note(rq);
                line.nr_noted += 1;
            });
        });
    }

    /// Puts the threads of the awake queues to sleep, because no tags are left for them. Returns
    /// how many of them had been woken in vain.
    pub(super) fn sleep_all(&mut self) -> u64 {
        if self.awake.is_empty() {
            return 0;
        }
        let mut awake = core::mem::take(&mut self.awake);
        let wait = |owner| Wait { id: WaitId(owner), need: 1 };
        let mut nr_vain = 0;
        // From the last to the first, since each may go before all others.
        for &owner in awake.iter().rev() {
            if self.line(owner).state == (State::Awake { was_woken: true }) {
                nr_vain += 1;
                self.waits.requeue(wait(owner));
                self.set(owner, State::Asleep);
            }
        }
        for &owner in &awake {
            if self.line(owner).state != State::Asleep {
                self.waits.push(wait(owner));
                self.set(owner, State::Asleep);
            }
        }
        self.changes.extend(awake.drain(..).map(|owner| (WaitId(owner), true)));
        self.awake = awake;
        nr_vain
    }

    fn line(&mut self, owner: u64) -> &mut ThreadQueue {
        self.lines.get_mut(owner).expect("a thread that tries has a queue")
    }

    /// Sets the state of a thread that goes to sleep, or has slept.
    fn set(&mut self, owner: u64, state: State) {
        let nr_requests = self.lines.len(owner);
        let line = self.line(owner);
        (line.state, line.nr_old) = (state, nr_requests);
    }

    /// Records that tags were put and `nr_busy` are in use now. Returns how many threads that
    /// wakes; [`ThreadQueues::take_woken`] returns them.
    pub(super) fn freed(&mut self, nr_busy: u32) -> u64 {
        let mut nr_woken = 0;
        // One by one: a policy may look at how many are in use after each.
        while self.nr_busy > nr_busy {
            self.nr_busy -= 1;
            nr_woken += self.wake(1);
        }
        nr_woken
    }

    /// Records that `nr` more tags are available. Returns how many threads that wakes.
    pub(super) fn wake(&mut self, nr: u32) -> u64 {
        if nr == 0 || self.waits.is_empty() {
            return 0;
        }
        let nr_busy = self.nr_busy;
        self.note_woken(|waits, out| waits.wake(nr, nr_busy, &mut |id| out(id)))
    }

    /// Sets the number of tags that threads can wait for (T6). Returns how many threads that wakes.
    pub(super) fn resize(&mut self, depth: u32) -> u64 {
        self.note_woken(|waits, out| waits.resize(depth, &mut |id| out(id)))
    }

    fn note_woken(&mut self, act: impl FnOnce(&mut TagWaits, &mut dyn FnMut(WaitId))) -> u64 {
        let ThreadQueues { waits, lines, woken, .. } = self;
        let before = woken.len();
        act(waits, &mut |id| {
            woken.push(id);
            lines.get_mut(id.0).expect("a thread that waits has a queue").state = State::Woken;
        });
        (woken.len() - before) as u64
    }

    /// Returns whether owners began or ceased to lack tags, or are to be woken.
    pub(super) fn has_calls(&self) -> bool {
        !self.changes.is_empty() || !self.woken.is_empty()
    }

    /// Passes to `out` the owners that began (true) or ceased (false) to lack tags, in order.
    pub(super) fn take_changes(&mut self, out: &mut impl FnMut(WaitId, bool)) {
        self.changes.drain(..).for_each(|(id, lacks)| out(id, lacks));
    }

    /// Passes to `out` the owners whose threads are to be woken, oldest first.
    pub(super) fn take_woken(&mut self, out: &mut impl FnMut(WaitId)) {
        self.woken.drain(..).for_each(out);
    }
}
