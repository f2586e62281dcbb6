//! Bytes of a disk in memory, which all its queues use at once.
//!
//! Each region has a lock (several regions share one), which is held while bytes of the region
//! move. No logical block crosses a region boundary, so a block is written and read as a whole, as
//! on a disk. A longer request is not atomic, as on a disk.
// It follows the addresses of segments, and maps memory.
#![allow(unsafe_code)]

use forebay_core::{IssuedRequest, Op};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The unit in which memory is returned to the system, bytes.
const PAGE: u64 = 4096;

/// The range of one lock, bytes: a multiple of the page and of every logical block.
pub(super) const REGION: u64 = 64 << 10;

/// The number of locks: region `n` has lock `n % NR_LOCKS`.
pub(super) const NR_LOCKS: usize = 256;

/// Zeroed memory that is backed page by page as it is written.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    len: u64,
    locks: Box<[Lock]>,
}

/// One lock, in a cache line of its own (processors fetch lines in pairs). It is held for a copy of
/// at most one region, or rarely while memory is returned to the system. So a waiter spins and
/// yields. A lock of the standard library costs twice as much, 5 % of a small read.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lock {
    is_held: AtomicBool,
}

/// Releases the lock when it is dropped.
struct Held<'a>(&'a Lock);

impl Lock {
    #[inline]
    fn hold(&self) -> Held<'_> {
        let taken =
            self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.wait();
        }
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        let mut nr_looks = 0u32;
        while self.is_held.load(Ordering::Relaxed) || self.is_held.swap(true, Ordering::Acquire) {
            nr_looks += 1;
            match nr_looks.is_multiple_of(64) {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::Release);
    }
}

// SAFETY: the mapping belongs to no thread.
unsafe impl Send for Memory {}
// SAFETY: its bytes are read and written only under the locks of their regions.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(len: u64) -> io::Result<Memory> {
        // Miri supports no other flags.
        let no_reserve = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | no_reserve,
        );
        // SAFETY: a new anonymous mapping replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        let locks = (0..NR_LOCKS).map(|_| Lock::default()).collect();
        Ok(Memory { base, len, locks })
    }

    /// Returns the address of byte `start`, of which `len` bytes are used.
    fn at(&self, start: u64, len: u64) -> *mut u8 {
        assert!(start <= self.len && len <= self.len - start, "the layer checks the range");
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.base.as_ptr().add(start as usize) }
    }

    fn lock_of(&self, region: u64) -> &Lock {
        &self.locks[region as usize % NR_LOCKS]
    }

    /// Moves the data of a read or write.
    pub(super) fn move_data(&self, rq: &IssuedRequest<'_>) {
        // SAFETY of both: both sides are valid for `len` bytes: the device's by `at`, the segment's
        // by the layer's promise K2. They can overlap only if the caller breaks it. The lock of the
        // region, which `each_piece` holds, excludes concurrent access on the device's side: no
        // other thread writes the bytes read here, or uses the bytes written here.
        match rq.op {
            Op::Read => self.each_piece(rq, |device, memory, len| {
                // SAFETY: see above.
                unsafe { std::ptr::copy_nonoverlapping(device, memory, len) }
            }),
            _ => self.each_piece(rq, |device, memory, len| {
                // SAFETY: see above.
                unsafe { std::ptr::copy_nonoverlapping(memory, device, len) }
            }),
        }
    }

    /// Calls `copy` for each piece of a request that is in one segment and one region. The region's
    /// lock is held from the first to the last piece of the region, because a block may be in
    /// several segments. One lock is held at a time, so the locks need no order.
    #[inline]
    fn each_piece(&self, rq: &IssuedRequest<'_>, copy: impl Fn(*mut u8, *mut u8, usize)) {
        let mut held: Option<(u64, Held<'_>)> = None;
        let mut start = rq.start;
        for segment in rq.segments() {
            let (mut addr, mut left) = (segment.addr, u64::from(segment.len));
            while left > 0 {
                let region = start / REGION;
                if held.as_ref().is_none_or(|(number, _)| *number != region) {
                    drop(held.take());
                    held = Some((region, self.lock_of(region).hold()));
                }
                let len = left.min(REGION - start % REGION);
                let memory = std::ptr::with_exposed_provenance_mut(addr);
                copy(self.at(start, len), memory, len as usize);
                (start, addr, left) = (start + len, addr + len as usize, left - len);
            }
        }
        assert!(start == rq.start + rq.len, "a request's segments are as long as it is");
    }

    /// Zeroes a range. Whole pages are returned to the system.
    pub(super) fn zero(&self, start: u64, len: u64) {
        let end = start + len;
        if len >= REGION * NR_LOCKS as u64 {
            // One call for a range that needs all locks. It takes them in order, and a thread that
            // moves data holds only one, so no deadlock is possible.
            let _all: [_; NR_LOCKS] = std::array::from_fn(|nth| self.locks[nth].hold());
            self.zero_locked(start, end);
            return;
        }
        let mut from = start;
        while from < end {
            let region = from / REGION;
            let to = end.min((region + 1) * REGION);
            let _lock = self.lock_of(region).hold();
            self.zero_locked(from, to);
            from = to;
        }
    }

    /// Zeroes a range as [`zero`](Self::zero) does. The caller holds the locks of all its regions.
    fn zero_locked(&self, start: u64, end: u64) {
        let (first, last) = (start.next_multiple_of(PAGE).min(end), end - end % PAGE);
        // Miri does not support it.
        let given_back = first < last && !cfg!(miri) && {
            let at = self.at(first, last - first).cast();
            // SAFETY: whole pages of this private mapping; they read as zeroes afterwards.
            unsafe { libc::madvise(at, (last - first) as usize, libc::MADV_DONTNEED) == 0 }
        };
        let edges = if given_back { [(start, first), (last, end)] } else { [(start, end), (0, 0)] };
        for (from, to) in edges {
            // SAFETY: inside the mapping, by `at`; no other thread uses it, by the locks.
            unsafe { self.at(from, to - from).write_bytes(0, (to - from) as usize) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and nothing uses it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len as usize) };
    }
}
