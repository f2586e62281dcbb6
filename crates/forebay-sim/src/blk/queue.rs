//! The state of a virtqueue: its two rings, the wishes of both sides to be notified, and mistakes
//! of its driver.

use super::checks::RingChecks;
use super::memory::GuestMemory;
use super::met::Met;
use crate::server::{Context, Event, Way};
use std::collections::VecDeque;

/// A driver publishes requests within a call of the session in one of so many.
const PUBLISH_OF: u32 = 4;

/// A request as its driver has built it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) head: u16,
    pub(super) readable: GuestMemory,
    pub(super) writable: GuestMemory,
    pub(super) has_status: bool,
}

/// A used entry, and the status of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) head: u16,
    pub(super) status: u8,
    pub(super) written: u32,
}

/// A mistake of the driver that makes the ring unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The available index has moved by more than the size of the ring.
    Jump,
    /// The memory of the ring was truncated.
    Gone,
}

/// Mean times of notifications, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latencies {
    pub(super) kick_ns: u64,
    pub(super) interrupt_ns: u64,
}

/// A virtqueue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: usize,
    pub(super) features: u64,
    pub(super) has_event_index: bool,
    pub(super) is_enabled: bool,
    pub(super) fault: Option<Fault>,
    /// Requests that a server has taken, in this order, and whose used entries are not published.
    pub(super) taken: Vec<Request>,
    /// Used entries that the server has not published.
    unpublished: Vec<Used>,
    /// Whether the device wants notifications, without event indices.
    pub(super) is_kick_wanted: bool,
    pub(super) checks: RingChecks,
    latencies: Latencies,
    /// Requests that the driver has not published yet.
    prepared: VecDeque<Request>,
    available: VecDeque<Request>,
    used: VecDeque<Used>,
    /// Requests that a predecessor of the server has left.
    left: VecDeque<Request>,
    /// The index behind the last available request, as in the memory of the guest.
    available_index: u16,
    /// The available index for which the device wants a notification.
    available_event: u16,
    /// Notifications that have not arrived at the device.
    nr_kicks: u32,
    /// Whether the driver wants notifications.
    is_interrupt_wanted: bool,
}

impl Queue {
    pub(super) fn new(
        id: usize,
        features: u64,
        has_event_index: bool,
        start: u16,
        latencies: Latencies,
    ) -> Queue {
        Queue {
            id,
            features,
            has_event_index,
            is_enabled: true,
            fault: None,
            taken: Vec::new(),
            unpublished: Vec::new(),
            is_kick_wanted: true,
            checks: RingChecks::default(),
            latencies,
            prepared: VecDeque::new(),
            available: VecDeque::new(),
            used: VecDeque::new(),
            left: VecDeque::new(),
            available_index: start,
            available_event: start,
            nr_kicks: 0,
            is_interrupt_wanted: true,
        }
    }

    /// Goes on with another server, or after a stop: requests in flight come first.
    pub(super) fn restart(&mut self, cx: &mut Context) {
        self.checks = RingChecks::default();
        self.unpublished.clear();
        for rq in std::mem::take(&mut self.taken) {
            cx.note(Met::Repeated, self.id as u64, rq.head.into());
            self.left.push_back(rq);
        }
        (self.is_enabled, self.nr_kicks) = (true, 0);
        // The server signals, because its predecessor may have died before it did.
        cx.soon(self.latencies.interrupt_ns, Event::Move(self.id, Way::Down));
    }

    // The driver's side.

    /// Adds a request, and does not publish it.
    pub(super) fn prepare(&mut self, rq: Request) {
        self.prepared.push_back(rq);
    }

    pub(super) fn has_prepared(&self) -> bool {
        !self.prepared.is_empty()
    }

    /// Publishes up to `nr_max` requests, and notifies the device if it wants that.
    pub(super) fn publish(&mut self, nr_max: usize, cx: &mut Context) {
        let nr = nr_max.min(self.prepared.len());
        if nr == 0 {
            return;
        }
        self.available.extend(self.prepared.drain(..nr));
        let old = self.available_index;
        self.available_index = old.wrapping_add(nr as u16);
        let is_wanted = match self.has_event_index {
            true => has_passed(self.available_event, self.available_index, old),
            false => self.is_kick_wanted,
        };
        if is_wanted {
            self.kick(cx);
        }
    }

