//! Rounds of syncs: at most one shared sync of a file runs, and the threads that arrive meanwhile
//! share the next one.
//!
//! - R1 a thread that finds no sync running begins one at once.
//! - R2 a thread that comes while one runs joins the *round* that gathers then. It never shares the
//!   running one, which may have begun before a write of the thread has ended.
//! - R3 when a sync ends, the gathering round begins, led by one of its threads, or by one that
//!   comes just then. So a thread waits for two syncs at most.
//! - R4 all threads of a round get its result, an error as well as success.
//!
//! The same scheme as the flush machine of the core (F1 to F4), for threads that block. It is not
//! that machine: the writes do not pass through the layer, so it would regard the second of two
//! syncs as superfluous.
//!
//! All state is under one mutex, which no thread holds during a sync. A round has a condition
//! variable of its own. A leader that ends wakes all threads of its round, and one of the gathering
//! round. That one finds that a sync runs if a thread that came just then leads its round (R3);
//! then it waits for the result, like the others. So no wake-up is lost, which the model checks.

use super::primitive::{Condvar, Mutex, MutexGuard};
use crate::raw::Errno;
use std::sync::PoisonError;

/// The result of a sync.
pub(super) type Outcome = Result<(), Errno>;

/// The extent of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The data, and the metadata that reads of them need: `fdatasync`.
    Data,
    /// All metadata too: `fsync`.
    All,
}

/// The number of rounds whose threads may not all have taken their result.
const NR_ROUNDS: usize = 4;

/// The rounds of one file `I` at a time. A round keeps its file in a `K`.
#[derive(Debug)]
pub(super) struct Rounds<I, K> {
    state: Mutex<State<I, K>>,
    ends: [Condvar; NR_ROUNDS],
}

#[derive(Debug)]
struct State<I, K> {
    file: Option<I>,
    /// The number of threads in calls.
    nr_inside: u32,
    is_running: bool,
    /// The place of the round that gathers.
    gathering: usize,
    rounds: [Round<K>; NR_ROUNDS],
    /// The keepers that no round uses. One is for the running round, one for that which gathers.
    spares: [Option<K>; 2],
}

#[derive(Debug)]
struct Round<K> {
    /// The threads that wait for it, without its leader. Its place is free if there are none.
    nr_waiting: u32,
    kind: Kind,
    kept: Option<K>,
    outcome: Option<Outcome>,
}

impl<K> Round<K> {
    /// The place of a round, without one.
    const FREE: Round<K> = Round { nr_waiting: 0, kind: Kind::Data, kept: None, outcome: None };
}

/// The part of a thread in the rounds.
enum Part<K> {
    /// To make a sync, for the round in this place if there is one.
    Lead(Option<usize>, Kind, Option<K>),
    Shared(Outcome),
}

impl<I: Copy + PartialEq, K> Rounds<I, K> {
    #[cfg(not(blk_loom))]
    pub(super) const fn new() -> Rounds<I, K> {
        Rounds { state: Mutex::new(State::new()), ends: [const { Condvar::new() }; NR_ROUNDS] }
    }

    /// Loom's constructors are not `const`.
    #[cfg(blk_loom)]
    pub(super) fn new() -> Rounds<I, K> {
        let ends = std::array::from_fn(|_| Condvar::new());
        Rounds { state: Mutex::new(State::new()), ends }
    }

