//! What a crash may leave of each sector, and how the log goes on behind it.
//!
//! A crash may undo what is not durable: writes in any choice. So what is there is the data of some
//! write which no durable one must have followed. That a write was followed by another is known by
//! their times, by reads that saw the one and then the other, or by a value that lay between both
//! (`Zones::latest`, `earliest`).

use super::row::{Read, Row, Write};
use super::zones::{Zone, Zones};
use super::{Anomaly, End, Op, Rule, Sectors, Value};

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The server died, and what is below it lives on: all that it acknowledged is there.
    Server,
    /// The power failed: what was not flushed may be gone.
    Power,
}

impl Sectors {
    /// Whether a log that ends with a crash can be explained, and what was found behind it, one
    /// value for each sector. From then on this is the disk behind the crash. Behind a server's
    /// death what was never answered may yet come, and what was not flushed still is not; behind a
    /// loss of power all that was found is durable, and what was undone does not come back.
    ///
    /// # Errors
    /// What cannot be, of the lowest sector.
    ///
    /// # Panics
    /// As [`check`](Sectors::check), and if there is not one value for each sector.
    pub fn crash(&mut self, ops: &[Op], crash: Crash, found: &[Value]) -> Result<(), Box<Anomaly>> {
        assert_eq!(found.len(), self.rows.len(), "one value for each sector");
        let mut rows = self.told(ops);
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

    /// A time behind all of a log.
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
            return anomaly(Rule::Written, format!("a crash left {value:?}: nobody wrote that"));
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
    /// A durable value that must have been written after that of `write`.
    fn is_followed(&self, write: &Write, has_one_zero: bool) -> Option<Value> {
        let all = || self.forward.iter().chain(&self.others);
        // Zeroes have a zone for each write of them, or one for all.
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
