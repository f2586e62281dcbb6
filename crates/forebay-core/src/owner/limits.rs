//! Limits of an owner: rates of I/Os and bytes for reads, for writes and for both together; and its
//! latency goal, which limits others.
//!
//! [`LIMIT_KEYS`] is the only list of the keys, as [`KNOBS`](crate::KNOBS) is for policies. Specs,
//! options and the control socket use it.
//!
//! Discards and write-zeroes count as writes, with the length of their range. Flushes are free.
//! Unlike QEMU's `throttle`, which refuses a limit for both directions beside one for a single
//! direction, all limits that are set apply together.
//!
//! # The default burst
//! A tenth of a second at the rate, and at least one I/O or 4 KiB. QEMU (`iops-total-max` and
//! others, `util/throttle.c`) has the same default. In Linux a slice of `blk-throttle` is as long
//! on rotational disks. I/O may exceed the burst: it starts when the bucket is not negative. So the
//! default is not too small for an I/O of any size.

use super::bucket::Bucket;
use crate::bio::Op;
use crate::knob::Values;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The default burst, as a part of a second at the rate.
const BURSTS_PER_S: u64 = 10;

/// A rate with its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rate {
    /// I/Os or bytes per second. 0 means that there is no limit.
    pub per_s: u64,
    /// I/Os or bytes that may start at once after a pause. `None` means a tenth of a second at the
    /// rate, and at least one I/O or 4 KiB.
    pub burst: Option<u64>,
}

impl Rate {
    /// Creates a rate with the default burst.
    pub const fn per_s(per_s: u64) -> Rate {
        Rate { per_s, burst: None }
    }
}

/// A rate of I/Os and a rate of bytes. Both apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rates {
    /// I/Os per second. An I/O of any length counts once.
    pub iops: Rate,
    /// Bytes per second.
    pub bps: Rate,
}

/// The limits of an owner. All of them apply. The default is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Limits {
    /// Limits for reads and writes together.
    pub both: Rates,
    /// Limits for reads.
    pub read: Rates,
    /// Limits for writes, discards and write-zeroes.
    pub write: Rates,
    /// Latency goal in microseconds: fewer than one in ten of the owner's I/Os shall take longer.
    /// While at least one in ten does, siblings without a goal, or with a looser one, may have
    /// fewer I/Os in flight. 0 means that there is no goal.
    pub latency_target_us: u64,
}

/// The number of rates in [`Limits`], each with a bucket of its own.
pub(super) const NR_RATES: usize = 6;

/// One of the rates in [`Limits`], in the order of the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Iops,
    Bps,
    ReadIops,
    ReadBps,
    WriteIops,
    WriteBps,
}

impl Which {
    pub(super) const ALL: [Which; NR_RATES] = [
        Which::Iops,
        Which::Bps,
        Which::ReadIops,
        Which::ReadBps,
        Which::WriteIops,
        Which::WriteBps,
    ];

    /// Returns the bit of this rate in a set of rates.
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Returns the rates of a set.
    #[inline]
    pub(super) fn of_set(mut set: u8) -> impl Iterator<Item = Which> {
        core::iter::from_fn(move || {
            let which = *Which::ALL.get(set.trailing_zeros() as usize)?;
            set &= set - 1;
            Some(which)
        })
    }

    /// The set of rates of I/Os.
    pub(super) const OF_IOS: u8 =
        Which::Iops.bit() | Which::ReadIops.bit() | Which::WriteIops.bit();

    /// Returns the set of rates that apply to an operation.
    pub(super) const fn that_apply(op: Op) -> u8 {
        let both = Which::Iops.bit() | Which::Bps.bit();
        match op {
            Op::Flush => 0,
            Op::Read => both | Which::ReadIops.bit() | Which::ReadBps.bit(),
            Op::Write | Op::Discard | Op::WriteZeroes => {
                both | Which::WriteIops.bit() | Which::WriteBps.bit()
            }
        }
    }

    /// Returns whether this is a rate of I/Os, and not of bytes.
    pub(super) const fn counts_ios(self) -> bool {
        self.bit() & Which::OF_IOS != 0
    }

    /// Returns the units of the bucket that an I/O or a byte costs.
    pub(super) const fn units(self) -> u64 {
        if self.counts_ios() { Bucket::UNITS_PER_IO } else { 1 }
    }

