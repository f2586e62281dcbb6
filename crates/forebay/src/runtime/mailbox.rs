//! Where the ends of bios wait for those who asked for them, and what wakes these.
//!
//! Any thread that holds a token delivers; one thread (or task) owns a mailbox, and takes. The
//! state is one word: how many bios were delivered, ever, and what the owner is doing. A delivery
//! changes both in one exchange, *which is its last touch of the mailbox*: a thread whose last bio
//! is delivered may return and free its mailbox at once. What it takes to wake the owner is taken
//! out before.
//!
//! W2: the owner says that it is going to sleep (an exchange of the word), then looks at the count
//! (the same word). A delivery that comes before is seen in the count; one that comes after sees
//! that the owner sleeps. So no fence is needed.
// Bios carry the address of their mailbox.
#![allow(unsafe_code)]

mod tags;

use crate::buf::Buf;
use crate::runtime::event::Event;
use crate::runtime::primitive::{AtomicBool, AtomicU64, Mutex, Ordering, Sleeper, lock};
use crate::runtime::stack::{BioList, BioStack};
use forebay_core::QueuedBio;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

pub(crate) use tags::TAGS;

/// What the owner of a mailbox is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Not waiting.
    Awake = 0,
    /// Asleep, or about to be.
    Parked = 1,
    /// In the driver as the leader, or about to be: waking it takes a kick.
    Leading = 2,
    /// Its goal was reached while it was waiting.
    Told = 3,
    /// It was parked, and is the leader now (W3).
    Baton = 4,
    /// A future that was dropped: the delivery frees the mailbox.
    Abandoned = 5,
}

const DOING_BITS: u32 = 3;
const DOING_MASK: u64 = (1 << DOING_BITS) - 1;

impl Doing {
    fn of(word: u64) -> Doing {
        match word & DOING_MASK {
            0 => Doing::Awake,
            1 => Doing::Parked,
            2 => Doing::Leading,
            3 => Doing::Told,
            4 => Doing::Baton,
            5 => Doing::Abandoned,
            _ => unreachable!("the word is made of these"),
        }
    }
}

/// Who is woken.
#[derive(Debug)]
enum Owner {
    Thread(Sleeper),
    /// A future: the waker of whoever polled it last, and the buffer of one that was dropped.
    Task {
        waker: Mutex<Option<Waker>>,
        buf: Mutex<Option<Buf>>,
    },
}

/// The ends of one owner's bios.
#[derive(Debug)]
pub(crate) struct Mailbox {
    ended: BioStack,
    /// How many were delivered, and what the owner is doing.
    word: AtomicU64,
    /// The count that the owner waits for; written by the owner while it is awake.
    goal: AtomicU64,
    /// Whether it is in the list of a hardware context's followers.
    pub(crate) is_listed: AtomicBool,
    /// Whether the owner's bios wait in its line for tags; written by the holder of the token.
    lacks_tags: AtomicBool,
    /// Tells a descriptor's holder of deliveries.
    event: OnceLock<Arc<Event>>,
    owner: Owner,
}

/// What a delivery leaves to do.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// Nothing.
    Quietly,
    /// The owner leads, and what it waits for has come: it must be kicked out of the driver.
    ToLeader,
    /// The owner sleeps, and this wakes it.
    ToSleeper(Wake),
}

impl Mailbox {
    /// A mailbox of this thread.
    pub(crate) fn of_thread() -> Mailbox {
        Mailbox::new(Owner::Thread(Sleeper::of_this_thread()))
    }

    /// A mailbox of a future.
    pub(crate) fn of_task() -> Mailbox {
        Mailbox::new(Owner::Task { waker: Mutex::new(None), buf: Mutex::new(None) })
    }

    fn new(owner: Owner) -> Mailbox {
        Mailbox {
            ended: BioStack::new(),
            word: AtomicU64::new(0),
            goal: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            lacks_tags: AtomicBool::new(false),
            event: OnceLock::new(),
            owner,
        }
    }

    /// The name under which bios know it.
    pub(crate) fn owner(self: &Arc<Mailbox>) -> u64 {
        Arc::as_ptr(self).expose_provenance() as u64
    }

