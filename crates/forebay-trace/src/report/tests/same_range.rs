//! Bios of equal and overlapping ranges in flight, and requests of several bios that fail.

use super::*;
use crate::record::SECTOR_BYTES;

/// Returns the stages of a bio of 8 sectors, at the times of its Q, G, D and C.
fn bio(sector: u64, [queued, tagged, issued, complete]: [u64; 4]) -> [Record; 4] {
    [
        record(Act::Queue, queued, sector, 8),
        record(Act::GetRequest, tagged, sector, 8),
        record(Act::Issue, issued, sector, 8),
        record(Act::Complete, complete, sector, 8),
    ]
}

fn by_time(records: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let mut records: Vec<_> = records.into_iter().collect();
    records.sort_by_key(|record| record.time_ns);
    records
}

#[test]
fn bios_of_one_range_get_the_records_of_their_own_commands() {
    let bios =
        [[10, 20, 30, 100], [11, 40, 50, 110], [12, 60, 105, 200]].map(|times| bio(0, times));
    let (done, follower) = follow(&by_time(bios.into_iter().flatten()));
    let stages: Vec<_> = done.iter().map(|bio| bio.stages_ns).collect();
    let expected = [[0, 0, 0, 10, 10, 70], [0, 0, 0, 29, 10, 60], [0, 0, 0, 48, 45, 95]];
    assert_eq!((stages, follower.nr_open()), (expected.to_vec(), 0));
}

#[test]
fn read_and_write_of_one_range_are_not_mixed_up() {
    let write = bio(0, [10, 11, 12, 100]);
    let write = write.map(|record| Record { categories: Categories::WRITE, ..record });
    let read = bio(0, [20, 21, 22, 30]);
    let (done, _) = follow(&by_time(write.into_iter().chain(read)));
    let times: Vec<_> = done.iter().map(|bio| (bio.categories, bio.total_ns())).collect();
    assert_eq!(times, [(Categories::READ, 10), (Categories::WRITE, 90)]);
}

#[test]
fn writes_of_one_range_with_and_without_a_flush_are_not_mixed_up() {
    let with = |flags: Categories, [queued, tagged, issued, complete]: [u64; 4]| {
        let all = bio(0, [queued, tagged, issued, complete]);
        all.map(|record| Record { categories: Categories::WRITE.with(flags), ..record })
    };
    let fua = Categories::FLUSH.with(Categories::FUA);
    let records = [
        with(Categories::FS, [10, 14, 24, 34]),
        with(Categories::FLUSH, [11, 13, 23, 33]),
        with(fua, [12, 20, 22, 32]),
    ];
    let (done, _) = follow(&by_time(records.into_iter().flatten()));
    let stages: Vec<_> = done.iter().map(|bio| (bio.queued_ns, bio.stages_ns)).collect();
    let expected =
        [(12, [0, 0, 0, 8, 2, 10]), (11, [0, 0, 0, 2, 10, 10]), (10, [0, 0, 0, 4, 10, 10])];
    assert_eq!(stages, expected);
}

#[test]
fn write_whose_flags_linux_removes_has_its_stages() {
    let flags = Categories::WRITE.with(Categories::FLUSH).with(Categories::FUA);
    let [queued, rest @ ..] = bio(0, [10, 12, 15, 30]);
    let rest = rest.map(|record| Record { categories: Categories::WRITE, ..record });
    let queued = Record { categories: flags, ..queued };
    let (done, _) = follow(&by_time(rest.into_iter().chain([queued])));
    assert_eq!(done.iter().map(|bio| bio.stages_ns).collect::<Vec<_>>(), [[0, 0, 0, 2, 3, 15]]);
}

#[test]
fn parts_of_a_long_bio_are_found_behind_short_bios_in_its_range() {
    let mut records = vec![record(Act::Queue, 10, 0, 32)];
    // In the range of the long one, between its start and its last part.
    records.extend(bio(16, [11, 12, 13, 90]));
    for (part, complete) in [(0, 60), (8, 70), (16, 40), (24, 50)] {
        let times = [0, 14 + part, 15 + part, complete];
        records.extend(bio(part, times).into_iter().skip(1));
    }
    let (done, follower) = follow(&by_time(records));
    // The short one and a part of the long one have the same range. The older command ends first.
    assert_eq!(ends(&done), [(0, 80, 0), (16, 29, 0)]);
    assert_eq!(follower.nr_open(), 0);
}

