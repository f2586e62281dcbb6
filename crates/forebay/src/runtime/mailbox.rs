//! Mailbox: delivers ended bios to their owner and wakes it.
//!
//! Any thread that holds a token delivers. One thread (or task) owns a mailbox and takes bios from
//! it. The count of the bios delivered and the owner's state are a [`WaitCell`]. Its exchange is a
//! delivery's *last access to the mailbox*: a thread whose last bio is delivered may return and
//! free its mailbox at once. So the delivery copies what it needs to wake the owner out of the
//! mailbox before the exchange.
// Bios carry the address of their mailbox.
#![allow(unsafe_code)]

use crate::buf::Buf;
use crate::runtime::quarantine;
use crate::runtime::stack::{BioList, BioStack};
use crate::sys::event::Event;
use crate::sys::primitive::{Mutex, Sleeper, lock};
use forebay_core::QueuedBio;
use forebay_core::wait::{Notice, WaitCell, WaitState};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

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
    pub(crate) cell: WaitCell,
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
        Mailbox { ended: BioStack::new(), cell: WaitCell::new(), event: OnceLock::new(), owner }
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
        let event = this.event.get().map(Arc::clone);
        let notice = this.cell.deliver(nr, || {
            wake.get_or_insert_with(|| match &this.owner {
                Owner::Thread(thread) => Wake::Thread(thread.clone()),
                // The waker is taken after the token is released: it may change until then.
                // SAFETY: the mailbox is in an `Arc`, which lives until these bios are counted.
                Owner::Task { .. } => Wake::Task(unsafe { Mailbox::hold(place) }),
            });
        });
        // From here on the mailbox may be freed, unless this delivery has to free it.
        if notice == Notice::Free {
            // SAFETY: `abandon` left its reference count to this delivery.
            let mailbox = unsafe { Arc::from_raw(place) };
            // Not freed within a turn: freeing a large buffer takes time.
            return Delivered::ToSleeper(Wake::Nobody(mailbox));
        }
        if let Some(event) = event {
            event.signal();
        }
        match (notice, wake) {
            (Notice::Kick, _) => Delivered::ToLeader,
            // If another delivery has changed the state meanwhile, this wakes a task once more.
            (_, Some(wake @ Wake::Task(_))) | (Notice::Wake, Some(wake)) => {
                Delivered::ToSleeper(wake)
            }
            _ => Delivered::Quietly,
        }
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

    /// Takes the delivered bios, oldest first.
    #[inline]
    pub(crate) fn take(&self) -> Option<BioList> {
        (!self.ended.is_empty()).then(|| self.ended.take_all())
    }

    /// Sleeps until a delivery reaches the goal, or the owner receives the baton. Called by the
    /// owner, a thread, after it has announced that it parks.
    pub(crate) fn park(&self) {
        let Owner::Thread(thread) = &self.owner else { unreachable!("a task does not park") };
        while self.cell.state().is_parked() {
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
        self.cell.end_wait();
        let mailbox = Arc::into_raw(self);
        // SAFETY: the reference count taken out here is given back below, or by the delivery that
        // finds the mailbox abandoned.
        if unsafe { !(*mailbox).cell.abandon() } {
            // SAFETY: as above; the delivery came first.
            unsafe { Arc::from_raw(mailbox) }.free();
        }
    }

    /// Frees the mailbox of a dropped future whose bio was delivered. If the driver may still use
    /// the buffer, the buffer goes into quarantine (H5).
    fn free(self: Arc<Mailbox>) {
        if let Owner::Task { buf, .. } = &self.owner
            && let Some(hold) = self.take().and_then(|mut ended| ended.next()?.take_hold())
        {
            quarantine::keep(&hold, lock(buf).take());
        }
    }

    /// Waits until the `nr` bios that the owner has taken in total are counted too. Called by the
    /// owner, a thread. After this no delivery accesses the mailbox: a bio can be taken after its
    /// push but before its delivery is finished. Returns true if the owner received the baton
    /// meanwhile.
    #[must_use]
    pub(crate) fn settle(&self, nr: u64) -> bool {
        while self.cell.nr_delivered() < nr {
            self.cell.begin_wait(nr, WaitState::Parked);
            if self.cell.nr_delivered() < nr {
                self.park();
            }
            if self.cell.end_wait() == WaitState::Baton {
                return true;
            }
        }
        false
    }

    /// Sets the waker of a future. Called by the owner before [`WaitCell::begin_wait`].
    pub(crate) fn set_waker(&self, waker: &Waker) {
        if let Owner::Task { waker: place, .. } = &self.owner {
            *lock(place) = Some(waker.clone());
        }
    }

    /// Wakes the owner, a thread, after it has received the baton.
    pub(crate) fn wake_thread(&self) {
        if let Owner::Thread(thread) = &self.owner {
            thread.wake();
        }
    }

    /// Records whether bios of the mailbox with this owner ID lack tags, as
    /// [`WaitCell::set_lacks_tags`] does.
    ///
    /// # Safety
    /// A bio of the mailbox is in flight.
    pub(crate) unsafe fn set_lacks_tags(owner: u64, lacks: bool) -> Delivered {
        // SAFETY: the ID came from `owner`, and its bio keeps the mailbox alive.
        let this = unsafe { &*ptr::with_exposed_provenance::<Mailbox>(owner as usize) };
        this.delivered(this.cell.set_lacks_tags(lacks))
    }

    /// Wakes the owner because tags may be available for it, as [`WaitCell::wake_for_tags`] does.
    /// Returns [`Delivered::Quietly`] if the owner is not a waiting thread.
    ///
    /// # Safety
    /// A bio of the mailbox is in flight.
    pub(crate) unsafe fn wake_for_tags(owner: u64) -> Delivered {
        // SAFETY: the ID came from `owner`, and its bio keeps the mailbox alive.
        let this = unsafe { &*ptr::with_exposed_provenance::<Mailbox>(owner as usize) };
        match &this.owner {
            Owner::Thread(_) => this.delivered(this.cell.wake_for_tags()),
            Owner::Task { .. } => Delivered::Quietly,
        }
    }

    /// Wakes the owner to make a flush, as [`WaitCell::wake_for_flush`] does. Returns `None` if it
    /// is not a thread that does so.
    ///
    /// # Safety
    /// A bio of the mailbox is in flight.
    pub(crate) unsafe fn wake_for_flush(owner: u64) -> Option<Wake> {
        // SAFETY: the ID came from `owner`, and its bio keeps the mailbox alive.
        let this = unsafe { &*ptr::with_exposed_provenance::<Mailbox>(owner as usize) };
        match &this.owner {
            Owner::Thread(thread) if this.cell.wake_for_flush() => {
                Some(Wake::Thread(thread.clone()))
            }
            _ => None,
        }
    }

    /// Returns what the caller has to do after a change of the cell that counts no bio.
    fn delivered(&self, notice: Notice) -> Delivered {
        match (notice, &self.owner) {
            (Notice::Kick, _) => Delivered::ToLeader,
            (Notice::Wake, Owner::Thread(thread)) => {
                Delivered::ToSleeper(Wake::Thread(thread.clone()))
            }
            _ => Delivered::Quietly,
        }
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
            Wake::Nobody(mailbox) => mailbox.free(),
        }
    }
}

#[cfg(test)]
pub(crate) mod models;
