//! The disk to measure, and the loads that it permits.

use forebay::{Disk, Spec};
use forebay_sim::calibrate::{Limits, Probe, plan};

use super::empty;
use crate::bench::file_below;
use crate::failure::Failure;
use crate::output;

/// The smallest disk: deep random loads on fewer blocks would often meet the same block.
const CAPACITY_MIN: u64 = 4 << 20;

/// A disk to measure.
#[derive(Debug)]
pub(super) struct Subject {
    /// The spec as the user wrote it.
    pub(super) name: String,
    /// The spec for measurements.
    pub(super) spec: Spec,
    pub(super) capacity_bytes: u64,
    /// The loads, and whether some of them write.
    pub(super) probes: Vec<Probe>,
    pub(super) writes: bool,
}

impl Subject {
    /// Opens the disk, reads its limits, and closes it again.
    ///
    /// # Errors
    /// The disk cannot be opened, is too small, or must not be written to.
    pub(super) fn of(text: &str, writes: bool) -> Result<Self, Failure> {
        let mut spec = Spec::parse(text).map_err(|error| Failure::Usage(error.to_string()))?;
        if file_below(&spec).is_some() && spec.get("direct").is_none() {
            spec.set("direct", "on");
        }
        let mut own = spec.clone();
        if writes {
            empty::prepare(&mut spec)?;
            own = spec.clone();
        } else if file_below(&own).is_some() && own.get("read_only").is_none() {
            own.set("read_only", "on");
        }
        let disk = Disk::open_spec(&own).map_err(|error| Failure::open("", &error))?;
        output::notice(disk.info());
        let limits = disk.limits();
        let name = text.to_owned();
        let Some(capacity_bytes) = disk.capacity_bytes() else {
            return Err(Failure::Run(format!(
                "{name}: capacity=growing: a calibration needs a fixed size; leave it out"
            )));
        };
        if capacity_bytes < CAPACITY_MIN {
            return Err(Failure::Run(format!(
                "{name}: the disk has {capacity_bytes} bytes; a calibration needs at least \
                 {CAPACITY_MIN}"
            )));
        }
        let probes = plan(&Limits {
            block_bytes: limits.logical_block_size,
            request_bytes: limits.max_sectors.saturating_mul(512),
            queue_depth: disk.info().policy.queue_depth,
            writes,
        });
        Ok(Self { name, spec, capacity_bytes, probes, writes })
    }
}
