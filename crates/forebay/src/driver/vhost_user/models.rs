//! Models of arming against sleeping: no interleaving of the server's publishing and the driver's
//! wait leaves the driver asleep beside a used chain.

use super::notify::{Publisher, Request, Waiting, arm, publish};
use crate::sys::primitive::{Arc, AtomicU32, Ordering, Sleeper, check, fence, thread};

/// A used ring. A word holds 16 bits.
struct Words {
    index: AtomicU32,
    /// The used event, or with flags whether an interrupt is wanted.
    request: AtomicU32,
    has_event_idx: bool,
}

impl Publisher for Words {
    fn store_index(&self, index: u16) {
        self.index.store(index.into(), Ordering::Release);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn request(&self) -> Request {
        let request = self.request.load(Ordering::Relaxed);
        if self.has_event_idx { Request::Event(request as u16) } else { Request::Flag(request > 0) }
    }
}

impl Waiting for Words {
    fn index(&self) -> u16 {
        self.index.load(Ordering::Acquire) as u16
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn ask(&self, element: u16) {
        let request = if self.has_event_idx { element.into() } else { 1 };
        self.request.store(request, Ordering::Relaxed);
    }
}

/// The index before the first chain, so that indices wrap in the model.
const START: u16 = u16::MAX;

/// Uses chains in batches of these sizes, while the driver waits until each of its goals is used.
fn exchange(has_event_idx: bool, batches: &'static [u16], goals: &'static [u16]) {
    let [nr_used, nr_awaited] = [batches, goals].map(|nrs| nrs.iter().sum::<u16>());
    assert_eq!(nr_used, nr_awaited, "the driver waits for all");
    check(move || {
        let sleeper = Sleeper::of_this_thread();
        let interrupt = sleeper.clone();
        let request = if has_event_idx { u32::from(START.wrapping_sub(1)) } else { 0 };
        let words = Arc::new(Words {
            index: AtomicU32::new(START.into()),
            request: AtomicU32::new(request),
            has_event_idx,
        });
        let server = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let mut old = START;
                for nr in batches {
                    let new = old.wrapping_add(*nr);
                    if publish(&*words, old, new) {
                        interrupt.wake();
                    }
                    old = new;
                }
            })
        };
        let mut taken = START;
        for nr in goals {
            // An interrupt of before may end a sleep.
            while words.index().wrapping_sub(taken) < *nr && !arm(&*words, taken, *nr) {
                sleeper.sleep();
            }
            taken = taken.wrapping_add(*nr);
            if !has_event_idx {
                // The driver suppresses interrupts after a wait.
                words.request.store(0, Ordering::Relaxed);
            }
        }
        server.join().unwrap();
    });
}

#[test]
fn wait_for_one_used_chain_is_never_missed() {
    exchange(true, &[1], &[1]);
    exchange(false, &[1], &[1]);
}

#[test]
fn waits_for_chains_one_by_one_are_never_missed() {
    exchange(true, &[1, 1], &[1, 1]);
    exchange(true, &[2], &[1, 1]);
    exchange(false, &[1, 1], &[1, 1]);
}

#[test]
fn wait_for_a_batch_is_never_missed() {
    exchange(true, &[1, 1], &[2]);
    exchange(true, &[1, 2], &[2, 1]);
    exchange(false, &[1, 1], &[2]);
}
