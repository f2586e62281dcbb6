//! Write pointers of emulated zones (`zonemode=zbd`): one set for each file or device of a run,
//! which all clones on it share.
//!
//! As in fio, zones are not kept between runs: each run begins with empty zones. A really zoned
//! device is refused, because `bench` neither reports nor resets its zones.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use forebay_fio::generator::zoned::WritePointers;
use forebay_fio::job::Job;

use super::in_use::block_number;
use super::plan::{self, Target};
use crate::failure::Failure;

/// The write pointers by the number of the file or device.
#[derive(Debug, Default)]
pub(super) struct Zones(HashMap<u64, Arc<WritePointers>>);

impl Zones {
    pub(super) fn new(jobs: &[Job], targets: &[Target]) -> Self {
        let zoned = targets.iter().filter(|target| jobs[target.job].zoned().is_some());
        Self(zoned.map(|target| (target.place, Arc::default())).collect())
    }

    /// Returns the write pointers of a target; unused ones if its job has no such zones.
    pub(super) fn of(&self, target: &Target) -> Arc<WritePointers> {
        self.0.get(&target.place).cloned().unwrap_or_default()
    }
}

/// Refuses jobs whose zones contradict each other or their device.
pub(super) fn check(jobs: &[Job], targets: &[Target]) -> Result<(), Failure> {
    let mut first: HashMap<u64, usize> = HashMap::new();
    for clone in plan::clones(targets) {
        let target = &clone[0];
        let job = &jobs[target.job];
        if job.zone_size_is_from_device {
            check_is_not_zoned(job, target)?;
        }
        let Some(zoned) = job.zoned() else { continue };
        let refuse = |why: String| Err(Failure::Usage(format!("{}: {why}", job.name)));
        if clone.len() > 1 {
            return refuse(format!(
                "--zonemode=zbd needs one file for each clone, not {}; write a job for each file",
                clone.len()
            ));
        }
        let other = *first.entry(target.place).or_insert(target.job);
        let theirs = jobs[other].zoned().unwrap_or(zoned);
        for (option, ours, theirs) in [
            ("zonesize", zoned.size, theirs.size),
            ("zonecapacity", zoned.capacity, theirs.capacity),
            ("max_open_zones", zoned.max_open.into(), theirs.max_open.into()),
        ] {
            if ours != theirs {
                return refuse(format!(
                    "--{option}={ours} differs from {theirs} of the job {}, which shares the zones \
                     of the same file; use one value",
                    jobs[other].name
                ));
            }
        }
        check_is_not_zoned(job, target)?;
    }
    Ok(())
}

/// Refuses a zoned device.
fn check_is_not_zoned(job: &Job, target: &Target) -> Result<(), Failure> {
    let Some(path) = target.path() else { return Ok(()) };
    let Some(model) = model_of(&path) else { return Ok(()) };
    Err(Failure::Run(format!(
        "{}: {} is a zoned device ({model}): --zonemode=zbd only emulates zones; choose a disk \
         that is not zoned",
        job.name,
        path.display()
    )))
}

/// Returns the zone model of a zoned block device; `None` for anything else.
fn model_of(path: &Path) -> Option<String> {
    model(Path::new("/sys/dev/block"), &block_number(path)?)
}

/// Returns the zone model of a device, or of the disk of a partition. `devices` is the folder
/// `/sys/dev/block`.
fn model(devices: &Path, number: &str) -> Option<String> {
    let read = |attribute: &str| fs::read_to_string(devices.join(number).join(attribute)).ok();
    let model = read("queue/zoned").or_else(|| read("../queue/zoned"))?.trim().to_owned();
    (model != "none").then_some(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zoned_devices_and_their_partitions_have_a_model() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = folder.path().join("disk");
        for sub in ["queue", "part"] {
            fs::create_dir_all(disk.join(sub)).expect("a folder");
        }
        let found = |number: &str| model(&disk, number);
        for (text, expected) in [("none\n", None), ("host-managed\n", Some("host-managed"))] {
            fs::write(disk.join("queue/zoned"), text).expect("a file");
            assert_eq!(found(".").as_deref(), expected);
            assert_eq!(found("part").as_deref(), expected);
        }
    }
}