    /// Delivers bios, one at least, to the mailbox of that name.
    ///
    /// It takes a name because its last touch may not be the last use of a reference: the compiler
    /// may rely on an argument's until it returns. And a reference would not do to make a handle.
    ///
    /// # Safety
    /// The mailbox has not been freed, and will not be before these bios are counted.
    #[inline]
    pub(crate) unsafe fn deliver(
        owner: u64,
        bios: impl Iterator<Item = Box<QueuedBio>>,
    ) -> Delivered {
        let place = ptr::with_exposed_provenance::<Mailbox>(owner as usize);
        // SAFETY: the name came from `owner`, and the caller vouches for the rest.
        let this = unsafe { &*place };
        let mut nr = 0;
        this.ended.push_all(bios.inspect(|_| nr += 1));
        let mut wake = None;
        let mut task = None;
        let event = this.event.get().map(Arc::clone);
        let mut word = this.word.load(Ordering::Acquire);
        loop {
            let (count, doing) = ((word >> DOING_BITS) + nr, Doing::of(word));
            let is_waiting = matches!(doing, Doing::Parked | Doing::Leading);
            // The goal was written before the owner said that it waits.
            let is_reached = is_waiting && count >= this.goal.load(Ordering::Relaxed);
            let next = if is_reached { Doing::Told } else { doing };
            if is_reached && doing == Doing::Parked {
                match &this.owner {
                    Owner::Thread(thread) => wake = Some(Wake::Thread(thread.clone())),
                    // Its waker is taken when the token was given back: it may change until then.
                    Owner::Task { .. } if task.is_none() => {
                        // SAFETY: it is in an `Arc`, which is there until these are counted.
                        task = Some(unsafe { Mailbox::hold(place) });
                    }
                    Owner::Task { .. } => {}
                }
            }
            // AcqRel: the owner that sees the count sees the bios; and see `begin_wait`.
            let (old, new) = (word, count << DOING_BITS | next as u64);
            match this.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                // The mailbox may be gone from here on; or it is ours to free.
                Ok(_) if doing == Doing::Abandoned => {
                    // SAFETY: `abandon` left its count behind for this.
                    let mailbox = unsafe { Arc::from_raw(place) };
                    // Not freed in a turn: a large buffer takes its time.
                    return Delivered::ToSleeper(Wake::Nobody(mailbox));
                }
                Ok(_) => {
                    if let Some(event) = event {
                        event.signal();
                    }
                    if is_reached && doing == Doing::Leading {
                        return Delivered::ToLeader;
                    }
                    break;
                }
                Err(now) => word = now,
            }
        }
        // Where the owner was told meanwhile, by another, this wakes it once more.
        let wake = task.map(Wake::Task).or(wake);
        wake.map_or(Delivered::Quietly, Delivered::ToSleeper)
    }

    /// One more handle on it.
    ///
    /// # Safety
    /// It is the place of a mailbox in an `Arc`, and one handle is there meanwhile.
    unsafe fn hold(place: *const Mailbox) -> Arc<Mailbox> {
        // SAFETY: the caller vouches for it.
        unsafe {
            Arc::increment_strong_count(place);
            Arc::from_raw(place)
        }
    }

    /// How many were delivered, ever.
    #[inline]
    pub(crate) fn nr_delivered(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> DOING_BITS
    }

    /// Takes what was delivered, oldest first.
    #[inline]
    pub(crate) fn take(&self) -> Option<BioList> {
        (!self.ended.is_empty()).then(|| self.ended.take_all())
    }

    /// For the owner: it is going to wait until `goal` were delivered, parked or leading. It looks
    /// at the count after this. Only its owner changes a mailbox from `Awake`.
    pub(crate) fn begin_wait(&self, goal: u64, doing: Doing) {
        self.goal.store(goal, Ordering::Relaxed);
        // AcqRel: the goal is seen by who sees that we wait. W2: as the module says.
        let before = self.word.fetch_or(doing as u64, Ordering::AcqRel);
        assert!(Doing::of(before) == Doing::Awake, "who waits was awake");
    }

    /// For the owner: it is awake again. Says what it was doing meanwhile.
    pub(crate) fn end_wait(&self) -> Doing {
        Doing::of(self.word.fetch_and(!DOING_MASK, Ordering::AcqRel))
    }

    /// For the owner, a thread that has announced that it parks: sleeps until it is told, or given
    /// the baton.
    pub(crate) fn park(&self) {
        let Owner::Thread(thread) = &self.owner else { unreachable!("a task does not park") };
        while Doing::of(self.word.load(Ordering::Acquire)) == Doing::Parked {
            thread.sleep();
        }
    }

    /// For the owner: an event that every delivery signals from now on.
    pub(crate) fn set_event(&self, event: &Arc<Event>) {
        let _ = self.event.set(Arc::clone(event));
    }

    /// For the owner, a future that is dropped while its bio is in the layer: the buffer is kept
    /// until the bio has ended. The waker goes at the end of this, in its own thread: it is code of
    /// others, and whoever delivers the bio may be the leader, or have made promises.
    pub(crate) fn abandon(self: Arc<Mailbox>, kept: Option<Buf>) {
        let _waker = match &self.owner {
            Owner::Task { waker, buf } => {
                *lock(buf) = kept;
                lock(waker).take()
            }
            Owner::Thread(_) => None,
        };
        self.end_wait();
        let mailbox = Arc::into_raw(self);
        // SAFETY: the count that was just taken out is given back here, or by the delivery that
        // finds the mailbox abandoned.
        let this = unsafe { &*mailbox };
        // AcqRel: the delivery sees the buffer. One that came before has left its count.
        let swap = (Ordering::AcqRel, Ordering::Acquire);
        let abandoned = Doing::Abandoned as u64;
        if this.word.compare_exchange(0, abandoned, swap.0, swap.1).is_err() {
            // SAFETY: as above; the delivery came first.
            drop(unsafe { Arc::from_raw(mailbox) });
        }
    }

    /// For the owner, a thread that has taken `nr` bios, ever: waits until they are counted too, so
    /// that nobody who delivered them touches the mailbox any more. (What is taken may have been
    /// pushed, and its delivery not be over.) True: it has the baton now.
    #[must_use]
    pub(crate) fn settle(&self, nr: u64) -> bool {
        while self.nr_delivered() < nr {
            self.begin_wait(nr, Doing::Parked);
            if self.nr_delivered() < nr {
                self.park();
            }
            if self.end_wait() == Doing::Baton {
                return true;
            }
        }
        false
    }

    /// For the owner, a future: whom to wake. Before [`Mailbox::begin_wait`].
    pub(crate) fn set_waker(&self, waker: &Waker) {
        if let Owner::Task { waker: place, .. } = &self.owner {
            *lock(place) = Some(waker.clone());
        }
    }

    /// Makes an owner that is parked the leader, and wakes it. False where it is not parked.
    pub(crate) fn give_baton(&self) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        while Doing::of(word) == Doing::Parked {
            let baton = word & !DOING_MASK | Doing::Baton as u64;
            match self.word.compare_exchange(word, baton, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    if let Owner::Thread(thread) = &self.owner {
                        thread.wake();
                    }
                    return true;
                }
                Err(now) => word = now,
            }
        }
        false
    }
}

/// What wakes an owner. It outlives the mailbox.
#[derive(Debug)]
pub(crate) enum Wake {
    Thread(Sleeper),
    /// The mailbox of a future, which has the waker.
    Task(Arc<Mailbox>),
    /// The mailbox of a future that was dropped: it is freed.
    Nobody(Arc<Mailbox>),
}

impl Wake {
    /// Wakes a thread; does nothing for a task.
    pub(crate) fn fire_thread(&self) {
        if let Wake::Thread(thread) = self {
            thread.wake();
        }
    }

    /// Wakes a task, or frees the mailbox of a dropped future; does nothing for a thread.
    pub(crate) fn fire_task(self) {
        match self {
            Wake::Thread(_) => {}
            Wake::Task(mailbox) => {
                if let Owner::Task { waker, .. } = &mailbox.owner {
                    let waker = lock(waker).take();
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            Wake::Nobody(mailbox) => drop(mailbox),
        }
    }
}

#[cfg(test)]
#[path = "mailbox_models.rs"]
pub(crate) mod models;
