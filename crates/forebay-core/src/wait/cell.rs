//! Wait cell: one word with the number of bios delivered to a waiter and the waiter's state.
//!
//! Any thread that holds a token delivers. One thread (or task) owns the cell. A delivery changes
//! the count and the state in one exchange, *which is its last access to the cell*: a waiter whose
//! last bio is delivered may return and free its cell at once. So a delivery copies all that it
//! needs to wake the owner before the exchange ([`WaitCell::deliver`]).
//!
//! W2: the owner announces that it is about to sleep (an exchange of the word), then reads the
//! count (the same word). The owner sees an earlier delivery in the count. A later delivery sees
//! that the owner sleeps. So no fence is needed.
//!
//! # Waits for tags
//!
//! Under wake policies other than `fair` a thread waits for tags and for nothing else, as a Linux
//! thread sleeps in its submission. The token holder keeps the thread's bios that lack tags in a
//! queue of that thread, and sets a flag in the cell. When woken, the thread asks for tags again.
//!
//! W2, again by changes of the word: the owner announces that it is about to sleep, then reads the
//! flag. The token holder clears the flag, then modifies the word, even if the value stays the
//! same. If the token holder is first, the owner's change of the word acquires the cleared flag. If
//! the owner is first, the token holder sees that the owner sleeps. A wake-up that finds the owner
//! awake is not left to the owner at all: the token holder tries on its behalf.

use crate::plant::plants;
use crate::primitive::{AtomicU32, AtomicU64, Ordering, guess};

/// The state of the owner of a [`WaitCell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// Not waiting.
    Awake = 0,
    /// Asleep, or about to be.
    Parked = 1,
    /// In the driver as the leader, or about to be: waking it takes a kick.
    Leading = 2,
    /// Woken: its goal was reached while it was waiting, or tags may be available for it.
    Woken = 3,
    /// It was parked, and is the leader now (W3).
    Baton = 4,
    /// The owner has given the cell up: the next delivery frees it.
    Abandoned = 5,
    /// Parked, and if woken for it the owner makes a flush itself.
    ParkedForFlush = 6,
}

const STATE_BITS: u32 = 3;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;

impl WaitState {
    fn of(word: u64) -> WaitState {
        match word & STATE_MASK {
            0 => WaitState::Awake,
            1 => WaitState::Parked,
            2 => WaitState::Leading,
            3 => WaitState::Woken,
            4 => WaitState::Baton,
            5 => WaitState::Abandoned,
            6 => WaitState::ParkedForFlush,
            _ => unreachable!("the word is made of these"),
        }
    }

    /// Returns whether the owner waits and was not woken.
    fn is_waiting(self) -> bool {
        self.is_parked() || self == WaitState::Leading
    }

    /// Returns whether the owner is asleep, or about to be.
    pub fn is_parked(self) -> bool {
        matches!(self, WaitState::Parked | WaitState::ParkedForFlush)
    }
}

/// The wake-up that a change of a cell requires from its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// None.
    Nothing,
    /// The owner sleeps: the caller wakes it.
    Wake,
    /// The owner leads: the caller kicks it out of the driver.
    Kick,
    /// The owner has given the cell up: the caller frees it.
    Free,
}

/// The goal of an owner that waits for tags: no number of deliveries reaches it.
pub const TAGS: u64 = u64::MAX;

/// A goal that no number of deliveries reaches.
pub const NEVER: u64 = u64::MAX - 1;

/// The state of a waiter that the threads which end its bios access.
///
/// All of its bytes are atomics, and it has no padding: a delivery may free it while a reference to
/// it is still in an argument.
#[derive(Debug)]
pub struct WaitCell {
    /// The number of bios delivered, and the state of the owner.
    word: AtomicU64,
    /// The count that the owner waits for. Written by the owner while it is awake.
    goal: AtomicU64,
    /// Whether the cell is in a hardware context's list of followers.
    is_listed: AtomicU32,
    /// Whether bios of the owner wait for tags in the owner's queue. Written by the token holder.
    lacks_tags: AtomicU32,
}

