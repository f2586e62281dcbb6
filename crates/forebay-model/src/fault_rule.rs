//! Fault rules: which requests fail, come late or move less.
//!
//! The `fault` driver applies them to a real disk, the simulator to a modelled one. A rule is
//! `OPS:EFFECT[:WHEN...]`:
//!
//! - OPS: `read`, `write`, `flush`, `discard`, `write_zeroes`, several joined by `+`, or `any` (for
//!   `nofua` and `writeback` that is `write`);
//! - EFFECT: the name of a status (`io`, `medium`, `nospace`, `timeout`, `offline`, ...): the
//!   request fails with it and no part of it is done; `short=N`: at most N bytes of a read or write
//!   are moved; `busy`: the driver does not accept the request now (a rule may not match always,
//!   because the request is retried until it is accepted); `delay=TIME`, as in `500us`, `5ms` or
//!   `1s`: it completes this much later than at the device; `lie`: it completes and no part of it
//!   is done (a flush that lies, a write that is lost); `nofua`: a durable write becomes a plain
//!   one; `writeback=STATUS`: a write completes, and its write-back fails with this status;
//!   `foreign_sync`: another program syncs the disk before the request; `hang`: no part of the
//!   request is done, and it completes only if the layer cancels it, with the status `timeout`;
//! - WHEN, all of which must hold: `range=START+LEN`: the request touches these bytes; `rate=P`:
//!   with this probability; `nth=N`: every Nth request with these operations and this range;
//!   `after=N`: from the Nth of them on, forever.
//!
//! For example `read:medium:range=1M+4k`, `write:nospace:nth=10`, a cache that takes long to write
//! back, `flush:delay=5ms`, and a device that goes away: `any:offline:after=1000`.
//! All queues of a device count together. If several rules match, the first one counts.
//!
//! # Failed write-backs
//! With `write:writeback=io:nth=10` the disk is a file in a page cache: it has a volatile
//! cache, and a flush syncs the file. Every tenth write completes and is lost. The error is
//! reported as in Linux, by the next flush or durable write of each hardware context that was open
//! by then. An additional `read:foreign_sync:range=1M+4k` lets another
//! program consume an error first, whenever these bytes are read. Disks of this process on the same
//! file share the errors if each has a `writeback` rule.
//!
//! # Rules without an effect
//! A rule is refused if no request of one of its operations ever has its effect on this disk: for
//! example a flush without a volatile cache, or `nofua` if a flush follows each durable write
//! (`forebay info` shows both). For `any`, one operation with the effect is enough.

use crate::random::Random;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use forebay_core::{BlockStatus, IssuedRequest, Op, QueueLimits, parse_size};

/// The rules of a device. All its queues count together.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRules {
    list: Vec<FaultRule>,
    random: Random,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    text: String,
    ops: Vec<Op>,
    /// The operations were given as `any`.
    is_any: bool,
    effect: FaultEffect,
    range: Option<(u64, u64)>,
    rate: Option<f64>,
    nth: Option<u64>,
    after: Option<u64>,
    /// The number of requests with these operations and this range.
    seen: u64,
    /// The number of requests on which the rule had its effect.
    nr_hits: u64,
}

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultEffect {
    /// The request fails, and no part of it is done.
    Fail(BlockStatus),
    /// At most this number of bytes is moved.
    Short(u64),
    /// The driver does not accept the request now.
    Busy,
    /// Does nothing and reports success.
    Lie,
    /// Turns a durable write into a plain one.
    IgnoreFua,
    /// Delays the completion by this time, ns.
    Delay(u64),
    /// The write-back of a write fails, after the write has completed.
    WriteBack(BlockStatus),
    /// Another program syncs the disk.
    ForeignSync,
    /// Never completes the request.
    Hang,
}

/// The names of the effects other than statuses, and of the conditions. The docs name each.
pub const FAULT_NAMES: [&str; 12] = [
    "short=",
    "busy",
    "delay=",
    "lie",
    "nofua",
    "writeback=",
    "foreign_sync",
    "hang",
    "range=",
    "rate=",
    "nth=",
    "after=",
];

