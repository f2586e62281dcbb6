//! Plugs with flushes, and plugs of which records are missing.

use super::*;

/// Returns the bios as they end: sector, and time in the plug.
fn plugged(records: &[Record]) -> Vec<(u64, u64)> {
    let (done, _) = follow(records);
    done.iter().map(|bio| (bio.sector, bio.stages_ns[0])).collect()
}

#[test]
fn flush_that_opens_a_plug_leaves_the_bio_before_it_out() {
    let flush = Record { categories: Categories::FLUSH, ..record(Act::Queue, 50, 0, 0) };
    let records = [
        record(Act::Queue, 10, 0, 8),
        flush,
        record(Act::Plug, 50, 0, 0),
        record(Act::Queue, 60, 100, 8),
        record(Act::Unplug, 90, 0, 0),
        record(Act::GetRequest, 95, 0, 8),
        record(Act::Issue, 96, 0, 8),
        record(Act::Issue, 96, 100, 8),
        record(Act::Complete, 97, 0, 8),
        record(Act::Complete, 98, 100, 8),
    ];
    assert_eq!(plugged(&records), [(0, 0), (100, 30)]);
}

#[test]
fn plug_that_a_gap_interrupts_stays_open_without_its_bios() {
    let (mut follower, mut done) = (Follower::default(), Vec::new());
    let records = [
        record(Act::Queue, 10, 0, 8),
        record(Act::Plug, 10, 0, 0),
        record(Act::Queue, 11, 100, 8),
        // Here records are missing.
        record(Act::Queue, 12, 200, 8),
        record(Act::Queue, 13, 300, 8),
        record(Act::Unplug, 20, 0, 0),
        record(Act::Issue, 40, 200, 8),
        record(Act::Complete, 40, 200, 8),
        record(Act::Issue, 41, 300, 8),
        record(Act::Complete, 41, 300, 8),
    ];
    for (at, record) in records.into_iter().enumerate() {
        let take = |bio: Traced| done.push((bio.sector, bio.stages_ns[0]));
        follower.take(&stage(record), at == 2, take);
    }
    assert_eq!((done, follower.nr_left_out()), (vec![(200, 8), (300, 7)], 2));
}
