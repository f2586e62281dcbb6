//! Models of the leader: its wait in the driver (W2, W4), and the baton (W1, W3).

use std::sync::Arc;

use forebay_core::RunState;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::common::{Baton, explore};

/// A driver whose wait returns for a completion or a wake-up.
struct Driver {
    nr_completed_and_woken: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Driver {
    fn complete(&self) {
        self.nr_completed_and_woken.lock().unwrap().0 += 1;
        self.changed.notify_one();
    }

    fn wake(&self) {
        self.nr_completed_and_woken.lock().unwrap().1 = true;
        self.changed.notify_one();
    }

    fn reap(&self) -> u32 {
        std::mem::take(&mut self.nr_completed_and_woken.lock().unwrap().0)
    }

    fn wait(&self) {
        let mut state = self.nr_completed_and_woken.lock().unwrap();
        while *state == (0, false) {
            state = self.changed.wait(state).unwrap();
        }
        state.1 = false;
    }
}

/// A context whose driver has the leader's bio.
struct Hctx {
    state: RunState,
    driver: Driver,
    ended: AtomicU32,
    kicks: bool,
}

impl Hctx {
    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed) == 1
    }

    fn turn(&self) {
        if self.driver.reap() > 0 {
            self.ended.store(1, Relaxed);
            if self.state.kick() && self.kicks {
                self.driver.wake();
            }
        }
    }

    fn submit(&self) {
        if self.state.run() {
            loop {
                self.turn();
                if self.state.release() {
                    break;
                }
            }
        }
    }

    fn lead(&self) {
        assert!(self.state.try_lead());
        while !self.has_ended() {
            let is_ours = self.state.try_take() || self.state.block();
            if !is_ours || self.turn_until_idle() {
                self.wait();
            }
        }
        self.state.resign();
    }

    /// Turns until there is nothing to do. Returns true if the leader has announced its wait and
    /// released the token. Returns false if it has released the token because its bio has ended.
    fn turn_until_idle(&self) -> bool {
        loop {
            self.turn();
            if self.has_ended() {
                if self.state.release() {
                    return false;
                }
            } else if self.state.release_to_wait() {
                return true;
            }
        }
    }

    fn wait(&self) {
        if !self.has_ended() && !self.state.is_kicked() {
            self.driver.wait();
        }
        self.state.unblock();
        // The holder of the token may be about to reap the driver's completions.
        thread::yield_now();
    }
}

fn leader_and_submitters(nr_submitters: usize, bound: Option<usize>, kicks: bool) {
    // With two submitters the device completes beforehand, which saves a thread.
    let nr_completed = u32::from(nr_submitters > 1);
    explore(bound, move || {
        let driver = Driver {
            nr_completed_and_woken: Mutex::new((nr_completed, false)),
            changed: Condvar::new(),
        };
        let (state, ended) = (RunState::new(), AtomicU32::new(0));
        let hctx = Arc::new(Hctx { state, driver, ended, kicks });
        let spawn = |step: fn(&Hctx)| {
            let hctx = hctx.clone();
            thread::spawn(move || step(&hctx))
        };
        let mut others: Vec<_> = (0..nr_submitters).map(|_| spawn(Hctx::submit)).collect();
        if nr_completed == 0 {
            others.push(spawn(|hctx| hctx.driver.complete()));
        }
        hctx.lead();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!hctx.state.is_running() && !hctx.state.has_leader());
    });
}

/// W2, W4: a leader announces that it is blocked, re-tests its bio, and waits in the driver. A
/// submitter takes the token, reaps the leader's bio, ends it, and kicks. The leader always
/// returns. Bound 4: 13 s.
#[test]
fn a_leader_whose_bio_another_ends_comes_back() {
    leader_and_submitters(1, Some(4), true);
}

/// As above with two submitters, either of which may reap. Bound 3: 7 s.
#[test]
fn a_leader_comes_back_from_under_two_submitters() {
    leader_and_submitters(2, Some(3), true);
}

/// Planted: the submitter does not wake the driver. (Without a bound, loom first finds a leader
/// that spins: its wait returns at once while the holder has not reaped yet.)
#[test]
#[should_panic(expected = "deadlock")]
fn planted_missing_kick_is_found() {
    leader_and_submitters(1, Some(4), false);
}

/// W4: two threads end what the leader waits for, one after the other. Only one of them has to wake
/// it.
#[test]
fn a_wait_is_kicked_once() {
    explore(None, || {
        let state = Arc::new(RunState::new());
        assert!(state.try_lead() && state.run() && state.release_to_wait());
        let kick = |state: &RunState| {
            while !state.try_take() {
                thread::yield_now();
            }
            let told = state.kick();
            state.release();
            told
        };
        let other = state.clone();
        let thread = thread::spawn(move || kick(&other));
        let told = kick(&state);
        assert!(told ^ thread.join().unwrap());
        assert!(state.unblock());
    });
}

/// Threads that wait for their bios. Each must lead before it can return, because only a leader
/// reaps.
struct Crowd {
    state: RunState,
    parked: Vec<AtomicU32>,
    batons: Vec<Baton>,
    looks: bool,
}

impl Crowd {
    /// W3: stops leading, and passes the baton to a follower that has announced itself.
    fn resign(&self) {
        self.state.resign();
        let parked = self.parked.iter().position(|parked| parked.load(Relaxed) == 1);
        if let Some(follower) = parked.filter(|_| self.looks) {
            self.batons[follower].give();
        }
    }

    /// W1: parks only if there is a leader; otherwise becomes the leader.
    fn follow(&self, me: usize) {
        loop {
            self.parked[me].store(1, Relaxed);
            if self.state.has_leader() {
                self.batons[me].await_it();
            }
            self.parked[me].store(0, Relaxed);
            if self.state.try_lead() {
                break self.resign();
            }
        }
    }
}

fn hand_off(nr_followers: usize, bound: Option<usize>, looks: bool) {
    explore(bound, move || {
        let crowd = Arc::new(Crowd {
            state: RunState::new(),
            parked: (0..nr_followers).map(|_| AtomicU32::new(0)).collect(),
            batons: (0..nr_followers).map(|_| Baton::new()).collect(),
            looks,
        });
        assert!(crowd.state.try_lead());
        let spawn = |me| {
            let crowd = crowd.clone();
            thread::spawn(move || crowd.follow(me))
        };
        let followers: Vec<_> = (0..nr_followers).map(spawn).collect();
        crowd.resign();
        followers.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!crowd.state.has_leader());
    });
}

/// W1, W3: a leader resigns while a follower parks. Either the follower sees that there is no
/// leader, or the leader sees that the follower parks. Work is never left while all threads sleep.
#[test]
fn a_leader_hands_off_to_a_follower() {
    hand_off(1, None, true);
}

/// As above with two followers: the first passes the baton on to the second. Bound 3.
#[test]
fn the_baton_goes_on_to_the_second_follower() {
    hand_off(2, Some(3), true);
}

/// Planted: the leader resigns and does not check for followers.
#[test]
#[should_panic(expected = "deadlock")]
fn planted_a_leader_drops_the_baton() {
    hand_off(1, None, false);
}