    /// Publishes some requests in the middle of a round, or none.
    pub(super) fn publish_in_round(&mut self, cx: &mut Context) {
        if self.has_prepared() && cx.random.chance(1, PUBLISH_OF) {
            let nr = cx.random.between(1, self.prepared.len() as u64) as usize;
            cx.note(Met::PublishInRound, self.id as u64, nr as u64);
            self.publish(nr, cx);
        }
    }

    /// Notifies the device.
    pub(super) fn kick(&mut self, cx: &mut Context) {
        self.nr_kicks += 1;
        cx.soon(self.latencies.kick_ns, Event::Move(self.id, Way::Up));
    }

    /// Takes a used entry.
    pub(super) fn take_used(&mut self) -> Option<Used> {
        self.used.pop_front()
    }

    /// Asks the device for notifications, or not to notify.
    pub(super) fn want_interrupts(&mut self, is_wanted: bool) {
        self.is_interrupt_wanted = is_wanted;
    }

    /// Drops the requests that the server has not taken. Returns their heads.
    pub(super) fn drop_untaken(&mut self) -> Vec<u16> {
        let untaken = self.prepared.drain(..).chain(self.available.drain(..));
        untaken.map(|rq| rq.head).collect()
    }

    /// Drops the requests that the driver has not published. Returns their heads.
    pub(super) fn drop_prepared(&mut self) -> Vec<u16> {
        self.prepared.drain(..).map(|rq| rq.head).collect()
    }

    pub(super) fn has_used(&self) -> bool {
        !self.used.is_empty()
    }

    // The device's side.

    /// Returns the next request: those that a predecessor has left come first.
    pub(super) fn next(&mut self) -> Option<Request> {
        self.left.pop_front().or_else(|| self.available.pop_front())
    }

    /// Records that a notification arrives at the device.
    pub(super) fn kicked(&mut self) {
        self.nr_kicks = self.nr_kicks.saturating_sub(1);
    }

    /// Returns whether the device may sleep beside an available request: a notification is on its
    /// way, or the ring takes nothing.
    pub(super) fn may_sleep(&self) -> bool {
        let takes = self.is_enabled && !self.checks.is_ending();
        !takes || self.nr_kicks > 0 || !self.has_available()
    }

    pub(super) fn has_available(&self) -> bool {
        self.fault.is_some() || !(self.left.is_empty() && self.available.is_empty())
    }

    pub(super) fn nr_available(&self) -> usize {
        self.left.len() + self.available.len()
    }

    /// Returns whether a request was taken that is not answered.
    pub(super) fn is_open(&self, head: u16) -> bool {
        let is_answered = self.unpublished.iter().any(|used| used.head == head);
        !is_answered && self.taken.iter().any(|rq| rq.head == head && rq.has_status)
    }

    /// Answers a request. The driver does not see that yet.
    pub(super) fn add_used(&mut self, used: Used, now_ns: u64) {
        self.unpublished.push(used);
        self.checks.adds_used(now_ns);
    }

    /// Makes the answers visible to the driver.
    pub(super) fn publish_used(&mut self) {
        for used in self.unpublished.drain(..) {
            let nth = self.taken.iter().position(|rq| rq.head == used.head && rq.has_status);
            self.taken.remove(nth.expect("an open request was answered"));
            self.used.push_back(used);
        }
    }

    /// Drops a request whose answer the driver cannot see, because the ring is gone.
    pub(super) fn drop_taken(&mut self, head: u16) {
        self.taken.retain(|rq| rq.head != head);
    }

    pub(super) fn disable_kicks(&mut self) {
        // With event indices, the driver notifies the device once at most.
        self.is_kick_wanted = false;
    }

    pub(super) fn enable_kicks(&mut self) {
        self.is_kick_wanted = true;
        self.available_event = self.available_index.wrapping_sub(self.available.len() as u16);
    }

    /// Notifies the driver, if it wants that.
    pub(super) fn interrupt(&mut self, cx: &mut Context) {
        match self.is_interrupt_wanted {
            true => cx.soon(self.latencies.interrupt_ns, Event::Move(self.id, Way::Down)),
            false => cx.note(Met::NotifySuppressed, self.id as u64, 0),
        }
    }

    /// Records that the ring is unusable, and returns the error.
    pub(super) fn fail<R>(&mut self, why: &str) -> Result<R, String> {
        self.checks.fails();
        Err(why.to_owned())
    }
}

/// Returns whether an index that moved from `old` to `new` has passed the element at `event`.
fn has_passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
