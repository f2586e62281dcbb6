//! Peer of a ring's front: the ring in the memory of the guest, with its counters.

use super::RingPlace;
use forebay_front::blk::{Chain, Ring};
use forebay_front::{Peer, RequestKind};
use forebay_vhost_user::{GuestData, RingError};
use std::sync::Arc;

/// A ring that was started.
#[derive(Debug)]
pub(super) struct RingPeer {
    pub(super) ring: forebay_vhost_user::Ring,
    place: Arc<RingPlace>,
    /// Whether its eventfd is registered at epoll.
    pub(super) is_watched: bool,
}

impl RingPeer {
    pub(super) fn new(ring: forebay_vhost_user::Ring, place: Arc<RingPlace>) -> RingPeer {
        RingPeer { ring, place, is_watched: false }
    }
}

impl Peer for RingPeer {
    #[inline]
    fn begin(&mut self, kind: RequestKind) {
        self.place.counters.traffic().begin(kind);
    }

    #[inline]
    fn end(&mut self, kind: RequestKind, bytes: u64) {
        self.place.counters.traffic().end(kind, bytes);
    }

    fn fail(&mut self) {
        self.place.counters.traffic().fail();
    }

    fn set_export(&mut self, _export: usize) {}

    fn say_goodbye(&mut self) {}
}

impl Ring for RingPeer {
    type Memory = GuestData;
    type Error = RingError;

    #[inline]
    fn features(&self) -> u64 {
        self.ring.features()
    }

    #[inline]
    fn write_cache(&self) -> bool {
        self.place.write_cache.is_on()
    }

    #[inline]
    fn is_enabled(&self) -> bool {
        self.ring.is_enabled()
    }

    #[inline(always)]
    fn take(&mut self) -> Result<Option<Chain<GuestData>>, RingError> {
        self.ring.take()
    }

    #[inline(always)]
    fn put(&mut self, head: u16, status: u8, written: u32) {
        self.ring.put(head, status, written);
    }

    #[inline]
    fn publish(&mut self) {
        self.ring.publish();
    }

    #[inline]
    fn recycle(&mut self, memory: GuestData) {
        self.ring.recycle(memory);
    }

    #[inline]
    fn has_available(&self) -> bool {
        self.ring.has_available()
    }

    #[inline]
    fn disable_notifications(&mut self) {
        self.ring.disable_notifications();
    }

    #[inline]
    fn enable_notifications(&mut self) -> Result<bool, String> {
        self.ring.enable_notifications().map_err(|error| error.to_string())
    }

    fn notify(&mut self) {
        match self.ring.notify() {
            true => self.place.counters.notified(),
            false => self.place.counters.suppressed(),
        }
    }
}
