//! Direct use of a driver, without the layer above it: for tests and fuzz targets.

use forebay_core::{
    Bio, Commit, Completed, Completions, DeviceState, Driver, Gates, HardwareContext, Issue,
    IssuedRequest, Op, Policy, QueuedBio, Reap, Segment, Segments, SoftwareQueue, Tag, TagSet,
};
use std::sync::Arc;
use std::time::Duration;

/// The number of tags of a queue that is used directly.
pub(super) const DEPTH: u32 = 64;

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
