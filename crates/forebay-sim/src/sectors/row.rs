//! History of one sector: its writes and its reads, with their times.

use super::{End, Kind, Op, Value};

/// The end time of an operation that never ends.
pub(super) const NEVER: u64 = u64::MAX;

/// A write of the sector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) value: Value,
    pub(super) began: u64,
    pub(super) ended: u64,
    /// The write had certainly taken effect when it ended. A trim may have done nothing.
    pub(super) is_certain: bool,
    /// The write survives a crash.
    pub(super) is_durable: bool,
}

/// A successful read of the sector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) value: Value,
    pub(super) began: u64,
    pub(super) ended: u64,
}

/// One sector. The first write is the initial value.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) writes: Vec<Write>,
    pub(super) reads: Vec<Read>,
}

impl Row {
    pub(super) fn starting_with(value: Value) -> Row {
        let start = Write { value, began: 0, ended: 0, is_certain: true, is_durable: true };
        Row { writes: vec![start], reads: Vec::new() }
    }

    /// Records a successful flush that began at that time.
    pub(super) fn flush(&mut self, began: u64) {
        for write in &mut self.writes {
            write.is_durable |= write.is_certain && write.ended < began;
        }
    }

    /// Adds the part of an operation that concerns this sector, its `nth`. Its times are relative
    /// to `start`.
    pub(super) fn add(&mut self, op: &Op, nth: usize, start: u64) {
        let began = start + op.began;
        let (value, fua, may_do) = match &op.kind {
            Kind::Write { stamp, fua, .. } => (Value::Stamp(*stamp), *fua, true),
            Kind::Zero { fua, .. } => (Value::Zero, *fua, true),
            Kind::Trim { .. } => (Value::Zero, false, false),
            Kind::Read(values) => {
                if let End::Ok(ended) = op.end
                    && values[nth] != Value::Unseen
                {
                    self.reads.push(Read { value: values[nth], began, ended: start + ended });
                }
                return;
            }
            Kind::Flush => return,
        };
        let (ended, is_good) = match op.end {
            End::Ok(ended) => (start + ended, true),
            End::Refused | End::Unknown => (NEVER, false),
        };
        let is_certain = is_good && may_do;
        let is_durable = is_certain && fua;
        self.writes.push(Write { value, began, ended, is_certain, is_durable });
    }
}