    /// Returns the rate and the burst of the bucket, in its units.
    pub(super) fn bucket_of(self, limits: &Limits) -> (u64, u64) {
        let Rate { per_s, burst } = *self.of(limits);
        let burst_min = if self.counts_ios() { 1 } else { 4096 };
        let burst = burst.unwrap_or_else(|| (per_s / BURSTS_PER_S).max(burst_min));
        (per_s.saturating_mul(self.units()), burst.saturating_mul(self.units()))
    }

    /// Returns the rate whose bucket has these values.
    pub(super) fn rate_of((rate, burst): (u64, u64), which: Which) -> Rate {
        match rate {
            0 => Rate::default(),
            _ => Rate { per_s: rate / which.units(), burst: Some(burst / which.units()) },
        }
    }

    const fn of(self, limits: &Limits) -> &Rate {
        match self {
            Which::Iops => &limits.both.iops,
            Which::Bps => &limits.both.bps,
            Which::ReadIops => &limits.read.iops,
            Which::ReadBps => &limits.read.bps,
            Which::WriteIops => &limits.write.iops,
            Which::WriteBps => &limits.write.bps,
        }
    }

    pub(super) const fn of_mut(self, limits: &mut Limits) -> &mut Rate {
        match self {
            Which::Iops => &mut limits.both.iops,
            Which::Bps => &mut limits.both.bps,
            Which::ReadIops => &mut limits.read.iops,
            Which::ReadBps => &mut limits.read.bps,
            Which::WriteIops => &mut limits.write.iops,
            Which::WriteBps => &mut limits.write.bps,
        }
    }
}

/// A limit that does not exist, has a bad value, or conflicts with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLimit {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// A condition that the limits do not satisfy.
    pub expected: String,
}

impl fmt::Display for BadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: expected {}", self.key, self.value, self.expected)
    }
}

impl core::error::Error for BadLimit {}

impl Limits {
    /// Sets the limit with this key. [`check`](Limits::check) then checks the limits against each
    /// other.
    ///
    /// # Errors
    /// Returns an error if there is no such key, or if the value is bad for it.
    pub fn set_key(&mut self, key: &str, value: &str) -> Result<(), BadLimit> {
        let expected = match LimitKey::named(key) {
            Some(limit) if limit.set(self, value) => return Ok(()),
            Some(limit) => limit.values.expected(),
            None => {
                let keys: Vec<_> = LIMIT_KEYS.iter().map(|limit| limit.key).collect();
                format!("one of the limits {}", keys.join(", "))
            }
        };
        Err(BadLimit { key: key.to_owned(), value: value.to_owned(), expected })
    }

    /// Checks that each burst has a rate.
    ///
    /// # Errors
    /// Returns the first burst without a rate.
    pub fn check(&self) -> Result<(), BadLimit> {
        for limit in LIMIT_KEYS.iter().filter(|limit| limit.lacks_rate(self)) {
            if let Some(burst) = limit.rate(self).and_then(|rate| rate.burst) {
                let rate = limit.key.trim_end_matches("_burst");
                let expected = format!("{rate} above 0 beside it: set that too");
                let (key, value) = (limit.key.to_owned(), burst.to_string());
                return Err(BadLimit { key, value, expected });
            }
        }
        Ok(())
    }
}

/// A key of [`Limits`].
#[derive(Debug)]
#[non_exhaustive]
pub struct LimitKey {
    /// The key in specs and options.
    pub key: &'static str,
    /// The values: numbers, with a suffix such as `k` for a power of 1024.
    pub values: Values,
    /// A description in a few words.
    pub help: &'static str,
    part: Part,
}

/// The part of [`Limits`] that a key sets.
#[derive(Clone, Copy, Debug)]
enum Part {
    Rate(Which),
    Burst(Which),
    LatencyTarget,
}

const IOPS: Values = Values::Number {
    min: 0,
    max: Bucket::RATE_MAX / Bucket::UNITS_PER_IO,
    what: "a number of I/Os per second from 0 to 268435456; 0: no limit",
};
const BPS: Values = Values::Number {
    min: 0,
    max: Bucket::RATE_MAX,
    what: "a number of bytes per second from 0 to 1T; 0: no limit",
};
const IOS: Values = Values::Number {
    min: 0,
    max: Bucket::RATE_MAX / Bucket::UNITS_PER_IO,
    what: "a number of I/Os from 0 to 268435456",
};
const BYTES: Values =
    Values::Number { min: 0, max: Bucket::RATE_MAX, what: "a number of bytes from 0 to 1T" };
