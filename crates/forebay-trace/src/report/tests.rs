//! Reports of small traces.

use super::*;

fn record(act: Act, time_ns: u64, sector: u64, nr_sectors: u32) -> Record {
    Record {
        sequence: 0,
        time_ns,
        sector,
        bytes: nr_sectors * 512,
        kind: Kind::Stage(act),
        categories: Categories::READ,
        pid: 1,
        device: 0,
        cpu: 0,
        error: 0,
        data_len: 0,
    }
}

fn follow(records: &[Record]) -> (Vec<Traced>, Follower) {
    let (mut follower, mut done) = (Follower::default(), Vec::new());
    for record in records {
        let entry = Entry { record: *record, data: Vec::new() };
        follower.take(&entry, |bio| done.push(bio));
    }
    (done, follower)
}

#[test]
fn merged_bios_share_the_stages_of_their_request() {
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::Plug, 10, 0, 0),
        record(Act::Queue, 12, 8, 8),
        record(Act::BackMerge, 12, 8, 8),
        record(Act::Unplug, 20, 0, 0),
        record(Act::Sleep, 21, 0, 16),
        record(Act::GetRequest, 25, 0, 16),
        record(Act::Insert, 25, 0, 16),
        record(Act::Issue, 30, 0, 16),
        record(Act::Complete, 100, 0, 16),
    ]);
    let stages: Vec<_> = done.iter().map(|bio| (bio.is_merged, bio.stages_ns)).collect();
    assert_eq!(stages, [(false, [10, 5, 5, 70]), (true, [8, 5, 5, 70])]);
    assert!(done.iter().all(|bio| bio.has_slept && !bio.was_requeued));
    let counts = follower.counts();
    assert_eq!((counts.queued, counts.merged, counts.issued, counts.completed), (2, 1, 1, 1));
    assert_eq!((follower.nr_open(), follower.span_ns(), counts.bytes), (0, 90, 8192));
}

#[test]
fn split_bio_ends_with_its_last_part() {
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 100, 16),
        record(Act::Split, 11, 100, 16),
        record(Act::GetRequest, 11, 100, 8),
        record(Act::Issue, 11, 100, 8),
        record(Act::GetRequest, 12, 108, 8),
        record(Act::Issue, 12, 108, 8),
        record(Act::Complete, 30, 108, 8),
        record(Act::Complete, 40, 100, 8),
    ]);
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].total_ns(), done[0].bytes), (30, 8192));
    assert_eq!((follower.counts().splits, follower.nr_open()), (1, 0));
}

#[test]
fn short_count_and_repeat_end_the_bio_once() {
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::Issue, 11, 0, 8),
        record(Act::Complete, 20, 0, 4),
        record(Act::Issue, 21, 4, 4),
        record(Act::Complete, 30, 4, 4),
    ]);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].stages_ns, [0, 0, 1, 19]);
    assert_eq!((follower.counts().issued, follower.nr_open()), (2, 0));
}

#[test]
fn unfinished_bios_stay_open_and_flushes_have_no_range() {
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::Queue, 10, 0, 0),
        record(Act::Issue, 11, 0, 0),
        record(Act::Complete, 12, 0, 0),
    ]);
    assert_eq!((done.len(), follower.nr_open(), follower.counts().flushes), (0, 1, 1));
}

#[test]
fn forgotten_bios_are_not_mixed_up_with_later_ones_of_the_same_range() {
    let (mut follower, mut done) = (Follower::default(), Vec::new());
    let mut take = |follower: &mut Follower, record: Record| {
        follower.take(&Entry { record, data: Vec::new() }, |bio| done.push(bio));
    };
    take(&mut follower, record(Act::Queue, 10, 0, 8));
    assert_eq!((follower.forget(), follower.forget()), (1, 0));
    take(&mut follower, record(Act::Queue, 50, 0, 8));
    take(&mut follower, record(Act::Issue, 51, 0, 8));
    take(&mut follower, record(Act::Complete, 60, 0, 8));
    assert_eq!(done.iter().map(Traced::total_ns).collect::<Vec<_>>(), [10]);
}

#[test]
fn percentiles_are_times_that_were_added() {
    let mut times = Times::default();
    assert_eq!((times.percentile_ns(50.0), times.mean_ns()), (0, 0.0));
    (1..=100).rev().for_each(|time_ns| times.add(time_ns));
    times.sort();
    let all = [0.0, 50.0, 99.0, 100.0].map(|percent| times.percentile_ns(percent));
    assert_eq!((all, times.mean_ns(), times.len()), ([1, 50, 99, 100], 50.5, 100));
}
