//! Checked access to one range of the guest: the parts of a ring, and its descriptors.
// This module dereferences addresses of mapped memory.
#![allow(unsafe_code)]

use super::regions::GuestMemory;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

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

impl GuestMemory {
    /// Returns a range that lies inside one region. `None`: it does not.
    #[inline]
    pub(crate) fn range(&self, addr: u64, len: u64) -> Option<GuestRange<'_>> {
        let (host, left) = self.find(addr)?;
        (len <= left).then_some(GuestRange { addr: host, len: len as usize, table: self })
    }
}

impl GuestRange<'_> {
    /// Returns the range with a table that it keeps. `None`: its first byte is not aligned in this
    /// process, to `align` bytes.
    pub(crate) fn keep(self, align: usize) -> Option<KeptRange> {
        let GuestRange { addr, len, table } = self;
        addr.is_multiple_of(align).then(|| KeptRange { addr, len, table: table.clone() })
    }

    /// Returns the address of an offset in this process, for a prefetch. It may be outside.
    #[inline]
    pub(crate) fn addr_at(self, offset: usize) -> usize {
        self.addr + offset
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
pub(super) unsafe fn read_pair(addr: usize) -> [u64; 2] {
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

    /// Stores two numbers of 4 bytes at an offset, little-endian and relaxed.
    ///
    /// # Panics
    /// Panics if they are not in the range, or not aligned.
    #[inline]
    pub(crate) fn store_pair(&self, offset: usize, pair: [u32; 2]) {
        assert!(offset + 8 <= self.len, "8 bytes at {offset} of {}", self.len);
        let place: *mut u32 = with_exposed_provenance_mut(self.at(offset, 4));
        // SAFETY: as in `u16_at`; both are in the range.
        let [first, second] = unsafe { [place, place.add(1)].map(|at| AtomicU32::from_ptr(at)) };
        first.store(pair[0].to_le(), Ordering::Relaxed);
        second.store(pair[1].to_le(), Ordering::Relaxed);
    }
}