#[test]
fn split_names_the_bio_that_the_next_tag_is_for() {
    let split =
        Entry { data: 8_u64.to_be_bytes().to_vec(), ..stage(record(Act::Split, 12, 0, 16)) };
    let (done, _) = follow_entries(&[
        stage(record(Act::Queue, 10, 0, 16)),
        stage(record(Act::Queue, 11, 0, 8)),
        split,
        stage(record(Act::GetRequest, 12, 0, 8)),
        stage(record(Act::Issue, 12, 0, 8)),
        stage(record(Act::GetRequest, 13, 8, 8)),
        stage(record(Act::Issue, 13, 8, 8)),
        stage(record(Act::GetRequest, 30, 0, 8)),
        stage(record(Act::Issue, 31, 0, 8)),
        stage(record(Act::Complete, 40, 0, 8)),
        stage(record(Act::Complete, 41, 8, 8)),
        stage(record(Act::Complete, 50, 0, 8)),
    ]);
    let stages: Vec<_> = done.iter().map(|bio| (bio.bytes, bio.stages_ns)).collect();
    let expected = [(8192, [0, 0, 0, 2, 0, 29]), (4096, [0, 0, 0, 19, 1, 19])];
    assert_eq!(stages, expected);
}

#[test]
fn bios_that_share_a_sector_merge_and_split() {
    // Bytes 0 to 999 and 1000 to 1999 merge; bytes 5000 to 6999 are split after 1000.
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 0, 2),
        record(Act::Queue, 11, 1, 3),
        record(Act::BackMerge, 11, 1, 3),
        record(Act::GetRequest, 12, 0, 4),
        record(Act::Issue, 13, 0, 4),
        record(Act::Queue, 20, 9, 5),
        record(Act::GetRequest, 21, 9, 3),
        record(Act::Issue, 22, 9, 3),
        record(Act::GetRequest, 23, 11, 3),
        record(Act::Issue, 24, 11, 3),
        record(Act::Complete, 30, 0, 4),
        record(Act::Complete, 31, 9, 3),
        record(Act::Complete, 32, 11, 3),
    ]);
    assert_eq!(ends(&done), [(0, 20, 0), (1, 19, 0), (9, 12, 0)]);
    assert_eq!(follower.nr_open(), 0);
}

#[test]
fn request_that_merges_after_its_tag_takes_both_bios_along() {
    let merge = Record { cpu: 1, ..record(Act::BackMerge, 13, 8, 8) };
    let (done, _) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::GetRequest, 11, 0, 8),
        record(Act::Queue, 12, 8, 8),
        record(Act::Queue, 12, 16, 8),
        merge,
        // Without a tag: it is not merged.
        record(Act::Issue, 14, 0, 16),
        record(Act::Complete, 20, 0, 16),
    ]);
    assert_eq!(ends(&done), [(0, 10, 0), (8, 8, 0)]);
    assert!(done.iter().all(|bio| bio.is_merged == (bio.sector == 8)));
}

#[test]
fn request_of_a_busy_driver_is_issued_again_before_newer_ones() {
    let (done, _) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::Queue, 11, 0, 8),
        record(Act::GetRequest, 12, 0, 8),
        record(Act::GetRequest, 13, 0, 8),
        record(Act::Issue, 14, 0, 8),
        record(Act::Requeue, 15, 0, 8),
        record(Act::Issue, 16, 0, 8),
        record(Act::Issue, 17, 0, 8),
        record(Act::Complete, 30, 0, 8),
        record(Act::Complete, 40, 0, 8),
    ]);
    let issued: Vec<_> = done.iter().map(|bio| (bio.was_requeued, bio.stages_ns[4])).collect();
    assert_eq!(issued, [(true, 2), (false, 4)]);
    assert_eq!(ends(&done), [(0, 20, 0), (0, 29, 0)]);
}

#[test]
fn flush_of_a_busy_driver_requeues_no_write_at_sector_0() {
    let write = |act, at, nr| Record { categories: Categories::WRITE, ..record(act, at, 0, nr) };
    let (done, follower) = follow(&[
        write(Act::Queue, 10, 8),
        write(Act::Issue, 11, 8),
        write(Act::Issue, 12, 0),
        write(Act::Requeue, 13, 0),
        write(Act::Complete, 20, 8),
    ]);
    assert_eq!((ends(&done), follower.counts().requeues), (vec![(0, 10, 0)], 1));
    assert!(!done[0].was_requeued);
}

