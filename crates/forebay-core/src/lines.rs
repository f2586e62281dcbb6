//! Lines of threads that wait for tags: the wake policies that Linux has, and had.
//!
//! Under [`WakePolicy::Fair`] who waits for a tag is the bio, in the backlog, and there is none of
//! this. Under the others it is the thread, as in Linux, where it sleeps inside of the submission.
//! What a thread has submitted and what has no tag stays in a line of its own. While the thread is
//! awake, the line takes what tags there are, in front of those who sleep (*barging*); then it
//! sleeps as well, and who frees tags wakes some of the sleepers, as the policy says. A thread that
//! was woken comes back and asks again: maybe in vain.
//!
//! So there are two kinds of lines: that of a thread has its requests, oldest first; and asleep,
//! threads stand in the one of [`TagWaits`], in which a policy looks for whom to wake.
//!
//! All of this is done by the holder of the token, so T2 holds by itself: a tag is not freed
//! between a vain try and the joining of that line.

use crate::request::Request;
use crate::splits::Splits;
use crate::tag::{TagWaits, Wait, WaitId, WakePolicy};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// The lines of all threads that lack tags.
#[derive(Debug)]
pub(crate) struct Lines {
    waits: TagWaits,
    /// By the owner of their bios. Between turns none is empty.
    lines: BTreeMap<u64, Line>,
    /// Those that may take tags, in the order of asking.
    awake: VecDeque<u64>,
    /// Those that are to be woken.
    woken: Vec<WaitId>,
    /// Who has gone to sleep, and who lacks nothing any more, in order.
    changes: Vec<(WaitId, bool)>,
    /// The owner of what was moved to the backlog and is still there, its newest; and whether that
    /// was in its line before the thread slept.
    moved: Option<(u64, bool)>,
    /// How many tags are in use, as far as it was told.
    nr_busy: u32,
}

#[derive(Debug)]
struct Line {
    requests: VecDeque<Request>,
    /// How many of them, from the oldest on, were there when the thread went to sleep.
    nr_old: usize,
    state: State,
}

/// Where the thread of a line stands, as far as its line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is trying. `was_woken`: it slept before, and has got nothing since.
    Awake { was_woken: bool },
    /// It waits to be woken.
    Asleep,
    /// It was woken and has not asked again yet.
    Woken,
}

impl Line {
    fn new() -> Line {
        let state = State::Awake { was_woken: false };
        Line { requests: VecDeque::new(), nr_old: 0, state }
    }
}

