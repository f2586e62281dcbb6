//! The `fault` driver: wraps another device and lets chosen requests fail.
//!
//! A rule is `OPS:EFFECT[:WHEN...]`:
//!
//! - OPS: `read`, `write`, `flush`, `discard`, `write_zeroes`, several joined by `+`, or `any`;
//! - EFFECT: the name of a status (`io`, `medium`, `nospace`, `timeout`, `offline`, ...): the
//!   request fails with it and nothing of it is done; `short=N`: at most N bytes are moved; `busy`:
//!   the driver says that it cannot take the request now (not always: it is asked until it can);
//! - WHEN, all of which must hold: `range=START+LEN`, the request touches these bytes; `rate=P`,
//!   with this probability; `nth=N`, every Nth request that the rule speaks of; `after=N`, from the
//!   Nth of them on, for ever.
//!
//! For example `rule=read:medium:range=1M+4k`, `rule=write:nospace:nth=10`, and a device that goes
//! away: `rule=any:offline:after=1000`. All queues of a device count together.
//!
//! What fails here is there to be reaped at once, and never seen by the inner driver, whose waiter
//! so knows nothing of it. It need not: `has_ready` tells whoever issued, who reaps it in the same
//! turn, and tells the thread that waits if that is what it waits for.

use super::{Device, DriverQueue, Mode, Opened};
use crate::arena::Arena;
use crate::error::{OpenError, SpecError};
use crate::info::Feature;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::size::size;
use crate::spec::Spec;
use forebay_core::{
    BlockStatus, Completions, Driver, Issue, IssuedRequest, Look, Op, QueueLimits, Tag,
};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

struct FaultDevice {
    inner: Arc<dyn Device>,
    rules: Arc<Mutex<Rules>>,
}

/// The rules, and what they have seen: shared by all queues.
#[derive(Debug)]
struct Rules {
    list: Vec<Rule>,
    random: u64,
}

struct FaultDriver {
    inner: Box<dyn Driver>,
    block: u64,
    rules: Arc<Mutex<Rules>>,
    /// Completions of requests that the inner driver never saw.
    failed: Vec<(Tag, Result<u64, BlockStatus>)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    ops: Vec<Op>,
    effect: Effect,
    range: Option<(u64, u64)>,
    rate: Option<f64>,
    nth: Option<u64>,
    after: Option<u64>,
    seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    Fail(BlockStatus),
    Short(u64),
    Busy,
}

pub(super) fn open(spec: &Spec, keys: &mut Keys, settings: &Settings) -> Result<Opened, OpenError> {
    let texts = keys.take_all("rule");
    let rules = texts.iter().map(|text| rule(text)).collect::<Result<Vec<Rule>, _>>()?;
    let seed = keys.take_number("seed", "a number", 0..=u64::MAX)?.unwrap_or(1);
    let target = Spec::parse(spec.target())?;
    if target.driver() == "fault" {
        return Err(OpenError::Spec(SpecError::BadTarget {
            driver: "fault",
            target: spec.target().to_owned(),
            expected: "a spec of another driver; rules can be repeated",
        }));
    }
    let opened = super::open(&target, keys, settings)?;
    let mut features = opened.features;
    features.push(Feature::present("faults", texts.join(" ")));
    let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let rules = Arc::new(Mutex::new(Rules { list: rules, random }));
    let device = Arc::new(FaultDevice { inner: opened.device, rules });
    Ok(Opened { device, features, notice: opened.notice })
}

/// Parses a rule.
fn rule(text: &str) -> Result<Rule, SpecError> {
    let bad =
        |expected| SpecError::BadValue { key: "rule".to_owned(), value: text.to_owned(), expected };
    let expected_op = "read, write, flush, discard, write_zeroes, joined by `+`, or any, first";
    let expected_effect = "a status such as io or medium, short=N or busy, after the operations";
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
    if text == "busy" {
        return Some(Effect::Busy);
    }
    if let Some(len) = text.strip_prefix("short=") {
        return size(len).map(Effect::Short);
    }
    BlockStatus::ALL.into_iter().find(|status| status.name() == text).map(Effect::Fail)
}

impl Rules {
    /// The effect of the first rule that holds for a request.
    fn effect(&mut self, rq: &IssuedRequest<'_>) -> Option<Effect> {
        let random = &mut self.random;
        let mut rules = self.list.iter_mut();
        rules.find_map(|rule| rule.holds(rq, random).then_some(rule.effect))
    }
}

