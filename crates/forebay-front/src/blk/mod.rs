//! virtio-blk sessions: requests of a ring in, I/O out, completions in, used entries out.
//!
//! Each client of the front is one ring (virtqueue). The ring is in memory that it shares with its
//! driver, behind the trait [`Ring`]. The server implements it for rings in the memory of a guest.
//!
//! - `ring`: the interface to a ring; `wire`: the numbers of the protocol;
//! - `session`: the session of one ring, and its notifications in both directions;
//! - `requests`: parses requests and begins their I/O; `completions`: answers them;
//! - `batch`: how many requests a round takes; `in_flight`: the requests in flight.
//!
//! Rules:
//!
//! - Y1: A request that cannot be answered stops its ring: the host reports it, requests that were
//!   accepted complete, and nothing more is taken. Any other bad request gets an error status.
//! - Y2: With the write cache off, or without FLUSH, a write is durable before its status (FUA).
//! - Y3: The session takes requests under the plug of a round, while the driver's notifications are
//!   off: all adjacent ones, and a few scattered ones. If more are available at the end of a round,
//!   the next one follows at once. Notifications are enabled only before the thread sleeps, after
//!   it has polled ([`BlkFront::prepare_sleep`]). Then the session checks the ring again.
//! - Y4: The driver is notified at the end of the last of such rounds. It is notified earlier, when
//!   a round begins or after a reap that answers requests, once its oldest used entry without a
//!   notification is 50 us old.
//!
//! Source: "Virtual I/O Device (VIRTIO) Version 1.2", 5.2.

mod batch;
mod completions;
mod in_flight;
mod requests;
mod ring;
mod session;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod wire;

pub use in_flight::InFlight;
pub use ring::{Chain, GuestBytes, Ring};
pub use session::BlkSession;
pub use wire::{HEADER_LEN, ID_LEN, RANGES_MAX, SECTOR};

use crate::ending::Ending;
use crate::front::{Front, Readiness};
use crate::host::Host;
use crate::plant::plants;
use crate::session::{Desk, Session};

/// Front of a virtio-blk device.
pub type BlkFront<H> = Front<BlkSession<H>>;

type BlkDesk<H> = Desk<BlkSession<H>>;

/// The host of virtio-blk sessions.
pub trait BlkHost: Host<Memory: GuestBytes, Peer: Ring<Memory = <Self as Host>::Memory>> {
    /// Reports a ring that stops because its driver has broken it, or its memory is gone (Y1).
    fn broken(&mut self, ring: &mut Self::Peer, why: &str, now_ns: u64);
}

/// Properties of the disk of a virtio-blk device.
#[derive(Clone, Debug)]
pub struct BlkDisk {
    /// Index of the export.
    pub export: usize,
    /// Size in sectors of 512 bytes, until [`BlkFront::resize`].
    pub nr_sectors: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether a discard implements WRITE_ZEROES with unmap.
    pub discards_to_zeroes: bool,
    /// Largest range of a DISCARD, sectors.
    pub max_discard_sectors: u32,
    /// Largest range of a WRITE_ZEROES, sectors.
    pub max_write_zeroes_sectors: u32,
    /// Serial number, padded with zeroes.
    pub serial: [u8; ID_LEN],
}

impl<H: BlkHost> BlkFront<H> {
    /// Returns a front for rings of one device.
    pub fn blk(host: H, disk: BlkDisk) -> BlkFront<H> {
        // Each ring has an export from the beginning.
        BlkFront::new(host, disk, (), 0)
    }

    /// Takes requests from all rings. Called in each round, under its plug, because drivers do not
    /// notify a front that works.
    pub fn look_at_rings(&mut self) {
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            self.look_at(key, Readiness::Received);
        }
    }

    /// Returns whether a driver has made requests available.
    #[inline]
    pub fn has_available(&mut self) -> bool {
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            if self.clients.get_mut(key).is_some_and(|session| session.has_available()) {
                return true;
            }
        }
        false
    }

    /// Prepares the sleep of the thread: from now on, until the next round, drivers notify it.
    /// Returns whether requests are already available, of which drivers do not notify it. Then the
    /// thread must not sleep.
    pub fn prepare_sleep(&mut self) -> bool {
        let (mut at, mut has_more) = (0, false);
        while let Some(key) = self.clients.next_key(&mut at) {
            let session = self.clients.get_mut(key).expect("just found");
            let is_available = session.enable_notifications(&mut self.desk);
            has_more |= is_available && !plants!(ForgetSecondLook);
            has_more &= !plants!(ForgetLookAfterPoll);
        }
        has_more
    }

    /// Changes the transport of all rings: enables them, or replaces their memory. After an error
    /// the ring stops (Y1).
    pub fn change_rings(&mut self, mut change: impl FnMut(&mut H::Peer) -> Result<(), String>) {
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            let session = self.clients.get_mut(key).expect("just found");
            session.change(&mut self.desk, &mut change);
            self.mark_dirty(key);
        }
    }

    /// Changes the size of the disk, for requests that are taken from now on.
    pub fn resize(&mut self, nr_sectors: u64) {
        self.desk.common.nr_sectors = nr_sectors;
    }

    /// Stops all rings: they take no more requests, and are closed when their last request is
    /// answered.
    pub fn stop_rings(&mut self) {
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            let session = self.clients.get_mut(key).expect("just found");
            session.link_mut().end_if_open(Ending::RingStopped);
            self.mark_dirty(key);
        }
    }

    /// Returns whether all rings are closed and the disk has completed all of their I/O, including
    /// that of rings that were closed early.
    pub fn has_drained(&self) -> bool {
        self.nr_clients() == 0 && self.nr_flights() == 0
    }
}
