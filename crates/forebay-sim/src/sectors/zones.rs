//! Zones: whether the reads and writes of one sector can be put in an order.
//!
//! In any such order all operations on one value, its write and the reads that saw it, are
//! adjacent: no other write is between two of them. Let `finish` be the time when the first of them
//! ended, and `start` the time when the last of them began.
//!
//! - If `finish < start`, the sector held the value from `finish` to `start`: a *forward* zone.
//! - Otherwise all of them can take effect at one moment between `start` and `finish`.
//!
//! An order exists if, and only if, no two forward zones overlap and no other zone lies within a
//! forward one. In addition, a read must not end before its write began.
//!
//! Zeroes can be written more than once, and then a read does not show which write it saw. It must
//! have seen a write of zeroes that can have been the last write. That such a read forbids older
//! values to others is not checked in this case.

use super::row::{NEVER, Read, Row, Write};
use super::{Anomaly, Rule, Stamp, Value};
use std::collections::BTreeMap;

/// All operations on one value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    pub(super) value: Value,
    pub(super) finish: u64,
    pub(super) start: u64,
    pub(super) is_durable: bool,
}

impl Zone {
    pub(super) fn is_forward(&self) -> bool {
        self.finish < self.start
    }

    /// Returns whether the sector held the value without interruption at that time and around it.
    fn covers(&self, time: u64) -> bool {
        self.finish < time && time < self.start
    }
}

/// The zones of a sector.
#[derive(Debug)]
pub(super) struct Zones {
    /// Ordered by start. They do not overlap.
    pub(super) forward: Vec<Zone>,
    pub(super) others: Vec<Zone>,
}

impl Row {
    /// Checks that an order exists, and returns the zones.
    pub(super) fn check(&self, sector: u64) -> Result<Zones, Box<Anomaly>> {
        let anomaly = |rule, what| Box::new(Anomaly { sector, rule, what });
        for read in &self.reads {
            if matches!(read.value, Value::Torn | Value::Misdirected(..) | Value::Foreign) {
                return Err(anomaly(Rule::Whole, format!("{read:?}")));
            }
        }
        let zones = self.zones().map_err(|(rule, what)| anomaly(rule, what))?;
        zones.check().map_err(|what| anomaly(Rule::Fresh, what))?;
        if !self.has_one_zero() {
            self.check_zero_reads().map_err(|what| anomaly(Rule::Fresh, what))?;
        }
        Ok(zones)
    }

    /// Returns whether zero is a value like others: the initial value, and never written.
    pub(super) fn has_one_zero(&self) -> bool {
        self.writes[0].value == Value::Zero
            && self.writes[1..].iter().all(|write| write.value != Value::Zero)
    }

    fn zones(&self) -> Result<Zones, (Rule, String)> {
        let mut by_stamp: BTreeMap<Option<Stamp>, (&Write, Zone)> = BTreeMap::new();
        let mut zones = Vec::new();
        let has_one_zero = self.has_one_zero();
        for write in &self.writes {
            let zone = Zone {
                value: write.value,
                finish: write.ended,
                start: write.began,
                is_durable: write.is_durable,
            };
            match write.value {
                Value::Stamp(stamp) => {
                    let before = by_stamp.insert(Some(stamp), (write, zone));
                    assert!(before.is_none(), "stamp {stamp:?} was used twice");
                }
                _ if has_one_zero => drop(by_stamp.insert(None, (write, zone))),
                _ if write.is_certain => zones.push(zone),
                _ => {}
            }
        }
        for read in &self.reads {
            let key = match read.value {
                Value::Stamp(stamp) => Some(stamp),
                _ if has_one_zero => None,
                _ => continue,
            };
            let Some((write, zone)) = by_stamp.get_mut(&key) else {
                return Err((Rule::Written, format!("{read:?}: the data was never written")));
            };
            if read.ended < write.began {
                return Err((Rule::Written, format!("{read:?} ended before {write:?} began")));
            }
            zone.finish = zone.finish.min(read.ended);
            zone.start = zone.start.max(read.began);
        }
        zones.extend(by_stamp.into_values().map(|(_, zone)| zone));
        let (mut forward, others): (Vec<_>, Vec<_>) = zones.into_iter().partition(Zone::is_forward);
        forward.sort_unstable_by_key(|zone| zone.finish);
        Ok(Zones { forward, others })
    }

