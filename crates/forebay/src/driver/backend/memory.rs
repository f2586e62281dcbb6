//! Access to the memory of a back end's requests.
//!
//! A request has exclusive access to its memory from its issue until its completion is reaped (K2).
//! It is the only handle, and ending it consumes it. So its borrows bound each access.
// It follows the addresses of segments.
#![allow(unsafe_code)]

use super::request::Request;
use forebay_core::{Op, Segment};
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;

impl Request {
    /// Copies bytes of a write to `out`, from byte `from` of the request on.
    ///
    /// # Panics
    /// Panics if the request is not a write, or does not have these bytes.
    #[track_caller]
    pub fn copy_to(&self, from: u64, out: &mut [u8]) {
        // SAFETY: the same memory. The copy writes only bytes that are initialized.
        let out = unsafe { &mut *(ptr::from_mut(out) as *mut [MaybeUninit<u8>]) };
        self.copy_to_uninit(from, out);
    }

    /// Copies bytes of a write as [`copy_to`](Request::copy_to) does, to memory that need not be
    /// initialized. Returns that memory as initialized bytes.
    ///
    /// # Panics
    /// Panics if the request is not a write, or does not have these bytes.
    #[track_caller]
    pub fn copy_to_uninit<'a>(&self, from: u64, out: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        let mut done = 0;
        self.each_piece(Op::Write, from, out.len(), |memory, len| {
            let out = &mut out[done..done + len];
            // SAFETY: the segment is valid for reads of `len` bytes (K2), and no part of `out`,
            // which is borrowed mutably.
            unsafe { ptr::copy_nonoverlapping(memory, out.as_mut_ptr().cast(), len) };
            done += len;
        });
        debug_assert_eq!(done, out.len(), "the segments have all bytes of the request");
        // SAFETY: all bytes of it were written, and `MaybeUninit<u8>` has the layout of `u8`.
        unsafe { &mut *(ptr::from_mut(out) as *mut [u8]) }
    }

    /// Copies `data` to the memory of a read, from byte `to` of the request on.
    ///
    /// # Panics
    /// Panics if the request is not a read, or does not have these bytes.
    pub fn copy_from(&mut self, to: u64, data: &[u8]) {
        let mut done = 0;
        self.each_piece(Op::Read, to, data.len(), |memory, len| {
            let data = &data[done..done + len];
            // SAFETY: the segment is valid for writes of `len` bytes, and no other code uses it
            // (K2). So it is no part of `data`.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), memory, len) };
            done += len;
        });
    }

    /// Fills `len` bytes of the memory of a read with zeroes, from byte `to` of the request on.
    ///
    /// # Panics
    /// Panics if the request is not a read, or does not have these bytes.
    pub fn fill_zeroes(&mut self, to: u64, len: usize) {
        self.each_piece(Op::Read, to, len, |memory, len| {
            // SAFETY: the segment is valid for writes of `len` bytes, and no other code uses it
            // (K2).
            unsafe { ptr::write_bytes(memory, 0, len) };
        });
    }

    /// Returns all bytes of a write, in a buffer of its own: a bounce buffer.
    ///
    /// # Panics
    /// Panics if the request is not a write.
    pub fn to_vec(&self) -> Vec<u8> {
        let len = self.len() as usize;
        let mut bytes = Vec::with_capacity(len);
        self.copy_to_uninit(0, &mut bytes.spare_capacity_mut()[..len]);
        // SAFETY: the copy has initialized `len` bytes.
        unsafe { bytes.set_len(len) };
        bytes
    }

    /// Returns the memory of a write as slices, in the order of the bytes on the disk. `None` if
    /// the library does not own the memory exclusively, so it may change while it is read: memory
    /// of a guest or of another program. Then use [`copy_to`](Request::copy_to).
    ///
    /// # Panics
    /// Panics if the request is not a write.
    pub fn slices(&self) -> Option<impl ExactSizeIterator<Item = &[u8]>> {
        self.check_op(Op::Write);
        let body = self.body();
        let as_slice = |nth| {
            let segment = body.segment(nth);
            // SAFETY: a buffer of the library, which is initialised. It is valid, and no code
            // writes to it, while the request exists (K2). The borrow of the request bounds this.
            unsafe { slice::from_raw_parts(address(segment), segment.len as usize) }
        };
        body.has_owned_memory.then(|| (0..body.nr_segments()).map(as_slice))
    }

    /// Returns the memory of a read as slices, in the order of the bytes on the disk. `None` if the
    /// library does not own the memory exclusively. Then use [`copy_from`](Request::copy_from).
    ///
    /// # Panics
    /// Panics if the request is not a read.
    pub fn slices_mut(&mut self) -> Option<impl ExactSizeIterator<Item = &mut [u8]>> {
        self.check_op(Op::Read);
        let body = self.body();
        let as_slice = |nth| {
            let segment = body.segment(nth);
            // SAFETY: a buffer of the library, which is initialised. It is valid, and no other code
            // uses it, while the request exists (K2). Its segments are different buffers. The
            // mutable borrow of the request bounds this.
            unsafe { slice::from_raw_parts_mut(address(segment), segment.len as usize) }
        };
        body.has_owned_memory.then(|| (0..body.nr_segments()).map(as_slice))
    }

    #[track_caller]
    fn check_op(&self, op: Op) {
        assert!(self.op() == op, "the request is a {:?}, not a {op:?}", self.op());
    }

    /// Calls `work` with each piece of memory of `len` bytes from byte `from` on.
    #[track_caller]
    fn each_piece(&self, op: Op, from: u64, len: usize, mut work: impl FnMut(*mut u8, usize)) {
        self.check_op(op);
        let has = self.len();
        assert!(
            from <= has && len as u64 <= has - from,
            "{len} bytes from byte {from}: the request has only {has} bytes"
        );
        let (mut skip, mut left) = (from as usize, len);
        let body = self.body();
        for segment in (0..body.nr_segments()).map(|nth| body.segment(nth)) {
            if left == 0 {
                break;
            }
            let has = segment.len as usize;
            if skip >= has {
                skip -= has;
                continue;
            }
            let nr = left.min(has - skip);
            // In the segment, because `skip` and `nr` together are at most its length.
            work(address(segment).wrapping_add(skip), nr);
            (skip, left) = (0, left - nr);
        }
    }
}

fn address(segment: Segment) -> *mut u8 {
    ptr::with_exposed_provenance_mut(segment.addr)
}