#[test]
fn failed_request_of_several_bios_is_tried_again_bio_by_bio() {
    let failed = |record: Record| Record { error: -5, ..record };
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::Queue, 11, 8, 8),
        record(Act::Queue, 12, 16, 8),
        record(Act::GetRequest, 13, 0, 24),
        record(Act::Issue, 14, 0, 24),
        failed(record(Act::Complete, 20, 0, 24)),
        record(Act::Issue, 21, 0, 8),
        record(Act::Complete, 30, 0, 8),
        record(Act::Issue, 31, 8, 8),
        failed(record(Act::Complete, 40, 8, 8)),
        record(Act::Issue, 41, 16, 8),
        record(Act::Complete, 50, 16, 8),
    ]);
    assert_eq!(ends(&done), [(0, 20, 0), (8, 29, -5), (16, 38, 0)]);
    assert_eq!((follower.counts().errors, follower.nr_open()), (2, 0));
}

#[test]
fn failed_request_that_is_not_tried_again_fails_all_its_bios() {
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::Queue, 11, 8, 8),
        record(Act::Issue, 14, 0, 16),
        Record { error: -19, ..record(Act::Complete, 20, 0, 16) },
        // The caller tries again.
        record(Act::Queue, 30, 8, 8),
        record(Act::GetRequest, 31, 8, 8),
        record(Act::Issue, 32, 8, 8),
        record(Act::Complete, 33, 8, 8),
    ]);
    assert_eq!(ends(&done), [(0, 10, -19), (8, 3, 0), (8, 9, -19)]);
    assert_eq!(follower.nr_open(), 0);
}

#[test]
fn request_that_fails_before_it_is_issued_leaves_others_in_flight() {
    let refused = |record: Record| Record { error: -11, ..record };
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::GetRequest, 11, 0, 8),
        record(Act::Issue, 12, 0, 8),
        record(Act::Queue, 13, 0, 8),
        record(Act::Queue, 14, 0, 8),
        // NOWAIT.
        refused(record(Act::Complete, 15, 0, 8)),
        record(Act::Complete, 20, 0, 8),
    ]);
    assert_eq!(ends(&done), [(0, 1, -11), (0, 10, 0)]);
    assert_eq!(follower.nr_open(), 1);
}

#[test]
fn split_bio_has_the_failure_of_its_lowest_sector() {
    let (done, _) = follow(&[
        record(Act::Queue, 10, 0, 24),
        record(Act::Issue, 11, 0, 8),
        record(Act::Issue, 12, 8, 8),
        record(Act::Issue, 13, 16, 8),
        Record { error: -5, ..record(Act::Complete, 20, 16, 8) },
        Record { error: -61, ..record(Act::Complete, 21, 0, 8) },
        record(Act::Complete, 22, 8, 8),
    ]);
    assert_eq!(ends(&done), [(0, 12, -61)]);
}

#[test]
fn read_of_no_bytes_ends_at_the_end_of_the_file() {
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 80, 8),
        record(Act::Issue, 11, 80, 8),
        record(Act::Complete, 20, 80, 0),
    ]);
    assert_eq!(ends(&done), [(80, 10, 0)]);
    assert_eq!((follower.nr_open(), follower.counts().completed), (0, 0));
}

#[test]
fn request_that_waits_several_times_counts_once() {
    let (done, follower) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::Queue, 10, 8, 8),
        record(Act::Sleep, 11, 0, 16),
        record(Act::Sleep, 12, 0, 16),
        record(Act::GetRequest, 13, 0, 16),
        record(Act::Issue, 14, 0, 16),
        record(Act::Complete, 20, 0, 16),
    ]);
    assert!(done.iter().all(|bio| bio.has_slept));
    assert_eq!((done.len(), follower.counts().sleeps), (2, 1));
}

#[test]
fn merged_request_waits_beside_a_bio_of_its_range() {
    let (done, follower) = follow_entries(&[
        stage(record(Act::Queue, 10, 0, 16)),
        stage(record(Act::Sleep, 11, 0, 16)),
        message(11, "limit: 0 + 16 held back for 1 ns"),
        stage(record(Act::Queue, 12, 0, 8)),
        stage(record(Act::Queue, 13, 8, 8)),
        stage(record(Act::BackMerge, 14, 8, 8)),
        message(15, "limit: 0 + 16 held back for 3 ns"),
        stage(record(Act::Sleep, 15, 0, 16)),
        stage(record(Act::GetRequest, 20, 0, 16)),
        stage(record(Act::Issue, 21, 0, 16)),
        stage(record(Act::Complete, 30, 0, 16)),
        stage(record(Act::GetRequest, 31, 0, 16)),
        stage(record(Act::Issue, 32, 0, 16)),
        stage(record(Act::Complete, 40, 0, 16)),
    ]);
    assert!(done.iter().all(|bio| bio.has_slept));
    assert_eq!((follower.counts().sleeps, follower.nr_open()), (2, 0));
    let waits: Vec<_> = done.iter().map(|bio| (bio.queued_ns, bio.stages_ns[LIMIT])).collect();
    assert_eq!(waits, [(10, 1), (12, 3), (13, 2)]);
}

