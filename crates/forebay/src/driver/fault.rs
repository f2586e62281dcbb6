//! The `fault` driver: wraps another device and lets chosen requests fail.
//!
//! What a rule says is in [`mod@rule`].
//!
//! What fails here is there to be reaped at once, and never seen by the inner driver, whose waiter
//! so knows nothing of it. It need not: `has_ready` tells whoever issued, who reaps it in the same
//! turn, and tells the thread that waits if that is what it waits for.

mod rule;

use self::rule::{Effect, Rule, Rules, rule};
use super::{Device, DriverQueue, Mode, Opened};
use crate::arena::Arena;
use crate::error::{OpenError, SpecError};
use crate::info::Feature;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::{
    BlockStatus, Completions, Driver, Issue, IssuedRequest, Look, QueueLimits, Tag,
};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

struct FaultDevice {
    inner: Arc<dyn Device>,
    rules: Arc<Mutex<Rules>>,
}

struct FaultDriver {
    inner: Box<dyn Driver>,
    block: u64,
    rules: Arc<Mutex<Rules>>,
    /// Completions of requests that the inner driver never saw.
    failed: Vec<(Tag, Result<u64, BlockStatus>)>,
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
    let rules = Arc::new(Mutex::new(Rules { list: rules, random }));
    let device = Arc::new(FaultDevice { inner: Arc::clone(&opened.device), rules });
    Ok(Opened { device, features, ..opened })
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
        let block = u64::from(self.limits().logical_block_size);
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
    use forebay_core::{Bio, Op};

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
