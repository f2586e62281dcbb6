//! Opening a disk on a device of the caller's own.

use super::Disk;
use crate::claim::Claim;
use crate::driver::backend::{Backend, BackendDriver};
use crate::driver::{Checked, Driver, DriverDevice};
use crate::error::{OpenError, SpecError};
use crate::info::{DiskInfo, Feature};
use crate::runtime::shared::Shared;
use forebay_core::{BadKnob, KNOBS, Policy, QueueLimits};
use std::sync::Arc;

impl Disk {
    /// Opens a disk on a back end: a device of your own, with these limits and settings. It is a
    /// disk as any other. Its spec, which no call opens, is `backend:NAME`.
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
        let driver = BackendDriver::new(backend, limits);
        let forget_failure = driver.forget_failure();
        let device = DriverDevice::new(driver).on_revive(forget_failure);
        open(device, "backend", "the back end", policy)
    }

    /// Opens a disk on a driver: a device of your own in unsafe code, with these settings. It is a
    /// disk like any other. Its spec is `driver:NAME`, which no call opens.
    ///
    /// # Errors
    /// Same as [`Disk::with_backend`]. [`OpenError::Driver`] if the driver cannot open a queue.
    ///
    /// See [`Driver`] for an example.
    pub fn with_driver(driver: impl Driver, policy: Policy) -> Result<Disk, OpenError> {
        open(DriverDevice::new(Checked::new(driver)), "driver", "the driver", policy)
    }
}

/// Opens a disk on a device whose specs begin with `kind`. `whose` names it in the features.
fn open<D: Driver>(
    device: DriverDevice<D>,
    kind: &'static str,
    whose: &str,
    policy: Policy,
) -> Result<Disk, OpenError> {
    let facts = device.facts();
    let (spec, limits) = (format!("{kind}:{}", facts.name), facts.limits);
    limits.validate().map_err(|source| OpenError::Limits { spec: spec.clone(), source })?;
    check_capacity(&spec, &limits)?;
    check(&policy)?;
    let info = DiskInfo {
        spec,
        driver: kind,
        limits,
        policy,
        facts: facts.disk.within(&limits),
        features: features(&limits, whose),
        exclusive: false,
        lock: None,
        takeover_wait_ms: None,
        service: false,
        tag_set: None,
        notice: None,
    };
    Ok(Disk { shared: Shared::new(info, Arc::new(device), false, None, Claim::memory())? })
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
