//! Session of one ring: takes its requests, and notifies its driver.

use super::batch::Batch;
use super::in_flight::{HeldBack, InFlight};
use super::ring::Ring;
use super::wire::Range;
use super::{BlkDesk, BlkDisk, BlkHost};
use crate::flight::{Answered, Flight};
use crate::host::Peer;
use crate::link::Link;
use crate::plant::plants;
use crate::session::{Clients, EndedOf, Progress, Session, Settled};
use crate::slots::Key;

/// Most requests that are taken at once: the largest ring. Requests that need no I/O are answered
/// at once, so a driver could otherwise keep a round busy forever.
const TAKES_MAX: u32 = 1024;
/// Requests between two checks of the time: a driver whose request was answered at once must not
/// wait until all that follow are taken.
const TAKES_PER_CHECK: u32 = 32;
/// Longest time from a used entry to the notification of the driver, ns (Y4).
const NOTIFY_NS: u64 = 50_000;

/// The session of one ring.
#[derive(Debug)]
pub struct BlkSession<H: BlkHost> {
    pub(super) link: Link<H>,
    export: usize,
    /// The ring is malformed, or its memory is gone (Y1).
    is_broken: bool,
    /// A request that was taken, and waits until the disk has room.
    pub(super) held_back: Option<HeldBack<H::Memory>>,
    /// Ranges of the DISCARD or WRITE_ZEROES that begins.
    pub(super) ranges: Vec<Range>,
    /// Time of the first used entry of which the driver was not notified yet.
    used_ns: Option<u64>,
    /// Reads and writes of the round.
    pub(super) batch: Batch,
}

impl<H: BlkHost> BlkSession<H> {
    /// Records a used entry, for a request that has ended at this time.
    #[inline]
    pub(super) fn note_used(&mut self, ended_ns: u64) {
        self.used_ns.get_or_insert(ended_ns);
    }

    /// Stops the ring (Y1). The driver is still notified of requests that were answered.
    #[cold]
    pub(super) fn break_ring(&mut self, desk: &mut BlkDesk<H>, why: &str) {
        if !std::mem::replace(&mut self.is_broken, true) && !plants!(HideBroken) {
            desk.host.broken(&mut self.link.peer, why, desk.now_ns);
        }
        if plants!(DropAccepted) {
            self.link.break_off(why.to_owned());
        }
    }

    /// Changes the ring.
    pub(super) fn change(
        &mut self,
        desk: &mut BlkDesk<H>,
        change: impl FnOnce(&mut H::Peer) -> Result<(), String>,
    ) {
        if let Err(why) = change(&mut self.link.peer) {
            self.break_ring(desk, &why);
        }
    }

    /// Returns whether the driver has made requests available that may be taken.
    #[inline]
    pub(super) fn has_available(&self) -> bool {
        self.may_receive() && self.link.peer.has_available()
    }

    /// Asks the driver to notify the device from now on. Returns whether requests are available.
    #[inline]
    pub(super) fn enable_notifications(&mut self, desk: &mut BlkDesk<H>) -> bool {
        if !self.may_receive() || plants!(ForgetEnable) {
            return false;
        }
        self.link.peer.enable_notifications().unwrap_or_else(|why| {
            self.break_ring(desk, &why);
            false
        })
    }

    /// Takes the requests of a round (Y3). Returns whether it stopped at [`TAKES_MAX`]: then more
    /// may be available, which no check of the ring reports.
    fn take_all(&mut self, desk: &mut BlkDesk<H>) -> Result<bool, String> {
        if !plants!(TakeWithNotifications) {
            self.link.peer.disable_notifications();
        }
        // The previous round may have left used entries without a notification.
        self.notify_if_late(desk.now_ns);
        for nr in 1..=TAKES_MAX {
            // The check at the end of the round finds the remaining requests.
            if self.held_back.is_some() || self.batch.is_full() {
                return Ok(false);
            }
            match self.link.peer.take() {
                Ok(Some(chain)) => self.begin(desk, chain)?,
                Ok(None) => return Ok(false),
                Err(error) => return Err(error.to_string()),
            }
            if plants!(TakeOne) {
                return Ok(false);
            }
            if nr.is_multiple_of(TAKES_PER_CHECK) {
                self.notify_if_late(desk.host.now_ns());
            }
        }
        Ok(true)
    }

    /// Notifies the driver of used entries if it must not wait for the end of the round (Y4).
    #[inline]
    fn notify_if_late(&mut self, now_ns: u64) {
        let is_due = |used_ns| now_ns.saturating_sub(used_ns) >= NOTIFY_NS;
        if self.used_ns.is_some_and(is_due) && !plants!(NotifyLate) {
            self.notify();
        }
    }