impl Default for WaitCell {
    fn default() -> WaitCell {
        WaitCell::new()
    }
}

impl WaitCell {
    /// Creates the cell of an owner that is awake.
    pub fn new() -> WaitCell {
        WaitCell {
            word: AtomicU64::new(0),
            goal: AtomicU64::new(0),
            is_listed: AtomicU32::new(0),
            lacks_tags: AtomicU32::new(0),
        }
    }

    /// Counts `nr` bios, which the caller has put where the owner finds them.
    ///
    /// `prepare` is called, once or more, before an exchange that leaves a wake-up to the caller.
    /// It copies all that the wake-up needs. Once the exchange is made, the cell may
    /// be freed, unless the result is [`Notice::Free`].
    #[inline]
    pub fn deliver(&self, nr: u64, mut prepare: impl FnMut()) -> Notice {
        let mut word = guess!(self.word, Ordering::Acquire);
        loop {
            let (count, state) = ((word >> STATE_BITS) + nr, WaitState::of(word));
            // The owner wrote the goal before it announced the wait.
            let is_reached = state.is_waiting() && count >= self.goal.load(Ordering::Relaxed);
            let next = if is_reached { WaitState::Woken } else { state };
            if is_reached && state.is_parked() {
                prepare();
            }
            // AcqRel: an owner that sees the count sees the bios. See also `begin_wait`.
            let (old, new) = (word, count << STATE_BITS | next as u64);
            match self.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                // From here on the cell may be freed, unless this delivery has to free it.
                Ok(_) if state == WaitState::Abandoned => return Notice::Free,
                Ok(_) if !is_reached => return Notice::Nothing,
                Ok(_) if state == WaitState::Leading => return Notice::Kick,
                Ok(_) if plants!(SkipWake) => return Notice::Nothing,
                Ok(_) => return Notice::Wake,
                Err(now) => word = now,
            }
        }
    }

    /// Returns the total number of bios delivered.
    #[inline]
    pub fn nr_delivered(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> STATE_BITS
    }

    /// Returns the state of the owner. Unless the caller is the owner, it may be outdated.
    #[inline]
    pub fn state(&self) -> WaitState {
        WaitState::of(self.word.load(Ordering::Acquire))
    }

    /// Returns the goal of the owner's newest wait.
    pub fn goal(&self) -> u64 {
        self.goal.load(Ordering::Relaxed)
    }

    /// Returns whether the owner's goal is reached.
    #[inline]
    pub fn is_reached(&self, goal: u64) -> bool {
        match goal {
            TAGS => !self.lacks_tags(),
            goal => self.nr_delivered() >= goal,
        }
    }

    /// Announces that the owner is about to wait until `goal` bios were delivered, parked or
    /// leading. Called by the owner, which reads the count afterwards. Only the owner changes the
    /// state from `Awake`.
    ///
    /// # Panics
    /// Panics if the owner is not awake.
    pub fn begin_wait(&self, goal: u64, state: WaitState) {
        self.goal.store(goal, Ordering::Relaxed);
        // AcqRel: a delivery that sees the wait sees the goal. W2: see the module docs.
        let before = self.word.fetch_or(state as u64, Ordering::AcqRel);
        assert!(WaitState::of(before) == WaitState::Awake, "a waiter was awake before");
    }

    /// Ends the owner's wait. Called by the owner. Returns the state that it was in.
    pub fn end_wait(&self) -> WaitState {
        WaitState::of(self.word.fetch_and(!STATE_MASK, Ordering::AcqRel))
    }

    /// Makes a parked owner the leader. Returns false if the owner is not parked. After a true
    /// result the caller wakes it.
    pub fn give_baton(&self) -> bool {
        self.change_if(WaitState::is_parked, WaitState::Baton).is_some()
    }

    /// Gives the cell up: the next delivery frees it. Called by an owner that waits for one bio.
    /// Returns false if that bio was delivered before; then the owner frees the cell.
    pub fn abandon(&self) -> bool {
        // AcqRel: the delivery sees what the owner has left. If the delivery came first, the count
        // is not 0, and the exchange fails.
        let swap = (Ordering::AcqRel, Ordering::Acquire);
        self.word.compare_exchange(0, WaitState::Abandoned as u64, swap.0, swap.1).is_ok()
    }

    /// Lists the cell as that of a follower. Returns false if it is listed already.
    ///
    /// AcqRel: if the cell is on the list, or was until just now, the thread that removes it
    /// changes this flag later, and sees that the owner is parked.
    pub(super) fn list(&self) -> bool {
        self.is_listed.swap(1, Ordering::AcqRel) == 0
    }

    /// Undoes [`WaitCell::list`]: the caller has removed the cell from the list.
    pub(super) fn unlist(&self) {
        self.is_listed.swap(0, Ordering::AcqRel);
    }

    /// Returns whether the cell is in a list of followers, for diagnosis.
    pub fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the owner's bios wait for tags, as far as the owner has seen. Called by the
    /// owner.
    #[inline]
    pub fn lacks_tags(&self) -> bool {
        // Relaxed: after `begin_wait` the word orders it, see above; before, it is a guess.
        self.lacks_tags.load(Ordering::Relaxed) != 0
    }

    /// Records whether bios of the owner lack tags. Called by the token holder, while a bio of the
    /// owner is in the layer. If none lacks a tag any more, an owner that waits for tags only is
    /// woken.
    pub fn set_lacks_tags(&self, lacks: bool) -> Notice {
        self.lacks_tags.store(lacks.into(), Ordering::Relaxed);
        match lacks {
            true => Notice::Nothing,
            // The owner wrote the goal before it announced the wait.
            false => self.wake_if(|| self.goal.load(Ordering::Relaxed) == TAGS),
        }
    }

    /// Wakes the owner because tags may be available for it, whatever it waits for. Called by the
    /// token holder, while a bio of the owner is in the layer. Returns [`Notice::Nothing`] if the
    /// owner does not wait.
    pub fn wake_for_tags(&self) -> Notice {
        self.wake_if(|| true)
    }

    /// Wakes the owner to make a flush, if it is parked and does so. Called by the token holder,
    /// while a bio of the owner waits for that flush. After a true result the caller wakes the
    /// owner, which makes a turn.
    pub fn wake_for_flush(&self) -> bool {
        self.change_if(|state| state == WaitState::ParkedForFlush, WaitState::Woken).is_some()
    }

    fn wake_if(&self, is_wanted: impl Fn() -> bool) -> Notice {
        let is_due = |state: WaitState| state.is_waiting() && is_wanted();
        match self.change_if(is_due, WaitState::Woken) {
            None => Notice::Nothing,
            Some(WaitState::Leading) => Notice::Kick,
            Some(_) => Notice::Wake,
        }
    }

    /// Changes the state to `to` if `is_due`. Returns the state before, or `None` without a change.
    fn change_if(&self, is_due: impl Fn(WaitState) -> bool, to: WaitState) -> Option<WaitState> {
        // A read-modify-write that changes nothing, and not a load: see "Waits for tags".
        let mut word = self.word.fetch_or(0, Ordering::AcqRel);
        loop {
            let state = WaitState::of(word);
            if !is_due(state) {
                return None;
            }
            let next = word & !STATE_MASK | to as u64;
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(state),
                Err(now) => word = now,
            }
        }
    }

    /// Takes exclusive access to the words, so that loom rejects a later access by another thread.
    #[cfg(blk_loom)]
    pub fn check_exclusive(&mut self) {
        self.word.with_mut(|_| ());
        self.goal.with_mut(|_| ());
    }
}

#[cfg(all(test, blk_loom))]
mod models;

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
