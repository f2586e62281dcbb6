//! Table of the regions of a guest: which memory is mapped, for how long, and where an address of
//! the guest is in this process.

use crate::truncated::Watch;
use forebay_core::Segment;
use std::fmt;
use std::sync::Arc;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};

/// An immutable table of the regions of a guest. A clone shares the table.
///
/// A region stays mapped until the last table and the last I/O that use it are dropped. So a change
/// of the table waits for no I/O.
#[derive(Clone, Debug)]
pub struct GuestMemory(Arc<Table>);

#[derive(Debug)]
struct Table {
    // Dropped first: the handler of faults must not find a region that is not mapped any more.
    watches: Vec<Watch>,
    /// By length, the longest first: it has most of the data.
    mapped: Vec<Mapped>,
    regions: GuestMemoryMmap,
}

/// Where a region is mapped.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    /// First address in the guest.
    start: u64,
    /// Length, bytes. The region wraps neither in the guest nor in this process.
    len: u64,
    /// First address in this process.
    host: usize,
}

/// A range that is not completely in the memory of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideMemory {
    addr: u64,
    len: u64,
}

impl fmt::Display for OutsideMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutsideMemory { addr, len } = self;
        write!(f, "{len} bytes at {addr:#x} are not in the memory of the guest")
    }
}

impl GuestMemory {
    /// Returns a table without regions.
    pub fn empty() -> GuestMemory {
        GuestMemory::new(GuestMemoryMmap::new())
    }

    /// Returns a table of these regions.
    pub fn new(regions: GuestMemoryMmap) -> GuestMemory {
        let watch = |region: &GuestRegionMmap| {
            Watch::new(region.as_ptr().expose_provenance(), region.size())
        };
        let watches = regions.iter().map(watch).collect();
        let mapped = |region: &GuestRegionMmap| Mapped {
            start: region.start_addr().0,
            len: region.len(),
            host: region.as_ptr().expose_provenance(),
        };
        let mut mapped: Vec<_> = regions.iter().map(mapped).collect();
        mapped.sort_by_key(|region| std::cmp::Reverse(region.len));
        GuestMemory(Arc::new(Table { watches, mapped, regions }))
    }

    /// Returns the address in this process of `addr`, and the number of bytes from there to the end
    /// of its region. `None`: the address is outside of all regions.
    #[inline]
    pub(super) fn find(&self, addr: u64) -> Option<(usize, u64)> {
        self.0.mapped.iter().find_map(|region| {
            let offset = addr.wrapping_sub(region.start);
            (offset < region.len).then(|| (region.host + offset as usize, region.len - offset))
        })
    }

    /// Returns whether a region was truncated by the front end, and replaced by zeroes.
    pub fn is_lost(&self) -> bool {
        self.0.watches.iter().any(Watch::is_lost)
    }

    /// Returns whether the process survives a truncation of all regions. If not, too many regions
    /// are in use, and this table must not be.
    pub fn is_watched(&self) -> bool {
        self.0.watches.iter().all(Watch::is_active)
    }

    /// Returns the regions.
    pub fn regions(&self) -> &GuestMemoryMmap {
        &self.0.regions
    }

    /// Returns the address and the length of each region in this process.
    pub fn mappings(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.regions.iter().map(|region| (region.as_ptr().expose_provenance(), region.size()))
    }

    /// Returns the segment of a range inside one region. `None`: it is not inside one.
    #[inline]
    pub(super) fn segment(&self, addr: u64, len: u32) -> Option<Segment> {
        let (host, inside) = self.find(addr)?;
        (u64::from(len) <= inside).then_some(Segment { addr: host, len })
    }

    /// Calls `each` with the segments of a range, one for each region that the range touches.
    ///
    /// # Errors
    /// Fails if a byte of the range is outside of all regions, or the range wraps.
    pub(super) fn each_segment(
        &self,
        addr: u64,
        len: u32,
        mut each: impl FnMut(Segment),
    ) -> Result<(), OutsideMemory> {
        let outside = OutsideMemory { addr, len: u64::from(len) };
        let (mut at, mut left) = (addr, u64::from(len));
        while left > 0 {
            let (host, inside) = self.find(at).ok_or(outside)?;
            let now = left.min(inside);
            each(Segment { addr: host, len: now as u32 });
            left -= now;
            if left > 0 {
                at = at.checked_add(now).ok_or(outside)?;
            }
        }
        Ok(())
    }
}
