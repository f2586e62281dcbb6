//! The settings of every disk, with any driver.

use crate::error::SpecError;
use crate::info::Feature;
use crate::keys::Keys;
use crate::runtime::tag_pool::TagPool;
use forebay_core::{
    FlushPolicy, KickPolicy, MergePolicy, PlugPolicy, Policy, QUEUE_DEPTH_MAX, QueueLimits,
    RunQueuePolicy, WakePolicy,
};
use std::sync::Arc;

/// Takes the keys that distribute tags. [`check_tags`] compares them with each other.
fn take_tags(keys: &mut Keys, policy: &mut Policy) -> Result<(), SpecError> {
    let wake = keys.take("wake", "fair, batch, stash or single", |value| {
        WakePolicy::ALL.into_iter().find(|wake| wake.name() == value)
    })?;
    policy.wake = wake.unwrap_or(policy.wake);
    let (any, depth_max) = (u64::from(QUEUE_DEPTH_MAX), UP_TO_QUEUE_DEPTH);
    let nr_requests = keys.take_number("nr_requests", depth_max, 1..=any)?;
    policy.nr_requests = nr_requests.map(|nr| nr as u32);
    let nr_reserved = keys.take_number("reserved_tags", BELOW_NR_REQUESTS, 0..=any)?;
    policy.nr_reserved = nr_reserved.map_or(policy.nr_reserved, |nr| nr as u32);
    let async_depth = keys.take_number("async_depth", depth_max, 1..=any)?;
    policy.async_depth = async_depth.map_or(policy.async_depth, |nr| nr as u32);
    Ok(())
}

/// Takes the keys for flushes.
fn take_flushes(keys: &mut Keys, policy: &mut Policy) -> Result<Option<bool>, SpecError> {
    let flush = keys.take("flush", "hold, requeue or tail", |value| {
        FlushPolicy::ALL.into_iter().find(|flush| flush.name() == value)
    })?;
    policy.flush = flush.unwrap_or(policy.flush);
    let expected = "a number of milliseconds from 0 to 3600000";
    let pending_ms = keys.take_number("flush_pending_ms", expected, 0..=3_600_000)?;
    policy.flush_pending_ns = pending_ms.map_or(policy.flush_pending_ns, |ms| ms * 1_000_000);
    keys.take_switch("elide")
}

const UP_TO_QUEUE_DEPTH: &str = "a number from 1 to queue_depth (see forebay info)";
const BELOW_NR_REQUESTS: &str = "a number below nr_requests (default: queue_depth)";

fn bad(key: &str, value: impl ToString, expected: &'static str) -> SpecError {
    SpecError::BadValue { key: key.to_owned(), value: value.to_string(), expected }
}

/// Checks that the policy does not give out more tags than exist.
fn check_tags(policy: &Policy) -> Result<(), SpecError> {
    let nr_requests = policy.nr_requests.unwrap_or(policy.queue_depth);
    if nr_requests > policy.queue_depth {
        return Err(bad("nr_requests", nr_requests, UP_TO_QUEUE_DEPTH));
    }
    // Without the key, the depth is unlimited.
    if policy.async_depth != QUEUE_DEPTH_MAX && policy.async_depth > policy.queue_depth {
        return Err(bad("async_depth", policy.async_depth, UP_TO_QUEUE_DEPTH));
    }
    if policy.nr_reserved >= nr_requests {
        return Err(bad("reserved_tags", policy.nr_reserved, BELOW_NR_REQUESTS));
    }
    Ok(())
}

/// A driver's defaults where the user sets nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defaults {
    /// A thread of the disk makes progress.
    pub(crate) service: bool,
    /// Requests at the driver per hardware context; `None` takes the layer's default.
    pub(crate) queue_depth: Option<u32>,
    /// Flushes with nothing to do end at once.
    pub(crate) elide: bool,
    /// The device can have one hardware context only. The text says why.
    pub(crate) one_hw_queue: Option<&'static str>,
}

/// The settings of every disk, with any driver.
#[derive(Debug)]
pub(crate) struct Settings {
    policy: Policy,
    nr_hw_queues: Option<u32>,
    queue_depth: Option<u32>,
    service: Option<bool>,
    max_sectors_kb: Option<u64>,
    fua: Option<bool>,
    elide: Option<bool>,
    exclusive: Option<bool>,
    read_only: Option<bool>,
    /// The name of a tag set that disks share.
    tag_set: Option<String>,
}

