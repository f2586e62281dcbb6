//! Opening the disk of a clone, and finding out which part of it is worked on.

use forebay::Disk;
use forebay_fio::generator::Region;
use forebay_fio::job::Job;

use super::plan::Target;
use crate::failure::Failure;

/// Opens the disk of `target`, and checks that the job fits it.
pub(super) fn open(job: &Job, target: &Target) -> Result<(Disk, Region), Failure> {
    let Job { name, bs, .. } = job;
    let disk = Disk::open_spec(&target.spec)
        .map_err(|error| Failure::open(&format!("{name}: "), &error))?;
    let region =
        job.region(capacity(&disk, target)).map_err(|error| Failure::Run(error.to_string()))?;
    let block = disk.limits().logical_block_size;
    for (what, bytes) in [("--bs", u64::from(*bs)), ("--offset", region.offset)] {
        if !bytes.is_multiple_of(block.into()) {
            return Err(Failure::Run(format!(
                "{name}: {what}={bytes} is not a multiple of the logical block size of {}, {block} \
                 bytes",
                target.name()
            )));
        }
    }
    Ok((disk, region))
}

/// Opens every disk once, closes it again, and says which part of it each clone works on.
pub(super) fn rehearse(jobs: &[Job], targets: &[Target]) -> Result<Vec<Region>, Failure> {
    let mut regions: Vec<Region> = Vec::with_capacity(targets.len());
    for (at, target) in targets.iter().enumerate() {
        let is_same = |other: &Target| (other.job, &other.spec) == (target.job, &target.spec);
        let region = match at.checked_sub(1) {
            // Clones on one disk follow each other.
            Some(before) if is_same(&targets[before]) => regions[before],
            _ => open(&jobs[target.job], target)?.1,
        };
        regions.push(region);
    }
    Ok(regions)
}

/// The bytes that there are to work on; a file that grows has room for what was asked.
fn capacity(disk: &Disk, target: &Target) -> u64 {
    let on_disk = || {
        let metadata = target.path().and_then(|path| std::fs::metadata(path).ok());
        metadata.map_or(0, |metadata| metadata.len())
    };
    disk.capacity_bytes().unwrap_or_else(on_disk)
}
