//! Ring of a virtio-blk session: the interface to a virtqueue.

use super::wire::HEADER_LEN;
use crate::host::Peer;
use std::fmt::{Debug, Display};

/// Bytes of the guest: one direction of a request. The driver may change them at any time, so a
/// session copies what it reads, once.
pub trait GuestBytes: Debug {
    /// Returns the number of bytes left.
    fn len(&self) -> u64;

    /// Returns whether no bytes are left.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the first bytes and removes them.
    ///
    /// # Panics
    /// Panics if fewer are left.
    fn take_front(&mut self, into: &mut [u8]);

    /// Overwrites the first bytes and removes them.
    ///
    /// # Panics
    /// Panics if fewer are left.
    fn fill_front(&mut self, from: &[u8]);
}

/// A request that a ring returns.
#[derive(Debug)]
pub struct Chain<M> {
    /// Number of the request: its first descriptor. No other request in flight has the same.
    pub head: u16,
    /// The first bytes that the driver has written. `None`: there are fewer.
    pub header: Option<[u8; HEADER_LEN]>,
    /// Bytes that the driver has written behind the header, in order. `None`: there are none.
    pub readable: Option<M>,
    /// Bytes that the device may write, in order, without the last one, which is the status.
    /// `None`: there are none.
    pub writable: Option<M>,
    /// Whether there is a byte for the status. If not, the request cannot be answered.
    pub has_status: bool,
}

impl<M: GuestBytes> Chain<M> {
    /// Returns a request of all bytes that the driver has written, and of those that the device may
    /// write, without the status.
    pub fn new(head: u16, mut readable: M, writable: M, has_status: bool) -> Chain<M> {
        let header = (readable.len() >= HEADER_LEN as u64).then(|| {
            let mut header = [0; HEADER_LEN];
            readable.take_front(&mut header);
            header
        });
        let [readable, writable] =
            [readable, writable].map(|bytes| (!bytes.is_empty()).then_some(bytes));
        Chain { head, header, readable, writable, has_status }
    }
}

/// A ring, as the host's part of a client. After an error it must not be used any more, except to
/// answer requests in flight.
///
/// Errors are texts for the log: a mistake of the driver, or memory that is gone.
pub trait Ring: Peer {
    /// Bytes of the guest.
    type Memory: GuestBytes;
    /// The reason why a ring cannot go on.
    type Error: Display;

    /// Returns the VIRTIO features that the driver has accepted.
    fn features(&self) -> u64;

    /// Returns whether the write cache is on. It may change at any time.
    fn write_cache(&self) -> bool;

    /// Returns whether the ring may take requests.
    fn is_enabled(&self) -> bool;

    /// Takes the next available request.
    ///
    /// # Errors
    /// Fails if the ring is malformed or its memory is gone.
    fn take(&mut self) -> Result<Option<Chain<Self::Memory>>, Self::Error>;

    /// Writes the status of a request that was taken, and its used entry. The driver sees them
    /// after [`publish`](Ring::publish). `written` is the number of bytes that were written to its
    /// memory, the status included. If the memory of the ring is gone, the driver does not see
    /// them; [`take`](Ring::take) reports that.
    fn put(&mut self, head: u16, status: u8, written: u32);

    /// Makes the used entries visible to the driver.
    fn publish(&mut self);

    /// Takes back the memory of a request, for the next ones.
    fn recycle(&mut self, memory: Self::Memory);

    /// Returns whether requests seem to be available: [`take`](Ring::take) would return one, or an
    /// error.
    fn has_available(&self) -> bool;

    /// Asks the driver not to notify the device. The driver may do so nevertheless.
    fn disable_notifications(&mut self);

    /// Asks the driver to notify the device of new requests. Returns whether requests are already
    /// available, of which the driver will not notify the device.
    ///
    /// # Errors
    /// Fails if the memory of the ring is gone.
    fn enable_notifications(&mut self) -> Result<bool, String>;

    /// Publishes the used entries, and notifies the driver of new ones, unless it has asked not to
    /// be.
    fn notify(&mut self);
}
