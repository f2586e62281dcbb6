//! The `fault` driver: wraps another device and lets chosen requests fail.
//!
//! What a rule says is in [`mod@rule`].
//!
//! What fails here is there to be reaped at once, and never seen by the inner driver, whose waiter
//! so knows nothing of it. It need not: `has_ready` tells whoever issued, who reaps it in the same
//! turn, and tells the thread that waits if that is what it waits for. What comes late is in
//! [`mod@delay`].

mod delay;
mod rule;

use self::delay::{Delays, FaultWaiter};
use self::rule::{Effect, Rule, Rules, rule};
use super::{Device, DriverQueue, Mode, Opened, Waiter};
use crate::arena::Arena;
use crate::error::{OpenError, SpecError};
use crate::extent::Extents;
use crate::info::Feature;
use crate::keys::Keys;
use crate::runtime::clock;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::{
    BlockStatus, Completions, Driver, Issue, IssuedRequest, Look, QueueLimits, Tag,
};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

struct FaultDevice {
    inner: Arc<dyn Device>,
    rules: Arc<Mutex<Rules>>,
    /// Some rule says that completions come late.
    delays: bool,
    /// Some rule says that they come short.
    shortens: bool,
}

struct FaultDriver {
    inner: Box<dyn Driver>,
    /// The inner driver's.
    waiter: Arc<dyn Waiter>,
    block: u64,
    rules: Arc<Mutex<Rules>>,
    /// Completions of requests that the inner driver never saw.
    failed: Vec<(Tag, Result<u64, BlockStatus>)>,
    delays: Delays,
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
    let mut features = opened.features.clone();
    features.push(Feature::present("faults", texts.join(" ")));
    let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let delays = rules.iter().any(Rule::delays);
    let shortens = rules.iter().any(Rule::shortens);
    let rules = Arc::new(Mutex::new(Rules { list: rules, random }));
    let device =
        Arc::new(FaultDevice { inner: Arc::clone(&opened.device), rules, delays, shortens });
    Ok(Opened { device, features, ..opened })
}

impl Device for FaultDevice {
    fn limits(&self) -> QueueLimits {
        let limits = self.inner.limits();
        // What a rule cuts off never reaches the device, so that these counts are exact. Of its own
        // ones nothing is known that tells them apart, and they are taken for as good.
        QueueLimits { exact_counts: limits.exact_counts || self.shortens, ..limits }
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        self.inner.arena()
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        self.inner.block_status(offset, extents)
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let DriverQueue { driver: inner, waiter } = self.inner.open_queue(depth, mode)?;
        let block = u64::from(self.limits().logical_block_size);
        let rules = Arc::clone(&self.rules);
        let failed = Vec::with_capacity(depth as usize);
        let delays = Delays::new(depth);
        let outer = match self.delays {
            true => Arc::new(FaultWaiter::new(Arc::clone(&waiter), &delays)),
            false => Arc::clone(&waiter),
        };
        let driver = FaultDriver { inner, waiter, block, rules, failed, delays };
        Ok(DriverQueue { driver: Box::new(driver), waiter: outer })
    }

    fn refusal(&self, source: io::Error) -> OpenError {
        self.inner.refusal(source)
    }
}

impl Driver for FaultDriver {
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
            Some(Effect::Lie) => {
                self.failed.push((rq.tag, Ok(rq.len)));
                Issue::Queued
            }
            Some(Effect::IgnoreFua) => {
                let mut rq = rq.clone();
                rq.fua = false;
                self.inner.queue_rq(&rq, last)
            }
            Some(Effect::Delay(delay_ns)) => {
                let answer = self.inner.queue_rq(rq, last);
                if answer == Issue::Queued {
                    self.delays.queued(rq.tag, delay_ns);
                }
                answer
            }
            Some(Effect::Short(_)) | None => self.inner.queue_rq(rq, last),
        }
    }

    fn commit_rqs(&mut self) {
        self.inner.commit_rqs();
    }

    fn reap(&mut self, done: &mut Completions, look: Look) {
        self.failed.drain(..).for_each(|(tag, result)| done.push(tag, result));
        match self.delays.is_idle() {
            true => self.inner.reap(done, look),
            false => self.delays.reap(done, |done| self.inner.reap(done, look)),
        }
    }

    fn wait(&mut self, nr_completions: u32) {
        match nr_completions.checked_sub(self.failed.len() as u32) {
            None | Some(0) => self.inner.commit_rqs(),
            Some(nr_others) => match self.delays.next_due_ns() {
                None => self.inner.wait(nr_others),
                Some(due_ns) => {
                    self.inner.commit_rqs();
                    // No wait tells of what the commit has completed.
                    if self.inner.has_ready() {
                        return;
                    }
                    if let Some(left_ns) = due_ns.checked_sub(clock::now_ns()) {
                        self.waiter.wait(Some(Duration::from_nanos(left_ns)));
                    }
                }
            },
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn has_ready(&self) -> bool {
        !self.failed.is_empty() || self.inner.has_ready() || self.delays.has_due()
    }

    fn nr_syscalls(&self) -> u64 {
        self.inner.nr_syscalls()
    }
}

#[cfg(test)]
mod tests;