#[test]
fn request_waits_beside_a_shorter_one_of_its_start() {
    let (done, _) = follow(&[
        record(Act::Queue, 10, 0, 8),
        record(Act::Sleep, 11, 0, 8),
        // The first part of a bio that a limit of the device splits.
        record(Act::Queue, 12, 0, 16),
        record(Act::Sleep, 13, 0, 8),
        record(Act::Issue, 20, 0, 8),
        record(Act::Issue, 21, 0, 16),
        record(Act::Complete, 30, 0, 8),
        record(Act::Complete, 40, 0, 16),
    ]);
    let slept: Vec<_> = done.iter().map(|bio| (bio.bytes, bio.has_slept)).collect();
    assert_eq!(slept, [(4096, true), (8192, true)]);
}

#[test]
fn limit_releases_the_oldest_bio_of_a_range() {
    let (done, _) = follow_entries(&[
        stage(record(Act::Queue, 10, 0, 8)),
        stage(record(Act::Queue, 11, 0, 8)),
        message(30, "limit: 0 + 8 held back for 20 ns"),
        stage(record(Act::GetRequest, 31, 0, 8)),
        stage(record(Act::Issue, 32, 0, 8)),
        message(50, "limit: 0 + 8 held back for 39 ns"),
        stage(record(Act::GetRequest, 51, 0, 8)),
        stage(record(Act::Issue, 52, 0, 8)),
        stage(record(Act::Complete, 60, 0, 8)),
        stage(record(Act::Complete, 61, 0, 8)),
    ]);
    let stages: Vec<_> = done.iter().map(|bio| bio.stages_ns).collect();
    assert_eq!(stages, [[0, 20, 0, 1, 1, 28], [0, 39, 0, 1, 1, 9]]);
}

/// A generator of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()]
    }

    /// Returns an entry of a damaged or hostile file.
    fn entry(&mut self) -> Entry {
        let time_ns = self.pick(&[0, 1, 2, 1 << 63, u64::MAX - 1, u64::MAX]);
        let sector = self.pick(&[0, 1, 2, 8, 9, 1 << 60, u64::MAX - 8, u64::MAX]);
        let bytes = self.pick(&[0, 1, 512, 513, 1024, 4096, 4608, 8192, u32::MAX]);
        let error = self.pick(&[0, 0, 0, -5, -11, i16::MIN, i16::MAX]);
        let cpu = self.pick(&[0, 1]);
        let categories = [Categories::FUA, Categories::FS, Categories::DISCARD];
        let categories = Categories::WRITE.with(self.pick(&categories));
        let kinds = [1, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 7, 8, 8, 8, 9, 10, 13, 99];
        let kind = self.pick(&kinds);
        let Some(act) = Act::ALL.into_iter().find(|act| *act as u8 == kind) else {
            let extent = format!("{sector} + {}", u64::from(bytes).div_ceil(SECTOR_BYTES));
            let errno = self.pick(&["0", "5", "4095", "4096", "32768", "-32768"]);
            let text = match self.next() % 4 {
                0 => format!("flush: {extent} waits for the next one"),
                1 => format!("flush: {extent} done 7 ns after Q"),
                2 => format!("flush: {extent} failed {time_ns} ns after Q, errno {errno}"),
                _ => format!("limit: {extent} held back for {time_ns} ns"),
            };
            return message(time_ns, &text);
        };
        let data = self.pick(&[sector, 0, 3, u64::MAX]).to_be_bytes().to_vec();
        let record = record(act, time_ns, sector, 0);
        Entry { record: Record { bytes, categories, error, cpu, ..record }, data }
    }
}

#[test]
fn damaged_traces_lose_no_bio_and_overflow_nothing() {
    let mut numbers = Numbers(1);
    let mut nr_ended = 0;
    for _ in 0..300 {
        let (mut follower, mut done) = (Follower::default(), Vec::new());
        for _ in 0..100 {
            let has_gap = numbers.next().is_multiple_of(200);
            follower.take(&numbers.entry(), has_gap, |bio| done.push(bio));
        }
        follower.finish(|bio| done.push(bio));
        // Each has one end, although the times of a bio are as far apart as they can be.
        let nr_rest = follower.nr_open() + follower.nr_left_out();
        assert_eq!(done.len() + nr_rest, follower.counts().queued as usize);
        // Both are computed without an overflow.
        assert!(done.iter().all(|bio| bio.total_ns() >= bio.stages_ns[DRIVER]));
        assert!(done.iter().all(|bio| bio.offset() >= bio.sector));
        nr_ended += done.len();
    }
    assert!(nr_ended > 300, "{nr_ended}");
}