impl Rule {
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

impl Device for FaultDevice {
    fn limits(&self) -> QueueLimits {
        self.inner.limits()
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        self.inner.arena()
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let DriverQueue { driver: inner, waiter } = self.inner.open_queue(depth, mode)?;
        let block = u64::from(inner.limits().logical_block_size);
        let rules = Arc::clone(&self.rules);
        let failed = Vec::with_capacity(depth as usize);
        let driver = FaultDriver { inner, block, rules, failed };
        Ok(DriverQueue { driver: Box::new(driver), waiter })
    }

    fn refusal(&self, source: io::Error) -> OpenError {
        self.inner.refusal(source)
    }
}

impl Driver for FaultDriver {
    fn limits(&self) -> QueueLimits {
        self.inner.limits()
    }

    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Issue {
        let effect = self.rules.lock().unwrap_or_else(PoisonError::into_inner).effect(rq);
        match effect {
            Some(Effect::Busy) => Issue::Busy,
            Some(Effect::Fail(status)) => {
                self.failed.push((rq.tag, Err(status)));
                Issue::Queued
            }
            Some(Effect::Short(len)) if rq.op.moves_data() && len < rq.len => {
                let len = len - len % self.block;
                if len > 0 {
                    return self.inner.queue_rq(&rq.prefix(len), last);
                }
                self.failed.push((rq.tag, Ok(0)));
                Issue::Queued
            }
            Some(Effect::Short(_)) | None => self.inner.queue_rq(rq, last),
        }
    }

    fn commit_rqs(&mut self) {
        self.inner.commit_rqs();
    }

    fn reap(&mut self, done: &mut Completions, look: Look) {
        self.failed.drain(..).for_each(|(tag, result)| done.push(tag, result));
        self.inner.reap(done, look);
    }

    fn wait(&mut self, nr_completions: u32) {
        match nr_completions.checked_sub(self.failed.len() as u32) {
            None | Some(0) => self.inner.commit_rqs(),
            Some(nr_others) => self.inner.wait(nr_others),
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn has_ready(&self) -> bool {
        !self.failed.is_empty() || self.inner.has_ready()
    }

    fn nr_syscalls(&self) -> u64 {
        self.inner.nr_syscalls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::testing::{data, device, issue, queue, reap};
    use forebay_core::Bio;

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
    fn bad_rules_say_what_is_expected_where() {
        for (text, place) in [
            ("", "first"),
            ("readd:io", "first"),
            ("read", "after the operations"),
            ("read:oops", "after the operations"),
            ("read:short=", "after the operations"),
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

    #[test]
    fn all_queues_count_together() {
        for (rule, nr_failed) in [("nth=10", 200), ("after=501", 1500), ("after=1001:nth=2", 500)] {
            let device = device(&format!("fault:null:1M?rule=discard:offline:{rule}"));
            let count = || {
                let mut driver = device.open_queue(4, Mode::Shared).expect("a queue").driver;
                let fails = (0..1000).filter(|_| {
                    issue(&mut *driver, 0, Bio::range(Op::Discard, 0, 512));
                    driver.commit_rqs();
                    reap(&mut *driver)[0].result == Err(BlockStatus::Offline)
                });
                fails.count()
            };
            let total: usize = std::thread::scope(|scope| {
                [scope.spawn(count), scope.spawn(count)].map(|it| it.join().expect("counts"))
            })
            .iter()
            .sum();
            assert_eq!(total, nr_failed, "{rule}");
        }
    }

    #[test]
    fn what_fails_is_ready_at_once_whatever_the_inner_driver_does() {
        let spec = "fault:ram:1M?req_ns=1000000000&rule=read:io";
        let DriverQueue { mut driver, waiter } = queue(spec, Mode::Shared);
        issue(&mut *driver, 0, Bio::range(Op::WriteZeroes, 0, 512));
        assert!(!driver.has_ready());
        issue(&mut *driver, 1, data(Op::Read, 0, &mut [0; 512], 512));
        assert!(driver.has_ready());
        assert_eq!(reap(&mut *driver), [failed(1)]);
        assert!(!driver.has_ready());
        // A kick goes through to where the thread waits.
        driver.kick();
        waiter.wait(None);
        assert_eq!(reap(&mut *driver), []);
    }

    fn failed(tag: usize) -> forebay_core::Completed {
        forebay_core::Completed { tag: Tag::from_index(tag), result: Err(BlockStatus::Io) }
    }
}
