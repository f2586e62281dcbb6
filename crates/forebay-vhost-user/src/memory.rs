//! Memory of the guest, mapped into this process: the table of its regions, and bytes of requests.
//!
//! The guest, and every process that shares its memory, may change it at any time. So no reference
//! to it exists in this process. Each access has one of three forms:
//!
//! - Rings are read and written with atomic accesses, and descriptors are read with volatile ones
//!   ([`GuestRange`]). Each value is read once and checked afterwards ([`crate::ring`]).
//! - Headers, statuses and bounced data are copied here, with volatile accesses.
//! - Data of requests is passed to the disk as addresses ([`Segment`]). The kernel reads and writes
//!   them, or a driver of the library copies them through raw pointers. Neither inspects the data,
//!   so a change meanwhile only changes the data that the guest reads or writes itself.
//!
//! Addresses come from a table, which checks them. Everything that holds addresses holds its table
//! too, and the table holds the mappings. `vm-memory` maps the regions. Its accesses look a region
//! up and check a range for each value, which cost more than the rest of a request; so the table
//! has a list of its own, and a range is checked once.
// This module dereferences addresses of mapped memory.
#![allow(unsafe_code)]

use crate::truncated::Watch;
use forebay_core::Segment;
use forebay_front::blk::GuestBytes;
use std::fmt;
use std::ptr::with_exposed_provenance_mut;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use vm_memory::{
    GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap, VolatileSlice,
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
    fn find(&self, addr: u64) -> Option<(usize, u64)> {
        self.0.mapped.iter().find_map(|region| {
            let offset = addr.wrapping_sub(region.start);
            (offset < region.len).then(|| (region.host + offset as usize, region.len - offset))
        })
    }

    /// Returns a range that lies inside one region. `None`: it does not.
    #[inline]
    pub(crate) fn range(&self, addr: u64, len: u64) -> Option<GuestRange<'_>> {
        let (host, left) = self.find(addr)?;
        (len <= left).then_some(GuestRange { addr: host, len: len as usize, table: self })
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
            let (host, inside) = self.find(at).ok_or(outside)?;
            let now = left.min(inside);
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

/// A range of the guest's memory inside one region.
///
/// Invariant: the range is mapped while the table lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestRange<'a> {
    addr: usize,
    len: usize,
    table: &'a GuestMemory,
}

/// Eight bytes at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned(u64);

impl GuestRange<'_> {
    /// Returns the range with a table that it keeps. `None`: its first byte is not aligned in this
    /// process, to `align` bytes.
    pub(crate) fn keep(self, align: usize) -> Option<KeptRange> {
        let GuestRange { addr, len, table } = self;
        addr.is_multiple_of(align).then(|| KeptRange { addr, len, table: table.clone() })
    }

    /// Reads 16 bytes as two little-endian numbers, with a volatile access for each.
    ///
    /// # Panics
    /// Panics if they are not in the range.
    #[inline]
    pub(crate) fn read_pair(&self, offset: usize) -> [u64; 2] {
        assert!(offset + 16 <= self.len, "16 bytes at {offset} of {}", self.len);
        // SAFETY: the bytes are in the range, which is mapped (invariant).
        unsafe { read_pair(self.addr + offset) }
    }
}

/// Asks the processor to load the cache line at an address. Any address is harmless.
#[inline]
pub(crate) fn prefetch(addr: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of an address that is not mapped has no effect.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(with_exposed_provenance_mut::<i8>(addr));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = addr;
}

/// Reads 16 bytes as two little-endian numbers, with a volatile access for each.
///
/// # Safety
/// The bytes must be mapped memory of the guest.
#[inline]
unsafe fn read_pair(addr: usize) -> [u64; 2] {
    let at: *const Unaligned = with_exposed_provenance_mut(addr);
    // SAFETY: promised by the caller. The type has no alignment, and every value is valid.
    let (low, high) = unsafe { (at.read_volatile(), at.add(1).read_volatile()) };
    [u64::from_le(low.0), u64::from_le(high.0)]
}

/// A range of the guest's memory that keeps it mapped, for a part of a ring.
///
/// Invariant: the range is mapped while the table lives.
#[derive(Debug)]
pub(crate) struct KeptRange {
    addr: usize,
    len: usize,
    table: GuestMemory,
}

impl KeptRange {
    /// Returns the range.
    #[inline]
    pub(crate) fn range(&self) -> GuestRange<'_> {
        GuestRange { addr: self.addr, len: self.len, table: &self.table }
    }

    /// Returns the address of a value of this many bytes.
    #[inline]
    fn at(&self, offset: usize, size: usize) -> usize {
        let addr = self.addr + offset;
        assert!(
            offset + size <= self.len && addr.is_multiple_of(size),
            "{size} bytes at {offset} of {}",
            self.len
        );
        addr
    }

    /// Returns the atomic number at an offset, which is little-endian.
    ///
    /// # Panics
    /// Panics if it is not in the range, or not aligned.
    #[inline]
    pub(crate) fn u16_at(&self, offset: usize) -> &AtomicU16 {
        let place = with_exposed_provenance_mut(self.at(offset, 2));
        // SAFETY: mapped while `self` lives (invariant), in the range and aligned, as checked. This
        // process accesses the parts of a ring with atomics only.
        unsafe { AtomicU16::from_ptr(place) }
    }

    /// Stores a number at an offset, little-endian and relaxed.
    ///
    /// # Panics
    /// Panics if it is not in the range, or not aligned.
    #[inline]
    pub(crate) fn store_u32(&self, offset: usize, value: u32) {
        let place = with_exposed_provenance_mut(self.at(offset, 4));
        // SAFETY: as in `u16_at`.
        unsafe { AtomicU32::from_ptr(place) }.store(value.to_le(), Ordering::Relaxed);
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

    /// Returns the address of the first byte in this process, or 0.
    #[inline]
    pub(crate) fn first_addr(&self) -> usize {
        self.segments().first().map_or(0, |segment| segment.addr)
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
            let slice =
                unsafe { VolatileSlice::new(with_exposed_provenance_mut(segment.addr), now) };
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

    #[inline]
    fn take_front(&mut self, into: &mut [u8]) {
        // The header of a request, usually in one piece.
        if let (Ok(header), Some(first)) =
            (<&mut [u8; 16]>::try_from(&mut *into), self.list.get_mut(self.first))
            && first.len >= 16
        {
            // SAFETY: the segment is mapped while the table lives, which `self` holds (invariant).
            let [low, high] = unsafe { read_pair(first.addr) };
            header[..8].copy_from_slice(&low.to_le_bytes());
            header[8..].copy_from_slice(&high.to_le_bytes());
            first.addr += 16;
            first.len -= 16;
            self.first += usize::from(first.len == 0);
            self.len -= 16;
            return;
        }
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
        let place: *mut u8 = with_exposed_provenance_mut(self.addr);
        // SAFETY: the byte is mapped, and writable, while the table lives (invariant).
        unsafe { place.write_volatile(value) };
        drop(self.table);
    }
}
