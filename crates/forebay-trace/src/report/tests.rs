//! Reports of small traces.

mod discards;
mod plugs;
mod same_range;

use super::*;
use crate::record::Notify;

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
    let entries: Vec<_> = records.iter().map(|record| stage(*record)).collect();
    follow_entries(&entries)
}

fn follow_entries(entries: &[Entry]) -> (Vec<Traced>, Follower) {
    let (mut follower, mut done) = (Follower::default(), Vec::new());
    entries.iter().for_each(|entry| follower.take(entry, false, |bio| done.push(bio)));
    follower.finish(|bio| done.push(bio));
    (done, follower)
}

fn stage(record: Record) -> Entry {
    Entry { record, data: Vec::new() }
}

/// Returns a stage of a write with FUA.
fn fua(act: Act, time_ns: u64, sector: u64) -> Entry {
    let categories = Categories::WRITE.with(Categories::FUA);
    stage(Record { categories, ..record(act, time_ns, sector, 8) })
}

fn message(time_ns: u64, text: &str) -> Entry {
    let kind = Kind::Notify(Notify::Message);
    let record = Record { kind, ..record(Act::Queue, time_ns, 0, 0) };
    Entry { record, data: text.as_bytes().to_vec() }
}

/// Returns the times and errors of all bios, in the order of their sectors.
fn ends(done: &[Traced]) -> Vec<(u64, u64, i16)> {
    let mut ends: Vec<_> = done.iter().map(|bio| (bio.sector, bio.total_ns(), bio.error)).collect();
    ends.sort();
    ends
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
    assert_eq!(stages, [(false, [10, 0, 0, 5, 5, 70]), (true, [8, 0, 0, 5, 5, 70])]);
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
    assert_eq!(done[0].stages_ns, [0, 0, 0, 0, 1, 19]);
    assert_eq!((follower.counts().issued, follower.nr_open()), (2, 0));
}