const EXPECTED_OPS: &str = "any, or read, write, flush, discard, write_zeroes joined by +";
const EXPECTED_EFFECT: &str = "a status such as io or medium, short=N, busy, delay=TIME, lie, \
                               nofua, writeback=STATUS, foreign_sync or hang after the operations";

/// Returns what is expected instead of a part of a rule.
fn instead(expected: &str, part: &str) -> String {
    format!("{expected}, not '{part}'")
}

fn ops(text: &str) -> Result<Vec<Op>, String> {
    if text == "any" {
        return Ok(Op::ALL.to_vec());
    }
    let op = |name| {
        let found = Op::ALL.into_iter().find(|op| op.name() == name);
        found.ok_or_else(|| instead(EXPECTED_OPS, name))
    };
    text.split('+').map(op).collect()
}

fn effect(text: &str) -> Option<FaultEffect> {
    match text {
        "busy" => return Some(FaultEffect::Busy),
        "lie" => return Some(FaultEffect::Lie),
        "nofua" => return Some(FaultEffect::IgnoreFua),
        "foreign_sync" => return Some(FaultEffect::ForeignSync),
        "hang" => return Some(FaultEffect::Hang),
        _ => {}
    }
    if let Some(name) = text.strip_prefix("writeback=") {
        return status(name).map(FaultEffect::WriteBack);
    }
    if let Some(time) = text.strip_prefix("delay=") {
        return parse_time_ns(time).map(FaultEffect::Delay);
    }
    if let Some(len) = text.strip_prefix("short=") {
        return parse_size(len).map(FaultEffect::Short);
    }
    status(text).map(FaultEffect::Fail)
}

fn status(name: &str) -> Option<BlockStatus> {
    BlockStatus::ALL.into_iter().find(|status| status.name() == name)
}

/// The longest delay: an hour.
const DELAY_MAX_NS: u64 = 3_600_000_000_000;

/// Parses a time with its unit, such as `500us`. Returns nanoseconds, from 1 to an hour.
pub fn parse_time_ns(text: &str) -> Option<u64> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (number, unit_ns) =
        units.into_iter().find_map(|(unit, unit_ns)| Some((text.strip_suffix(unit)?, unit_ns)))?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let time_ns = number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit_ns)?;
    (1..=DELAY_MAX_NS).contains(&time_ns).then_some(time_ns)
}

impl FaultRules {
    /// Returns these rules. The stream determines the requests that a rate selects.
    pub fn new(list: Vec<FaultRule>, random: Random) -> FaultRules {
        FaultRules { list, random }
    }

    /// Returns the effect of the first rule that matches a request.
    pub fn effect(&mut self, rq: &IssuedRequest<'_>) -> Option<FaultEffect> {
        let random = &mut self.random;
        let rule = self.list.iter_mut().find_map(|rule| rule.holds(rq, random).then_some(rule))?;
        rule.nr_hits += u64::from(rule.changes(rq));
        Some(rule.effect)
    }

    /// Returns the rules.
    pub fn list(&self) -> &[FaultRule] {
        &self.list
    }
}

