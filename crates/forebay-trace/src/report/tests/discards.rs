//! Discards that merge.

use super::*;

fn discard(act: Act, time_ns: u64, sector: u64, nr_sectors: u32) -> Record {
    let categories = Categories::WRITE.with(Categories::DISCARD);
    Record { categories, ..record(act, time_ns, sector, nr_sectors) }
}

#[test]
fn discards_that_merge_without_being_neighbours_end_with_their_request() {
    let (done, follower) = follow(&[
        discard(Act::Queue, 10, 80, 8),
        discard(Act::Queue, 11, 0, 16),
        discard(Act::BackMerge, 11, 0, 16),
        discard(Act::Queue, 12, 400, 8),
        discard(Act::BackMerge, 12, 400, 8),
        // In another request.
        discard(Act::Queue, 13, 200, 8),
        discard(Act::Queue, 14, 0, 16),
        discard(Act::BackMerge, 14, 0, 16),
        discard(Act::GetRequest, 20, 80, 32),
        discard(Act::GetRequest, 21, 200, 24),
        discard(Act::Issue, 22, 80, 32),
        discard(Act::Requeue, 23, 80, 32),
        discard(Act::Issue, 24, 200, 24),
        discard(Act::Issue, 30, 80, 32),
        discard(Act::Complete, 40, 80, 32),
        discard(Act::Complete, 50, 200, 24),
    ]);
    assert_eq!(ends(&done), [(0, 29, 0), (0, 36, 0), (80, 30, 0), (200, 37, 0), (400, 28, 0)]);
    assert_eq!(done.iter().filter(|bio| bio.was_requeued).count(), 3);
    assert!(done.iter().all(|bio| bio.stages_ns[3] > 0 && bio.stages_ns[4] > 0));
    assert_eq!(follower.nr_open(), 0);
}

#[test]
fn discards_that_a_scheduler_merges_end_with_their_request() {
    let absorbed = |at, sector, nr| Record { cpu: 1, ..discard(Act::BackMerge, at, sector, nr) };
    let (done, follower) = follow(&[
        discard(Act::Queue, 10, 80, 8),
        discard(Act::Queue, 10, 8, 16),
        discard(Act::BackMerge, 10, 8, 16),
        discard(Act::GetRequest, 11, 80, 24),
        discard(Act::Queue, 12, 400, 8),
        discard(Act::GetRequest, 12, 400, 8),
        // A request of two bios.
        discard(Act::Queue, 13, 200, 8),
        discard(Act::Queue, 13, 32, 16),
        discard(Act::BackMerge, 13, 32, 16),
        discard(Act::GetRequest, 14, 200, 24),
        absorbed(15, 400, 8),
        absorbed(16, 200, 24),
        discard(Act::Issue, 20, 80, 56),
        // Another request.
        discard(Act::Queue, 21, 600, 8),
        discard(Act::Queue, 21, 640, 8),
        discard(Act::BackMerge, 21, 640, 8),
        discard(Act::Issue, 22, 600, 16),
        discard(Act::Complete, 30, 80, 56),
        discard(Act::Complete, 50, 600, 16),
    ]);
    let expected = [(8, 20, 0), (32, 17, 0), (80, 20, 0), (200, 17, 0), (400, 18, 0), (600, 29, 0)];
    assert_eq!(ends(&done), [&expected[..], &[(640, 29, 0)]].concat());
    assert_eq!(follower.nr_open(), 0);
}

#[test]
fn discards_of_a_plug_and_of_a_scheduler_are_kept_apart() {
    let absorbed = |at, sector, nr| Record { cpu: 1, ..discard(Act::BackMerge, at, sector, nr) };
    let head = [
        discard(Act::Queue, 10, 80, 8),
        discard(Act::GetRequest, 10, 80, 8),
        discard(Act::Queue, 10, 400, 8),
        discard(Act::GetRequest, 10, 400, 8),
        discard(Act::Queue, 10, 600, 8),
        discard(Act::Queue, 10, 640, 8),
    ];
    let in_plug = discard(Act::BackMerge, 11, 640, 8);
    let first = [discard(Act::Issue, 20, 80, 16), discard(Act::Complete, 30, 80, 16)];
    let second = [discard(Act::GetRequest, 40, 600, 16), discard(Act::Issue, 40, 600, 16)];
    let last = discard(Act::Complete, 50, 600, 16);
    let middles: [Vec<Record>; 2] = [
        [&[in_plug, absorbed(12, 400, 8)][..], &first, &second].concat(),
        // The tag of the second request comes first.
        [&[absorbed(11, 400, 8), in_plug][..], &second, &first].concat(),
    ];
    for middle in middles {
        let (done, follower) = follow(&[&head[..], &middle, &[last]].concat());
        assert_eq!(ends(&done), [(80, 20, 0), (400, 20, 0), (600, 40, 0), (640, 40, 0)]);
        assert_eq!(follower.nr_open(), 0);
    }
}

#[test]
fn merged_discards_that_fail_before_they_are_issued_end() {
    let failed = |at, nr| Record { error: -5, ..discard(Act::Complete, at, 80, nr) };
    let (done, follower) = follow(&[
        discard(Act::Queue, 10, 80, 8),
        discard(Act::Queue, 11, 8, 16),
        discard(Act::BackMerge, 11, 8, 16),
        failed(20, 24),
        discard(Act::Queue, 30, 80, 8),
        discard(Act::Queue, 31, 200, 8),
        discard(Act::BackMerge, 31, 200, 8),
        discard(Act::GetRequest, 32, 80, 16),
        failed(40, 16),
    ]);
    let expected = [(8, 9, -5), (80, 10, -5), (80, 10, -5), (200, 9, -5)];
    assert_eq!((ends(&done), follower.nr_open()), (expected.to_vec(), 0));
}
