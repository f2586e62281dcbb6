//! Descriptor chains: the descriptors of a request become two lists of segments.

use super::error::RingError;
use crate::memory::{GuestData, GuestMemory};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress};

/// Length of a descriptor, bytes.
const DESCRIPTOR: u64 = 16;

/// Most descriptors of an indirect table: the largest ring. The standard allows no more than the
/// ring has; drivers keep `seg_max` instead.
const INDIRECT_MAX: u32 = 1024;

/// Descriptor table of a ring.
#[derive(Debug)]
pub(super) struct Chains {
    /// Guest-physical address.
    pub(super) table: u64,
    /// Number of descriptors.
    pub(super) size: u16,
    /// Whether indirect tables were negotiated.
    pub(super) has_indirect: bool,
}

/// A table that is being walked: the ring's, or an indirect one.
#[derive(Clone, Copy)]
struct Table {
    addr: u64,
    len: u16,
    is_indirect: bool,
}

impl Chains {
    /// Appends the buffers of a chain to the two directions. Each descriptor is read once.
    ///
    /// # Errors
    /// Fails if the chain breaks the standard.
    #[inline]
    pub(super) fn walk(
        &self,
        memory: &GuestMemory,
        head: u16,
        (readable, writable): (&mut GuestData, &mut GuestData),
    ) -> Result<(), RingError> {
        let bad = |why| RingError::Chain { head, why };
        let mut table = Table { addr: self.table, len: self.size, is_indirect: false };
        let (mut index, mut left) = (head, table.len);
        // Both directions together.
        let (mut nr_bytes, mut has_writable) = (0_u32, false);
        loop {
            if index >= table.len {
                return Err(bad("a descriptor is not in its table"));
            }
            let Some(fewer) = left.checked_sub(1) else {
                return Err(bad("the chain is longer than its table"));
            };
            left = fewer;
            let descriptor = read(memory, head, table, index)?;
            if descriptor.refers_to_indirect_table() {
                table = self.indirect(head, table, descriptor)?;
                (index, left) = (0, table.len);
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

    /// Returns the table of an indirect descriptor.
    fn indirect(
        &self,
        head: u16,
        within: Table,
        descriptor: Descriptor,
    ) -> Result<Table, RingError> {
        let bad = |why| Err(RingError::Chain { head, why });
        let len = descriptor.len();
        if !self.has_indirect {
            return bad("an indirect descriptor, which was not negotiated");
        }
        if within.is_indirect {
            return bad("an indirect descriptor within an indirect table");
        }
        if descriptor.has_next() {
            return bad("an indirect descriptor with a next one");
        }
        let nr = len / DESCRIPTOR as u32;
        if !len.is_multiple_of(DESCRIPTOR as u32) || nr == 0 || nr > INDIRECT_MAX {
            return bad("an indirect table of a bad length");
        }
        Ok(Table { addr: descriptor.addr().0, len: nr as u16, is_indirect: true })
    }
}

/// Reads one descriptor.
#[inline]
fn read(
    memory: &GuestMemory,
    head: u16,
    table: Table,
    index: u16,
) -> Result<Descriptor, RingError> {
    let why = "its table wraps around the address space";
    let addr = table.addr.checked_add(DESCRIPTOR * u64::from(index));
    let addr = addr.ok_or(RingError::Chain { head, why })?;
    Ok(memory.regions().read_obj(GuestAddress(addr))?)
}