#[test]
fn requeued_requests_and_flushes_are_issued_once() {
    // The trace begins after the first D of two commands.
    let (_, follower) = follow(&[
        record(Act::Requeue, 8, 64, 8),
        record(Act::Requeue, 9, 0, 0),
        record(Act::Queue, 10, 0, 8),
        record(Act::Issue, 11, 0, 8),
        record(Act::Requeue, 11, 0, 8),
        record(Act::Issue, 12, 0, 8),
        record(Act::Requeue, 12, 0, 8),
        record(Act::Issue, 13, 0, 0),
        record(Act::Requeue, 13, 0, 0),
        record(Act::Issue, 20, 0, 8),
        record(Act::Issue, 21, 0, 0),
        record(Act::Complete, 30, 0, 8),
        record(Act::Complete, 40, 0, 0),
    ]);
    let counts = follower.counts();
    assert_eq!((counts.issued, counts.flushes, counts.requeues), (1, 1, 5));
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
fn bios_in_flight_at_any_time_of_a_gap_are_left_out() {
    let (mut follower, mut done) = (Follower::default(), Vec::new());
    let mut take = |act: Act, time_ns: u64, has_gap: bool| {
        let entry = stage(record(act, time_ns, 0, 8));
        follower.take(&entry, has_gap, |bio| done.push(bio.total_ns()));
    };
    // Complete before the gap.
    take(Act::Queue, 10, false);
    take(Act::Issue, 11, false);
    take(Act::Complete, 15, false);
    // Queued before the gap.
    take(Act::Queue, 20, true);
    // Queued in the gap; its other stages are among the missing records.
    take(Act::Queue, 30, true);
    // In the gap from Q to C, which ends one of the three: it is not clear which one.
    take(Act::Queue, 40, true);
    take(Act::Issue, 41, true);
    take(Act::Complete, 50, true);
    // After the gap.
    take(Act::Queue, 60, false);
    take(Act::Issue, 61, false);
    take(Act::Complete, 80, false);
    assert_eq!(done, [5, 20]);
    assert_eq!((follower.nr_left_out(), follower.nr_open()), (3, 0));
}

#[test]
fn wait_for_a_limit_is_no_wait_for_a_tag() {
    let (done, follower) = follow_entries(&[
        stage(record(Act::Queue, 10, 0, 8)),
        stage(record(Act::Queue, 10, 8, 8)),
        message(50, "limit: 8 + 8 held back for 40 ns"),
        stage(record(Act::GetRequest, 52, 8, 8)),
        stage(record(Act::Issue, 53, 8, 8)),
        stage(record(Act::Complete, 60, 8, 8)),
        message(61, "limit: held back for 40 ns"),
    ]);
    assert_eq!(done.iter().map(|bio| bio.stages_ns).collect::<Vec<_>>(), [[0, 40, 0, 2, 1, 7]]);
    assert_eq!((follower.counts().limited, follower.nr_open()), (2, 1));
}

#[test]
fn fua_write_ends_with_the_flush_after_it_if_there_is_one() {
    let (done, _) = follow_entries(&[
        fua(Act::Queue, 10, 0),
        fua(Act::Queue, 10, 8),
        fua(Act::Queue, 10, 16),
        fua(Act::Issue, 10, 0),
        fua(Act::Issue, 10, 8),
        fua(Act::Issue, 10, 16),
        fua(Act::Complete, 20, 0),
        message(21, "flush: 0 + 8 waits for the next one"),
        fua(Act::Complete, 22, 8),
        message(23, "flush: 8 + 8 joins the running one"),
        message(30, "flush: done 9 ns after Q"),
        message(30, "flush: 0 + 8 done 20 ns after Q"),
        message(31, "flush: 8 + 8 failed 21 ns after Q, errno 5"),
        // No message follows: the device has FUA.
        fua(Act::Complete, 40, 16),
    ]);
    let ends: Vec<_> = done.iter().map(|bio| (bio.sector, bio.total_ns(), bio.error)).collect();
    assert_eq!(ends, [(0, 20, 0), (8, 21, -5), (16, 30, 0)]);
    assert_eq!(done.iter().map(|bio| bio.stages_ns[FLUSH]).collect::<Vec<_>>(), [10, 9, 0]);
}

#[test]
fn flush_before_the_data_is_a_part_of_the_write() {
    let (done, _) = follow_entries(&[
        fua(Act::Queue, 10, 0),
        message(12, "flush: 0 + 8 waits for the next one"),
        message(25, "flush: 0 + 8 done 15 ns after Q"),
        fua(Act::GetRequest, 26, 0),
        fua(Act::Issue, 26, 0),
        fua(Act::Complete, 30, 0),
        fua(Act::Queue, 31, 64),
    ]);
    assert_eq!(done.iter().map(|bio| bio.stages_ns).collect::<Vec<_>>(), [[0, 0, 15, 1, 0, 4]]);
}

#[test]
fn write_ends_with_the_flush_before_its_data_if_that_has_failed() {
    let (done, follower) = follow_entries(&[
        fua(Act::Queue, 10, 0),
        fua(Act::Queue, 11, 0),
        message(12, "flush: 0 + 8 waits for the next one"),
        message(25, "flush: 0 + 8 failed 15 ns after Q, errno 5"),
        // The other one has the range of the first.
        message(40, "flush: 0 + 8 waits for the next one"),
        message(50, "flush: 0 + 8 done 39 ns after Q"),
        fua(Act::Issue, 51, 0),
        fua(Act::Complete, 60, 0),
    ]);
    let ends: Vec<_> = done.iter().map(|bio| (bio.error, bio.total_ns())).collect();
    assert_eq!((ends, follower.nr_open()), (vec![(-5, 15), (0, 49)], 0));
}

#[test]
fn write_fails_if_the_flush_after_it_is_refused_without_a_wait() {
    let (done, follower) = follow_entries(&[
        fua(Act::Queue, 10, 0),
        fua(Act::Issue, 11, 0),
        fua(Act::Complete, 20, 0),
        message(21, "flush: 0 + 8 failed 11 ns after Q, errno 5"),
        fua(Act::Queue, 30, 64),
    ]);
    let ends: Vec<_> = done.iter().map(|bio| (bio.error, bio.total_ns())).collect();
    assert_eq!((ends, follower.nr_open()), (vec![(-5, 11)], 1));
}

#[test]
fn limit_comes_before_the_flush() {
    let (done, _) = follow_entries(&[
        fua(Act::Queue, 10, 0),
        message(30, "limit: 0 + 8 held back for 20 ns"),
        message(31, "flush: 0 + 8 waits for the next one"),
        message(60, "flush: 0 + 8 done 50 ns after Q"),
        fua(Act::GetRequest, 61, 0),
        fua(Act::Issue, 61, 0),
        fua(Act::Complete, 70, 0),
        fua(Act::Queue, 80, 64),
    ]);
    assert_eq!(done.iter().map(|bio| bio.stages_ns).collect::<Vec<_>>(), [[0, 20, 30, 1, 0, 9]]);
    assert_eq!((STAGES[LIMIT], STAGES[FLUSH], STAGES[DRIVER]), ("limit", "flush", "driver"));
}

#[test]
fn flushes_have_the_times_of_their_messages() {
    let (done, follower) = follow_entries(&[
        stage(record(Act::Queue, 10, 0, 0)),
        message(11, "flush: waits for the next one"),
        stage(record(Act::Issue, 11, 0, 0)),
        stage(record(Act::Complete, 40, 0, 0)),
        message(41, "flush: done 31 ns after Q"),
        message(50, "flush: not needed"),
        message(50, "flush: done 1 ns after Q"),
    ]);
    let (counts, times) = (follower.counts(), follower.flush_times());
    assert_eq!((done.len(), counts.flushes, counts.flushes_elided), (0, 1, 1));
    assert_eq!((times.len(), times.mean_ns()), (2, 16.0));
}
