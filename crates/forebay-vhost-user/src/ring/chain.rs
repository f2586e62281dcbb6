//! Descriptor chains: the descriptors of a request become two lists of segments.

use super::error::RingError;
use super::layout::DESCRIPTOR;
use super::parts::Parts;
use crate::config::MAX_QUEUE_SIZE;
use crate::memory::{Gathered, GuestMemory, GuestRange, Lists};
use std::rc::Rc;
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

/// Most descriptors of an indirect table: the largest ring. The standard allows no more than the
/// ring has; drivers keep `seg_max` instead.
const INDIRECT_MAX: u32 = MAX_QUEUE_SIZE as u32;

/// A ring, and the memory of its chains.
pub(super) struct Within<'a> {
    pub(super) parts: &'a Parts,
    pub(super) memory: &'a Rc<GuestMemory>,
    /// Whether indirect tables were negotiated.
    pub(super) has_indirect: bool,
}

/// A table that is being walked.
#[derive(Clone, Copy)]
enum Table<'a> {
    /// Inside one region: that of the ring, or an indirect one.
    Inside(GuestRange<'a>),
    /// An indirect one across regions, or outside of them: each descriptor is looked up.
    Across(u64),
}

/// A descriptor, as it was read.
#[derive(Clone, Copy)]
struct Descriptor {
    addr: u64,
    len: u32,
    flags: u32,
    next: u16,
}

impl Descriptor {
    /// Takes the bytes of a descriptor apart: `addr`, then `len`, `flags` and `next`.
    #[inline]
    fn parse([addr, rest]: [u64; 2]) -> Descriptor {
        let flags = u32::from((rest >> 32) as u16);
        Descriptor { addr, len: rest as u32, flags, next: (rest >> 48) as u16 }
    }

    #[inline]
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

impl<'a> Within<'a> {
    /// Appends the buffers of a chain to the two directions. Each descriptor is read once. Returns
    /// the address of its first descriptor or its indirect table in this process, for a prefetch.
    ///
    /// # Errors
    /// Fails if the chain breaks the standard.
    #[inline(always)]
    pub(super) fn walk(
        &self,
        head: u16,
        (readable, writable): (&mut Gathered<'a>, &mut Gathered<'a>),
        lists: &mut Lists,
    ) -> Result<usize, RingError> {
        let bad = |why| RingError::Chain { head, why };
        let (mut table, mut table_len) =
            (Table::Inside(self.parts.descriptors()), self.parts.size());
        let mut is_indirect = false;
        let (mut index, mut left) = (head, table_len);
        // Both directions together.
        let (mut nr_bytes, mut has_writable) = (0_u32, false);
        let mut hint = self.parts.descriptors().addr_at(DESCRIPTOR * usize::from(head));
        loop {
            if index >= table_len {
                return Err(bad("a descriptor is not in its table"));
            }
            if left == 0 {
                return Err(bad("the chain is longer than its table"));
            }
            left -= 1;
            let descriptor = self.read(head, table, index)?;
            let Descriptor { addr, len, .. } = descriptor;
            if descriptor.has(VRING_DESC_F_INDIRECT) {
                if std::mem::replace(&mut is_indirect, true) {
                    return Err(bad("an indirect descriptor within an indirect table"));
                }
                (table, table_len) = self.indirect(head, descriptor)?;
                (index, left) = (0, table_len);
                if let Table::Inside(range) = table {
                    hint = range.addr_at(0);
                }
                continue;
            }
            if len == 0 {
                return Err(bad("a descriptor is empty"));
            }
            let Some(sum) = nr_bytes.checked_add(len) else {
                return Err(bad("the chain has 4 GiB or more"));
            };
            nr_bytes = sum;
            let list = match descriptor.has(VRING_DESC_F_WRITE) {
                true => {
                    has_writable = true;
                    &mut *writable
                }
                false if has_writable => {
                    return Err(bad("a readable descriptor follows a writable one"));
                }
                false => &mut *readable,
            };
            list.append(addr, len, lists).map_err(|outside| RingError::outside(head, outside))?;
            if !descriptor.has(VRING_DESC_F_NEXT) {
                return Ok(hint);
            }
            index = descriptor.next;
        }
    }

    /// Returns the table of an indirect descriptor, and its length.
    fn indirect(&self, head: u16, descriptor: Descriptor) -> Result<(Table<'a>, u16), RingError> {
        let bad = |why| Err(RingError::Chain { head, why });
        let Descriptor { addr, len, .. } = descriptor;
        if !self.has_indirect {
            return bad("an indirect descriptor, which was not negotiated");
        }
        if descriptor.has(VRING_DESC_F_NEXT) {
            return bad("an indirect descriptor with a next one");
        }
        let nr = len / DESCRIPTOR as u32;
        if !len.is_multiple_of(DESCRIPTOR as u32) || nr == 0 || nr > INDIRECT_MAX {
            return bad("an indirect table of a bad length");
        }
        let inside = self.memory.range(addr, len.into());
        Ok((inside.map_or(Table::Across(addr), Table::Inside), nr as u16))
    }

    /// Reads one descriptor, whose index is below the length of its table.
    #[inline]
    fn read(&self, head: u16, table: Table<'_>, index: u16) -> Result<Descriptor, RingError> {
        let offset = DESCRIPTOR * usize::from(index);
        match table {
            Table::Inside(range) => Ok(Descriptor::parse(range.read_pair(offset))),
            Table::Across(start) => self.read_across(head, start, offset),
        }
    }

    /// Reads a descriptor of a table that is not inside one region.
    #[cold]
    fn read_across(&self, head: u16, start: u64, offset: usize) -> Result<Descriptor, RingError> {
        let why = "its table wraps around the address space";
        let addr = start.checked_add(offset as u64).ok_or(RingError::Chain { head, why })?;
        let len = DESCRIPTOR as u64;
        if let Some(range) = self.memory.range(addr, len) {
            return Ok(Descriptor::parse(range.read_pair(0)));
        }
        // It lies across two regions, or outside.
        let (mut data, mut lists) = (Gathered::new(self.memory), Lists::new());
        let outside = |outside| RingError::outside(head, outside);
        data.append(addr, DESCRIPTOR as u32, &mut lists).map_err(outside)?;
        let (bytes, _) = data.split_header(&mut lists);
        let bytes = bytes.expect("a descriptor is as long as a header");
        let [low, high] = [0, 8].map(|at| {
            let half: [u8; 8] = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(half)
        });
        Ok(Descriptor::parse([low, high]))
    }
}
