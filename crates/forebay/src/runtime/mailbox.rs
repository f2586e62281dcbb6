//! Mailbox: delivers ended bios to their owner and wakes it.
//!
//! Any thread that holds a token delivers. One thread (or task) owns a mailbox and takes bios from
//! it. The state is one word: the total number of bios delivered, and what the owner is doing. A
//! delivery changes both in one exchange, *which is its last access to the mailbox*: a thread whose
//! last bio is delivered may return and free its mailbox at once. So the delivery copies what it
//! needs to wake the owner out of the mailbox before the exchange.
//!
//! W2: the owner announces that it is about to sleep (an exchange of the word), then reads the
//! count (the same word). The owner sees an earlier delivery in the count. A later delivery sees
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

/// State of a mailbox's owner.
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
    /// A dropped future: the delivery frees the mailbox.
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

/// The owner of a mailbox, which deliveries wake.
#[derive(Debug)]
enum Owner {
    Thread(Sleeper),
    /// A future: the waker of its last poll, and the buffer if the future was dropped.
    Task {
        waker: Mutex<Option<Waker>>,
        buf: Mutex<Option<Buf>>,
    },
}

/// Ended bios of one owner.
#[derive(Debug)]
pub(crate) struct Mailbox {
    ended: BioStack,
    /// The number of bios delivered, and the state of the owner.
    word: AtomicU64,
    /// The count that the owner waits for. Written by the owner while it is awake.
    goal: AtomicU64,
    /// Whether the mailbox is in a hardware context's list of followers.
    pub(crate) is_listed: AtomicBool,
    /// Whether bios of the owner wait for tags in the owner's queue. Written by the token holder.
    lacks_tags: AtomicBool,
    /// Signalled by each delivery, for an event loop.
    event: OnceLock<Arc<Event>>,
    owner: Owner,
}

/// Wake-up that a delivery requires from its caller.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// Nothing.
    Quietly,
    /// The owner leads, and its goal is reached: the caller kicks it out of the driver.
    ToLeader,
    /// The owner sleeps: the caller wakes it by this.
    ToSleeper(Wake),
}

impl Mailbox {
    /// Creates a mailbox of the calling thread.
    pub(crate) fn of_thread() -> Mailbox {
        Mailbox::new(Owner::Thread(Sleeper::of_this_thread()))
    }

    /// Creates a mailbox of a future.
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

    /// Returns the owner ID that bios carry: the address of the mailbox.
    pub(crate) fn owner(self: &Arc<Mailbox>) -> u64 {
        Arc::as_ptr(self).expose_provenance() as u64
    }

