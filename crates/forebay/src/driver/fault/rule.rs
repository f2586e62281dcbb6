//! The rules of the `fault` driver: which requests, and what happens to them.
//!
//! A rule is `OPS:EFFECT[:WHEN...]`:
//!
//! - OPS: `read`, `write`, `flush`, `discard`, `write_zeroes`, several joined by `+`, or `any`;
//! - EFFECT: the name of a status (`io`, `medium`, `nospace`, `timeout`, `offline`, ...): the
//!   request fails with it and nothing of it is done; `short=N`: at most N bytes are moved; `busy`:
//!   the driver says that it cannot take the request now (not always: it is asked until it can);
//!   `delay=TIME`, as in `500us`, `5ms` or `1s`: it completes so much later than at the device;
//!   `lie`: it is said to be done, and nothing of it is (a flush that lies, a write that is lost);
//!   `nofua`: of a durable write, that it is to be durable is ignored;
//! - WHEN, all of which must hold: `range=START+LEN`, the request touches these bytes; `rate=P`,
//!   with this probability; `nth=N`, every Nth request that the rule speaks of; `after=N`, from the
//!   Nth of them on, for ever.
//!
//! For example `rule=read:medium:range=1M+4k`, `rule=write:nospace:nth=10`, a cache that takes long
//! to write back, `rule=flush:delay=5ms`, and a device that goes away:
//! `rule=any:offline:after=1000`.
//! All queues of a device count together. Of several rules the first that holds counts. A flush
//! reaches a device only where that has a cache that may lose something (`forebay info` says so).

use crate::error::SpecError;
use crate::size::size;
use forebay_core::{BlockStatus, IssuedRequest, Op};

/// The rules, and what they have seen: shared by all queues.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) list: Vec<Rule>,
    pub(super) random: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    ops: Vec<Op>,
    effect: Effect,
    range: Option<(u64, u64)>,
    rate: Option<f64>,
    nth: Option<u64>,
    after: Option<u64>,
    seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Effect {
    Fail(BlockStatus),
    Short(u64),
    Busy,
    /// Nothing is done, and success is said.
    Lie,
    /// A durable write is a plain one.
    IgnoreFua,
    /// By so many ns.
    Delay(u64),
}

/// Parses a rule.
pub(super) fn rule(text: &str) -> Result<Rule, SpecError> {
    let bad =
        |expected| SpecError::BadValue { key: "rule".to_owned(), value: text.to_owned(), expected };
    let expected_op = "read, write, flush, discard, write_zeroes, joined by `+`, or any, first";
    let expected_effect = "a status such as io or medium, short=N, busy, delay=TIME, lie or nofua, \
                           after the operations";
    let expected_when = "range=START+LEN, rate=0..1, nth=N or after=N, after the effect";
    let mut parts = text.split(':');
    let ops = parts.next().and_then(ops).ok_or_else(|| bad(expected_op))?;
    let effect = parts.next().and_then(effect).ok_or_else(|| bad(expected_effect))?;
    let mut rule = Rule { ops, effect, range: None, rate: None, nth: None, after: None, seen: 0 };
    for part in parts {
        let known = match part.split_once('=') {
            Some(("range", value)) => {
                rule.range = value.split_once('+').and_then(|(start, len)| {
                    let (start, len) = (size(start)?, size(len)?);
                    Some((start, start.checked_add(len)?))
                });
                rule.range.is_some()
            }
            Some(("rate", value)) => {
                rule.rate = value.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
                rule.rate.is_some()
            }
            Some(("nth", value)) => {
                rule.nth = value.parse().ok().filter(|nth| *nth > 0);
                rule.nth.is_some()
            }
            Some(("after", value)) => {
                rule.after = value.parse().ok().filter(|after| *after > 0);
                rule.after.is_some()
            }
            _ => false,
        };
        if !known {
            return Err(bad(expected_when));
        }
    }
    let is_rare = rule.nth.is_some_and(|nth| nth > 1) || rule.rate.is_some_and(|rate| rate < 1.0);
    if rule.effect == Effect::Busy && !is_rare {
        return Err(bad("nth=2 or more, or rate below 1: a device that is always busy never ends"));
    }
    Ok(rule)
}

fn ops(text: &str) -> Option<Vec<Op>> {
    if text == "any" {
        return Some(Op::ALL.to_vec());
    }
    text.split('+').map(|name| Op::ALL.into_iter().find(|op| op.name() == name)).collect()
}

