//! Waits for flushes of requests with a range: before the data, or after them.
//!
//! A FUA write whose data are complete may wait for a flush. The next record of the same context
//! shows that: a message about its range. Without such a message the device has FUA, and the write
//! has ended. Messages have no other name for a bio than its range, so those of equal ranges belong
//! to the oldest wait.

use super::bio::{Open, Traced};
use crate::message::{Extent, Message, MessageKind};
use crate::record::Record;
use std::collections::{HashMap, VecDeque};

/// A FUA write whose data are complete.
#[derive(Clone, Copy, Debug)]
struct Written {
    bio: Open,
    complete_ns: u64,
}

impl Written {
    fn ended(&self) -> Traced {
        self.bio.ended(self.complete_ns)
    }

    /// Returns the bio, after a flush that has ended at `now` with this errno.
    fn flushed(mut self, now: u64, errno: i32) -> Traced {
        if errno != 0 {
            self.bio.fail(self.bio.queued.sector, record_error(errno), now);
        }
        self.bio.ended_after(self.complete_ns, Some(now))
    }

    fn has_range(&self, extent: Extent) -> bool {
        self.bio.sectors() == (extent.sector, extent.end())
    }
}

/// The waits for flushes, without those of bios that have no range.
#[derive(Debug, Default)]
pub(super) struct FlushWaits {
    /// The write that was the last record of each context, by the index of its file.
    fresh: HashMap<u32, Written>,
    /// The waits by range, oldest first. `None`: before the data.
    waits: HashMap<(u64, u64), VecDeque<Option<Written>>>,
}

impl FlushWaits {
    /// Adds a FUA write whose data are complete with this record.
    pub(super) fn add(&mut self, bio: Open, complete: &Record, done: &mut impl FnMut(Traced)) {
        let written = Written { bio, complete_ns: complete.time_ns };
        // Several at once: a request with FUA has one bio, so the file is damaged.
        if let Some(other) = self.fresh.insert(complete.cpu, written) {
            done(other.ended());
        }
    }

    /// Takes the next record. Passes the writes that have ended to `done`. Returns whether the
    /// message is about one of them.
    pub(super) fn take(
        &mut self,
        record: &Record,
        message: Option<Message>,
        done: &mut impl FnMut(Traced),
    ) -> bool {
        let fresh = match self.fresh.is_empty() {
            true => None,
            false => self.fresh.remove(&record.cpu),
        };
        let Some(Message { extent: Some(extent), kind }) = message else {
            fresh.iter().for_each(|written| done(written.ended()));
            return false;
        };
        let range = (extent.sector, extent.end());
        let (is_about, fresh) = match fresh {
            Some(written) if written.has_range(extent) => (true, Some(written)),
            Some(written) => {
                done(written.ended());
                (false, None)
            }
            None => (false, None),
        };
        match kind {
            MessageKind::FlushWait | MessageKind::FlushJoin | MessageKind::FlushElided => {
                self.waits.entry(range).or_default().push_back(fresh);
                is_about
            }
            MessageKind::FlushDone { errno, .. } => {
                // The flush of a fresh one was refused: it did not wait.
                let written = fresh.or_else(|| self.pop(range));
                written.iter().for_each(|written| done(written.flushed(record.time_ns, errno)));
                written.is_some()
            }
            MessageKind::LimitWait { .. } => {
                fresh.iter().for_each(|written| done(written.ended()));
                false
            }
        }
    }

    /// Removes the oldest wait of a range. Returns the write if its data are complete.
    fn pop(&mut self, range: (u64, u64)) -> Option<Written> {
        let waits = self.waits.get_mut(&range)?;
        let oldest = waits.pop_front();
        if waits.is_empty() {
            self.waits.remove(&range);
        }
        oldest.flatten()
    }

    /// Passes the writes to `done` for which only a later record could have shown that they wait.
    pub(super) fn finish(&mut self, mut done: impl FnMut(Traced)) {
        self.fresh.drain().for_each(|(_, written)| done(written.ended()));
    }

    /// Returns how many writes have not ended.
    pub(super) fn nr_open(&self) -> usize {
        self.fresh.len() + self.waits.values().flatten().flatten().count()
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        // New maps: `HashMap::clear` takes time in proportion to the map's capacity.
        *self = FlushWaits::default();
    }
}

/// Returns the error of a record for the errno of a message.
pub(super) fn record_error(errno: i32) -> i16 {
    // `Message::parse` accepts no greater one than 4095.
    -i16::try_from(errno).unwrap_or(i16::MAX)
}
