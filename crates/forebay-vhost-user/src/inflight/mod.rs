//! In-flight region: the requests that the device has taken and not used, in memory that outlives
//! the process.
//!
//! The device creates the region and the front end keeps it. After the device was killed, its
//! successor gets the region back and submits these requests again, in the order in which they were
//! taken. A request whose used entry the driver may have seen is never submitted again.
//!
//! Source: QEMU's "Vhost-user Protocol", section "Inflight I/O tracking", for split rings. A queue
//! has this record, in the byte order of the machine:
//!
//! ```text
//!  0 u64 features (0)            12 u16 last_batch_head
//!  8 u16 version (1)             14 u16 used_idx
//! 10 u16 number of descriptors   16 one entry for each descriptor:
//!                                   0 u8 in flight, 6 u16 next, 8 u64 counter
//! ```
//!
//! Records begin at multiples of 64 bytes. The byte behind the entries of the first one is no part
//! of the format. It is 1 if the driver has switched its write cache off: front ends do not repeat
//! that, and a successor must not acknowledge writes earlier than its predecessor did.
//!
//! A region survives a killed process, not a power failure: all stores that the process has made
//! are in the memory, in program order. So only the order of stores counts:
//!
//! - C1: a request is marked before its I/O is submitted;
//! - C2: all used entries of a batch are recorded in the list of the last batch before the driver
//!   can see them. It sees them all with one store, that of the used index of the ring;
//! - C3: the marks of the batch are cleared after that store, and `used_idx` is set last.
//!
//! If the process dies after that store and before the end of C3, the used index of the ring is
//! ahead of `used_idx` by the batch. Its marks are stale. If the process dies before that store,
//! the batch is still in flight.
//!
//! The front end shares the region and is not trusted. Every value is checked, and a wrong one can
//! only affect the requests of this ring.

mod memory;
mod recover;

pub use memory::{InflightMemory, InflightShape};
pub use recover::RecoverError;

use memory::Record;
use std::fmt;

/// A queue's part of an in-flight region.
pub struct Inflight {
    record: Record,
    /// The counter of the next request.
    counter: u64,
}

impl fmt::Debug for Inflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflight").field("counter", &self.counter).finish_non_exhaustive()
    }
}

impl Inflight {
    /// Marks a request that was taken from the available ring. Called before its I/O is submitted
    /// (C1).
    #[inline]
    pub fn take(&mut self, head: u16) {
        self.record.set_counter(head, self.counter);
        // A hostile front end may have set the greatest number: then only the order is lost.
        self.counter = self.counter.wrapping_add(1);
        self.record.set_in_flight(head, true);
    }

    /// Records a request whose used entry is written next, before the driver can see it (C2).
    #[inline]
    pub fn begin_use(&mut self, head: u16) {
        self.record.set_next(head, self.record.last_batch_head());
        self.record.set_last_batch_head(head);
    }

    /// Clears the requests of a batch whose used entries the driver can see (C3). `used_idx` is the
    /// used index of the ring after them.
    #[inline]
    pub fn end_use(&mut self, heads: impl Iterator<Item = u16>, used_idx: u16) {
        for head in heads {
            self.record.set_in_flight(head, false);
        }
        self.record.set_used_idx(used_idx);
    }
}

#[cfg(test)]
mod tests;
