//! The region of a device that a job uses.

use thiserror::Error;

use crate::generator::sizes::SizeRule;
use crate::generator::{Direction, Region};
use crate::job::{Extent, Job};
use crate::units::Size;

/// Why a job does not fit its device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The region ends after the end of the device.
    #[error(
        "{job}: offset {offset} + size {len} is beyond the end of the device, which has {capacity} \
         bytes; lower --size or --offset"
    )]
    PastEnd {
        /// The job's name.
        job: String,
        /// Start of the region, bytes.
        offset: u64,
        /// Its length, bytes.
        len: u64,
        /// The length of the device, bytes.
        capacity: u64,
    },
    /// A log has I/O after the end of the device.
    #[error(
        "{job}: the log of --read_iolog needs {end} bytes, and the device has {capacity}; choose a \
         larger one with --replay_redirect, or divide the offsets with --replay_scale"
    )]
    LogPastEnd {
        /// The job's name.
        job: String,
        /// The end of the last I/O, bytes.
        end: u64,
        /// The length of the device, bytes.
        capacity: u64,
    },
    /// No device reports the size of its zones, and no option determines it.
    #[error(
        "{job}: --zonemode=zbd needs --zonesize: its zones are emulated, so no device reports \
         their size"
    )]
    NoZoneSize {
        /// The job's name.
        job: String,
    },
    /// The region has no whole zone.
    #[error(
        "{job}: the region from {offset} to {end} contains no whole zone of {size} bytes \
         (--zonesize); lower --zonesize, or change --offset or --size"
    )]
    NoZone {
        /// The job's name.
        job: String,
        /// The size of a zone, bytes.
        size: u64,
        /// Start of the region, bytes.
        offset: u64,
        /// Its end, bytes.
        end: u64,
    },
    /// The region ends in a zone with too high a number.
    #[error(
        "{job}: too many zones of {size} bytes (--zonesize) in {len} bytes: at most {max} are \
         supported; raise --zonesize, or lower --size"
    )]
    ManyZones {
        /// The job's name.
        job: String,
        /// The size of a zone, bytes.
        size: u64,
        /// The end of the region, bytes.
        len: u64,
        /// The maximum number of zones.
        max: u64,
    },
    /// The region is smaller than a block.
    #[error(
        "{job}: the block size ({bs} bytes) is larger than the region ({len} bytes); lower --bs or \
         raise --size"
    )]
    NoBlock {
        /// The job's name.
        job: String,
        /// The block size, bytes.
        bs: u32,
        /// The length of the region, bytes.
        len: u64,
    },
}

impl Job {
    /// Returns the region of a device of `capacity` bytes that the job uses.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if it ends after the end of the device, is smaller than a block, or has
    /// zones of unknown size.
    pub fn region(&self, capacity: u64) -> Result<Region, RegionError> {
        self.region_of(&self.extent(0, 0, 1, Some(capacity)), capacity)
    }

    /// Returns the smallest size of all directions, including those that the job does not use. fio
    /// aligns a percentage in `offset` to it.
    pub(super) fn smallest_size(&self) -> u32 {
        self.sizes.iter().map(|rule| rule.min()).min().unwrap_or(self.bs)
    }

    /// Returns the offset and the length of the region that `extent` asks for.
    fn requested_range(&self, extent: &Extent, capacity: u64) -> (u64, u64) {
        let offset = extent.aligned_start(capacity, self.smallest_size());
        let rest = capacity.saturating_sub(offset);
        let len = match extent.size {
            None | Some(Size::Bytes(0)) => rest,
            Some(Size::Bytes(bytes)) => bytes,
            Some(percent) => percent.of(capacity).min(rest),
        };
        (offset, len)
    }

    /// Returns the region for one part of a device of `capacity` bytes.
    ///
    /// # Errors
    ///
    /// As [`Job::region`].
    pub fn region_of(&self, extent: &Extent, capacity: u64) -> Result<Region, RegionError> {
        if self.zone_size_is_from_device {
            return Err(RegionError::NoZoneSize { job: self.name.clone() });
        }
        let (offset, asked) = self.requested_range(extent, capacity);
        let rest = capacity.saturating_sub(offset);
        // Only whole blocks are used, so only they must fit: direct I/O does not see the odd bytes
        // at the end of a file.
        let len = asked - asked % u64::from(self.bs);
        if offset > capacity || len > rest {
            let job = self.name.clone();
            if self.recording.is_some() {
                return Err(RegionError::LogPastEnd { job, end: offset + asked, capacity });
            }
            return Err(RegionError::PastEnd { job, offset, len: asked, capacity });
        }
        // A direction whose smallest I/O does not fit could do none.
        let bs = self.sizes_used().map(SizeRule::min).max().unwrap_or(self.bs);
        if len < bs.into() {
            return Err(RegionError::NoBlock { job: self.name.clone(), bs, len: asked });
        }
        if let Some(zoned) = self.zoned() {
            // As in fio, zones decide about the end of the region, and blocks do not.
            let region = Region { offset, len: asked.min(rest) };
            return self.zoned_region(zoned.size, region, capacity);
        }
        // Zones extend to the end of the file, and the size limits the bytes to transfer.
        let len = if self.has_zones() { rest - rest % u64::from(self.bs) } else { len };
        Ok(Region { offset, len })
    }

    /// Returns the part of a region that consists of whole zones with write pointers. As in fio,
    /// jobs that only read use the region as it is, in whole blocks.
    fn zoned_region(
        &self,
        size: u64,
        region: Region,
        capacity: u64,
    ) -> Result<Region, RegionError> {
        /// A write pointer takes 8 bytes of memory, and a read may look at all of them.
        const MAX: u64 = 1 << 24;
        let Region { offset, len } = region;
        let job = || self.name.clone();
        if (offset + len).div_ceil(size) > MAX {
            return Err(RegionError::ManyZones { job: job(), size, len: offset + len, max: MAX });
        }
        let no_zone = || RegionError::NoZone { job: job(), size, offset, end: offset + len };
        if capacity < size {
            return Err(no_zone());
        }
        if !self.rw.has(Direction::Write) {
            return Ok(Region { offset, len: len - len % u64::from(self.bs) });
        }
        let (start, end) = (offset.next_multiple_of(size), (offset + len) / size * size);
        match end > start {
            true => Ok(Region { offset: start, len: end - start }),
            false => Err(no_zone()),
        }
    }

    /// Returns a note about the region of `extent`, if it was rounded to whole zones with write
    /// pointers.
    pub fn note_of_rounding(
        &self,
        extent: &Extent,
        capacity: u64,
        region: Region,
    ) -> Option<String> {
        let size = self.zoned().filter(|_| self.rw.has(Direction::Write))?.size;
        let (offset, len) = self.requested_range(extent, capacity);
        let (asked_end, end) = ((offset + len).min(capacity), region.offset + region.len);
        let start = (region.offset != offset)
            .then(|| format!("its offset {offset} up to {}", region.offset));
        let end = (end != asked_end).then(|| format!("its end {asked_end} down to {end}"));
        let parts: Vec<_> = start.into_iter().chain(end).collect();
        (!parts.is_empty()).then(|| {
            let parts = parts.join(", and ");
            let name = &self.name;
            format!("{name}: region rounded to whole zones of {size} bytes (--zonesize): {parts}")
        })
    }
}
