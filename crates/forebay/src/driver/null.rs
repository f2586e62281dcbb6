//! The `null` driver: every request completes at once, and no byte moves.
//!
//! It measures the layer alone. A read leaves its buffer unchanged. With `kick_ns` each commit
//! takes this time, as it does for a device that must be notified.

use super::kick_cost::KickCost;
use super::timer::Timer;
use super::{Device, DriverQueue, Mode, Opened, ideal_limits, sized_target};
use crate::claim::Claim;
use crate::error::OpenError;
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, QueueLimits, Reap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
struct NullDevice {
    limits: QueueLimits,
    kick_cost: KickCost,
}

#[derive(Debug)]
struct NullDriver {
    kick_cost: KickCost,
    done: Completions,
    timer: Arc<Timer>,
}

pub(super) fn open(spec: &Spec, keys: &mut Keys, _: &Settings) -> Result<Opened, OpenError> {
    let (capacity, block) = sized_target(spec, keys)?;
    let limits = ideal_limits(capacity, block);
    let device = NullDevice { limits, kick_cost: KickCost::take(keys)? };
    let facts = DiskFacts { keeps_data: false, zeroes_fast: true, ..DiskFacts::default() };
    let features = vec![
        Feature::missing("data", "null keeps nothing: reads leave their buffers as they are"),
        Feature::present("discard", "up to 256 ranges in one request, ignored"),
        Feature::present("write_zeroes", "ignored"),
        Feature::missing("flush", "there is no cache; a flush ends at once"),
        Feature::missing("fua", "there is no cache, so FUA changes nothing"),
    ];
    let (device, defaults) = (Arc::new(device), Defaults { elide: true, ..Defaults::default() });
    Ok(Opened { device, facts, features, notice: None, defaults, claim: Claim::memory() })
}

impl Device for NullDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn ends_at_once(&self) -> bool {
        true
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<DriverQueue> {
        let timer = Arc::new(Timer::of_ready());
        let driver = NullDriver {
            timer: Arc::clone(&timer),
            kick_cost: self.kick_cost,
            done: Completions::new(depth),
        };
        Ok(DriverQueue { driver: Box::new(driver), waiter: timer })
    }
}

impl Driver for NullDriver {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        self.done.push(rq.tag, Ok(rq.len));
        self.kick_cost.queued();
        Issue::Queued
    }

    #[inline]
    fn commit_rqs(&mut self) {
        self.kick_cost.pay();
    }

    #[inline]
    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        done.append(&mut self.done);
    }

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        self.kick_cost.pay();
        // Every request is complete, so only the timeout can end this wait.
        if let Some(timeout) = timeout
            && self.done.len() < nr_completions as usize
        {
            std::thread::sleep(timeout);
        }
    }

    fn kick(&mut self) {
        self.timer.kick();
    }

    #[inline]
    fn has_ready(&self) -> bool {
        !self.done.is_empty()
    }

    fn makes_syscalls(&self) -> bool {
        false
    }
}
