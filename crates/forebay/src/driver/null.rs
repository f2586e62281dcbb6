//! The `null` driver: every request completes at once, and no byte moves.
//!
//! It measures the layer alone. A read leaves its buffer unchanged. With `kick_ns` each commit
//! takes this time, as it does for a device that must be notified.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::contract::{Answer, Driver, DriverDevice, Facts, Queue, Wait};
use super::kick_cost::KickCost;
use super::{Mode, Opened, ideal_limits, sized_target};
use crate::claim::Claim;
use crate::error::OpenError;
use crate::extent::Extents;
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::{BlockStatus, Completions, IssuedRequest, QueueLimits, Reap, Tag};
use std::io;
use std::sync::Arc;

#[derive(Debug)]
struct NullDriver {
    limits: QueueLimits,
    kick_cost: KickCost,
}

#[derive(Debug)]
struct NullQueue {
    kick_cost: KickCost,
    done: Completions,
}

pub(super) fn open(spec: &Spec, keys: &mut Keys, _: &Settings) -> Result<Opened, OpenError> {
    let (capacity, block) = sized_target(spec, keys)?;
    let limits = ideal_limits(capacity, block);
    let driver = NullDriver { limits, kick_cost: KickCost::take(keys)? };
    let facts = driver.facts().disk;
    let features = vec![
        Feature::missing("data", "null keeps nothing: reads leave their buffers as they are"),
        Feature::present("discard", "up to 256 ranges in one request, ignored"),
        Feature::present("write_zeroes", "ignored"),
        Feature::missing("flush", "there is no cache; a flush ends at once"),
        Feature::missing("fua", "there is no cache, so FUA changes nothing"),
    ];
    let (device, defaults) =
        (Arc::new(DriverDevice::new(driver)), Defaults { elide: true, ..Defaults::default() });
    Ok(Opened { device, facts, features, notice: None, defaults, claim: Claim::memory() })
}

// SAFETY: each request completes when it is queued, with all of its bytes (K5). It keeps no data,
// and uses no memory.
unsafe impl Driver for NullDriver {
    type Queue = NullQueue;

    fn facts(&self) -> Facts {
        let disk = DiskFacts { keeps_data: false, zeroes_fast: true, ..DiskFacts::default() };
        Facts { disk, ..Facts::new("null", self.limits) }
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(NullQueue, Wait)> {
        let done = Completions::new(depth);
        Ok((NullQueue { kick_cost: self.kick_cost, done }, Wait::AtOnce))
    }

    fn block_status(&self, _: u64, _: &mut Extents<'_>) -> Result<(), BlockStatus> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

// SAFETY: as above.
unsafe impl Queue for NullQueue {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        self.done.push(rq.tag, Ok(rq.len));
        self.kick_cost.queued();
        Answer::Queued
    }

    #[inline]
    fn commit_rqs(&mut self) {
        self.kick_cost.pay();
    }

    #[inline]
    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        done.append(&mut self.done);
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    #[inline]
    fn has_ready(&self) -> bool {
        !self.done.is_empty()
    }

    fn nr_syscalls(&self) -> Option<u64> {
        None
    }
}