    /// Notifies the driver of used entries.
    pub(super) fn notify(&mut self) {
        if self.used_ns.take().is_some() {
            self.link.peer.notify();
        }
    }
}

impl<H: BlkHost> Session for BlkSession<H> {
    type Host = H;
    type Common = BlkDisk;
    type Inbound = ();
    type Request = InFlight;

    fn open(desk: &mut BlkDesk<H>, mut link: Link<H>) -> BlkSession<H> {
        let export = desk.common.export;
        link.peer.set_export(export);
        let (held_back, ranges, used_ns) = (None, Vec::new(), None);
        BlkSession {
            link,
            export,
            is_broken: false,
            held_back,
            ranges,
            used_ns,
            batch: Batch::new(),
        }
    }

    #[inline]
    fn link(&self) -> &Link<H> {
        &self.link
    }

    #[inline]
    fn link_mut(&mut self) -> &mut Link<H> {
        &mut self.link
    }

    fn export(&self) -> Option<usize> {
        Some(self.export)
    }

    #[inline]
    fn may_receive(&self) -> bool {
        (!self.is_broken || plants!(TakeFromBroken))
            && !self.link.is_ending()
            && self.held_back.is_none()
            && self.link.peer.is_enabled()
    }

    #[inline]
    fn wants_send(&self) -> bool {
        self.used_ns.is_some()
    }

    #[inline]
    fn is_waiting(&self) -> bool {
        self.held_back.is_some()
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.link.is_ending() && !self.waits_for_disk() && self.used_ns.is_none()
    }

    fn waits_for_disk(&self) -> bool {
        self.link.nr_in_flight() > 0
    }

    fn receive(&mut self, desk: &mut BlkDesk<H>, _: &mut ()) -> bool {
        if !self.may_receive() {
            return false;
        }
        let taken = self.take_all(desk);
        self.batch.finish();
        taken.unwrap_or_else(|why| {
            self.break_ring(desk, &why);
            false
        })
    }

    fn resume(&mut self, desk: &mut BlkDesk<H>, _: &mut ()) -> Progress {
        if let Some(held_back) = self.held_back.take() {
            self.submit_again(desk, held_back);
        }
        if self.held_back.is_some() {
            return Progress::Stuck;
        }
        match self.may_receive() && self.receive(desk, &mut ()) {
            true => Progress::HasMore,
            false => Progress::Moved,
        }
    }

    /// Publishes the answers: a driver that polls sees them now. Notifies the driver if it must not
    /// wait for the end of the round (Y4).
    #[inline]
    fn send(&mut self, desk: &mut BlkDesk<H>) -> Result<(), String> {
        self.link.peer.publish();
        // The time of the last reap is recent enough: only a reap takes long.
        let now_ns = desk.ended_ns;
        match self.link.is_ending() {
            true => self.notify(),
            false => self.notify_if_late(now_ns),
        }
        Ok(())
    }

    #[inline]
    fn complete(&mut self, desk: &mut BlkDesk<H>, ended: EndedOf<Self>) -> Option<Answered> {
        self.complete_one(desk, ended)
    }

    fn complete_gone(_: &mut BlkDesk<H>, ended: EndedOf<Self>) {
        drop(ended.memory);
    }

    fn settle(&mut self, desk: &mut BlkDesk<H>, key: Key) -> Settled {
        Settled::Answered(self.answer(desk, key), Vec::new())
    }

    fn drop_request(_: &mut BlkDesk<H>, _: Flight<InFlight>) {}

    fn close(&mut self, _: &mut BlkDesk<H>, _: &mut ()) -> Vec<Key> {
        self.held_back = None;
        Vec::new()
    }

    #[inline]
    fn end_round(desk: &mut BlkDesk<H>, clients: &mut Clients<Self>) -> bool {
        let (mut at, mut has_more) = (0, false);
        while let Some(key) = clients.next_key(&mut at) {
            let session = clients.get_mut(key).expect("just found");
            let is_available = !plants!(TakeOne) && session.has_available();
            match is_available {
                // The next round follows at once.
                true => session.notify_if_late(desk.ended_ns),
                false if plants!(ForgetNotify) => {}
                false => session.notify(),
            }
            has_more |= is_available;
        }
        has_more
    }

    fn wants_tick(_: &BlkDesk<H>) -> bool {
        false
    }

    fn tick(_: &mut BlkDesk<H>, _: bool) -> bool {
        false
    }

    fn end_if_stuck(&mut self, _: u64) {}
}