impl Settings {
    /// Takes the keys that every disk has.
    pub(crate) fn take(keys: &mut Keys) -> Result<Settings, SpecError> {
        let mut policy = Policy::default();
        let plug = keys.take("plug", "outermost, per-level or none", |value| {
            PlugPolicy::ALL.into_iter().find(|plug| plug.name() == value)
        })?;
        let nomerges = keys.take("nomerges", "0, 1 or 2", |value| {
            MergePolicy::ALL.into_iter().find(|policy| policy.number().to_string() == value)
        })?;
        let kick = keys.take("kick", "deferred, per-device, per-request or loop-end", |value| {
            KickPolicy::ALL.into_iter().find(|kick| kick.name() == value)
        })?;
        let run_queue = keys.take("run_queue", "dedupe or always", |value| {
            RunQueuePolicy::ALL.into_iter().find(|policy| policy.name() == value)
        })?;
        let depth_max = u64::from(QUEUE_DEPTH_MAX);
        let depth = keys.take_number("queue_depth", "a number from 1 to 10240", 1..=depth_max)?;
        let nr_bios = keys.take_number("nr_bios", "a number from 1 to 1048576", 1..=1 << 20)?;
        policy.plug = plug.unwrap_or(policy.plug);
        policy.nomerges = nomerges.unwrap_or(policy.nomerges);
        policy.kick = kick.unwrap_or(policy.kick);
        policy.run_queue = run_queue.unwrap_or(policy.run_queue);
        take_tags(keys, &mut policy)?;
        let elide = take_flushes(keys, &mut policy)?;
        policy.nr_bios = nr_bios.map_or(policy.nr_bios, |nr_bios| nr_bios as u32);
        policy.iostats = keys.take_switch("iostats")?.unwrap_or(policy.iostats);
        let expected = "a number from 1 to 1024";
        let nr_hw_queues = keys.take_number("nr_hw_queues", expected, 1..=1024)?;
        let expected = "a number of KiB, 1 to 1048576";
        Ok(Settings {
            policy,
            nr_hw_queues: nr_hw_queues.map(|nr| nr as u32),
            queue_depth: depth.map(|depth| depth as u32),
            service: keys.take_switch("service")?,
            max_sectors_kb: keys.take_number("max_sectors_kb", expected, 1..=1 << 20)?,
            fua: keys.take_switch("fua")?,
            elide,
            exclusive: keys.take_switch("exclusive")?,
            read_only: keys.take_switch("read_only")?,
            tag_set: keys
                .take("tag_set", "a name", |name| (!name.is_empty()).then(|| name.to_owned()))?,
        })
    }

    /// Returns whether the disk has a service thread.
    pub(crate) fn service(&self, defaults: Defaults) -> bool {
        // Tags that other disks wait for must come back even if this disk's users are idle.
        self.tag_set.is_some() || self.service.unwrap_or(defaults.service)
    }

    /// Returns the policy of the disk.
    ///
    /// # Errors
    /// Fails if more tags are requested than exist.
    pub(crate) fn policy(&self, defaults: Defaults) -> Result<Policy, SpecError> {
        let is_served = self.service(defaults) || self.policy.run_queue == RunQueuePolicy::Always;
        let is_single = is_served || defaults.one_hw_queue.is_some();
        let nr_hw_queues = self.nr_hw_queues.unwrap_or_else(|| match is_single {
            // The service thread leads the shared context, and the worker runs only that one.
            true => 1,
            // One context for a thread of each processor, and one shared by all others.
            false => std::thread::available_parallelism().map_or(1, |nr| nr.get() as u32) + 1,
        });
        let queue_depth = self.queue_depth.or(defaults.queue_depth);
        let queue_depth = queue_depth.unwrap_or(self.policy.queue_depth);
        let elide = self.elide.unwrap_or(defaults.elide);
        let policy = Policy { nr_hw_queues, queue_depth, elide, ..self.policy };
        check_tags(&policy)?;
        if let Some(expected) = defaults.one_hw_queue.filter(|_| nr_hw_queues != 1) {
            return Err(bad("nr_hw_queues", nr_hw_queues, expected));
        }
        if self.tag_set.is_some() && nr_hw_queues != 1 {
            return Err(bad("nr_hw_queues", nr_hw_queues, "1 for disks that share a tag_set"));
        }
        if self.tag_set.is_some() && self.service == Some(false) {
            return Err(bad("service", "off", "on for disks that share a tag_set"));
        }
        if self.tag_set.is_some() && policy.wake != WakePolicy::Fair {
            return Err(bad("wake", policy.wake.name(), "fair for disks that share a tag_set"));
        }
        Ok(policy)
    }

    /// Returns the tag set that the disk shares with others, if any.
    ///
    /// # Errors
    /// Fails if the other disks use another queue depth.
    pub(crate) fn tag_set(&self, policy: &Policy) -> Result<Option<Arc<TagPool>>, SpecError> {
        let Some(name) = &self.tag_set else { return Ok(None) };
        let pool = TagPool::named(name, policy.queue_depth);
        let expected = "the queue_depth of the open disks that share the tag_set";
        pool.map(Some).map_err(|_| bad("queue_depth", policy.queue_depth, expected))
    }

    /// Returns whether other users of the file or device are kept out.
    pub(crate) fn exclusive(&self) -> bool {
        self.exclusive == Some(true)
    }

    /// Returns whether a durable write is made by the write itself, if the user chose.
    pub(crate) fn fua(&self) -> Option<bool> {
        self.fua
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    /// Applies the settings that reduce limits.
    pub(crate) fn apply(&self, limits: &mut QueueLimits) {
        if let Some(kib) = self.max_sectors_kb {
            limits.max_sectors = limits.max_hw_sectors.min(kib as u32 * 2);
        }
        limits.fua &= self.fua != Some(false);
        limits.read_only |= self.read_only();
    }

    /// Adds the reason to features that the settings disable, and describes shared tags.
    pub(crate) fn amend(&self, features: &mut Vec<Feature>) {
        if let Some(name) = &self.tag_set {
            let how = format!("{name}: disks of this process with this name share tags");
            features.push(Feature::present("tag_set", how));
        }
        for feature in features {
            match feature.name {
                "fua" if self.fua == Some(false) => {
                    *feature = Feature::missing("fua", "fua=off: a flush follows the write");
                }
                "discard" | "write_zeroes" if self.read_only() => {
                    *feature = Feature::missing(feature.name, "read_only=on");
                }
                _ => {}
            }
        }
    }
}
