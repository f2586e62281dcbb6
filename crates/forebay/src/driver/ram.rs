//! The `ram` driver: a disk in memory, with the service times of a simple device if wanted.
//!
//! With `req_ns` and `io_ns` each request takes `req_ns + io_ns * bios` on a clock of the device's
//! own, one request after another, as the model of the published plug figures has it: a request
//! costs the same however many bios it joins, and each bio costs a little more. The data moves when
//! the request is issued; the completion comes when the device's clock says so.
// It follows the addresses of segments, and maps memory.
#![allow(unsafe_code)]

use super::{Opened, ideal_limits, sized_target};
use crate::error::OpenError;
use crate::info::Feature;
use crate::keys::Keys;
use crate::runtime::clock;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Look, Op, QueueLimits, Tag};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// A wait shorter than this spins: the scheduler's own delay would be a large part of it.
const SPIN_NS: u64 = 60_000;

/// The unit in which memory is given back to the system, bytes.
const PAGE: u64 = 4096;

#[derive(Debug)]
struct RamDriver {
    limits: QueueLimits,
    memory: Memory,
    req_ns: u64,
    io_ns: u64,
    /// When the device has done all that was issued.
    free_at_ns: u64,
    /// In the order of completion.
    running: VecDeque<Running>,
}

#[derive(Debug)]
struct Running {
    tag: Tag,
    len: u64,
    done_at_ns: u64,
}

pub(super) fn open(spec: &Spec, keys: &mut Keys, _: &Settings) -> Result<Opened, OpenError> {
    let (capacity, block) = sized_target(spec, keys)?;
    let ns = "a number of nanoseconds, up to 1 000 000 000 000";
    let req_ns = keys.take_number("req_ns", ns, 0..=1_000_000_000_000)?.unwrap_or(0);
    let io_ns = keys.take_number("io_ns", ns, 0..=1_000_000_000_000)?.unwrap_or(0);
    let memory =
        Memory::new(capacity).map_err(|source| OpenError::NoMemory { len: capacity, source })?;
    let driver = RamDriver {
        limits: ideal_limits(capacity, block),
        memory,
        req_ns,
        io_ns,
        free_at_ns: 0,
        running: VecDeque::new(),
    };
    let features = vec![
        Feature::present("discard", "gives memory back; up to 256 ranges in one request"),
        Feature::present("write_zeroes", "gives memory back"),
        Feature::missing("flush", "there is no cache; a flush ends at once"),
        Feature::missing("fua", "there is no cache; every write is as durable as it gets"),
    ];
    Ok(Opened { driver: Box::new(driver), features })
}

impl RamDriver {
    /// When a request that is issued now will be done, by the device's clock.
    fn done_at_ns(&mut self, nr_bios: u32) -> u64 {
        let cost = self.req_ns + self.io_ns * u64::from(nr_bios);
        if cost == 0 {
            return 0;
        }
        self.free_at_ns = self.free_at_ns.max(clock::now_ns()) + cost;
        self.free_at_ns
    }
}

impl Driver for RamDriver {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        match rq.op {
            Op::Read | Op::Write => self.memory.move_data(rq),
            Op::Discard | Op::WriteZeroes => {
                rq.ranges().for_each(|(start, len)| self.memory.zero(start, len));
            }
            Op::Flush => {}
        }
        let done_at_ns = self.done_at_ns(rq.nr_bios);
        self.running.push_back(Running { tag: rq.tag, len: rq.len, done_at_ns });
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _look: Look) {
        let Some(first) = self.running.front() else {
            return;
        };
        let now = if first.done_at_ns == 0 { 0 } else { clock::now_ns() };
        while let Some(first) = self.running.pop_front_if(|first| first.done_at_ns <= now) {
            done.push(first.tag, Ok(first.len));
        }
    }

    fn wait(&mut self, nr_completions: u32) {
        let Some(last) = self.running.get(nr_completions as usize - 1) else {
            return;
        };
        let done_at_ns = last.done_at_ns;
        loop {
            let now = clock::now_ns();
            if done_at_ns <= now {
                return;
            }
            match (done_at_ns - now).checked_sub(SPIN_NS) {
                Some(sleep_ns) => std::thread::sleep(Duration::from_nanos(sleep_ns)),
                None => std::hint::spin_loop(),
            }
        }
    }
}

/// Zeroed memory that is backed page by page as it is written.
#[derive(Debug)]
struct Memory {
    base: NonNull<u8>,
    len: u64,
}

impl Memory {
    fn new(len: u64) -> io::Result<Memory> {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new anonymous mapping replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Memory { base, len })
    }

    /// The address of byte `start`, of which `len` bytes are used.
    fn at(&self, start: u64, len: u64) -> *mut u8 {
        assert!(start <= self.len && len <= self.len - start, "the layer checks the range");
        // SAFETY: inside of the mapping, as just asserted.
        unsafe { self.base.as_ptr().add(start as usize) }
    }

    fn move_data(&mut self, rq: &IssuedRequest<'_>) {
        let mut start = rq.start;
        for segment in rq.segments() {
            let len = segment.len as usize;
            let device = self.at(start, u64::from(segment.len));
            let memory = std::ptr::with_exposed_provenance_mut::<u8>(segment.addr);
            // SAFETY: both are valid for `len` bytes: the device's by `at`, the segment's by the
            // layer's promise K2. They may be the same memory only by the caller's breach of it.
            unsafe {
                match rq.op {
                    Op::Read => std::ptr::copy_nonoverlapping(device, memory, len),
                    _ => std::ptr::copy_nonoverlapping(memory, device, len),
                }
            }
            start += u64::from(segment.len);
        }
        assert!(start == rq.start + rq.len, "a request's segments are as long as it is");
    }

    /// Makes a range zero. Whole pages are given back to the system.
    fn zero(&mut self, start: u64, len: u64) {
        let end = start + len;
        let (first, last) = (start.next_multiple_of(PAGE).min(end), end - end % PAGE);
        let given_back = first < last && {
            let at = self.at(first, last - first).cast();
            // SAFETY: whole pages of our own private mapping; they read as zeroes afterwards.
            unsafe { libc::madvise(at, (last - first) as usize, libc::MADV_DONTNEED) == 0 }
        };
        let edges = if given_back { [(start, first), (last, end)] } else { [(start, end), (0, 0)] };
        for (from, to) in edges {
            // SAFETY: inside of the mapping, by `at`.
            unsafe { self.at(from, to - from).write_bytes(0, (to - from) as usize) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len as usize) };
    }
}
