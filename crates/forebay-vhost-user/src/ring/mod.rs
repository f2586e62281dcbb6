//! Device's side of a split virtqueue in the memory of a guest.
//!
//! The driver may write anything there at any time. Each value is read once, and checked before it
//! is used. A ring that breaks the standard returns a [`RingError`], and its owner stops it.
//!
//! - `parts`: the three parts of a ring in memory, and the indices;
//! - `notify`: notifications, and the order of the accesses that they need;
//! - `chain`: the descriptors of a request; `error`: why a ring stops;
//! - `layout`: lengths and alignments of the parts; `hints`: prefetches of the next requests.
//!
//! Decision 0089 has the reason why the crate `virtio-queue` is not used.
//!
//! Source: "Virtual I/O Device (VIRTIO) Version 1.2", 2.7.

mod chain;
#[cfg(test)]
mod driver;
mod error;
mod hints;
#[cfg(test)]
mod hostile;
mod layout;
#[cfg(all(test, blk_loom))]
mod models;
mod notify;
mod parts;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod tests;

pub use error::RingError;
pub(crate) use layout::Part;

use crate::config::MAX_SEGMENTS;
use crate::eventfd::signal;
use crate::inflight::{Inflight, InflightMemory};
use crate::memory::{Gathered, GuestByte, GuestData, GuestMemory, Lists};
use crate::setup::RingSetup;
use crate::truncated;
use forebay_front::blk::Chain;
use hints::Hints;
use notify::{Word, Words};
use parts::{Parts, RingLayout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Used entries after which they are published: a driver that polls handles them while the ring
/// goes on.
const PUBLISH_MAX: u16 = 8;

/// Number of requests that are prefetched ahead. The driver has just written their descriptors and
/// headers, so a load would wait for the driver's processor.
const PREFETCHED: u16 = 2;

/// Longest list that is kept for another request: the data segments that the device offers, and one
/// of a header or status. A driver may send longer chains, and would make each list that long.
const LIST_MAX: usize = MAX_SEGMENTS as usize + 2;

/// State of a descriptor that may be the head of a request.
#[derive(Debug)]
enum Slot {
    /// No request with this head is in flight.
    Free,
    /// A request is in flight, and its status goes to this byte. `None`: it has none.
    Taken(Option<GuestByte>),
}

/// A ring that was started. It stays on its thread.
#[derive(Debug)]
pub struct Ring {
    parts: Parts,
    memory: Rc<GuestMemory>,
    features: u64,
    has_indirect: bool,
    is_enabled: bool,
    /// Number of truncated regions of this process when the ring last checked its own memory.
    nr_lost: u64,
    /// The available index when it was last loaded. The driver stores to its cache line, so it is
    /// loaded again only when all requests before it were taken.
    seen: u16,
    /// By head.
    slots: Vec<Slot>,
    hints: Hints,
    /// Lists of requests that have ended: at most two for each slot, none longer than [`LIST_MAX`].
    lists: Lists,
    /// Requests that a predecessor has left, the first one last.
    left: Vec<u16>,
    /// The ring's part of the in-flight region.
    inflight: Option<Inflight>,
    /// Requests in that region whose used entries are not published.
    batch: Vec<u16>,
    kick: OwnedFd,
    call: Option<OwnedFd>,
    err: Option<OwnedFd>,
}

impl Ring {
    /// Starts a ring. If it has an in-flight region, signals the eventfd that notifies the driver.
    ///
    /// # Errors
    /// Fails if the ring is not valid. Returns the setup's eventfd for errors as well.
    pub fn start(setup: RingSetup) -> Result<Ring, (RingError, Option<OwnedFd>)> {
        let RingSetup { size, base, features, memory, kick, call, err, is_enabled, .. } = setup;
        let has = |bit: u32| features & (1 << bit) != 0;
        let layout = RingLayout {
            size,
            descriptors: setup.descriptors,
            available: setup.available,
            used: setup.used,
            has_event_idx: has(VIRTIO_RING_F_EVENT_IDX),
        };
        let opened = Parts::new(layout, base, &memory).and_then(|mut parts| {
            let recovered = recover(&mut parts, setup.inflight)?;
            Ok((parts, recovered))
        });
        let (parts, (inflight, left)) = match opened {
            Ok(opened) => opened,
            Err(error) => return Err((error, err)),
        };
        // A predecessor may have died between a used entry and its notification, which would be
        // lost. One too many is harmless.
        if inflight.is_some()
            && let Some(call) = &call
        {
            signal(call);
        }
        Ok(Ring {
            seen: parts.next_available(),
            parts,
            memory: Rc::new(memory),
            features,
            has_indirect: has(VIRTIO_RING_F_INDIRECT_DESC),
            is_enabled,
            nr_lost: 0,
            slots: (0..size).map(|_| Slot::Free).collect(),
            hints: Hints::new(size),
            lists: Lists::new(),
            left,
            inflight,
            batch: Vec::new(),
            kick,
            call,
            err,
        })
    }

    /// Returns the eventfd that the driver signals.
    pub fn kick(&self) -> BorrowedFd<'_> {
        self.kick.as_fd()
    }

    /// Returns the negotiated features.
    #[inline]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns whether the ring is enabled.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Enables or disables the ring.
    pub fn set_enabled(&mut self, is_enabled: bool) {
        self.is_enabled = is_enabled;
    }

    /// Replaces the eventfd that notifies the driver, and signals the new one.
    ///
    /// The front end replaces it while the ring runs, when a guest masks an interrupt. It reads the
    /// former one only until it has sent the message. If the ring signals that one later, the
    /// notification would be lost without this signal.
    pub fn set_call(&mut self, call: Option<OwnedFd>) {
        self.call = call;
        if let Some(call) = &self.call {
            signal(call);
        }
    }

    /// Replaces the eventfd that reports errors.
    pub fn set_err(&mut self, err: Option<OwnedFd>) {
        self.err = err;
    }

    /// Replaces the memory of the guest. Requests in flight keep the former one.
    ///
    /// # Errors
    /// Fails if the ring is not in the new memory.
    pub fn set_memory(&mut self, memory: GuestMemory) -> Result<(), RingError> {
        self.parts.set_memory(&memory)?;
        self.nr_lost = 0;
        self.memory = Rc::new(memory);
        Ok(())
    }

    /// Returns the memory of the guest. Each request in flight holds that which it was taken with.
    pub fn memory(&self) -> &Rc<GuestMemory> {
        &self.memory
    }

    /// Returns the index of the next available entry: the base from which the ring goes on.
    pub fn next_available(&self) -> u16 {
        self.parts.next_available()
    }

    /// Signals the eventfd that reports errors.
    pub fn report_error(&self) {
        if let Some(err) = &self.err {
            signal(err);
        }
    }

    /// Takes the next request: those that a predecessor has left come first.
    ///
    /// # Errors
    /// Fails if the driver has broken the ring.
    // Always inlined: otherwise the request is passed through memory.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<Chain<GuestData>>, RingError> {
        self.check_memory()?;
        if let Some(head) = self.left.pop() {
            return self.accept(head).map(Some);
        }
        let next = self.parts.next_available();
        if self.seen == next {
            let index = notify::available(&self.parts);
            let (nr, size) = (index.wrapping_sub(next), self.parts.size());
            if nr > size {
                return Err(RingError::IndexJump { nr, size });
            }
            self.seen = index;
            for nth in 0..nr.min(PREFETCHED) {
                self.prefetch(next.wrapping_add(nth));
            }
        }
        let nr = self.seen.wrapping_sub(next);
        if nr == 0 {
            return Ok(None);
        }
        if nr > PREFETCHED {
            self.prefetch(next.wrapping_add(PREFETCHED));
        }
        let head = self.parts.available_entry(next);
        let chain = self.accept(head)?;
        self.parts.set_next_available(next.wrapping_add(1));
        if let Some(inflight) = &mut self.inflight {
            // Its I/O is submitted later (C1).
            inflight.take(head);
        }
        Ok(Some(chain))
    }

    /// Prefetches the descriptors and the header of the request at an available index.
    #[inline]
    fn prefetch(&self, index: u16) {
        let head = self.parts.available_entry(index);
        self.parts.prefetch_descriptor(head);
        self.hints.prefetch(head);
    }

    /// Returns the request with this head, which is in flight from now on.
    #[inline(always)]
    fn accept(&mut self, head: u16) -> Result<Chain<GuestData>, RingError> {
        let size = self.parts.size();
        let slot =
            self.slots.get_mut(usize::from(head)).ok_or(RingError::BadHead { head, size })?;
        if matches!(slot, Slot::Taken(_)) {
            return Err(RingError::HeadInFlight(head));
        }
        let mut readable = Gathered::new(&self.memory);
        let mut writable = Gathered::new(&self.memory);
        let within = chain::Within {
            parts: &self.parts,
            memory: &self.memory,
            has_indirect: self.has_indirect,
        };
        let table = within.walk(head, (&mut readable, &mut writable), &mut self.lists)?;
        self.hints.set(head, table, readable.first_addr());
        let (header, readable) = readable.split_header(&mut self.lists);
        let (status, writable) = writable.split_status(&mut self.lists);
        let has_status = status.is_some();
        *slot = Slot::Taken(status);
        Ok(Chain { head, header, readable, writable, has_status })
    }

    /// Answers a request that was taken: writes its status and its used entry. The driver sees them
    /// after [`publish`](Ring::publish) at the latest, which must follow before the ring is
    /// dropped.
    ///
    /// # Panics
    /// Panics if no request with this head is in flight.
    #[inline(always)]
    pub fn put(&mut self, head: u16, status: u8, written: u32) {
        let slot = std::mem::replace(&mut self.slots[usize::from(head)], Slot::Free);
        let Slot::Taken(byte) = slot else { panic!("request {head} is answered once") };
        if let Some(byte) = byte {
            byte.set(status);
        }
        if let Some(inflight) = &mut self.inflight {
            inflight.begin_use(head);
            self.batch.push(head);
        }
        self.parts.add_used(head, written);
        if self.parts.nr_unpublished() >= PUBLISH_MAX {
            self.publish();
        }
    }

    /// Makes the answers visible to the driver.
    #[inline]
    pub fn publish(&mut self) {
        // It stores the index with release, after the statuses and the entries.
        if self.parts.publish()
            && let Some(inflight) = &mut self.inflight
        {
            inflight.end_use(self.batch.drain(..), self.parts.next_used());
        }
    }

    /// Takes back the memory of a request.
    #[inline]
    pub fn recycle(&mut self, data: GuestData) {
        // Each request has two lists at most.
        if let Some(list) = data.into_list()
            && self.lists.len() < 2 * self.slots.len()
            && list.capacity() <= LIST_MAX
        {
            self.lists.push(list);
        }
    }

    /// Returns whether [`take`](Ring::take) would return a request or an error. A thread that polls
    /// calls this again and again.
    #[inline]
    pub fn has_available(&self) -> bool {
        let index = self.parts.load(Word::AvailableIndex, Ordering::Relaxed);
        let next = self.parts.next_available();
        !self.left.is_empty() || index != next
    }

    /// Asks the driver not to signal `kick`.
    #[inline]
    pub fn disable_notifications(&mut self) {
        notify::disable(&self.parts);
    }

    /// Asks the driver to signal `kick` for new requests. Returns whether some are available.
    ///
    /// # Errors
    /// Fails if the memory of the ring was truncated.
    #[inline]
    pub fn enable_notifications(&mut self) -> Result<bool, RingError> {
        let has_more = notify::enable(&self.parts, self.parts.next_available());
        self.check_memory()?;
        Ok(has_more)
    }

    /// Checks that the memory was not truncated.
    #[inline]
    fn check_memory(&mut self) -> Result<(), RingError> {
        let nr_lost = truncated::nr_lost();
        if nr_lost != self.nr_lost {
            self.nr_lost = nr_lost;
            if self.parts.is_lost() {
                return Err(RingError::Truncated);
            }
        }
        Ok(())
    }

    /// Publishes the answers, and signals `call` for those since the last time, unless the driver
    /// has asked not to be interrupted. Returns whether it was signalled.
    #[inline]
    pub fn notify(&mut self) -> bool {
        self.publish();
        let is_wanted = self.parts.wants_notification();
        if is_wanted && let Some(call) = &self.call {
            signal(call);
        }
        is_wanted
    }
}

/// Recovers the ring's part of the in-flight region, and sets the indices from it. Returns that
/// part, and the requests that a predecessor has left, the first one last.
fn recover(
    parts: &mut Parts,
    inflight: Option<(InflightMemory, u16)>,
) -> Result<(Option<Inflight>, Vec<u16>), RingError> {
    let Some((region, ring)) = inflight else { return Ok((None, Vec::new())) };
    let used_idx = parts.used_index();
    let (inflight, recovered) = region.recover(ring, parts.size(), used_idx)?;
    parts.set_next_used(used_idx);
    parts.set_next_available(recovered.avail_idx);
    let mut left = recovered.heads;
    left.reverse();
    Ok((Some(inflight), left))
}
