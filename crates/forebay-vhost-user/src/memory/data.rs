//! Bytes of a request: a list of segments that the disk uses, or from which the front copies.
// This module dereferences addresses of mapped memory.
#![allow(unsafe_code)]

use super::range::read_pair;
use super::regions::{GuestMemory, OutsideMemory};
use forebay_core::Segment;
use forebay_front::blk::GuestBytes;
use std::ptr::with_exposed_provenance_mut;
use std::rc::Rc;
use vm_memory::VolatileSlice;

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
