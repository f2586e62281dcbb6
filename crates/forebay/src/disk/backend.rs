//! Opening a disk on a device of the caller's own, with a policy or with options.

use super::{Disk, DiskOptions};
use crate::claim::Claim;
use crate::driver::backend::{Backend, BackendDriver};
use crate::driver::{Checked, Driver, DriverDevice};
use crate::error::{OpenError, SpecError};
use crate::info::{DiskInfo, Feature};
use crate::keys::Keys;
use crate::runtime::shared::Shared;
use crate::scheduler_below::SchedulerBelow;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::{BadKnob, KNOBS, Policy, QueueLimits, SchedulerPolicy};
use std::sync::Arc;

impl Disk {
    /// Opens a disk on a back end: a device of your own, with these limits and settings. It is a
    /// disk as any other. Its spec, which no call opens, is `backend:NAME`.
    /// [`DiskOptions::open_backend`] accepts the other settings of a disk too.
    ///
    /// The limits describe the back end: its size, its blocks, and what it can do. Operations that
    /// they do not mention are refused or emulated, and never reach it. Requests never exceed them.
    ///
    /// # Errors
    /// Fails if the limits contradict each other, if the capacity is 0, above `i64::MAX` or not in
    /// whole logical blocks, if a setting has an impossible value, or if it
    /// belongs to a system that only the simulator emulates.
    ///
    /// See [`Backend`] for an example.
    pub fn with_backend(
        backend: impl Backend,
        limits: QueueLimits,
        policy: Policy,
    ) -> Result<Disk, OpenError> {
        check(&policy)?;
        let device = device_of(backend, limits);
        let spec = BACKEND.spec(&device);
        Disk::reported(&spec, || open(&spec, device, BACKEND, &Settings::of_policy(policy)))
    }

    /// Opens a disk on a driver: a device of your own in unsafe code, with these settings. It is a
    /// disk like any other. Its spec is `driver:NAME`, which no call opens.
    ///
    /// # Errors
    /// Same as [`Disk::with_backend`]. [`OpenError::Driver`] if the driver cannot open a queue.
    ///
    /// See [`Driver`] for an example.
    pub fn with_driver(driver: impl Driver, policy: Policy) -> Result<Disk, OpenError> {
        check(&policy)?;
        let device = DriverDevice::new(Checked::new(driver));
        let spec = DRIVER.spec(&device);
        Disk::reported(&spec, || open(&spec, device, DRIVER, &Settings::of_policy(policy)))
    }
}

impl DiskOptions {
    /// Opens a disk on a back end with these limits. Same as [`Disk::with_backend`], with these
    /// options: also a service thread, tags that disks share, or smaller requests. The spec of the
    /// disk, which no call opens, is `backend:NAME?KEYS`.
    ///
    /// # Errors
    /// Fails as [`Disk::with_backend`] does, or if an option is not valid for a back end: one of a
    /// driver, or `exclusive=on`, because the library cannot keep other programs out.
    ///
    /// ```
    /// use forebay::{Backend, Batch, Disk, QueueLimits};
    ///
    /// struct Nothing;
    ///
    /// impl Backend for Nothing {
    ///     fn name(&self) -> &str {
    ///         "nothing"
    ///     }
    ///
    ///     fn submit(&self, batch: &mut Batch<'_>) {
    ///         batch.for_each(|request| request.complete(Ok(())));
    ///     }
    /// }
    ///
    /// let limits = QueueLimits::default().capacity_bytes(Some(1 << 20));
    /// let disk = Disk::options().service(true).nr_requests(8).open_backend(Nothing, limits)?;
    /// assert_eq!(disk.info().spec, "backend:nothing?service=on&nr_requests=8");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_backend(
        &self,
        backend: impl Backend,
        limits: QueueLimits,
    ) -> Result<Disk, OpenError> {
        self.open_device(device_of(backend, limits), BACKEND)
    }

    /// Opens a disk on a driver. Same as [`Disk::with_driver`], with these options.
    ///
    /// # Errors
    /// Fails as [`Disk::with_driver`] does, or if an option is not valid for a driver from outside
    /// the library: one of another driver, or `exclusive=on`, because the library cannot keep other
    /// programs out.
    pub fn open_driver(&self, driver: impl Driver) -> Result<Disk, OpenError> {
        self.open_device(DriverDevice::new(Checked::new(driver)), DRIVER)
    }

    fn open_device<D: Driver>(
        &self,
        device: DriverDevice<D>,
        kind: Kind,
    ) -> Result<Disk, OpenError> {
        let refuse = |key: &str, value: &str, expected: String| SpecError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected: expected.into(),
        };
        if let Some(driver) = self.chosen_driver() {
            let expected = format!("no driver, because {} is the device", kind.whose);
            return Err(refuse("driver", driver, expected).into());
        }
        let mut spec = kind.spec(&device);
        self.add_keys(&mut spec)?;
        let mut keys = Keys::of(&spec);
        let settings = Settings::take(&mut keys)?;
        keys.finish()?;
        if settings.exclusive() {
            let expected = format!("off: {} decides which programs use its device", kind.whose);
            return Err(refuse("exclusive", "on", expected).into());
        }
        Disk::reported(&spec, || open(&spec, device, kind, &settings))
    }
}

