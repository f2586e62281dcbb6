//! Facts about a driver that do not change while it is open.

use crate::info::DiskFacts;
use forebay_core::QueueLimits;

/// The facts about a [`Driver`](super::Driver), fixed at open. One value holds all of them, so a
/// wrapper passes on those that it does not mention.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Facts {
    /// The name of the driver, for reports. The spec of its disk is `driver:NAME`.
    pub name: String,
    /// The size of the device, its blocks, and the operations that it has. Requests keep these
    /// limits. Other operations are refused or emulated, and never reach the driver.
    pub limits: QueueLimits,
    /// Properties that programs may depend on.
    pub disk: DiskFacts,
}

impl Facts {
    /// Returns the facts about a driver with these limits that keeps its data, and has no special
    /// properties.
    pub fn new(name: impl Into<String>, limits: QueueLimits) -> Facts {
        Facts { name: name.into(), limits, disk: DiskFacts::default() }
    }
}