    /// Checks the reads of zeroes. Such a read saw a write of zeroes that began before the read
    /// ended. That write ended after the start of every write that had certainly taken effect
    /// before the read.
    fn check_zero_reads(&self) -> Result<(), String> {
        let latest_begins = Running::new(
            self.writes.iter().filter(|write| write.is_certain).map(|w| (w.ended, w.began)),
        );
        let zeroes = self.writes.iter().filter(|write| write.value == Value::Zero);
        let latest_zeroes = Running::new(zeroes.map(|write| (write.began, write.ended)));
        for read in self.reads.iter().filter(|read| read.value == Value::Zero) {
            let must_see = latest_begins.before(read.began).unwrap_or(0);
            let Some(may_be) = latest_zeroes.before(read.ended.saturating_add(1)) else {
                return Err(format!("{read:?}: zeroes were never written"));
            };
            if may_be < must_see {
                return Err(stale_zero(read, must_see));
            }
        }
        Ok(())
    }
}

impl Row {
    /// Returns the number of reads that overlap a write that ended.
    pub(super) fn racing_reads(&self) -> u64 {
        let ended = self.writes[1..].iter().filter(|write| write.ended != NEVER);
        let latest_ends = Running::new(ended.map(|write| (write.began, write.ended)));
        let overlaps =
            |read: &&Read| latest_ends.before(read.ended).is_some_and(|latest| read.began < latest);
        self.reads.iter().filter(overlaps).count() as u64
    }
}

fn stale_zero(read: &Read, must_see: u64) -> String {
    format!(
        "{read:?}: whoever wrote zeroes had ended before {must_see}, when a write began that \
             ended before the read"
    )
}

impl Zones {
    fn check(&self) -> Result<(), String> {
        for pair in self.forward.windows(2) {
            if pair[1].finish < pair[0].start {
                let [first, second] = [pair[0], pair[1]];
                return Err(format!("it held {first:?} and {second:?} at once"));
            }
        }
        for zone in &self.others {
            if let Some(outer) = self.around(zone.start)
                && outer.covers(zone.finish)
            {
                return Err(format!("{zone:?} was written while it held {outer:?}"));
            }
        }
        Ok(())
    }

    /// Returns the forward zone that covers a time.
    fn around(&self, time: u64) -> Option<&Zone> {
        let after = self.forward.partition_point(|zone| zone.finish < time);
        self.forward[..after].last().filter(|zone| zone.covers(time))
    }

    /// Returns the last time at which a value can have been the last one written.
    pub(super) fn latest(&self, zone: &Zone) -> u64 {
        self.around(zone.finish).map_or(zone.finish, |outer| outer.finish)
    }

    /// Returns the first time at which a value must have been written.
    pub(super) fn earliest(&self, zone: &Zone) -> u64 {
        self.around(zone.start).map_or(zone.start, |outer| outer.start)
    }
}

/// A running maximum: for each time, the largest number up to that time.
struct Running(Vec<(u64, u64)>);

impl Running {
    fn new(pairs: impl Iterator<Item = (u64, u64)>) -> Running {
        let mut pairs: Vec<_> = pairs.filter(|(time, _)| *time != NEVER).collect();
        pairs.sort_unstable();
        let mut largest = 0;
        for (_, number) in &mut pairs {
            largest = largest.max(*number);
            *number = largest;
        }
        Running(pairs)
    }

    fn before(&self, time: u64) -> Option<u64> {
        let after = self.0.partition_point(|(other, _)| *other < time);
        self.0[..after].last().map(|(_, number)| *number)
    }
}