impl FaultRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// Fails if a part of the rule is invalid. The message has the expected text and that part.
    pub fn parse(text: &str) -> Result<FaultRule, String> {
        let mut parts = text.split(':');
        let names = parts.next().unwrap_or_default();
        let mut ops = ops(names)?;
        let effect = parts.next().unwrap_or_default();
        let effect = self::effect(effect).ok_or_else(|| instead(EXPECTED_EFFECT, effect))?;
        if names == "any" && matches!(effect, FaultEffect::IgnoreFua | FaultEffect::WriteBack(_)) {
            ops = alloc::vec![Op::Write];
        }
        let (is_any, range, rate, nth, after) = (names == "any", None, None, None, None);
        let text = text.to_owned();
        let mut rule =
            FaultRule { text, ops, is_any, effect, range, rate, nth, after, seen: 0, nr_hits: 0 };
        for part in parts {
            rule.add_condition(part).map_err(|expected| instead(expected, part))?;
        }
        let is_rare =
            rule.nth.is_some_and(|nth| nth > 1) || rule.rate.is_some_and(|rate| rate < 1.0);
        if rule.effect == FaultEffect::Busy && !is_rare {
            let why = "a device that is always busy completes nothing";
            return Err(format!("nth=2 or more, or rate below 1: {why}"));
        }
        Ok(rule)
    }

    /// Parses and adds a condition.
    fn add_condition(&mut self, part: &str) -> Result<(), &'static str> {
        let from_1 = |value: &str| value.parse().ok().filter(|nr: &u64| *nr > 0);
        let (is_valid, expected) = match part.split_once('=') {
            Some(("range", value)) => {
                self.range = value.split_once('+').and_then(|(start, len)| {
                    let (start, len) = (parse_size(start)?, parse_size(len)?);
                    Some((start, start.checked_add(len)?))
                });
                (self.range.is_some(), "range=START+LEN with two sizes, such as range=1M+4k")
            }
            Some(("rate", value)) => {
                self.rate = value.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
                (self.rate.is_some(), "rate=P with a number from 0 to 1")
            }
            Some(("nth", value)) => {
                self.nth = from_1(value);
                (self.nth.is_some(), "nth=N with a number from 1")
            }
            Some(("after", value)) => {
                self.after = from_1(value);
                (self.after.is_some(), "after=N with a number from 1")
            }
            _ => (false, "range=START+LEN, rate=P, nth=N or after=N after the effect"),
        };
        if is_valid { Ok(()) } else { Err(expected) }
    }

    /// Returns the text of the rule.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the effect.
    pub fn effect(&self) -> FaultEffect {
        self.effect
    }

    /// Returns the number of requests on which the rule had its effect.
    pub fn nr_hits(&self) -> u64 {
        self.nr_hits
    }

    /// Returns whether the rule delays completions.
    pub fn delays(&self) -> bool {
        matches!(self.effect, FaultEffect::Delay(_))
    }

    /// Returns whether the rule shortens transfers.
    pub fn shortens(&self) -> bool {
        matches!(self.effect, FaultEffect::Short(_))
    }

    /// Returns whether the rule makes write-backs fail.
    pub fn strikes(&self) -> bool {
        matches!(self.effect, FaultEffect::WriteBack(_))
    }

    /// Checks that the rule can have its effect on a disk of these limits. `strikes`: write-backs
    /// fail on this disk.
    ///
    /// # Errors
    /// Returns what would be needed, if the rule never has an effect.
    pub fn check(&self, limits: &QueueLimits, strikes: bool) -> Result<(), &'static str> {
        let missing = |op: Op| self.missing(op, limits, strikes);
        let mut ops = self.ops.iter().copied();
        let expected = match self.is_any {
            true if ops.any(|op| missing(op).is_none()) => None,
            true => missing(Op::Write),
            false => ops.find_map(missing),
        };
        expected.map_or(Ok(()), Err)
    }

    /// Returns what a disk of these limits lacks, if no request with this operation can have the
    /// effect.
    fn missing(&self, op: Op, limits: &QueueLimits, strikes: bool) -> Option<&'static str> {
        let ends_before = |end: u64| self.range.is_some_and(|(start, _)| start >= end);
        let has_native_fua = limits.volatile_cache && limits.fua;
        let lacks = [
            (
                self.effect == FaultEffect::IgnoreFua && op != Op::Write,
                "writes only: nofua applies to no other request; to ignore a flush, use flush:lie",
            ),
            (op.is_write() && limits.read_only, "a disk that may be written to"),
            (
                op == Op::Discard && limits.max_discard_sectors == 0,
                "a disk with discards (`forebay info` shows whether it has them)",
            ),
            (
                op == Op::WriteZeroes && limits.max_write_zeroes_sectors == 0,
                "a disk that zeroes ranges (`forebay info` shows whether it does)",
            ),
            (
                op == Op::Flush && !limits.volatile_cache,
                "a disk with a volatile cache; flushes do not reach this disk",
            ),
            (op == Op::Flush && self.range.is_some(), "no range: a flush has none; remove range="),
            (
                limits.capacity_bytes.is_some_and(ends_before),
                "a range that begins before the end of the disk",
            ),
            (
                self.effect == FaultEffect::IgnoreFua && !has_native_fua,
                "nofua on a disk with native FUA (fua=on); on this disk no request has FUA, \
                 because a flush follows each durable write or every write is durable (see \
                 `forebay info`); to ignore that flush, use flush:lie",
            ),
            (
                matches!(self.effect, FaultEffect::Short(_)) && !op.moves_data(),
                "reads and writes only: short=N applies to no other request",
            ),
            (
                self.strikes() && op != Op::Write,
                "writes only: writeback=STATUS applies to no other request",
            ),
            (
                self.effect == FaultEffect::ForeignSync && !strikes,
                "foreign_sync beside a rule with writeback=STATUS, whose errors it takes",
            ),
        ];
        lacks.into_iter().find(|(lacks, _)| *lacks).map(|(_, expected)| expected)
    }

    /// Returns whether the effect changes a request that the rule matches.
    fn changes(&self, rq: &IssuedRequest<'_>) -> bool {
        match self.effect {
            FaultEffect::Short(len) => rq.op.moves_data() && len < rq.len,
            FaultEffect::IgnoreFua => rq.fua,
            _ => true,
        }
    }

    fn holds(&mut self, rq: &IssuedRequest<'_>, random: &mut Random) -> bool {
        let touches = |(from, to): (u64, u64)| {
            rq.ranges().any(|(start, len)| start < to && from < start + len)
        };
        if !self.ops.contains(&rq.op) || !self.range.is_none_or(touches) {
            return false;
        }
        self.seen += 1;
        self.nth.is_none_or(|nth| self.seen.is_multiple_of(nth))
            && self.after.is_none_or(|after| self.seen >= after)
            && self.rate.is_none_or(|rate| random.fraction() < rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn rules_are_parsed_whole() {
        let rule =
            FaultRule::parse("read+write:medium:range=1M+4k:nth=3:after=7:rate=0.5").unwrap();
        let expected = FaultRule {
            text: String::from("read+write:medium:range=1M+4k:nth=3:after=7:rate=0.5"),
            ops: vec![Op::Read, Op::Write],
            is_any: false,
            effect: FaultEffect::Fail(BlockStatus::Medium),
            range: Some((1 << 20, (1 << 20) + 4096)),
            rate: Some(0.5),
            nth: Some(3),
            after: Some(7),
            seen: 0,
            nr_hits: 0,
        };
        assert_eq!(rule, expected);
    }

    #[test]
    fn times_have_units() {
        let times = [("1ns", 1), ("500us", 500_000), ("5ms", 5_000_000), ("3600s", DELAY_MAX_NS)];
        for (text, expected) in times {
            assert_eq!(
                effect(&format!("delay={text}")),
                Some(FaultEffect::Delay(expected)),
                "{text}"
            );
        }
        assert_eq!(effect("delay=3601s"), None);
    }

    #[test]
    fn errors_name_the_wrong_part_and_what_is_expected_there() {
        for (text, expected, part) in [
            ("", "any, or read, ", ""),
            ("read+writ:io", "any, or read, ", "writ"),
            ("read", "a status such as ", ""),
            ("read:oops", "a status such as ", "oops"),
            ("read:short=", "a status such as ", "short="),
            ("flush:delay=", "a status such as ", "delay="),
            ("flush:delay=5", "a status such as ", "delay=5"),
            ("flush:delay=0ms", "a status such as ", "delay=0ms"),
            ("flush:delay=-1s", "a status such as ", "delay=-1s"),
            ("flush:delay=+1s", "a status such as ", "delay=+1s"),
            ("flush:delay=99999999999s", "a status such as ", "delay=99999999999s"),
            ("flush:liar", "a status such as ", "liar"),
            ("write:writeback", "a status such as ", "writeback"),
            ("write:writeback=bad", "a status such as ", "writeback=bad"),
            ("read:io:sometimes", "range=START+LEN, rate=P, nth=N or after=N", "sometimes"),
            ("read:io:nth=2:rate=2", "rate=P with a number from 0 to 1", "rate=2"),
            ("read:io:nth=0", "nth=N with a number from 1", "nth=0"),
            ("read:io:after=0", "after=N with a number from 1", "after=0"),
            ("read:io:range=1M", "range=START+LEN with two sizes", "range=1M"),
        ] {
            let message = FaultRule::parse(text).unwrap_err();
            let names_the_part = message.ends_with(&format!(", not '{part}'"));
            assert!(message.starts_with(expected) && names_the_part, "{text}: {message}");
        }
    }
}
