//! Bytes of a request: segments that the disk uses, or from which the front copies.
// This module dereferences addresses of mapped memory.
#![allow(unsafe_code)]

use super::range::read_pair;
use super::regions::{GuestMemory, OutsideMemory};
use forebay_core::{Segment, Segments};
use forebay_front::blk::{GuestBytes, HEADER_LEN};
use std::ptr::with_exposed_provenance_mut;
use std::rc::Rc;
use vm_memory::VolatileSlice;

const EMPTY: Segment = Segment { addr: 0, len: 0 };

/// Lists of requests that have ended, for the next ones.
pub(crate) type Lists = Vec<Vec<Segment>>;

/// One direction of a chain, while its descriptors are read. They have less than 4 GiB together.
///
/// Invariant: each segment was returned by `table`, so it is mapped while `table` lives.
#[derive(Debug)]
pub(crate) struct Gathered<'a> {
    table: &'a Rc<GuestMemory>,
    /// The segments before the last one. In most requests this is one at most: the header or the
    /// status has a descriptor of its own.
    before: Segments,
    /// Without bytes if there are none.
    last: Segment,
}

impl<'a> Gathered<'a> {
    #[inline]
    pub(crate) fn new(table: &'a Rc<GuestMemory>) -> Gathered<'a> {
        Gathered { table, before: Segments::None, last: EMPTY }
    }

    /// Appends a range of the guest, which is not empty.
    ///
    /// # Errors
    /// Fails if a byte of the range is outside of all regions, or the range wraps.
    #[inline]
    pub(crate) fn append(
        &mut self,
        addr: u64,
        len: u32,
        lists: &mut Lists,
    ) -> Result<(), OutsideMemory> {
        match self.table.segment(addr, len) {
            Some(segment) => self.push(segment, lists),
            None => self.append_across(addr, len, lists)?,
        }
        Ok(())
    }

    /// Appends a range that is not inside one region.
    #[cold]
    fn append_across(
        &mut self,
        addr: u64,
        len: u32,
        lists: &mut Lists,
    ) -> Result<(), OutsideMemory> {
        let table = self.table;
        table.each_segment(addr, len, |segment| self.push(segment, lists))
    }

    /// Appends a segment. It joins the last one if it follows it in this process.
    #[inline]
    fn push(&mut self, segment: Segment, lists: &mut Lists) {
        if self.last.len == 0 {
            self.last = segment;
        } else if self.last.addr + self.last.len as usize == segment.addr {
            self.last.len += segment.len;
        } else {
            let former = std::mem::replace(&mut self.last, segment);
            append(&mut self.before, former, lists);
        }
    }

    /// Returns the address of the first byte in this process, or 0.
    #[inline]
    pub(crate) fn first_addr(&self) -> usize {
        match &self.before {
            Segments::None => self.last.addr,
            Segments::One(first) => first.addr,
            Segments::Many(list) => list[0].addr,
        }
    }

    /// Copies the header, and returns the bytes behind it. `None` for the header: there are fewer
    /// bytes, and all are returned.
    // Always inlined, as the next ones: otherwise the segments are passed through memory.
    #[inline(always)]
    pub(crate) fn split_header(
        mut self,
        lists: &mut Lists,
    ) -> (Option<[u8; HEADER_LEN]>, Option<GuestData>) {
        let first = match &mut self.before {
            Segments::None => &mut self.last,
            Segments::One(first) => first,
            Segments::Many(list) => &mut list[0],
        };
        if (first.len as usize) < HEADER_LEN {
            return self.split_header_in_pieces(lists);
        }
        // SAFETY: the segment is mapped while the table lives, which `self` borrows (invariant).
        let [low, high] = unsafe { read_pair(first.addr) };
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&low.to_le_bytes());
        header[8..].copy_from_slice(&high.to_le_bytes());
        first.addr += HEADER_LEN;
        first.len -= HEADER_LEN as u32;
        if first.len == 0 {
            remove_first(&mut self.before, 1);
        }
        (Some(header), self.finish(lists))
    }

    #[cold]
    fn split_header_in_pieces(
        self,
        lists: &mut Lists,
    ) -> (Option<[u8; HEADER_LEN]>, Option<GuestData>) {
        let Some(mut data) = self.finish(lists) else { return (None, None) };
        if data.len() < HEADER_LEN as u64 {
            return (None, Some(data));
        }
        let mut header = [0; HEADER_LEN];
        data.take_front(&mut header);
        (Some(header), (!data.is_empty()).then_some(data))
    }

