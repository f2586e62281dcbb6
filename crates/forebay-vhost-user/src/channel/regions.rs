//! Memory regions of a front end: checks, mappings, and translation of the front end's addresses.

use super::refusal::{Refusal, refuse};
use crate::memory::GuestMemory;
use rustix::fs::SealFlags;
use std::fs::File;
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// Most regions of a front end. Each holds a descriptor and a mapping.
pub(super) const MAX_REGIONS: usize = 64;

/// A region with its addresses in both address spaces.
#[derive(Clone, Debug)]
struct Region {
    guest: u64,
    user: u64,
    len: u64,
    mapped: Arc<GuestRegionMmap>,
}

/// The regions of a front end.
#[derive(Clone, Debug, Default)]
pub(super) struct Regions {
    /// Sorted by guest address, without overlaps.
    regions: Vec<Region>,
}

/// Returns whether two ranges have a byte in common. Neither wraps.
fn overlap((start, len): (u64, u64), (other, other_len): (u64, u64)) -> bool {
    start < other + other_len && other < start + len
}

impl Regions {
    /// Returns the regions of a new table.
    ///
    /// # Errors
    /// Returns an error if a region cannot be mapped, or overlaps another one.
    pub(super) fn of_table(
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<Regions, Refusal> {
        let mut regions = Regions::default();
        for (region, file) in table.iter().zip(files) {
            regions.add(region, file)?;
        }
        Ok(regions)
    }

    /// Adds a region.
    ///
    /// # Errors
    /// Returns an error if the region cannot be mapped, or overlaps another one.
    pub(super) fn add(
        &mut self,
        region: &VhostUserMemoryRegion,
        file: File,
    ) -> Result<(), Refusal> {
        let (guest, user, len) = (region.guest_phys_addr, region.user_addr, region.memory_size);
        let offset = region.mmap_offset;
        if self.regions.len() == MAX_REGIONS {
            return Err(refuse(format_args!("more than {MAX_REGIONS} memory regions")));
        }
        let wraps = [guest, user, offset].iter().any(|start| start.checked_add(len).is_none());
        if len == 0 || wraps || usize::try_from(len).is_err() {
            return Err(refuse(format_args!(
                "a memory region of {len} bytes at {guest:#x} is empty or wraps around"
            )));
        }
        let is_twice = self.regions.iter().any(|other| {
            overlap((guest, len), (other.guest, other.len))
                || overlap((user, len), (other.user, other.len))
        });
        if is_twice {
            return Err(refuse(format_args!("the memory region at {guest:#x} overlaps another")));
        }
        let mapped = map(file, (guest, len, offset))?;
        let at = self.regions.partition_point(|other| other.guest < guest);
        self.regions.insert(at, Region { guest, user, len, mapped: Arc::new(mapped) });
        Ok(())
    }

    /// Removes the region with these addresses. I/O that uses it keeps it mapped.
    ///
    /// # Errors
    /// Returns an error if there is no such region.
    pub(super) fn remove(&mut self, region: &VhostUserMemoryRegion) -> Result<(), Refusal> {
        let (guest, user, len) = (region.guest_phys_addr, region.user_addr, region.memory_size);
        let same = |other: &Region| (other.guest, other.user, other.len) == (guest, user, len);
        let Some(at) = self.regions.iter().position(same) else {
            return Err(refuse(format_args!("no memory region of {len} bytes at {guest:#x}")));
        };
        self.regions.remove(at);
        Ok(())
    }

    /// Returns the table for the threads of the rings.
    pub(super) fn table(&self) -> GuestMemory {
        let mapped = self.regions.iter().map(|region| Arc::clone(&region.mapped)).collect();
        match GuestMemoryMmap::from_arc_regions(mapped) {
            Ok(table) => GuestMemory::new(table),
            // It refuses an empty table; overlaps were refused above.
            Err(_) => GuestMemory::empty(),
        }
    }

    /// Returns the guest address of `len` bytes at an address of the front end. `None`: they are
    /// not all inside one region.
    pub(super) fn guest_addr(&self, user: u64, len: u64) -> Option<u64> {
        self.regions.iter().find_map(|region| {
            let offset = user.checked_sub(region.user)?;
            let end = offset.checked_add(len)?;
            (end <= region.len).then(|| region.guest + offset)
        })
    }
}

/// Maps a region. Its file must be long enough: an access behind the end raises SIGBUS.
fn map(file: File, (guest, len, offset): (u64, u64, u64)) -> Result<GuestRegionMmap, Refusal> {
    let failed = |why: &dyn std::fmt::Display| {
        refuse(format_args!("cannot map the memory region at {guest:#x}: {why}"))
    };
    let found = file.metadata().map_err(|error| failed(&error))?;
    if !found.is_file() {
        return Err(failed(&"its descriptor is not a file"));
    }
    check_file_system(&file).map_err(|why| failed(&why))?;
    if found.len() < offset + len {
        return Err(failed(&format_args!(
            "it ends at byte {} of its file, which has {} bytes",
            offset + len,
            found.len()
        )));
    }
    seal(&file);
    let place = Some(FileOffset::new(file, offset));
    GuestRegionMmap::from_range(GuestAddress(guest), len as usize, place)
        .map_err(|error| failed(&error))
}

/// File systems whose files may be the memory of a guest: `f_type` of statfs(2), and the name.
const FILE_SYSTEMS: [(u64, &str); 5] = [
    (0x0102_1994, "tmpfs"),
    (0x9584_58f6, "hugetlbfs"),
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
];

/// Refuses memory on a file system where another process decides how long a page fault takes.
///
/// A FUSE server, which the front end may run itself, need not answer a read of a page. The thread
/// of the ring would block in the fault, and could not be stopped. NFS, SMB and 9p have such
/// servers too, and file systems that are stacked on others may be on any of them.
fn check_file_system(file: &File) -> Result<(), String> {
    let found = rustix::fs::fstatfs(file).map_err(|error| error.to_string())?;
    // The width of the field depends on the architecture, and some sign-extend it.
    let kind = u64::from(found.f_type as u32);
    if FILE_SYSTEMS.iter().any(|(known, _)| *known == kind) {
        return Ok(());
    }
    let names = FILE_SYSTEMS.map(|(_, name)| name).join(", ");
    Err(format!(
        "its file is on a file system of type {kind:#x}, whose pages may take any time to arrive: \
         use a memfd, or a file on one of {names}"
    ))
}

/// Seals a file of memory, so that the front end cannot shrink it while it is mapped.
fn seal(file: &File) {
    // Not every file can be sealed: one of tmpfs or hugetlbfs cannot, and a memfd may forbid it.
    let _ = rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK);
}