impl Lines {
    /// For a set of `depth` tags that can be waited for; none for a policy that needs no lines.
    pub(crate) fn new(policy: WakePolicy, depth: u32) -> Option<Lines> {
        (policy != WakePolicy::Fair).then(|| Lines {
            waits: TagWaits::new(policy, depth),
            lines: BTreeMap::new(),
            awake: VecDeque::new(),
            woken: Vec::new(),
            changes: Vec::new(),
            moved: None,
            nr_busy: 0,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// All requests in them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.lines.values().flat_map(|line| &line.requests)
    }

    /// Adds a request that a thread has just submitted: so it is awake. Where its line sleeps
    /// already, it keeps its place there.
    pub(crate) fn push(&mut self, rq: Request, splits: &Splits) {
        let owner = rq.head(splits).owner();
        let line = self.lines.entry(owner).or_insert_with(|| {
            self.awake.push_back(owner);
            Line::new()
        });
        line.requests.push_back(rq);
    }

    /// The thread of `id` is running, and asks for tags again.
    pub(crate) fn awake(&mut self, id: WaitId) {
        let Some(state) = self.lines.get(&id.0).map(|line| line.state) else { return };
        if state == State::Asleep {
            // It came by itself: no wake-up is used for it.
            self.note_woken(|waits, out| _ = waits.remove(id, &mut |id| out(id)));
        }
        if !matches!(state, State::Awake { .. }) {
            let was_woken = state == State::Woken;
            self.set(id.0, State::Awake { was_woken });
            self.awake.push_back(id.0);
        }
    }

    /// Whether this owner has something without a tag.
    pub(crate) fn has(&self, id: WaitId) -> bool {
        self.lines.contains_key(&id.0)
    }

    /// Moves the oldest request of the first line that is awake to the empty backlog. Says how many
    /// that wakes: see [`Lines::remove`].
    pub(crate) fn move_one(&mut self, backlog: &mut VecDeque<Request>) -> u64 {
        let mut nr_woken = 0;
        self.moved = None;
        while let Some(&owner) = self.awake.front() {
            let line = self.lines.get_mut(&owner).expect("who is awake has a line");
            if let Some(rq) = line.requests.pop_front() {
                self.moved = Some((owner, line.nr_old > 0));
                line.nr_old = line.nr_old.saturating_sub(1);
                backlog.push_back(rq);
                break;
            }
            self.awake.pop_front();
            nr_woken += self.remove(owner);
        }
        nr_woken
    }

    /// The oldest of the backlog, of `nr_backlog`, has got a tag. Says whether it had to wait for
    /// that in a line. What does not wait, or waits for its class, comes from none, and goes in
    /// front of what does.
    pub(crate) fn took_one(&mut self, nr_backlog: usize) -> bool {
        self.waits.took(1);
        self.nr_busy += 1;
        let Some((owner, is_old)) = self.moved.filter(|_| nr_backlog == 1) else { return false };
        if let Some(line) = self.lines.get_mut(&owner)
            && matches!(line.state, State::Awake { .. })
        {
            line.state = State::Awake { was_woken: false };
        }
        is_old
    }

    /// Takes back what was moved to the backlog, and got no tag, or not for all of it. Or takes in
    /// what is left of a bio that did not want to wait, and was cut: its first part is at the
    /// driver, and the rest waits as any.
    pub(crate) fn take_back(&mut self, rq: Request, splits: &Splits) {
        let moved = self.moved.take();
        let owner = moved.map_or_else(|| rq.head(splits).owner(), |(owner, _)| owner);
        let awake = &mut self.awake;
        let line = self.lines.entry(owner).or_insert_with(|| {
            awake.push_back(owner);
            Line::new()
        });
        let is_old = moved.map_or(line.state == State::Asleep, |(_, is_old)| is_old);
        line.requests.push_front(rq);
        line.nr_old += usize::from(is_old);
    }

    /// Lines that have nothing left are gone. Says how many that wakes.
    pub(crate) fn remove_empty(&mut self) -> u64 {
        let mut nr_woken = 0;
        let mut awake = core::mem::take(&mut self.awake);
        awake.retain(|&owner| {
            let has_some = self.lines.get(&owner).is_some_and(|line| !line.requests.is_empty());
            if !has_some {
                nr_woken += self.remove(owner);
            }
            has_some
        });
        self.awake = awake;
        self.moved = None;
        nr_woken
    }

    /// Removes a line that is empty. A wake-up that was for it, and was not used for a tag, goes to
    /// another (T5): what it was for had nothing to do at the device, or waits for its class now.
    /// Says how many that wakes.
    fn remove(&mut self, owner: u64) -> u64 {
        self.changes.push((WaitId(owner), false));
        let line = self.lines.remove(&owner);
        if line.is_none_or(|line| line.state != State::Awake { was_woken: true }) {
            return 0;
        }
        let nr_busy = self.nr_busy;
        self.note_woken(|waits, out| waits.donate(1, nr_busy, &mut |id| out(id)))
    }

    /// There are no tags left for those who are awake: they go to sleep. Says how many of them had
    /// been woken in vain.
    pub(crate) fn sleep_all(&mut self) -> u64 {
        let mut awake = core::mem::take(&mut self.awake);
        let wait = |owner| Wait { id: WaitId(owner), need: 1 };
        let mut nr_vain = 0;
        // From the last to the first, since each may go before all others.
        for &owner in awake.iter().rev() {
            if self.state(owner) == (State::Awake { was_woken: true }) {
                nr_vain += 1;
                self.waits.requeue(wait(owner));
                self.set(owner, State::Asleep);
            }
        }
        for &owner in &awake {
            if self.state(owner) != State::Asleep {
                self.waits.push(wait(owner));
                self.set(owner, State::Asleep);
            }
        }
        self.changes.extend(awake.drain(..).map(|owner| (WaitId(owner), true)));
        self.awake = awake;
        nr_vain
    }

    fn state(&self, owner: u64) -> State {
        self.lines.get(&owner).expect("who tries has a line").state
    }

    fn set(&mut self, owner: u64, state: State) {
        let line = self.lines.get_mut(&owner).expect("who tries has a line");
        line.state = state;
        if state == State::Asleep {
            line.nr_old = line.requests.len();
        }
    }

    /// Tags were given back, and `nr_busy` are in use now: [`Lines::take_woken`] says whom that
    /// wakes. Returns how many those are.
    pub(crate) fn freed(&mut self, nr_busy: u32) -> u64 {
        let mut nr_woken = 0;
        // One by one: a policy may look at how many are in use after each.
        while self.nr_busy > nr_busy {
            self.nr_busy -= 1;
            nr_woken += self.wake(1);
        }
        nr_woken
    }

    /// There are `nr` tags more to be had.
    pub(crate) fn wake(&mut self, nr: u32) -> u64 {
        if nr == 0 || self.waits.is_empty() {
            return 0;
        }
        let nr_busy = self.nr_busy;
        self.note_woken(|waits, out| waits.wake(nr, nr_busy, &mut |id| out(id)))
    }

    /// There are `depth` tags to wait for from now on (T6).
    pub(crate) fn resize(&mut self, depth: u32) -> u64 {
        self.note_woken(|waits, out| waits.resize(depth, &mut |id| out(id)))
    }

    fn note_woken(&mut self, act: impl FnOnce(&mut TagWaits, &mut dyn FnMut(WaitId))) -> u64 {
        let Lines { waits, lines, woken, .. } = self;
        let before = woken.len();
        act(waits, &mut |id| {
            woken.push(id);
            lines.get_mut(&id.0).expect("who waits has a line").state = State::Woken;
        });
        (woken.len() - before) as u64
    }

    /// Hands out who has begun or ceased to lack tags, in order.
    pub(crate) fn take_changes(&mut self, out: &mut impl FnMut(WaitId, bool)) {
        self.changes.drain(..).for_each(|(id, lacks)| out(id, lacks));
    }

    /// Hands out those who are to be woken, oldest first.
    pub(crate) fn take_woken(&mut self, out: &mut impl FnMut(WaitId)) {
        self.woken.drain(..).for_each(out);
    }
}
