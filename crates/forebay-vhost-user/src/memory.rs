//! Memory of the guest, mapped into this process: the table of its regions, and bytes of requests.
//!
//! The guest, and every process that shares its memory, may change it at any time. So no reference
//! to it exists in this process. Each access has one of three forms:
//!
//! - Rings and descriptors are read and written by `vm-memory`, with atomic or volatile accesses.
//!   Each value is read once and checked afterwards ([`crate::ring`]).
//! - Headers, statuses and bounced data are copied here, with volatile accesses.
//! - Data of requests is passed to the disk as addresses ([`Segment`]). The kernel reads and writes
//!   them, or a driver of the library copies them through raw pointers. Neither inspects the data,
//!   so a change meanwhile only changes the data that the guest reads or writes itself.
//!
//! Addresses come from a table, which checks them. Everything that holds addresses holds its table
//! too, and the table holds the mappings.
// This module dereferences addresses of mapped memory.
#![allow(unsafe_code)]

use crate::truncated::Watch;
use forebay_core::Segment;
use forebay_front::blk::GuestBytes;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use vm_memory::{
    Address, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    VolatileSlice,
};

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
    regions: GuestMemoryMmap,
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
        GuestMemory(Arc::new(Table { watches, regions }))
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

    /// Appends the segments of a range to a list, one for each region that the range touches. The
    /// first one joins the last of the list if it follows it in this process. Empty ranges append
    /// nothing.
    ///
    /// # Errors
    /// Fails if a byte of the range is outside of all regions, or the range wraps.
    #[inline]
    pub(crate) fn append_segments(
        &self,
        addr: u64,
        len: u32,
        list: &mut Vec<Segment>,
    ) -> Result<(), OutsideMemory> {
        let outside = OutsideMemory { addr, len: u64::from(len) };
        let (mut at, mut left) = (addr, u64::from(len));
        while left > 0 {
            let region = self.0.regions.find_region(GuestAddress(at)).ok_or(outside)?;
            let offset = region.to_region_addr(GuestAddress(at)).ok_or(outside)?;
            let now = left.min(region.len() - offset.raw_value());
            let host = region.get_host_address(offset).map_err(|_| outside)?;
            let host = host.expose_provenance();
            match list.last_mut() {
                // All segments of one request have less than 4 GiB together.
                Some(last) if last.addr + last.len as usize == host => last.len += now as u32,
                _ => list.push(Segment { addr: host, len: now as u32 }),
            }
            left -= now;
            if left > 0 {
                at = at.checked_add(now).ok_or(outside)?;
            }
        }
        Ok(())
    }
}

/// Bytes of a request in the memory of the guest: one direction of a chain.
///
/// Invariant: each segment was returned by `table`, so it is mapped while `table` lives.
#[derive(Debug)]
pub struct GuestData {
    /// The segments; those before `first` were removed.
    list: Vec<Segment>,
    first: usize,
    len: u64,
    table: Rc<GuestMemory>,
}

/// Addresses of a request's data in this process, for the disk. While they are used, the owner
/// keeps the [`GuestData`] that returned them.
#[derive(Debug)]
pub enum Lent {
    /// A single segment.
    One(Segment),
    /// A list, which [`GuestData::give_back`] takes back.
    Many(Vec<Segment>),
}

impl GuestData {
    /// Returns a value without bytes, which uses the memory of `list`.
    pub(crate) fn empty(mut list: Vec<Segment>, table: &Rc<GuestMemory>) -> GuestData {
        list.clear();
        GuestData { list, first: 0, len: 0, table: Rc::clone(table) }
    }

    /// Appends a range of the guest.
    ///
    /// # Errors
    /// Fails if a byte of the range is outside of all regions, or the range wraps.
    #[inline]
    pub(crate) fn append(&mut self, addr: u64, len: u32) -> Result<(), OutsideMemory> {
        self.table.append_segments(addr, len, &mut self.list)?;
        self.len += u64::from(len);
        Ok(())
    }

    /// Removes the last byte, and returns it. `None`: there are no bytes.
    #[inline]
    pub(crate) fn take_last_byte(&mut self) -> Option<GuestByte> {
        let last = self.list.last_mut()?;
        last.len -= 1;
        let byte = GuestByte { addr: last.addr + last.len as usize, table: Rc::clone(&self.table) };
        self.len -= 1;
        if last.len == 0 {
            self.list.pop();
        }
        Some(byte)
    }

    /// Returns the list, so that other requests can use its memory.
    pub(crate) fn into_list(self) -> Vec<Segment> {
        self.list
    }

    /// Returns the segments that are left.
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        &self.list[self.first..]
    }

    /// Returns the addresses for the disk. Nothing else may be done with this value until
    /// [`give_back`](GuestData::give_back).
    #[inline]
    pub fn lend(&mut self) -> Lent {
        if let [one] = self.segments() {
            return Lent::One(*one);
        }
        self.list.drain(..self.first);
        self.first = 0;
        Lent::Many(std::mem::take(&mut self.list))
    }

    /// Takes back a list that [`lend`](GuestData::lend) returned.
    #[inline]
    pub fn give_back(&mut self, list: Vec<Segment>) {
        self.list = list;
    }

    /// Calls `copy` for each piece of the first `len` bytes, and removes these bytes.
    fn consume(&mut self, len: usize, mut copy: impl FnMut(usize, &VolatileSlice<'_>)) {
        let mut done = 0;
        while done < len {
            let segment = &mut self.list[self.first];
            let now = (segment.len as usize).min(len - done);
            // SAFETY: the segment is mapped while the table lives, which `self` holds (invariant).
            // Access is volatile, so concurrent changes by others are harmless.
            let slice = unsafe {
                VolatileSlice::new(std::ptr::with_exposed_provenance_mut(segment.addr), now)
            };
            copy(done, &slice);
            segment.addr += now;
            segment.len -= now as u32;
            self.first += usize::from(segment.len == 0);
            done += now;
        }
        self.len -= len as u64;
    }
}

impl GuestBytes for GuestData {
    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    fn take_front(&mut self, into: &mut [u8]) {
        self.consume(into.len(), |at, slice| {
            slice.copy_to(&mut into[at..at + slice.len()]);
        });
    }

    fn fill_front(&mut self, from: &[u8]) {
        self.consume(from.len(), |at, slice| slice.copy_from(&from[at..at + slice.len()]));
    }
}

/// One byte in the memory of the guest.
///
/// Invariant: the address was returned by `table`.
#[derive(Debug)]
pub(crate) struct GuestByte {
    addr: usize,
    table: Rc<GuestMemory>,
}

impl GuestByte {
    /// Writes the byte.
    #[inline]
    pub(crate) fn set(self, value: u8) {
        let place: *mut u8 = std::ptr::with_exposed_provenance_mut(self.addr);
        // SAFETY: the byte is mapped, and writable, while the table lives (invariant).
        unsafe { place.write_volatile(value) };
        drop(self.table);
    }
}