const TARGET: Values = Values::Number {
    min: 0,
    max: 100_000_000,
    what: "a number of microseconds from 0 to 100000000; 0: no goal",
};

const fn rate(key: &'static str, which: Which, help: &'static str) -> LimitKey {
    let values = if which.counts_ios() { IOPS } else { BPS };
    LimitKey { key, values, help, part: Part::Rate(which) }
}

const fn burst(key: &'static str, which: Which, help: &'static str) -> LimitKey {
    let values = if which.counts_ios() { IOS } else { BYTES };
    LimitKey { key, values, help, part: Part::Burst(which) }
}

/// All keys of [`Limits`], in the order of reports.
pub static LIMIT_KEYS: [LimitKey; 2 * NR_RATES + 1] = [
    rate("iops", Which::Iops, "most I/Os per second, reads and writes together"),
    rate("bps", Which::Bps, "most bytes per second, reads and writes together"),
    rate("read_iops", Which::ReadIops, "most reads per second"),
    rate("read_bps", Which::ReadBps, "most bytes read per second"),
    rate("write_iops", Which::WriteIops, "most writes, discards and write-zeroes per second"),
    rate("write_bps", Which::WriteBps, "most bytes written, discarded or zeroed per second"),
    burst("iops_burst", Which::Iops, "I/Os that may start at once after a pause"),
    burst("bps_burst", Which::Bps, "bytes that may start at once after a pause"),
    burst("read_iops_burst", Which::ReadIops, "reads that may start at once after a pause"),
    burst("read_bps_burst", Which::ReadBps, "bytes of reads that may start at once after a pause"),
    burst("write_iops_burst", Which::WriteIops, "writes that may start at once after a pause"),
    burst(
        "write_bps_burst",
        Which::WriteBps,
        "bytes of writes that may start at once after a pause",
    ),
    LimitKey {
        key: "latency_target_us",
        values: TARGET,
        help: "latency goal, us: while it is missed, siblings have fewer I/Os in flight",
        part: Part::LatencyTarget,
    },
];

