//! The `fault` driver: wraps another device and lets chosen requests fail.
//!
//! The rules are those of [`FaultRules`].
//!
//! A request that completes here can be reaped at once. The inner driver never gets it, and its
//! waiter does not count it. It need not: `has_ready` reports it to the issuing thread, which reaps
//! it in the same turn and kicks the waiting thread if that waits for it. Delayed completions are
//! in [`mod@delay`], and failed write-backs in [`mod@write_back`].

mod delay;
mod rule;
mod write_back;

use self::delay::{Delays, FaultWaiter};
use self::write_back::{Description, Inode};
use super::{Device, DriverQueue, Mode, Opened};
use crate::arena::Arena;
use crate::error::{OpenError, SpecError};
use crate::extent::Extents;
use crate::info::Feature;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::spec::Spec;
use crate::sys::clock;
use forebay_core::{
    BlockStatus, Completions, Driver, Durability, Issue, IssuedRequest, Op, QueueLimits, Reap, Tag,
};
#[cfg(test)]
pub(crate) use forebay_model::FAULT_NAMES as RULE_NAMES;
use forebay_model::{FaultEffect, FaultRule, FaultRules, Random};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

struct FaultDevice {
    inner: Arc<dyn Device>,
    limits: QueueLimits,
    rules: Arc<Mutex<FaultRules>>,
    /// At least one rule delays completions.
    delays: bool,
    /// The shared error state; present if at least one rule makes write-backs fail.
    inode: Option<Arc<Inode>>,
}

struct FaultDriver {
    inner: Box<dyn Driver>,
    block: u64,
    rules: Arc<Mutex<FaultRules>>,
    /// Completions of requests that the inner driver never got.
    ready: Vec<(Tag, Result<u64, BlockStatus>)>,
    delays: Delays,
    /// The queue's open file description, if write-backs fail.
    description: Option<Description>,
    /// The inner driver gets flushes and durable writes; otherwise its writes are durable.
    has_inner_cache: bool,
    /// Requests that never complete, unless they are cancelled.
    hung: Vec<Tag>,
    /// The number of requests that the inner driver has.
    nr_inner: u32,
}

pub(super) fn open(spec: &Spec, keys: &mut Keys, settings: &Settings) -> Result<Opened, OpenError> {
    let texts = keys.take_all("rule");
    let rules = texts.iter().map(|text| rule::parse(text)).collect::<Result<Vec<_>, _>>()?;
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
    let delays = rules.iter().any(FaultRule::delays);
    let strikes = rules.iter().any(FaultRule::strikes);
    let limits = limits(opened.device.limits(), &rules);
    let mut in_force = limits;
    settings.apply(&mut in_force)?;
    for rule in &rules {
        rule::check(rule, &in_force, strikes)?;
    }
    let mut features = opened.features.clone();
    if strikes {
        features.retain(|feature| !matches!(feature.name, "flush" | "fua"));
        features.extend(write_back::features(&limits));
    }
    features.push(Feature::present("faults", texts.join(" ")));
    let device = FaultDevice {
        inner: Arc::clone(&opened.device),
        limits,
        rules: Arc::new(Mutex::new(FaultRules::new(rules, Random::new(seed, 0)))),
        delays,
        inode: strikes.then(|| Inode::of(&opened.claim)),
    };
    Ok(Opened { device: Arc::new(device), features, ..opened })
}

/// Returns the limits of a disk with these rules, above a disk with the limits `inner`.
fn limits(inner: QueueLimits, rules: &[FaultRule]) -> QueueLimits {
    // The part that a rule cuts off never reaches the device, so these counts are exact. The
    // device's own short counts cannot be distinguished from them, and count as exact too.
    let exact_counts = inner.exact_counts || rules.iter().any(FaultRule::shortens);
    let limits = inner.exact_counts(exact_counts);
    match rules.iter().any(FaultRule::strikes) {
        true => write_back::limits(limits),
        false => limits,
    }
}

impl Device for FaultDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        self.inner.arena()
    }

    fn can_register_memory(&self) -> bool {
        self.inner.can_register_memory()
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        self.inner.block_status(offset, extents)
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }

    fn revived(&self) {
        self.inner.revived();
    }

    fn reread_len(&self) -> io::Result<Option<u64>> {
        self.inner.reread_len()
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let DriverQueue { driver: inner, waiter } = self.inner.open_queue(depth, mode)?;
        let block = u64::from(self.limits().logical_block_size);
        let rules = Arc::clone(&self.rules);
        let ready = Vec::with_capacity(depth as usize);
        let description = self.inode.as_ref().map(|inode| Description::open(inode, depth));
        let has_inner_cache = self.inner.limits().volatile_cache;
        let delays = Delays::new(depth);
        let outer = match self.delays {
            true => Arc::new(FaultWaiter::new(Arc::clone(&waiter), &delays)),
            false => Arc::clone(&waiter),
        };
        let driver = FaultDriver {
            inner,
            block,
            rules,
            ready,
            delays,
            description,
            has_inner_cache,
            hung: Vec::with_capacity(depth as usize),
            nr_inner: 0,
        };
        Ok(DriverQueue { driver: Box::new(driver), waiter: outer })
    }

    fn check_for_errors(&self, durability: &Durability) {
        if let Some(inode) = &self.inode {
            inode.check(durability);
        }
    }

    fn refusal(&self, source: io::Error) -> OpenError {
        self.inner.refusal(source)
    }
}

