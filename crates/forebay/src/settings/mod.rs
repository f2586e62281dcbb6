//! The settings of every disk, with any driver.
//!
//! [`table`] lists them; the rest applies the values of a spec to a disk that is being opened.

pub(crate) mod table;

use crate::error::SpecError;
use crate::info::{Feature, OpenedWith};
use crate::keys::Keys;
use crate::scheduler_below::SchedulerBelow;
use crate::tag_pool::TagPool;
use forebay_core::{BadKnob, KNOBS, Knob, Policy, QueueLimits, SchedulerPolicy, TagNeed, Values};
use std::borrow::Cow;
use std::sync::Arc;
use table::{EXCLUSIVE, FUA, MAX_SECTORS_KB, READ_ONLY, SERVICE, Setting, TAG_SET};

fn bad(key: &str, value: impl ToString, expected: impl Into<Cow<'static, str>>) -> SpecError {
    SpecError::BadValue { key: key.to_owned(), value: value.to_string(), expected: expected.into() }
}

impl Setting {
    fn refuse(&self, value: String) -> SpecError {
        bad(self.key, value, self.values.expected())
    }

    /// Takes the value from the keys of a spec as a number: 1 or 0 for a switch, the index of a
    /// word.
    pub(crate) fn take(&self, keys: &mut Keys) -> Result<Option<u64>, SpecError> {
        let Some(value) = keys.take_text(self.key) else { return Ok(None) };
        self.values.number(&value).map(Some).ok_or_else(|| self.refuse(value))
    }

    /// Checks a value by itself, as opening a disk does.
    pub(crate) fn check(&self, value: &str) -> Result<(), SpecError> {
        let is_valid = match self.values {
            Values::Name => !value.is_empty(),
            values => values.number(value).is_some(),
        };
        match self.knob() {
            _ if is_valid => Ok(()),
            Some(knob) => Err(refuse_knob(knob, value.to_owned())),
            None => Err(self.refuse(value.to_owned())),
        }
    }

    /// Takes the value of a setting that is a name.
    fn take_name(&self, keys: &mut Keys) -> Result<Option<String>, SpecError> {
        match keys.take_text(self.key) {
            Some(value) if value.is_empty() => Err(self.refuse(value)),
            name => Ok(name),
        }
    }
}

/// A driver's defaults for keys that the user does not set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defaults {
    /// The disk has a service thread.
    pub(crate) service: bool,
    /// Number of requests at the driver per hardware context; `None` for the layer's default.
    pub(crate) queue_depth: Option<u32>,
    /// The scheduler of a device without one below. `Auto` means none.
    pub(crate) scheduler: SchedulerPolicy,
    /// Flushes with nothing to do end at once.
    pub(crate) elide: bool,
    /// The reason if the device can have only one hardware context.
    pub(crate) one_hw_queue: Option<&'static str>,
    /// The maximum number of hardware contexts, if the device has one.
    pub(crate) hw_queues_max: Option<u32>,
    /// The next part of the system that orders requests, if any.
    pub(crate) below: SchedulerBelow,
}

/// The settings of every disk, with any driver.
#[derive(Debug)]
pub(crate) struct Settings {
    policy: Policy,
    /// The keys of the policy that the user set.
    given: Vec<&'static str>,
    service: Option<bool>,
    max_sectors_kb: Option<u64>,
    fua: Option<bool>,
    exclusive: Option<bool>,
    read_only: Option<bool>,
    /// The name of a tag set that disks share.
    tag_set: Option<String>,
}

/// Returns the error for a value that a setting of the policy does not take.
fn refuse_knob(knob: &Knob, value: String) -> SpecError {
    let mut expected = knob.values.expected();
    if knob.key == "wake" && value == "stash-v1" {
        expected += ONLY_SIMULATED;
    }
    bad(knob.key, value, expected)
}

/// The end of the error for `wake=stash-v1`.
const ONLY_SIMULATED: &str =
    "; stash-v1 can hang, so only the simulator has it: use forebay sim --wake=stash-v1";

impl Settings {
    /// Returns the settings of a disk whose policy is given as a value.
    pub(crate) fn of_policy(policy: Policy) -> Settings {
        Settings {
            policy,
            given: KNOBS.iter().map(|knob| knob.key).collect(),
            service: None,
            max_sectors_kb: None,
            fua: None,
            exclusive: None,
            read_only: None,
            tag_set: None,
        }
    }

