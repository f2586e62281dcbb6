//! State that all drivers of a guest share: the load, and the log of what they have done and seen.

use super::scenario::GuestLoad;
use crate::sectors::{End, Kind, Value};
use crate::server::Log;
use forebay_front::blk::BlkDisk;

/// State that all drivers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) load: GuestLoad,
    pub(super) device: BlkDisk,
    pub(super) queue_size: u16,
    pub(super) may_fail: bool,
    pub(super) log: Log,
    /// How often the write cache was switched.
    pub(super) nr_toggles: u32,
    /// The first operations of the log, which a flush need not make durable, because the loss of
    /// some of them was acknowledged.
    pub(super) nr_unpromised: usize,
    /// Operations that a second server repeats, and that are not answered.
    pub(super) repeated: Vec<usize>,
}

impl Shared {
    /// Returns what a read proves that began no later than now. If it returns the value of a
    /// repeated write that is not answered, it proves nothing: that write may be done twice, and
    /// another one between.
    pub(super) fn seen(&self, sector: u64, value: Value) -> Value {
        let has_written = |at: &usize| {
            let op = &self.log.ops[*at];
            let (nr_sectors, written) = match op.kind {
                Kind::Write { stamp, nr_sectors, .. } => (nr_sectors, Value::Stamp(stamp)),
                Kind::Zero { nr_sectors, .. } | Kind::Trim { nr_sectors } => {
                    (nr_sectors, Value::Zero)
                }
                Kind::Read(_) | Kind::Flush => return false,
            };
            value == written && (op.first..op.first + nr_sectors).contains(&sector)
        };
        if self.repeated.iter().any(has_written) { Value::Unseen } else { value }
    }

    /// Records operations that a second server repeats.
    pub(super) fn repeat(&mut self, ops: std::ops::Range<usize>) {
        self.repeated.extend(ops);
        for at in 0..self.log.ops.len() {
            let Kind::Read(values) = &self.log.ops[at].kind else { continue };
            let sectors = values.iter().copied().zip(self.log.ops[at].first..);
            let seen = sectors.map(|(value, sector)| self.seen(sector, value)).collect();
            self.log.ops[at].kind = Kind::Read(seen);
        }
    }

    /// Takes back the promise that the writes so far are durable after a flush: some are lost.
    pub(super) fn promise_nothing(&mut self) {
        self.nr_unpromised = self.log.ops.len();
        for op in &mut self.log.ops {
            if matches!(op.kind, Kind::Write { .. } | Kind::Zero { .. }) && op.end != End::Refused {
                op.end = End::Unknown;
            }
        }
    }
}
