//! Crashes: the values that a crash may leave in each sector, and the log after a crash.
//!
//! A crash may undo any subset of the writes that are not durable. So a sector then holds the data
//! of some write that no durable write must have followed. Three facts show that a write was
//! followed by another: their times, reads that saw the one and then the other, or a value that lay
//! between both (`Zones::latest`, `earliest`).

use super::row::{Read, Row, Write};
use super::zones::{Zone, Zones};
use super::{Anomaly, End, Op, Rule, Sectors, Value};

/// The kind of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The server died, and the layers below it survive: every acknowledged write is there.
    Server,
    /// The power failed: writes that were not flushed may be gone.
    Power,
}

impl Sectors {
    /// Checks whether a log that ends with a crash can be explained, together with the values found
    /// afterwards, one for each sector. From then on `self` is the disk after the crash. After the
    /// death of a server, operations that were never answered may still take effect, and unflushed
    /// writes are still not durable. After a loss of power all found values are durable, and undone
    /// writes do not come back.
    ///
    /// # Errors
    /// The anomaly of the lowest sector that cannot be explained.
    ///
    /// # Panics
    /// As [`check`](Sectors::check), and if there is not one value for each sector.
    pub fn crash(&mut self, ops: &[Op], crash: Crash, found: &[Value]) -> Result<(), Box<Anomaly>> {
        assert_eq!(found.len(), self.rows.len(), "one value for each sector");
        let mut rows = self.rows_after(ops);
        let end = self.end_of(ops);
        for (sector, (row, &value)) in rows.iter_mut().zip(found).enumerate() {
            let sector = sector as u64;
            match crash {
                Crash::Server => {
                    row.reads.push(Read { value, began: end, ended: end });
                    row.check(sector)?;
                }
                Crash::Power => {
                    row.check_durable(sector, value)?;
                    *row = Row::starting_with(value);
                }
            }
        }
        self.rows = rows;
        self.start = match crash {
            Crash::Server => end + 1,
            Crash::Power => 0,
        };
        Ok(())
    }

    /// Returns a time after the end of a log.
    fn end_of(&self, ops: &[Op]) -> u64 {
        let last = ops.iter().map(|op| match op.end {
            End::Ok(ended) => ended,
            End::Refused | End::Unknown => op.began,
        });
        self.start + last.max().unwrap_or(0) + 1
    }
}

impl Row {
    fn check_durable(&self, sector: u64, value: Value) -> Result<(), Box<Anomaly>> {
        let zones = self.check(sector)?;
        let anomaly = |rule, what| Err(Box::new(Anomaly { sector, rule, what }));
        if matches!(value, Value::Torn | Value::Misdirected(..) | Value::Foreign) {
            return anomaly(Rule::Whole, format!("a crash left {value:?}"));
        }
        let mut candidates = self.writes.iter().filter(|write| write.value == value).peekable();
        if candidates.peek().is_none() {
            return anomaly(Rule::Written, format!("a crash left {value:?}: never written"));
        }
        let has_one_zero = self.has_one_zero();
        let is_legal = |write: &Write| zones.is_followed(write, has_one_zero).is_none();
        if candidates.any(is_legal) {
            return Ok(());
        }
        anomaly(Rule::Durable, format!("a crash left {value:?}, of {:?}", self.writes))
    }
}

impl Zones {
    /// Returns a durable value that must have been written after that of `write`.
    fn is_followed(&self, write: &Write, has_one_zero: bool) -> Option<Value> {
        let all = || self.forward.iter().chain(&self.others);
        // Zeroes have one zone for each write of them, or one zone in all.
        let is_own = |zone: &&Zone| {
            let is_same = (zone.start, zone.finish) == (write.began, write.ended);
            zone.value == write.value && (zone.value != Value::Zero || is_same || has_one_zero)
        };
        let own = all().find(is_own);
        let (finish, latest) = match own {
            Some(zone) => (zone.finish, self.latest(zone)),
            None => (write.ended, write.ended),
        };
        let durable =
            all().filter(|zone| zone.is_durable && own.is_none_or(|own| !std::ptr::eq(own, *zone)));
        let follows = |zone: &Zone| finish < zone.start || latest < self.earliest(zone);
        durable.into_iter().find(|zone| follows(zone)).map(|zone| zone.value)
    }
}
