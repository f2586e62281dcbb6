//! Models of notifications: no interleaving of device and driver leaves one asleep beside an entry
//! of the other, and no entry is read before it was written. Only the steps of the driver are
//! written here.

use super::notify::{
    NO_NOTIFICATIONS, Word, Words, available, disable, enable, is_wanted, publish,
};
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// An eventfd: the token stays until the thread that waits takes it.
#[derive(Default)]
struct Eventfd(Mutex<bool>, Condvar);

impl Eventfd {
    fn signal(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut token = self.0.lock().unwrap();
        while !*token {
            token = self.1.wait(token).unwrap();
        }
        *token = false;
    }
}

/// Index before the first entry, so that indices wrap.
const START: u16 = u16::MAX;
/// Entries of each ring.
const NR: usize = 2;
/// An entry that was written.
const FILLED: u32 = 7;

/// A ring. A word holds 16 bits.
struct Model {
    words: [AtomicU32; 6],
    has_event_idx: bool,
    /// Entries by index, behind `START`.
    available: [AtomicU32; NR],
    used: [AtomicU32; NR],
    kick: Eventfd,
    call: Eventfd,
}

impl Words for Model {
    fn load(&self, word: Word, ordering: Ordering) -> u16 {
        self.words[word as usize].load(ordering) as u16
    }

    fn store(&self, word: Word, value: u16, ordering: Ordering) {
        self.words[word as usize].store(value.into(), ordering);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn has_event_idx(&self) -> bool {
        self.has_event_idx
    }
}

impl Model {
    fn new(has_event_idx: bool) -> Model {
        let words = || AtomicU32::new(0);
        let entries = || [AtomicU32::new(0), AtomicU32::new(0)];
        let model = Model {
            words: [words(), words(), words(), words(), words(), words()],
            has_event_idx,
            available: entries(),
            used: entries(),
            kick: Eventfd::default(),
            call: Eventfd::default(),
        };
        // Neither side wants a notification yet.
        for (word, value) in [
            (Word::AvailableIndex, START),
            (Word::UsedIndex, START),
            (Word::AvailableFlags, NO_NOTIFICATIONS),
            (Word::UsedFlags, NO_NOTIFICATIONS),
            (Word::AvailableEvent, START.wrapping_sub(1)),
            (Word::UsedEvent, START.wrapping_sub(1)),
        ] {
            model.store(word, value, Ordering::Relaxed);
        }
        model
    }

    /// Publishes an available entry as a driver does, and notifies the device if it wants that.
    fn make_available(&self, nth: usize) {
        let index = START.wrapping_add(nth as u16);
        self.available[nth].store(FILLED, Ordering::Relaxed);
        let next = index.wrapping_add(1);
        self.store(Word::AvailableIndex, next, Ordering::Release);
        self.fence();
        let is_wanted = match self.has_event_idx {
            true => self.load(Word::AvailableEvent, Ordering::Relaxed) == index,
            false => self.load(Word::UsedFlags, Ordering::Relaxed) == 0,
        };
        if is_wanted {
            self.kick.signal();
        }
    }

    /// Asks for a notification of the used entry at `index` as a driver does. Returns whether it is
    /// there already.
    fn arm(&self, index: u16) -> bool {
        let (word, wish) = match self.has_event_idx {
            true => (Word::UsedEvent, index),
            false => (Word::AvailableFlags, 0),
        };
        self.store(word, wish, Ordering::Relaxed);
        self.fence();
        self.load(Word::UsedIndex, Ordering::Relaxed) != index
    }
}

/// A driver makes entries available, and the device sleeps between them.
fn submissions(has_event_idx: bool, nr: usize) {
    loom::model(move || {
        let model = Arc::new(Model::new(has_event_idx));
        let driver = {
            let model = Arc::clone(&model);
            thread::spawn(move || (0..nr).for_each(|nth| model.make_available(nth)))
        };
        let mut taken = 0;
        loop {
            let next = START.wrapping_add(taken as u16);
            let index = available(&*model);
            if index != next {
                assert_eq!(model.available[taken].load(Ordering::Relaxed), FILLED);
                taken += 1;
                continue;
            }
            if taken == nr {
                break;
            }
            let has_more = enable(&*model, next);
            if !has_more {
                model.kick.wait();
            }
            disable(&*model);
        }
        driver.join().unwrap();
    });
}

/// The device uses entries, one by one or all at once, and the driver sleeps between them.
fn completions(has_event_idx: bool, nr: usize, batch: usize) {
    loom::model(move || {
        let model = Arc::new(Model::new(has_event_idx));
        let device = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                let mut former = START;
                for nth in 0..nr {
                    model.used[nth].store(FILLED, Ordering::Relaxed);
                    let next = START.wrapping_add(nth as u16 + 1);
                    publish(&*model, next);
                    if (nth + 1) % batch == 0 {
                        let is_wanted = is_wanted(&*model, former, next);
                        if is_wanted {
                            model.call.signal();
                        }
                        former = next;
                    }
                }
            })
        };
        for nth in 0..nr {
            let index = START.wrapping_add(nth as u16);
            while model.load(Word::UsedIndex, Ordering::Acquire) == index {
                if !model.arm(index) {
                    model.call.wait();
                }
            }
            assert_eq!(model.used[nth].load(Ordering::Relaxed), FILLED);
        }
        device.join().unwrap();
    });
}

#[test]
fn device_that_sleeps_misses_no_available_entry() {
    submissions(true, 1);
    submissions(false, 1);
    submissions(true, 2);
    submissions(false, 2);
}

#[test]
fn driver_that_sleeps_misses_no_used_entry() {
    completions(true, 1, 1);
    completions(false, 1, 1);
    completions(true, 2, 1);
    completions(false, 2, 1);
    completions(true, 2, 2);
    completions(false, 2, 2);
}