/// The kind of a device of the caller's own.
#[derive(Clone, Copy)]
struct Kind {
    /// The start of its specs.
    name: &'static str,
    /// The device in texts.
    whose: &'static str,
}

impl Kind {
    fn spec<D: Driver>(self, device: &DriverDevice<D>) -> Spec {
        Spec::of_device(self.name, &device.facts().name)
    }
}

const BACKEND: Kind = Kind { name: "backend", whose: "the back end" };
const DRIVER: Kind = Kind { name: "driver", whose: "the driver" };

fn device_of<B: Backend>(backend: B, limits: QueueLimits) -> DriverDevice<BackendDriver<B>> {
    let driver = BackendDriver::new(backend, limits);
    let forget_failure = driver.forget_failure();
    DriverDevice::new(driver).on_revive(forget_failure)
}

/// Opens a disk on a device with these settings, which `spec` shows.
fn open<D: Driver>(
    spec: &Spec,
    device: DriverDevice<D>,
    kind: Kind,
    settings: &Settings,
) -> Result<Disk, OpenError> {
    let (facts, spec) = (device.facts(), spec.to_string());
    let mut limits = facts.limits;
    check_capacity(&spec, &limits)?;
    let mut features = features(&limits, kind.whose);
    settings.apply(&mut limits)?;
    limits.validate().map_err(|source| OpenError::Limits { spec: spec.clone(), source })?;
    let scheduler = SchedulerPolicy::default_of(&limits);
    let below = SchedulerBelow::Nothing;
    let defaults = Defaults { scheduler, below, ..Defaults::default() };
    let opened_with = settings.opened_with(defaults);
    let policy = settings.policy(defaults)?;
    let policy = Settings::with_depths(policy, &limits)?;
    let tags = settings.tag_set(&policy)?;
    settings.amend(&mut features);
    let service = settings.service(Defaults::default());
    let info = DiskInfo {
        spec,
        driver: kind.name,
        limits,
        policy,
        facts: facts.disk.within(&limits),
        features,
        exclusive: false,
        lock: None,
        takeover_wait_ms: None,
        service,
        tag_set: settings.tag_set_name().map(str::to_owned),
        notice: None,
        opened_with,
    };
    Ok(Disk::of(Shared::new(info, Arc::new(device), service, tags, Claim::memory())?))
}

/// Checks the size of a disk, if it has one.
fn check_capacity(spec: &str, limits: &QueueLimits) -> Result<(), OpenError> {
    let block = limits.logical_block_size;
    let is_possible = |bytes: u64| {
        bytes > 0 && i64::try_from(bytes).is_ok() && bytes.is_multiple_of(block.into())
    };
    match limits.capacity_bytes {
        Some(bytes) if !is_possible(bytes) => {
            Err(OpenError::Capacity { spec: spec.to_owned(), bytes, block })
        }
        _ => Ok(()),
    }
}

/// Checks the settings of a policy, each by itself and against each other.
fn check(policy: &Policy) -> Result<(), SpecError> {
    for knob in &KNOBS {
        let value = knob.get(policy);
        if !knob.set(&mut policy.clone(), &value) {
            let expected = knob.values.expected().into();
            return Err(SpecError::BadValue { key: knob.key.to_owned(), value, expected });
        }
    }
    policy.check().map_err(|BadKnob { knob, value, expected }| SpecError::BadValue {
        key: knob.key.to_owned(),
        value,
        expected: expected.into(),
    })
}

/// Returns the features that the limits of a device describe.
fn features(limits: &QueueLimits, whose: &str) -> Vec<Feature> {
    let (by, no_limit) = (format!("by {whose}"), format!("the limits of {whose} lack it"));
    let has_discard = limits.max_discard_sectors > 0;
    vec![
        Feature::either("discard", has_discard, by.as_str(), no_limit.as_str()),
        Feature::either(
            "write_zeroes",
            limits.max_write_zeroes_sectors > 0,
            by.as_str(),
            no_limit.as_str(),
        ),
        Feature::either(
            "flush",
            limits.volatile_cache,
            by.as_str(),
            "the limits name no volatile cache; a flush ends at once",
        ),
        Feature::either(
            "fua",
            limits.fua,
            by.as_str(),
            "a flush follows the write if there is a cache",
        ),
    ]
}
