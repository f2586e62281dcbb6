//! The drivers, and how a spec becomes one.
//!
//! - [`null`]: completes everything at once and moves nothing;
//! - [`ram`]: memory, with the service times of a simple device if wanted;
//! - [`file`]: a file or block device, through io_uring;
//! - [`fault`]: wraps another driver and lets chosen requests fail.
//!
//! A driver follows the contract of [`forebay_core::Driver`], and comes from here alone: since it
//! follows the addresses in segments, only the layer, which vouches for them, may call it.

mod fault;
mod file;
mod null;
mod ram;

use crate::error::{OpenError, SpecError};
use crate::info::Feature;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::{Driver, QueueLimits};

/// A driver that is ready.
pub(crate) struct Opened {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) features: Vec<Feature>,
}

type Open = fn(&Spec, &mut Keys, &Settings) -> Result<Opened, OpenError>;

/// The drivers that there are: their names in specs, and what opens them.
const DRIVERS: [(&str, Open); 4] =
    [("null", null::open), ("ram", ram::open), ("file", file::open), ("fault", fault::open)];

/// The name of the driver that is called so, if there is one.
pub(crate) fn named(name: &str) -> Option<&'static str> {
    DRIVERS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// All names, for messages.
pub(crate) fn names() -> String {
    DRIVERS.map(|(name, _)| name).join(", ")
}

/// Opens the driver that a spec names.
pub(crate) fn open(spec: &Spec, keys: &mut Keys, settings: &Settings) -> Result<Opened, OpenError> {
    let found = DRIVERS.into_iter().find(|(name, _)| *name == spec.driver());
    let (_, open) = found.expect("a spec names a driver of this table");
    open(spec, keys, settings)
}

/// The size that is the target of a spec, in whole blocks of the size that its keys give.
fn sized_target(spec: &Spec, keys: &mut Keys) -> Result<(u64, u32), SpecError> {
    let block = keys
        .take_number("logical_block_size", "a power of two, 1 to 4096", 1..=4096)?
        .unwrap_or(512);
    let bad_target = |expected| SpecError::BadTarget {
        driver: spec.driver(),
        target: spec.target().to_owned(),
        expected,
    };
    let len = crate::size::size(spec.target()).ok_or_else(|| bad_target("a size, such as 1G"))?;
    if len == 0 || len > i64::MAX as u64 || !len.is_multiple_of(block) {
        return Err(bad_target("a size above 0, in whole logical blocks"));
    }
    Ok((len, block as u32))
}

/// Limits of a device that is memory or nothing: all operations, no cache to lose.
fn ideal_limits(capacity: u64, block: u32) -> QueueLimits {
    QueueLimits {
        capacity_bytes: Some(capacity),
        logical_block_size: block,
        physical_block_size: block.max(512),
        io_min: block,
        discard_granularity: block.max(512),
        max_discard_sectors: 1 << 22,
        max_discard_segments: 256,
        max_write_zeroes_sectors: 1 << 22,
        ..QueueLimits::default()
    }
}