impl LimitKey {
    /// Returns the limit with this key.
    pub fn named(key: &str) -> Option<&'static LimitKey> {
        LIMIT_KEYS.iter().find(|limit| limit.key == key)
    }

    /// Sets the value. Returns whether it is one of [`values`](LimitKey::values); if not, the
    /// limits are unchanged. [`Limits::check`] checks limits against each other.
    #[must_use]
    pub fn set(&self, limits: &mut Limits, value: &str) -> bool {
        let Some(number) = self.values.number(value) else { return false };
        match self.part {
            Part::Rate(which) => which.of_mut(limits).per_s = number,
            Part::Burst(which) => which.of_mut(limits).burst = Some(number),
            Part::LatencyTarget => limits.latency_target_us = number,
        }
        true
    }

    /// Returns whether this is a burst that is set, and its rate is 0.
    pub fn lacks_rate(&self, limits: &Limits) -> bool {
        let is_burst = matches!(self.part, Part::Burst(_));
        is_burst && self.rate(limits).is_some_and(|rate| rate.per_s == 0 && rate.burst.is_some())
    }

    /// Returns the rate that the key belongs to.
    fn rate<'a>(&self, limits: &'a Limits) -> Option<&'a Rate> {
        match self.part {
            Part::Rate(which) | Part::Burst(which) => Some(which.of(limits)),
            Part::LatencyTarget => None,
        }
    }

    /// Restores the default.
    pub fn reset(&self, limits: &mut Limits) {
        match self.part {
            Part::Rate(which) => which.of_mut(limits).per_s = 0,
            Part::Burst(which) => which.of_mut(limits).burst = None,
            Part::LatencyTarget => limits.latency_target_us = 0,
        }
    }

    /// Returns the value. `None` if it is not set.
    pub fn number(&self, limits: &Limits) -> Option<u64> {
        match self.part {
            Part::Rate(which) => Some(which.of(limits).per_s).filter(|per_s| *per_s > 0),
            Part::Burst(which) => which.of(limits).burst,
            Part::LatencyTarget => Some(limits.latency_target_us).filter(|target| *target > 0),
        }
    }

    /// Returns the value, as [`set`](LimitKey::set) takes it. `None` if it is not set.
    pub fn get(&self, limits: &Limits) -> Option<String> {
        self.number(limits).map(|number| number.to_string())
    }

    /// Returns a description of the default.
    pub fn default_value(&self) -> String {
        match self.part {
            Part::Rate(_) | Part::LatencyTarget => "0".to_owned(),
            Part::Burst(which) if which.counts_ios() => {
                "a tenth of a second at the rate, at least 1".to_owned()
            }
            Part::Burst(_) => "a tenth of a second at the rate, at least 4k".to_owned(),
        }
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests {
    use super::*;
    use crate::size::parse_size;

    #[test]
    fn each_key_sets_its_own_value_only() {
        for limit in &LIMIT_KEYS {
            let mut limits = Limits::default();
            assert!(limit.set(&mut limits, "8k"), "{}", limit.key);
            for other in &LIMIT_KEYS {
                let expected = (other.key == limit.key).then(|| "8192".to_owned());
                assert_eq!(other.get(&limits), expected, "{} {}", limit.key, other.key);
                assert_eq!(LimitKey::named(other.key).map(|found| found.key), Some(other.key));
            }
            let mut reset = limits;
            limit.reset(&mut reset);
            assert_eq!(reset, Limits::default());
            let is_burst = matches!(limit.part, Part::Burst(_));
            assert_eq!(limit.lacks_rate(&limits), is_burst, "{}", limit.key);
            let before = limits;
            let bad = limits.set_key(limit.key, "fast").expect_err("no number").to_string();
            assert_eq!(bad, format!("{}=fast: expected {}", limit.key, limit.values.expected()));
            assert!(!limit.set(&mut limits, "fast") && !limit.set(&mut limits, "2T"));
            assert_eq!(limits, before);
        }
        let bad = Limits::default().set_key("speed", "1").expect_err("no such key").to_string();
        assert!(bad.starts_with("speed=1: expected one of the limits iops, bps, "), "{bad}");
    }

    #[test]
    fn descriptions_give_the_ranges_of_their_values() {
        for limit in &LIMIT_KEYS {
            let Values::Number { min: 0, max, what } = limit.values else {
                panic!("{} is a number", limit.key)
            };
            let largest = match limit.part {
                Part::Rate(which) | Part::Burst(which) if which.counts_ios() => "268435456",
                Part::Rate(_) | Part::Burst(_) => "1T",
                Part::LatencyTarget => "100000000",
            };
            assert_eq!(parse_size(&largest.to_lowercase()), Some(max), "{}", limit.key);
            assert!(what.contains(largest), "{}", limit.key);
        }
    }

    #[test]
    fn burst_is_a_tenth_of_a_second_unless_it_is_given() {
        let io = Bucket::UNITS_PER_IO;
        let mut limits = Limits::default();
        for (per_s, burst, expected) in
            [(100, None, (100 * io, 10 * io)), (5, None, (5 * io, io)), (5, Some(0), (5 * io, 0))]
        {
            limits.read.iops = Rate { per_s, burst };
            assert_eq!(Which::ReadIops.bucket_of(&limits), expected);
        }
        limits.write.bps = Rate::per_s(1 << 20);
        assert_eq!(Which::WriteBps.bucket_of(&limits), (1 << 20, (1 << 20) / 10));
        limits.write.bps = Rate::per_s(512);
        assert_eq!(Which::WriteBps.bucket_of(&limits), (512, 4096));
    }

    #[test]
    fn burst_without_a_rate_is_an_error() {
        let mut limits = Limits::default();
        assert_eq!(limits.check(), Ok(()));
        limits.read.bps.burst = Some(5);
        let bad = limits.check().expect_err("no rate");
        assert_eq!((bad.key.as_str(), bad.value.as_str()), ("read_bps_burst", "5"));
        assert_eq!(bad.expected, "read_bps above 0 beside it: set that too");
        limits.read.bps.per_s = 1;
        assert_eq!(limits.check(), Ok(()));
    }

    #[test]
    fn flushes_are_free_and_discards_are_writes() {
        assert_eq!(Which::that_apply(Op::Flush), 0);
        let of_write = Which::that_apply(Op::Write);
        assert_eq!(Which::that_apply(Op::Discard), of_write);
        assert_eq!(Which::that_apply(Op::WriteZeroes), of_write);
        let both = Which::Iops.bit() | Which::Bps.bit();
        assert_eq!(Which::that_apply(Op::Read) & of_write, both);
        assert_eq!(Which::ALL.map(Which::bit).iter().sum::<u8>(), (1 << NR_RATES) - 1);
    }
}