impl FaultDriver {
    /// Passes a request to the wrapped disk, or completes a flush that the wrapped disk does not
    /// need. Its completion is delayed by `delay_ns`.
    fn issue(&mut self, rq: &IssuedRequest<'_>, last: bool, delay_ns: u64) -> Issue {
        let Some(description) = &mut self.description else {
            return self.issue_inner(rq, last, delay_ns);
        };
        if rq.op == Op::Flush && !self.has_inner_cache {
            let result = description.sync(Ok(0));
            if delay_ns == 0 {
                return self.complete(rq.tag, result);
            }
            self.delays.hold(rq.tag, result, delay_ns);
            return Issue::Queued;
        }
        let mut inner = rq.clone();
        inner.fua &= self.has_inner_cache;
        let answer = self.issue_inner(&inner, last, delay_ns);
        if (rq.op == Op::Flush || rq.fua)
            && answer.is_accepted()
            && let Some(description) = &mut self.description
        {
            description.sync_queued(rq.tag);
        }
        answer
    }

    /// Completes a request that the wrapped disk never gets.
    fn complete(&mut self, tag: Tag, result: Result<u64, BlockStatus>) -> Issue {
        self.ready.push((tag, result));
        Issue::Queued
    }

    /// Waits for requests that the inner driver has, while others never complete.
    fn wait_beside_hung(&mut self, nr_others: u32, timeout: Option<Duration>) {
        match self.nr_inner {
            // With a timeout the inner driver may be asked for a request that it does not have.
            0 => self.inner.wait(1, Some(timeout.unwrap_or(Duration::MAX))),
            nr_inner => self.inner.wait(nr_others.min(nr_inner), timeout),
        }
    }

    fn issue_inner(&mut self, rq: &IssuedRequest<'_>, last: bool, delay_ns: u64) -> Issue {
        let answer = self.inner.queue_rq(rq, last);
        let is_accepted = answer.is_accepted();
        self.nr_inner += u32::from(is_accepted);
        if is_accepted && delay_ns > 0 {
            self.delays.queued(rq.tag, delay_ns);
        }
        answer
    }
}

impl Driver for FaultDriver {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Issue {
        let effect = self.rules.lock().unwrap_or_else(PoisonError::into_inner).effect(rq);
        match effect {
            Some(FaultEffect::Busy) => Issue::Busy,
            Some(FaultEffect::Fail(status)) => self.complete(rq.tag, Err(status)),
            Some(FaultEffect::Short(len)) if rq.op.moves_data() && len < rq.len => {
                match len - len % self.block {
                    0 => self.complete(rq.tag, Ok(0)),
                    len => self.issue(&rq.prefix(len), last, 0),
                }
            }
            Some(FaultEffect::Lie) => self.complete(rq.tag, Ok(rq.len)),
            Some(FaultEffect::IgnoreFua) => {
                let mut rq = rq.clone();
                rq.fua = false;
                self.issue(&rq, last, 0)
            }
            Some(FaultEffect::Delay(delay_ns)) => self.issue(rq, last, delay_ns),
            Some(FaultEffect::WriteBack(status)) => {
                let description = self.description.as_mut().expect("a rule strikes");
                description.inode().strike(status);
                // Its own sync reports the error.
                let result = if rq.fua { description.sync(Ok(rq.len)) } else { Ok(rq.len) };
                self.complete(rq.tag, result)
            }
            Some(FaultEffect::ForeignSync) => {
                if let Some(description) = &self.description {
                    description.inode().sync_elsewhere();
                }
                self.issue(rq, last, 0)
            }
            Some(FaultEffect::Hang) => {
                self.hung.push(rq.tag);
                Issue::Queued
            }
            Some(FaultEffect::Short(_)) | None => self.issue(rq, last, 0),
        }
    }

    fn commit_rqs(&mut self) {
        self.inner.commit_rqs();
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        let FaultDriver { inner, ready, delays, description, nr_inner, .. } = self;
        ready.drain(..).for_each(|(tag, result)| done.push(tag, result));
        let mut reap_inner = |done: &mut Completions| {
            let nr_before = done.len();
            inner.reap(done, how);
            *nr_inner -= (done.len() - nr_before) as u32;
        };
        let mut from_inner = |done: &mut Completions| match description {
            Some(description) => description.reap(done, &mut reap_inner),
            None => reap_inner(done),
        };
        match delays.is_idle() {
            true => from_inner(done),
            false => delays.reap(done, from_inner),
        }
        delays.end_reap();
    }

    /// Returns early, too, when the wrapped disk completes a delayed request, which is reaped from
    /// it before its delay begins.
    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        match nr_completions.checked_sub(self.ready.len() as u32) {
            None | Some(0) => self.inner.commit_rqs(),
            Some(nr_others) => match self.delays.next_due_ns() {
                None if self.hung.is_empty() => self.inner.wait(nr_others, timeout),
                None => self.wait_beside_hung(nr_others, timeout),
                Some(due_ns) => {
                    let left = Duration::from_nanos(due_ns.saturating_sub(clock::now_ns()));
                    let left = timeout.map_or(left, |timeout| timeout.min(left));
                    self.inner.wait(1, Some(left));
                }
            },
        }
    }

    fn cancel(&mut self, tag: Tag) -> bool {
        match self.hung.iter().position(|hung| *hung == tag) {
            Some(at) => {
                self.hung.swap_remove(at);
                self.ready.push((tag, Err(BlockStatus::Timeout)));
                true
            }
            None => self.inner.cancel(tag),
        }
    }

    fn withdraw(&mut self) {
        self.inner.withdraw();
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.inner.has_ready() || self.delays.has_due()
    }

    fn nr_syscalls(&self) -> u64 {
        self.inner.nr_syscalls()
    }
}

#[cfg(test)]
mod tests;
