//! Opening a disk on a device of the caller's own.

use super::Disk;
use crate::claim::Claim;
use crate::driver::backend::{Backend, BackendDevice, spec};
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
        Disk::with_shared_backend(Arc::new(backend), limits, policy)
    }

    fn with_shared_backend(
        backend: Arc<dyn Backend>,
        limits: QueueLimits,
        policy: Policy,
    ) -> Result<Disk, OpenError> {
        let spec = spec(&*backend);
        limits.validate().map_err(|source| OpenError::Limits { spec: spec.clone(), source })?;
        check_capacity(&spec, &limits)?;
        check(&policy)?;
        let info = DiskInfo {
            spec,
            driver: "backend",
            limits,
            policy,
            facts: backend.facts().within(&limits),
            features: features(&limits),
            exclusive: false,
            lock: None,
            takeover_wait_ms: None,
            service: false,
            tag_set: None,
            notice: None,
        };
        let device = Arc::new(BackendDevice::new(backend, limits));
        Ok(Disk { shared: Shared::new(info, device, false, None, Claim::memory())? })
    }
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

/// Returns the features that the limits of a back end describe.
fn features(limits: &QueueLimits) -> Vec<Feature> {
    let no_limit = "the limits of the back end do not have it";
    let has_discard = limits.max_discard_sectors > 0;
    vec![
        Feature::either("discard", has_discard, "by the back end", no_limit),
        Feature::either(
            "write_zeroes",
            limits.max_write_zeroes_sectors > 0,
            "by the back end",
            no_limit,
        ),
        Feature::either(
            "flush",
            limits.volatile_cache,
            "by the back end",
            "the limits name no volatile cache; a flush ends at once",
        ),
        Feature::either(
            "fua",
            limits.fua,
            "by the back end",
            "a flush follows the write if there is a cache",
        ),
    ]
}
