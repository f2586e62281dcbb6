//! Recovery of the requests that a predecessor has left in a record.

use super::Inflight;
use super::memory::{InflightMemory, Record};
use thiserror::Error;

/// Reason why a record cannot be used.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecoverError {
    /// The region has no such queue.
    #[error("the in-flight region has no queue {0}: ask for a region with more queues")]
    NoQueue(u16),
    /// The ring has more descriptors than the record.
    #[error("the ring has {ring} descriptors, but its in-flight record only {record}")]
    Size {
        /// Descriptors of the ring.
        ring: u16,
        /// Descriptors of the record.
        record: u16,
    },
    /// The record has another format.
    #[error("the in-flight record has an unexpected format: version {version}, {size} descriptors")]
    Format {
        /// Its version.
        version: u16,
        /// Its number of descriptors.
        size: u16,
    },
    /// The record belongs to another ring, or was damaged.
    #[error(
        "the used index of the ring is {ring}, which does not fit that of its in-flight record, \
         {record}"
    )]
    UsedIndex {
        /// The used index of the ring.
        ring: u16,
        /// The used index of the record.
        record: u16,
    },
    /// The list of the last batch leaves the table.
    #[error("the in-flight record names descriptor {0}, which does not exist")]
    Head(u16),
}

/// Requests that a predecessor has taken and not completed.
#[derive(Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Their heads, in the order in which they were taken.
    pub heads: Vec<u16>,
    /// Index of the next available entry to take.
    pub avail_idx: u16,
}

impl InflightMemory {
    /// Opens the record of a queue for a ring of `ring_size` descriptors, whose used index is
    /// `used_idx`. Returns the requests to submit again: the ring takes new ones from the returned
    /// index on. A record that was never used has none.
    ///
    /// # Errors
    /// Returns an error if the record cannot be that of this ring.
    pub fn recover(
        &self,
        queue: u16,
        ring_size: u16,
        used_idx: u16,
    ) -> Result<(Inflight, Recovered), RecoverError> {
        let record = self.record(queue).ok_or(RecoverError::NoQueue(queue))?;
        if ring_size > record.size() {
            return Err(RecoverError::Size { ring: ring_size, record: record.size() });
        }
        if record.is_new() {
            record.init(used_idx);
            let none = Recovered { heads: Vec::new(), avail_idx: used_idx };
            return Ok((Inflight { record, counter: 0 }, none));
        }
        let (version, size) = record.format();
        if !Record::is_supported(version) || size != record.size() {
            return Err(RecoverError::Format { version, size });
        }
        clear_last_batch(&record, ring_size, used_idx)?;
        let mut taken: Vec<(u64, u16)> = (0..ring_size)
            .filter(|head| record.is_in_flight(*head))
            .map(|head| (record.counter(head), head))
            .collect();
        taken.sort_unstable();
        // A hostile counter may be the greatest number: the order is then lost, and nothing else.
        let counter = taken.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        let heads: Vec<u16> = taken.into_iter().map(|(_, head)| head).collect();
        let avail_idx = used_idx.wrapping_add(heads.len() as u16);
        Ok((Inflight { record, counter }, Recovered { heads, avail_idx }))
    }
}

/// Clears the marks of requests whose used entries the driver can see: the predecessor died between
/// the two.
fn clear_last_batch(record: &Record, ring_size: u16, used_idx: u16) -> Result<(), RecoverError> {
    let nr = used_idx.wrapping_sub(record.used_idx());
    // A ring that was stopped and reset begins at 0 again. All of its requests were used before.
    let is_idle = !(0..record.size()).any(|head| record.is_in_flight(head));
    if is_idle {
        record.set_used_idx(used_idx);
        return Ok(());
    }
    if nr > ring_size {
        return Err(RecoverError::UsedIndex { ring: used_idx, record: record.used_idx() });
    }
    let mut head = record.last_batch_head();
    for _ in 0..nr {
        if head >= ring_size {
            return Err(RecoverError::Head(head));
        }
        record.set_in_flight(head, false);
        head = record.next(head);
    }
    record.set_used_idx(used_idx);
    Ok(())
}