    /// Takes the keys that every disk has.
    pub(crate) fn take(keys: &mut Keys) -> Result<Settings, SpecError> {
        let is_on = |number| number == 1;
        let (mut policy, mut given) = (Policy::default(), Vec::new());
        for knob in &KNOBS {
            let Some(value) = keys.take_text(knob.key) else { continue };
            if !knob.set(&mut policy, &value) {
                return Err(refuse_knob(knob, value));
            }
            given.push(knob.key);
        }
        Ok(Settings {
            policy,
            given,
            service: SERVICE.take(keys)?.map(is_on),
            max_sectors_kb: MAX_SECTORS_KB.take(keys)?,
            fua: FUA.take(keys)?.map(is_on),
            exclusive: EXCLUSIVE.take(keys)?.map(is_on),
            read_only: READ_ONLY.take(keys)?.map(is_on),
            tag_set: TAG_SET.take_name(keys)?,
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
        let is_served = self.service(defaults) || self.policy.emulation.queues_runs();
        let mut policy = self.policy;
        let is_given = |key| self.given.contains(&key);
        // Without the key, a scheduler decides how many contexts there are.
        if !is_given("nr_hw_queues") {
            policy.nr_hw_queues = 1;
        }
        policy = policy.with_default_scheduler(self.opened_with(defaults).scheduler);
        let is_single = is_served || defaults.one_hw_queue.is_some() || !policy.scheduler.is_none();
        if !is_given("nr_hw_queues") {
            policy.nr_hw_queues = match is_single {
                // The service thread leads the shared context, and the worker runs only that one.
                true => 1,
                // One context for a thread of each processor, and one shared by all others.
                false => std::thread::available_parallelism().map_or(1, |nr| nr.get() as u32) + 1,
            };
            policy.nr_hw_queues =
                policy.nr_hw_queues.min(defaults.hw_queues_max.unwrap_or(u32::MAX));
        }
        if let Some(queue_depth) = defaults.queue_depth.filter(|_| !is_given("queue_depth")) {
            policy.queue_depth = queue_depth;
        }
        if !is_given("elide") {
            policy.elide = defaults.elide;
        }
        let nr_hw_queues = policy.nr_hw_queues;
        policy
            .check()
            .map_err(|BadKnob { knob, value, expected }| bad(knob.key, value, expected))?;
        if let Some(expected) = defaults.one_hw_queue.filter(|_| nr_hw_queues != 1) {
            return Err(bad("nr_hw_queues", nr_hw_queues, expected));
        }
        if !policy.scheduler.is_none() && nr_hw_queues != 1 {
            let expected = "1 with a scheduler, which orders one context; or add scheduler=none";
            return Err(bad("nr_hw_queues", nr_hw_queues, expected));
        }
        if let Some(max) = defaults.hw_queues_max.filter(|max| nr_hw_queues > *max) {
            let expected = format!("1 to {max}, the number of queues that the server has");
            return Err(bad("nr_hw_queues", nr_hw_queues, expected));
        }
        if self.tag_set.is_some() && nr_hw_queues != 1 {
            return Err(bad("nr_hw_queues", nr_hw_queues, "1 for disks that share a tag_set"));
        }
        if self.tag_set.is_some() && self.service == Some(false) {
            return Err(bad("service", "off", "on for disks that share a tag_set"));
        }
        if self.tag_set.is_some() && policy.emulation.threads_wait_for_tags() {
            let wake = policy.emulation.wake_policy().name();
            return Err(bad("wake", wake, "fair for disks that share a tag_set"));
        }
        if self.tag_set.is_some() && policy.tag_need == TagNeed::Parts {
            return Err(bad("tag_need", "parts", "auto or one for disks that share a tag_set"));
        }
        Ok(policy)
    }

    /// Returns the settings that later changes of the scheduler start from.
    pub(crate) fn opened_with(&self, defaults: Defaults) -> OpenedWith {
        let scheduler = match self.tag_set {
            None => defaults.scheduler,
            Some(_) => SchedulerPolicy::None,
        };
        OpenedWith { nr_requests: self.policy.nr_requests, scheduler, below: defaults.below }
    }

    /// Sets the depths of a policy that follow from the scheduler and the limits.
    ///
    /// # Errors
    /// Fails if more tags are reserved than may be in use.
    pub(crate) fn with_depths(policy: Policy, limits: &QueueLimits) -> Result<Policy, SpecError> {
        if policy.scheduler.is_none() {
            return Ok(policy);
        }
        let policy = policy
            .device_depth(Some(policy.device_depth_of(limits)))
            .nr_requests(Some(policy.nr_requests_of(limits)));
        let checked = policy.check();
        checked.map_err(|BadKnob { knob, value, expected }| bad(knob.key, value, expected))?;
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

    /// Returns the name of the tag set that the disk shares with others, if any.
    pub(crate) fn tag_set_name(&self) -> Option<&str> {
        self.tag_set.as_deref()
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
    ///
    /// # Errors
    /// A request would not hold a logical block, or the device has no FUA although the user chose
    /// it.
    pub(crate) fn apply(&self, limits: &mut QueueLimits) -> Result<(), SpecError> {
        if let Some(kib) = self.max_sectors_kb {
            let block = u64::from(limits.logical_block_size);
            if kib << 10 < block {
                return Err(SpecError::BadValue {
                    key: MAX_SECTORS_KB.key.to_owned(),
                    value: kib.to_string(),
                    expected: format!(
                        "at least {} KiB, the logical block of this disk",
                        block.div_ceil(1024)
                    )
                    .into(),
                });
            }
            limits.max_sectors = limits.max_hw_sectors.min(kib as u32 * 2);
        }
        // Without a volatile cache, each write is durable.
        if self.fua == Some(true) && limits.volatile_cache && !limits.fua {
            let expected = "off: this device has no FUA, so a flush follows each durable write";
            return Err(bad(FUA.key, "on", expected));
        }
        limits.fua &= self.fua != Some(false);
        limits.read_only |= self.read_only();
        Ok(())
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
