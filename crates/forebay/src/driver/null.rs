//! The `null` driver: every request completes at once, and no byte moves.
//!
//! It measures the layer alone. A read leaves its buffer as it was.

use super::{Opened, ideal_limits, sized_target};
use crate::error::OpenError;
use crate::info::Feature;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Look, QueueLimits, Tag};

#[derive(Debug)]
struct NullDriver {
    limits: QueueLimits,
    done: Vec<(Tag, u64)>,
}

pub(super) fn open(spec: &Spec, keys: &mut Keys, _: &Settings) -> Result<Opened, OpenError> {
    let (capacity, block) = sized_target(spec, keys)?;
    let driver = NullDriver { limits: ideal_limits(capacity, block), done: Vec::new() };
    let features = vec![
        Feature::missing("data", "null keeps nothing: reads leave their buffers as they are"),
        Feature::present("discard", "up to 256 ranges in one request, ignored"),
        Feature::present("write_zeroes", "ignored"),
        Feature::missing("flush", "there is no cache; a flush ends at once"),
        Feature::missing("fua", "there is no cache; every write is as durable as it gets"),
    ];
    Ok(Opened { driver: Box::new(driver), features })
}

impl Driver for NullDriver {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        self.done.push((rq.tag, rq.len));
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    #[inline]
    fn reap(&mut self, done: &mut Completions, _look: Look) {
        for (tag, len) in self.done.drain(..) {
            done.push(tag, Ok(len));
        }
    }

    fn wait(&mut self, _nr_completions: u32) {}
}
