//! Opens the disks, and determines each clone's part of its disk.

use forebay::{Disk, Owner};
use forebay_fio::generator::Region;
use forebay_fio::generator::sizes::SizeRule;
use forebay_fio::job::Job;

use super::cache::PageCache;
use super::plan::Target;
use crate::failure::Failure;

/// The open disks of a run.
#[derive(Debug)]
pub(super) struct Opened {
    /// The disks, by the numbers in the targets.
    pub(super) disks: Vec<Disk>,
    /// The part of the disk for each target.
    pub(super) regions: Vec<Region>,
    /// The owner of the I/O of each target, if its job has limits or a weight.
    pub(super) owners: Vec<Option<Owner>>,
    /// The page cache of the files.
    pub(super) cache: PageCache,
}

/// Opens every disk, and checks that the jobs fit.
pub(super) fn open(jobs: &[Job], targets: &[Target]) -> Result<Opened, Failure> {
    let mut disks: Vec<Disk> = Vec::new();
    let mut regions: Vec<Region> = Vec::with_capacity(targets.len());
    let mut owners = Vec::with_capacity(targets.len());
    for (at, target) in targets.iter().enumerate() {
        let job = &jobs[target.job];
        // Disks are numbered in the order of their first targets.
        if target.disk == disks.len() {
            disks.push(open_one(job, target)?);
        }
        let is_same = |other: &Target| {
            (other.job, other.disk, other.extent) == (target.job, target.disk, target.extent)
        };
        let region = match at.checked_sub(1) {
            Some(before) if is_same(&targets[before]) => regions[before],
            _ => region(job, &disks[target.disk], target)?,
        };
        regions.push(region);
        let owner = target.owner.map(|plan| plan.add_to(&disks[target.disk], job, at));
        owners.push(owner.transpose()?);
    }
    Ok(Opened { disks, regions, owners, cache: PageCache::open(jobs, targets) })
}

/// Returns notes about regions that were rounded, without adjacent duplicates.
pub(super) fn notes(jobs: &[Job], targets: &[Target], opened: &Opened) -> Vec<String> {
    let of_target = |(target, region): (&Target, &Region)| {
        let capacity = capacity(&opened.disks[target.disk], target);
        jobs[target.job].note_of_rounding(&target.extent, capacity, *region)
    };
    let mut notes: Vec<_> = targets.iter().zip(&opened.regions).filter_map(of_target).collect();
    notes.dedup();
    notes
}

fn open_one(job: &Job, target: &Target) -> Result<Disk, Failure> {
    Disk::open_spec(&target.spec).map_err(|error| Failure::open(&format!("{}: ", job.name), &error))
}

/// Returns the part of the disk that a job uses.
fn region(job: &Job, disk: &Disk, target: &Target) -> Result<Region, Failure> {
    let name = &job.name;
    let region = job
        .region_of(&target.extent, capacity(disk, target))
        .map_err(|error| Failure::Run(error.to_string()))?;
    let block = disk.limits().logical_block_size;
    let variety = job.variety.as_deref();
    let sizes = job.sizes_used().flat_map(SizeRule::units).map(|bytes| ("--bs", u64::from(bytes)));
    let aligns = variety.into_iter().flat_map(|variety| variety.align.into_iter().flatten());
    let aligns = aligns.map(|bytes| ("--blockalign", u64::from(bytes)));
    let any = variety.filter(|variety| variety.unaligned).map(|_| ("--bs_unaligned: a size of", 1));
    let offset = ("--offset", region.offset);
    for (what, bytes) in sizes.chain(aligns).chain([offset]).chain(any) {
        if !bytes.is_multiple_of(block.into()) {
            return Err(Failure::Run(format!(
                "{name}: {what}={bytes} is not a multiple of the logical block size of {}, {block} \
                 bytes",
                target.name()
            )));
        }
    }
    Ok(region)
}

/// Returns the usable bytes of a disk. A growing file has its current length, which the layout has
/// already extended.
fn capacity(disk: &Disk, target: &Target) -> u64 {
    let on_disk = || {
        let metadata = target.path().and_then(|path| std::fs::metadata(path).ok());
        metadata.map_or(0, |metadata| metadata.len())
    };
    disk.capacity_bytes().unwrap_or_else(on_disk)
}