    /// Separates the last byte, which is the status. `None` for it: there are no bytes.
    #[inline(always)]
    pub(crate) fn split_status(
        mut self,
        lists: &mut Lists,
    ) -> (Option<GuestByte>, Option<GuestData>) {
        if self.last.len == 0 {
            return (None, None);
        }
        self.last.len -= 1;
        let addr = self.last.addr + self.last.len as usize;
        let status = GuestByte { addr, table: Rc::clone(self.table) };
        (Some(status), self.finish(lists))
    }

    /// Returns the bytes. `None`: there are none.
    #[inline(always)]
    fn finish(mut self, lists: &mut Lists) -> Option<GuestData> {
        if self.last.len > 0 {
            append(&mut self.before, self.last, lists);
        }
        let is_empty = matches!(self.before, Segments::None);
        let Gathered { table, before: segments, .. } = self;
        (!is_empty).then(|| GuestData { segments, _table: Rc::clone(table) })
    }
}

/// Appends a segment to others.
#[inline]
fn append(segments: &mut Segments, segment: Segment, lists: &mut Lists) {
    match segments {
        Segments::None => *segments = Segments::One(segment),
        _ => append_to_list(segments, segment, lists),
    }
}

#[inline(never)]
fn append_to_list(segments: &mut Segments, segment: Segment, lists: &mut Lists) {
    if let Segments::One(first) = *segments {
        let mut list = lists.pop().unwrap_or_default();
        list.clear();
        list.push(first);
        *segments = Segments::Many(list);
    }
    if let Segments::Many(list) = segments {
        list.push(segment);
    }
}

/// Removes the first segments.
#[inline]
fn remove_first(segments: &mut Segments, nr: usize) {
    match segments {
        Segments::Many(list) => drop(list.drain(..nr)),
        Segments::One(_) if nr > 0 => *segments = Segments::None,
        Segments::One(_) | Segments::None => {}
    }
}

/// Bytes of a request in the memory of the guest: one direction of a chain.
///
/// Invariant: each segment was returned by `_table`, so it is mapped while that lives.
#[derive(Debug)]
pub struct GuestData {
    segments: Segments,
    /// Keeps the segments mapped.
    _table: Rc<GuestMemory>,
}

impl GuestData {
    /// Returns the list of several segments, so that other requests can use its memory.
    #[inline]
    pub(crate) fn into_list(self) -> Option<Vec<Segment>> {
        match self.segments {
            Segments::Many(list) => Some(list),
            Segments::None | Segments::One(_) => None,
        }
    }

    /// Returns the segments that are left.
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        self.segments.as_slice()
    }

    /// Returns the addresses in this process, for the disk. While they are used, the owner keeps
    /// this value. It has no bytes until [`give_back`](GuestData::give_back).
    #[inline]
    pub fn lend(&mut self) -> Segments {
        std::mem::take(&mut self.segments)
    }

    /// Takes back what [`lend`](GuestData::lend) returned.
    #[inline]
    pub fn give_back(&mut self, segments: Segments) {
        self.segments = segments;
    }

    /// Calls `copy` for each piece of the first `len` bytes, and removes these bytes.
    fn consume(&mut self, len: usize, mut copy: impl FnMut(usize, &VolatileSlice<'_>)) {
        let segments = match &mut self.segments {
            Segments::None => &mut [],
            Segments::One(segment) => std::slice::from_mut(segment),
            Segments::Many(list) => &mut list[..],
        };
        let (mut first, mut done) = (0, 0);
        while done < len {
            let segment = &mut segments[first];
            let now = (segment.len as usize).min(len - done);
            // SAFETY: the segment is mapped while the table lives, which `self` holds (invariant).
            // Access is volatile, so concurrent changes by others are harmless.
            let slice =
                unsafe { VolatileSlice::new(with_exposed_provenance_mut(segment.addr), now) };
            copy(done, &slice);
            segment.addr += now;
            segment.len -= now as u32;
            first += usize::from(segment.len == 0);
            done += now;
        }
        remove_first(&mut self.segments, first);
    }
}

impl GuestBytes for GuestData {
    #[inline]
    fn len(&self) -> u64 {
        self.segments.len_bytes()
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
        let place: *mut u8 = with_exposed_provenance_mut(self.addr);
        // SAFETY: the byte is mapped, and writable, while the table lives (invariant).
        unsafe { place.write_volatile(value) };
        drop(self.table);
    }
}