fn effect(text: &str) -> Option<Effect> {
    match text {
        "busy" => return Some(Effect::Busy),
        "lie" => return Some(Effect::Lie),
        "nofua" => return Some(Effect::IgnoreFua),
        _ => {}
    }
    if let Some(time) = text.strip_prefix("delay=") {
        return time_ns(time).map(Effect::Delay);
    }
    if let Some(len) = text.strip_prefix("short=") {
        return size(len).map(Effect::Short);
    }
    BlockStatus::ALL.into_iter().find(|status| status.name() == text).map(Effect::Fail)
}

/// The longest delay: an hour.
const DELAY_MAX_NS: u64 = 3_600_000_000_000;

/// A time with its unit, ns.
fn time_ns(text: &str) -> Option<u64> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (number, unit_ns) =
        units.into_iter().find_map(|(unit, unit_ns)| Some((text.strip_suffix(unit)?, unit_ns)))?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let time_ns = number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit_ns)?;
    (1..=DELAY_MAX_NS).contains(&time_ns).then_some(time_ns)
}

impl Rules {
    /// The effect of the first rule that holds for a request.
    pub(super) fn effect(&mut self, rq: &IssuedRequest<'_>) -> Option<Effect> {
        let random = &mut self.random;
        let mut rules = self.list.iter_mut();
        rules.find_map(|rule| rule.holds(rq, random).then_some(rule.effect))
    }
}

impl Rule {
    /// Whether it lets completions come late.
    pub(super) fn delays(&self) -> bool {
        matches!(self.effect, Effect::Delay(_))
    }

    /// Whether it lets them come short.
    pub(super) fn shortens(&self) -> bool {
        matches!(self.effect, Effect::Short(_))
    }

    fn holds(&mut self, rq: &IssuedRequest<'_>, random: &mut u64) -> bool {
        let touches = |(from, to): (u64, u64)| {
            rq.ranges().any(|(start, len)| start < to && from < start + len)
        };
        if !self.ops.contains(&rq.op) || !self.range.is_none_or(touches) {
            return false;
        }
        self.seen += 1;
        self.nth.is_none_or(|nth| self.seen.is_multiple_of(nth))
            && self.after.is_none_or(|after| self.seen >= after)
            && self.rate.is_none_or(|rate| next_fraction(random) < rate)
    }
}

/// The next of a stream of numbers in 0..1: xorshift64* (Vigna, 2016).
fn next_fraction(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let bits = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed_whole() {
        let rule = rule("read+write:medium:range=1M+4k:nth=3:after=7:rate=0.5").unwrap();
        let expected = Rule {
            ops: vec![Op::Read, Op::Write],
            effect: Effect::Fail(BlockStatus::Medium),
            range: Some((1 << 20, (1 << 20) + 4096)),
            rate: Some(0.5),
            nth: Some(3),
            after: Some(7),
            seen: 0,
        };
        assert_eq!(rule, expected);
    }

    #[test]
    fn times_have_units() {
        let times = [("1ns", 1), ("500us", 500_000), ("5ms", 5_000_000), ("3600s", DELAY_MAX_NS)];
        for (text, expected) in times {
            assert_eq!(effect(&format!("delay={text}")), Some(Effect::Delay(expected)), "{text}");
        }
        assert_eq!(effect("delay=3601s"), None);
    }

    #[test]
    fn bad_rules_say_what_is_expected_where() {
        for (text, place) in [
            ("", "first"),
            ("readd:io", "first"),
            ("read", "after the operations"),
            ("read:oops", "after the operations"),
            ("read:short=", "after the operations"),
            ("flush:delay=", "after the operations"),
            ("flush:delay=5", "after the operations"),
            ("flush:delay=0ms", "after the operations"),
            ("flush:delay=-1s", "after the operations"),
            ("flush:delay=+1s", "after the operations"),
            ("flush:delay=99999999999s", "after the operations"),
            ("flush:liar", "after the operations"),
            ("read:io:sometimes", "after the effect"),
            ("read:io:rate=2", "after the effect"),
            ("read:io:nth=0", "after the effect"),
            ("read:io:after=0", "after the effect"),
            ("read:io:range=1M", "after the effect"),
        ] {
            let message = rule(text).unwrap_err().to_string();
            assert!(message.contains(place), "{text}: {message}");
        }
    }
}
