//! Descriptor chains: the descriptors of a request become two lists of segments.

use super::error::RingError;
use super::parts::{DESCRIPTOR, Parts};
use crate::config::MAX_QUEUE_SIZE;
use crate::memory::{GuestData, GuestMemory};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestRegionMmap,
    MemoryRegionAddress,
};

/// Most descriptors of an indirect table: the largest ring. The standard allows no more than the
/// ring has; drivers keep `seg_max` instead.
const INDIRECT_MAX: u32 = MAX_QUEUE_SIZE as u32;

/// A ring, and the memory of its chains.
pub(super) struct Within<'a> {
    pub(super) parts: &'a Parts,
    pub(super) memory: &'a GuestMemory,
    /// Whether indirect tables were negotiated.
    pub(super) has_indirect: bool,
}

/// A table that is being walked.
#[derive(Clone, Copy)]
enum Table<'a> {
    /// That of the ring.
    OfRing,
    /// An indirect one, inside one region.
    Inside(&'a GuestRegionMmap, MemoryRegionAddress),
    /// An indirect one across regions, or outside of them: each descriptor is looked up.
    Across(u64),
}

impl<'a> Within<'a> {
    /// Appends the buffers of a chain to the two directions. Each descriptor is read once.
    ///
    /// # Errors
    /// Fails if the chain breaks the standard.
    #[inline]
    pub(super) fn walk(
        &self,
        head: u16,
        (readable, writable): (&mut GuestData, &mut GuestData),
    ) -> Result<(), RingError> {
        let bad = |why| RingError::Chain { head, why };
        let (mut table, mut table_len) = (Table::OfRing, self.parts.size());
        let (mut index, mut left) = (head, table_len);
        // Both directions together.
        let (mut nr_bytes, mut has_writable) = (0_u32, false);
        loop {
            if index >= table_len {
                return Err(bad("a descriptor is not in its table"));
            }
            let Some(fewer) = left.checked_sub(1) else {
                return Err(bad("the chain is longer than its table"));
            };
            left = fewer;
            let descriptor = self.read(head, table, index)?;
            if descriptor.refers_to_indirect_table() {
                (table, table_len) = self.indirect(head, table, descriptor)?;
                (index, left) = (0, table_len);
                continue;
            }
            let (addr, len) = (descriptor.addr().0, descriptor.len());
            if len == 0 {
                return Err(bad("a descriptor is empty"));
            }
            let sum = nr_bytes.checked_add(len);
            nr_bytes = sum.ok_or(bad("the chain has 4 GiB or more"))?;
            let list = match descriptor.is_write_only() {
                true => {
                    has_writable = true;
                    &mut *writable
                }
                false if has_writable => {
                    return Err(bad("a readable descriptor follows a writable one"));
                }
                false => &mut *readable,
            };
            list.append(addr, len).map_err(|outside| RingError::outside(head, outside))?;
            if !descriptor.has_next() {
                return Ok(());
            }
            index = descriptor.next();
        }
    }

    /// Returns the table of an indirect descriptor, and its length.
    fn indirect(
        &self,
        head: u16,
        within: Table<'a>,
        descriptor: Descriptor,
    ) -> Result<(Table<'a>, u16), RingError> {
        let bad = |why| Err(RingError::Chain { head, why });
        let len = descriptor.len();
        if !self.has_indirect {
            return bad("an indirect descriptor, which was not negotiated");
        }
        if !matches!(within, Table::OfRing) {
            return bad("an indirect descriptor within an indirect table");
        }
        if descriptor.has_next() {
            return bad("an indirect descriptor with a next one");
        }
        let nr = len / DESCRIPTOR as u32;
        if !len.is_multiple_of(DESCRIPTOR as u32) || nr == 0 || nr > INDIRECT_MAX {
            return bad("an indirect table of a bad length");
        }
        let addr = descriptor.addr();
        let region = self.memory.regions().find_region(addr);
        let inside = region.and_then(|region| {
            let offset = region.to_region_addr(addr)?;
            (region.len() - offset.0 >= u64::from(len)).then_some(Table::Inside(region, offset))
        });
        Ok((inside.unwrap_or(Table::Across(addr.0)), nr as u16))
    }

    /// Reads one descriptor, whose index is below the length of its table.
    #[inline]
    fn read(&self, head: u16, table: Table<'_>, index: u16) -> Result<Descriptor, RingError> {
        let offset = DESCRIPTOR * u64::from(index);
        match table {
            Table::OfRing => self.parts.descriptor(index),
            Table::Inside(region, start) => {
                Ok(region.read_obj(MemoryRegionAddress(start.0 + offset))?)
            }
            Table::Across(start) => {
                let why = "its table wraps around the address space";
                let addr = start.checked_add(offset).ok_or(RingError::Chain { head, why })?;
                Ok(self.memory.regions().read_obj(GuestAddress(addr))?)
            }
        }
    }
}