    /// Delivers bios, at least one, to the mailbox with this owner ID.
    ///
    /// Takes an ID and no reference, because the mailbox may be freed before this returns: the
    /// compiler may assume that a reference in an argument is valid until the return. A reference
    /// also would not have the provenance to make an `Arc`.
    ///
    /// # Safety
    /// The mailbox has not been freed, and is not freed before these bios are counted.
    #[inline]
    pub(crate) unsafe fn deliver(
        owner: u64,
        bios: impl Iterator<Item = Box<QueuedBio>>,
    ) -> Delivered {
        let place = ptr::with_exposed_provenance::<Mailbox>(owner as usize);
        // SAFETY: the ID came from `owner`, and the caller vouches for the rest.
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
            // The owner wrote the goal before it announced the wait.
            let is_reached = is_waiting && count >= this.goal.load(Ordering::Relaxed);
            let next = if is_reached { Doing::Told } else { doing };
            if is_reached && doing == Doing::Parked {
                match &this.owner {
                    Owner::Thread(thread) => wake = Some(Wake::Thread(thread.clone())),
                    // The waker is taken after the token is released: it may change until then.
                    Owner::Task { .. } if task.is_none() => {
                        // SAFETY: the mailbox is in an `Arc`, which lives until these bios are
                        // counted.
                        task = Some(unsafe { Mailbox::hold(place) });
                    }
                    Owner::Task { .. } => {}
                }
            }
            // AcqRel: an owner that sees the count sees the bios. See also `begin_wait`.
            let (old, new) = (word, count << DOING_BITS | next as u64);
            match this.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                // From here on the mailbox may be freed, unless this delivery has to free it.
                Ok(_) if doing == Doing::Abandoned => {
                    // SAFETY: `abandon` left its reference count to this delivery.
                    let mailbox = unsafe { Arc::from_raw(place) };
                    // Not freed within a turn: freeing a large buffer takes time.
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
        // If another delivery has changed the state meanwhile, this wakes the task once more.
        let wake = task.map(Wake::Task).or(wake);
        wake.map_or(Delivered::Quietly, Delivered::ToSleeper)
    }

    /// Returns one more handle of the mailbox.
    ///
    /// # Safety
    /// `place` is the address of a mailbox in an `Arc`, and another handle exists during the call.
    unsafe fn hold(place: *const Mailbox) -> Arc<Mailbox> {
        // SAFETY: the caller vouches for it.
        unsafe {
            Arc::increment_strong_count(place);
            Arc::from_raw(place)
        }
    }

    /// Returns the total number of bios delivered.
    #[inline]
    pub(crate) fn nr_delivered(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> DOING_BITS
    }

    /// Takes the delivered bios, oldest first.
    #[inline]
    pub(crate) fn take(&self) -> Option<BioList> {
        (!self.ended.is_empty()).then(|| self.ended.take_all())
    }

    /// Announces that the owner is about to wait until `goal` bios were delivered, parked or
    /// leading. Called by the owner, which reads the count afterwards. Only the owner changes the
    /// state from `Awake`.
    pub(crate) fn begin_wait(&self, goal: u64, doing: Doing) {
        self.goal.store(goal, Ordering::Relaxed);
        // AcqRel: a delivery that sees the wait sees the goal. W2: see the module docs.
        let before = self.word.fetch_or(doing as u64, Ordering::AcqRel);
        assert!(Doing::of(before) == Doing::Awake, "who waits was awake");
    }

    /// Ends the owner's wait. Called by the owner. Returns the state that it was in.
    pub(crate) fn end_wait(&self) -> Doing {
        Doing::of(self.word.fetch_and(!DOING_MASK, Ordering::AcqRel))
    }

    /// Sleeps until a delivery reaches the goal, or the owner receives the baton. Called by the
    /// owner, a thread, after it has announced that it parks.
    pub(crate) fn park(&self) {
        let Owner::Thread(thread) = &self.owner else { unreachable!("a task does not park") };
        while Doing::of(self.word.load(Ordering::Acquire)) == Doing::Parked {
            thread.sleep();
        }
    }

    /// Sets an event that every delivery signals from now on. Called by the owner.
    pub(crate) fn set_event(&self, event: &Arc<Event>) {
        let _ = self.event.set(Arc::clone(event));
    }

    /// Gives the mailbox up. Called by the owner, a future that is dropped while its bio is in
    /// flight. The mailbox keeps the buffer until the bio has ended. The waker is dropped at the
    /// end of this function, on the owner's thread. It is foreign code, which must not run on the
    /// delivering thread: that thread may be the leader, or may have offered help.
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
        // SAFETY: the reference count taken out here is given back below, or by the delivery that
        // finds the mailbox abandoned.
        let this = unsafe { &*mailbox };
        // AcqRel: the delivery sees the buffer. If the delivery came first, the count is not 0, and
        // the exchange fails.
        let swap = (Ordering::AcqRel, Ordering::Acquire);
        let abandoned = Doing::Abandoned as u64;
        if this.word.compare_exchange(0, abandoned, swap.0, swap.1).is_err() {
            // SAFETY: as above; the delivery came first.
            drop(unsafe { Arc::from_raw(mailbox) });
        }
    }

    /// Waits until the `nr` bios that the owner has taken in total are counted too. Called by the
    /// owner, a thread. After this no delivery accesses the mailbox: a bio can be taken after its
    /// push but before its delivery is finished. Returns true if the owner received the baton
    /// meanwhile.
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

    /// Sets the waker of a future. Called by the owner before [`Mailbox::begin_wait`].
    pub(crate) fn set_waker(&self, waker: &Waker) {
        if let Owner::Task { waker: place, .. } = &self.owner {
            *lock(place) = Some(waker.clone());
        }
    }

    /// Makes a parked owner the leader and wakes it. Returns false if the owner is not parked.
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

/// Handle that wakes an owner. It outlives the mailbox.
#[derive(Debug)]
pub(crate) enum Wake {
    Thread(Sleeper),
    /// The mailbox of a future, which holds the waker.
    Task(Arc<Mailbox>),
    /// The mailbox of a dropped future, which is to be freed.
    Nobody(Arc<Mailbox>),
}

impl Wake {
    /// Wakes a thread. Does nothing for a task.
    pub(crate) fn fire_thread(&self) {
        if let Wake::Thread(thread) = self {
            thread.wake();
        }
    }

    /// Wakes a task, or frees the mailbox of a dropped future. Does nothing for a thread.
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
