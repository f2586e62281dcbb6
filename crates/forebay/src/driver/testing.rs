//! Support for the drivers' tests: devices from specs, and requests in the layer's form.
// It makes system calls.
#![allow(unsafe_code)]

use super::psync::call::Target;
use super::zeroing::{self, Ranges, Way};
use super::{Device, DriverQueue, Mode};
use crate::keys::Keys;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::{
    Bio, Commit, Completed, Completions, DeviceState, Driver, Gates, HardwareContext, Issue,
    IssuedRequest, Op, Policy, QueueLimits, QueuedBio, Reap, Segment, Segments, SoftwareQueue, Tag,
    TagSet,
};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The number of tags of the tests' queues.
pub(super) const DEPTH: u32 = 64;

/// Opens the device of a spec.
pub(super) fn device(spec: &str) -> Arc<dyn Device> {
    let spec = Spec::parse(spec).expect("a good spec");
    let mut keys = Keys::of(&spec);
    let settings = Settings::take(&mut keys).expect("good settings");
    let opened = super::open(&spec, &mut keys, &settings).expect("a device");
    keys.finish().expect("known keys");
    opened.device
}

/// Opens a queue of the device of a spec.
pub(super) fn queue(spec: &str, mode: Mode) -> DriverQueue {
    device(spec).open_queue(DEPTH, mode).expect("a queue")
}

/// Returns the ranges of a fixed-size file.
pub(super) fn ranges() -> Ranges {
    Ranges { grows: false, discard: zeroing::PUNCH_HOLE, way: Way::default(), goes_on: true }
}

/// Creates a file of 1 MiB. Returns it as the target of calls, and its limits.
pub(super) fn target() -> (Target, QueueLimits) {
    let file = tempfile::tempfile().expect("a scratch file");
    file.set_len(1 << 20).expect("room for it");
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).volatile_cache(true);
    (Target::new(Arc::new(file), ranges()), limits)
}

/// Returns a bio that reads or writes `buf`, in segments of at most `segment` bytes.
pub(super) fn data(op: Op, start: u64, buf: &mut [u8], segment: usize) -> Bio {
    let segments = buf.chunks_mut(segment).map(|part| Segment {
        addr: part.as_mut_ptr().expose_provenance(),
        len: part.len() as u32,
    });
    let segments = Segments::Many(segments.collect());
    Bio { segments, ..Bio::range(op, start, buf.len() as u64) }
}

/// Passes the request that the layer makes of a bio to a driver, under a tag that the test chooses.
/// Only this function of the drivers' tests depends on the layer.
pub(super) fn issue(driver: &mut dyn Driver, tag: usize, bio: Bio) -> Issue {
    // Every bio reaches the driver, and memory may be anywhere: the layer is not under test.
    let limits = super::ideal_limits(1 << 40, 1).volatile_cache(true).fua(true).dma_alignment(0);
    let policy = Policy::default();
    let mut ctx = SoftwareQueue::new(limits, policy, Arc::default());
    let device = Arc::new(DeviceState::new(1));
    let tags = Arc::new(TagSet::new(1));
    let mut hctx = HardwareContext::new(limits, policy, 0, device, tags, Arc::default());
    let len = bio.len;
    let mut queued = QueuedBio::new(0, 0);
    queued.fill(bio);
    ctx.queue_bio(queued, 0, 0).expect("a good bio");
    ctx.outgoing().for_each(|rq| hctx.accept(rq, true));
    let mut through = Through { driver, tag, len, answer: None };
    hctx.turn(&mut through, 0, Gates::OPEN, Commit::Now, &mut Vec::new());
    through.answer.expect("a turn issues what was queued")
}

/// Passes the request of a turn on and does nothing else.
struct Through<'a> {
    driver: &'a mut dyn Driver,
    tag: usize,
    len: u64,
    answer: Option<Issue>,
}

impl Driver for Through<'_> {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Issue {
        let mut rq = rq.clone();
        assert_eq!(rq.len, self.len, "the tests' bios are not split");
        rq.tag = Tag::from_index(self.tag);
        self.answer = Some(self.driver.queue_rq(&rq, last));
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, _: &mut Completions, _: Reap) {}

    fn wait(&mut self, _: u32, _: Option<Duration>) {}
}

/// Returns the completions that can be reaped now.
pub(super) fn reap(driver: &mut dyn Driver) -> Vec<Completed> {
    let mut done = Completions::new(DEPTH);
    driver.reap(&mut done, Reap::Full);
    done.drain().collect()
}

/// Returns whether a descriptor is readable, or becomes so before the timeout.
pub(super) fn is_readable(fd: BorrowedFd<'_>, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, open, and one structure that the kernel may write to.
    let nr = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
    nr == 1 && poll.revents & libc::POLLIN != 0
}

/// Runs `test` while this process can open no descriptor. For a child of a fork: other threads
/// would be disturbed.
#[cfg(feature = "vhost-user")]
pub(super) fn without_descriptors<T>(test: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to one structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) }, 0);
    let none = libc::rlimit { rlim_cur: 0, ..before };
    // SAFETY: the kernel reads one structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
    let result = test();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) }, 0);
    result
}

/// Drops the clean pages of a file from the page cache, as far as the kernel does it.
pub(super) fn forget(path: &Path) {
    let file = File::open(path).expect("a scratch file");
    file.sync_all().expect("a scratch file");
    for advice in [libc::POSIX_FADV_DONTNEED, libc::POSIX_FADV_RANDOM] {
        // SAFETY: numbers only.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) };
    }
}

/// A pseudo-random number generator (xorshift64).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    /// Returns the next number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