    fn lock(&self) -> MutexGuard<'_, State<I, K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a sync of a file, or waits for one that is shared. Returns its result, and whether
    /// another thread has made it. `None` if this thread has to make its own: threads are here for
    /// another file, or the file cannot be kept.
    ///
    /// `keep` keeps the file for a round that begins to gather; it gets a keeper that was used
    /// before, if there is one. `sync` makes the sync, of the file that is kept if there is one.
    pub(super) fn sync(
        &self,
        file: I,
        kind: Kind,
        keep: impl FnOnce(Option<K>) -> Option<K>,
        sync: impl FnOnce(Kind, &mut Option<K>) -> Outcome,
    ) -> Option<(Outcome, bool)> {
        let mut state = self.lock();
        if state.nr_inside > 0 && state.file != Some(file) {
            return None;
        }
        state.file = Some(file);
        state.nr_inside += 1;
        let part;
        (state, part) = self.come(state, kind, keep);
        let result = match part {
            None => None,
            Some(Part::Shared(outcome)) => Some((outcome, true)),
            Some(Part::Lead(place, kind, mut kept)) => {
                drop(state);
                let outcome = sync(kind, &mut kept);
                state = self.lock();
                if let Some(place) = state.spares.iter_mut().find(|spare| spare.is_none()) {
                    *place = kept;
                }
                self.end(&mut state, place, outcome);
                Some((outcome, false))
            }
        };
        state.nr_inside -= 1;
        result
    }

    /// Waits until this thread leads, or its round has ended.
    fn come<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<I, K>>,
        kind: Kind,
        keep: impl FnOnce(Option<K>) -> Option<K>,
    ) -> (MutexGuard<'a, State<I, K>>, Option<Part<K>>) {
        let place = state.gathering;
        if !state.is_running {
            let part = state.lead(kind);
            return (state, Some(part));
        }
        let round = &mut state.rounds[place];
        if round.outcome.is_some() {
            // Threads of an earlier round have not taken its result yet.
            return (state, None);
        }
        if round.nr_waiting == 0 {
            let spare = state.spares.iter_mut().find_map(Option::take);
            let Some(kept) = keep(spare) else { return (state, None) };
            state.rounds[place] = Round { kind, kept: Some(kept), ..Round::FREE };
        }
        let round = &mut state.rounds[place];
        round.nr_waiting += 1;
        round.kind = round.kind.max(kind);
        loop {
            state = self.ends[place].wait(state).unwrap_or_else(PoisonError::into_inner);
            // The place is not used again before this thread has gone.
            if let Some(outcome) = state.rounds[place].outcome {
                state.rounds[place].nr_waiting -= 1;
                if state.rounds[place].nr_waiting == 0 {
                    state.rounds[place] = Round::FREE;
                }
                return (state, Some(Part::Shared(outcome)));
            }
            if !state.is_running && state.gathering == place {
                state.rounds[place].nr_waiting -= 1;
                let part = state.lead(kind);
                return (state, Some(part));
            }
        }
    }

    /// Hands out the result of a round, and wakes a thread of the one that gathers.
    fn end(&self, state: &mut State<I, K>, place: Option<usize>, outcome: Outcome) {
        state.is_running = false;
        if let Some(place) = place
            && state.rounds[place].nr_waiting > 0
        {
            state.rounds[place].outcome = Some(outcome);
            self.ends[place].notify_all();
        }
        if state.rounds[state.gathering].is_gathering() {
            self.ends[state.gathering].notify_one();
        }
    }
}

impl<K> Round<K> {
    /// Returns whether threads wait for it to begin.
    fn is_gathering(&self) -> bool {
        self.nr_waiting > 0 && self.outcome.is_none()
    }
}

impl<I, K> State<I, K> {
    const fn new() -> State<I, K> {
        State {
            file: None,
            nr_inside: 0,
            is_running: false,
            gathering: 0,
            rounds: [const { Round::FREE }; NR_ROUNDS],
            spares: [None, None],
        }
    }

    /// Begins a sync, with the round that gathers if there is one.
    fn lead(&mut self, kind: Kind) -> Part<K> {
        self.is_running = true;
        let place = self.gathering;
        let round = &mut self.rounds[place];
        match round.kept.take() {
            Some(kept) => {
                self.gathering = (place + 1) % NR_ROUNDS;
                Part::Lead(Some(place), round.kind.max(kind), Some(kept))
            }
            None => Part::Lead(None, kind, None),
        }
    }
}
