//! Test of a hardware context that shares its tags with other threads.

use crate::common::{Toy, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Commit, DeviceState, Gates, HardwareContext, Op, Policy, QueuedBio,
    RunCounters, Segment, SoftwareQueue, TagSet,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A NOWAIT bio ends with `Again` if another thread takes its tag between the check and the try.
#[test]
fn nowait_bio_does_not_wait_for_a_tag_of_another_disk() {
    let policy = Policy::default().queue_depth(1);
    let tags = Arc::new(TagSet::new(1));
    let (device, counters) = (Arc::new(DeviceState::new(1)), Arc::new(RunCounters::default()));
    let mut hctx = HardwareContext::new(limits(), policy, 0, device, Arc::clone(&tags), counters);
    let (mut toy, mut ended) = (Toy::default(), Vec::new());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                tags.try_get(&mut 0).into_iter().for_each(|tag| tags.put(tag));
            }
        });
        let mut nr_waiting = 0;
        for _ in 0..100_000 {
            let mut ctx = SoftwareQueue::new(limits(), policy, Arc::default());
            let mut queued = QueuedBio::new(1, 0);
            let bio = Bio::data(Op::Read, 0, Segment { addr: 4096, len: 4096 });
            queued.fill(Bio { flags: BioFlags::NOWAIT, ..bio });
            ctx.queue_bio(queued, 0, 0).expect("it is a good bio");
            ctx.outgoing().for_each(|rq| hctx.accept(rq, true));
            let mut turn = |toy: &mut Toy| {
                hctx.turn(toy, 0, Gates::OPEN, Commit::Now, &mut ended);
                _ = hctx.give_back_tags();
            };
            turn(&mut toy);
            if !toy.running.is_empty() {
                toy.complete_oldest();
                turn(&mut toy);
            }
            nr_waiting += u32::from(ended.is_empty());
            let is_answered = |queued: Box<QueuedBio>| {
                matches!(queued.result(), Ok(4096) | Err(BlockStatus::Again))
            };
            assert!(ended.drain(..).all(is_answered));
            toy.seen.clear();
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(nr_waiting, 0);
    });
}
