//! Tests of the rotational disk: its order, its times, and the published row.

extern crate std;

use super::*;
use crate::testing::{READ, closed_loop, finish};
use forebay_core::Op;

const KIB_256: u64 = 256 << 10;
const CAPACITY: u64 = 4_000_000_000_000;

fn ids_in_order(params: HddParams, starts: &[u64]) -> Vec<u32> {
    let mut random = Random::new(1, 0);
    let mut hdd = Hdd::new(params, CAPACITY);
    for (id, &start) in (0..).zip(starts) {
        hdd.begin(id, &Command { start, ..READ }, 0, &mut random);
    }
    finish(&mut hdd, &mut random).iter().map(|done| done.id).collect()
}

#[test]
fn one_job_reads_120_times_a_second_as_published() {
    let mut hdd = Hdd::new(HddParams::default(), CAPACITY);
    let iops = closed_loop(&mut hdd, 64, 1 << 20, 256 << 10, 2000);
    assert!((118..=122).contains(&iops), "{iops}");
    // Deeper than it sorts: the others wait, which does not matter here.
    let mut hdd = Hdd::new(HddParams::default(), CAPACITY);
    let iops = closed_loop(&mut hdd, 1024, 1 << 20, 256 << 10, 2000);
    assert!((118..=122).contains(&iops), "{iops}");
}

#[test]
fn parts_that_are_torn_apart_cost_a_positioning_each() {
    let mut hdd = Hdd::new(HddParams { nr_sorted: 1, ..HddParams::default() }, CAPACITY);
    let mut random = Random::new(5, 0);
    let mut nr = 0;
    for part in 0..4 {
        for io in 0..100u64 {
            let command = Command { start: (io << 30) + part * KIB_256, len: KIB_256, ..READ };
            hdd.begin(nr, &command, 0, &mut random);
            nr += 1;
        }
    }
    let last = finish(&mut hdd, &mut random).last().expect("it did something").done_at_ns;
    let iops = 100 * 1_000_000_000 / last;
    // 4 x (1.9 + 1.6) ms.
    assert!((70..=73).contains(&iops), "{iops}");
}

#[test]
fn the_arm_sweeps_upwards_and_begins_again_at_the_lowest() {
    // The first is served at once. The arm is then at 500.
    let starts = [496, 300, 900, 100, 700, 200].map(|nr: u64| nr << 20);
    assert_eq!(ids_in_order(HddParams::default(), &starts), [0, 4, 2, 3, 5, 1]);
}

#[test]
fn arm_chooses_among_at_most_nr_sorted_commands() {
    let params = HddParams { nr_sorted: 2, ..HddParams::default() };
    let starts = [10, 50, 40, 30].map(|nr: u64| nr << 20);
    // When the first is done, 40 has arrived and 30 has not.
    assert_eq!(ids_in_order(params, &starts), [0, 2, 1, 3]);
}

#[test]
fn a_successor_needs_no_positioning() {
    let mut random = Random::new(2, 0);
    let mut hdd = Hdd::new(HddParams::default(), CAPACITY);
    for nr in 0..4u64 {
        let command = Command { start: KIB_256 * (nr + 8), len: KIB_256, ..READ };
        hdd.begin(nr as u32, &command, 0, &mut random);
    }
    let ends: Vec<u64> = finish(&mut hdd, &mut random).iter().map(|done| done.done_at_ns).collect();
    assert!((950_000 + 1_608_000..=2_850_000 + 1_609_000).contains(&ends[0]), "{ends:?}");
    assert!(ends.windows(2).all(|pair| pair[1] - pair[0] == 1_608_246), "{ends:?}");
}

#[test]
fn positionings_have_their_mean_and_their_bounds() {
    let params = HddParams { bytes_per_s: PER_S.max, ..HddParams::default() };
    let mut random = Random::new(3, 0);
    let mut hdd = Hdd::new(params, CAPACITY);
    for id in 0..1000 {
        hdd.begin(id, &Command { start: u64::from(id) << 20, ..READ }, 0, &mut random);
    }
    let ends: Vec<u64> = finish(&mut hdd, &mut random).iter().map(|done| done.done_at_ns).collect();
    let gaps = ends.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().all(|gap| (950_000..=2_850_001).contains(&gap)));
    let mean = gaps.sum::<u64>() / 999;
    assert!((1_850_000..1_950_000).contains(&mean), "{mean}");
}

#[test]
fn command_without_data_completes_at_once() {
    let mut random = Random::new(4, 0);
    let mut hdd = Hdd::new(HddParams::default(), CAPACITY);
    hdd.begin(0, &Command { start: 1 << 20, ..READ }, 0, &mut random);
    hdd.begin(1, &Command { op: Op::Flush, start: 0, len: 0 }, 7, &mut random);
    assert_eq!(hdd.next_at_ns(), Some(7));
    let done = hdd.take_done(7, &mut random).expect("the flush");
    assert_eq!((done.id, done.done_at_ns, done.result), (1, 7, Ok(0)));
}

/// A disk with a place for its arm and an angle.
const TURNS: HddParams = HddParams {
    seek_ns: 1_000_000,
    bytes_per_s: 163_000_000,
    nr_sorted: 32,
    stroke_ns: 13_500_000,
    turn_ns: 8_333_333,
};

/// Serves one command from `head` and `now`. Returns the time without that of its bytes.
fn positioning_ns(hdd: &Hdd, start: u64, now: u64) -> u64 {
    let (mut hdd, mut random) = (hdd.clone(), Random::new(1, 0));
    hdd.begin(0, &Command { start, ..READ }, now, &mut random);
    let done = finish(&mut hdd, &mut random);
    done[0].done_at_ns - now - transfer_ns(READ.len, hdd.params.bytes_per_s)
}

#[test]
fn positioning_is_a_seek_by_distance_and_a_part_of_a_turn() {
    let hdd = Hdd { head: CAPACITY / 2, ..Hdd::new(TURNS, CAPACITY) };
    let mut places = Random::new(6, 0);
    for _ in 0..2000 {
        let (start, now) = (places.below(CAPACITY / 4096) * 4096, places.below(1 << 40));
        let seek_ns = hdd.seek_ns(start, TURNS.seek_ns);
        let took_ns = positioning_ns(&hdd, start, now);
        assert!((seek_ns..seek_ns + TURNS.turn_ns).contains(&took_ns), "{start} at {now}");
        let share = start.abs_diff(hdd.head) as f64 / CAPACITY as f64;
        let expected = 1e6 + 13.5e6 * share.sqrt();
        assert!((seek_ns as f64 - expected).abs() < 100.0, "{start}: {seek_ns} {expected}");
        // The head sees the first byte again after a turn, and no earlier.
        assert_eq!(positioning_ns(&hdd, start, now + TURNS.turn_ns), took_ns);
    }
    assert_eq!(positioning_ns(&hdd, hdd.head, 5), 0, "the successor");
    let whole = Hdd::new(TURNS, CAPACITY).seek_ns(CAPACITY, TURNS.seek_ns);
    assert_eq!(whole, 14_500_000, "a full stroke");
}

#[test]
fn neighbour_in_the_same_track_costs_a_part_of_a_turn_alone() {
    let track_bytes = TURNS.bytes_per_s * TURNS.turn_ns / 1_000_000_000;
    let hdd = Hdd { head: 4096, ..Hdd::new(TURNS, CAPACITY) };
    let turn = |start| positioning_ns(&hdd, start, transfer_ns(4096, TURNS.bytes_per_s));
    // The head is there: it passes over the bytes between.
    assert!(turn(12_288).abs_diff(transfer_ns(8192, TURNS.bytes_per_s)) <= 2);
    // The head has passed the first byte.
    assert!(turn(0).abs_diff(TURNS.turn_ns - transfer_ns(4096, TURNS.bytes_per_s)) <= 2);
    let next_track = track_bytes / 4096 * 4096 + 8192;
    assert!(turn(next_track) >= TURNS.seek_ns);
}

#[test]
fn arm_with_an_angle_serves_what_it_reaches_first_and_rows_in_order() {
    let mut random = Random::new(1, 0);
    let mut hdd = Hdd::new(TURNS, CAPACITY);
    let far = CAPACITY / 2;
    for (id, start) in (0..).zip([far, far + 8192, far + 4096, 3 << 40, far + 12_288]) {
        hdd.begin(id, &Command { start, ..READ }, 0, &mut random);
    }
    let done = finish(&mut hdd, &mut random);
    assert_eq!(done.iter().map(|done| done.id).collect::<Vec<_>>(), [0, 2, 1, 4, 3]);
}

#[test]
fn command_that_was_passed_over_too_often_is_served() {
    let mut random = Random::new(1, 0);
    let mut hdd = Hdd::new(HddParams { nr_sorted: 4, ..TURNS }, CAPACITY);
    // A stream whose next command always waits, and a command far away.
    (0..3).for_each(|id| {
        hdd.begin(id, &Command { start: u64::from(id) * 4096, ..READ }, 0, &mut random);
    });
    hdd.begin(99, &Command { start: CAPACITY / 2, ..READ }, 0, &mut random);
    for id in 3.. {
        let now = hdd.next_at_ns().expect("commands wait");
        if hdd.take_done(now, &mut random).expect("one is due").id == 99 {
            assert!((32..=36).contains(&id), "{id}");
            break;
        }
        hdd.begin(id, &Command { start: u64::from(id) * 4096, ..READ }, now, &mut random);
    }
}

/// Keeps 32 random reads of 4 KiB in flight in front of a disk that takes one at a time. `choose`
/// returns the index of the next among their places, from the place of the last. Returns the reads
/// per second.
fn one_at_a_time(choose: fn(&[u64], u64) -> usize) -> u64 {
    let mut hdd = Hdd::new(HddParams { nr_sorted: 1, ..TURNS }, CAPACITY);
    let [mut places, mut random] = [0, 1].map(|stream| Random::new(9, stream));
    let mut place = || places.below(CAPACITY / 4096) * 4096;
    let mut waiting: Vec<u64> = (0..32).map(|_| place()).collect();
    let (mut now, mut last) = (0, 0);
    const NR: u64 = 5000;
    for _ in 0..NR {
        let start = waiting.remove(choose(&waiting, last));
        hdd.begin(0, &Command { start, ..READ }, now, &mut random);
        now = hdd.next_at_ns().expect("a command is in service");
        hdd.take_done(now, &mut random).expect("it is due");
        last = start;
        waiting.push(place());
    }
    NR * 1_000_000_000 / now
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are worth a look")]
fn sorting_in_front_of_a_disk_without_a_queue_gains_half() {
    let fifo = one_at_a_time(|_, _| 0);
    let sweep = one_at_a_time(|waiting, last| {
        let next = |&at: &usize| (waiting[at] < last, waiting[at]);
        (0..waiting.len()).min_by_key(next).expect("32 wait")
    });
    let queue = closed_loop(&mut Hdd::new(TURNS, 4 << 30), 32, 4096, 4096, 5000);
    std::println!("reads per second: in order {fifo}, sorted {sweep}, 32 in the disk {queue}");
    assert!(sweep * 2 >= fifo * 3, "{sweep} and {fifo}");
    assert!(queue > sweep, "the disk sorts by angle too: {queue} and {sweep}");
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are worth a look")]
fn published_reads_did_not_cover_the_whole_of_such_a_disk() {
    // `closed_loop` draws from 1 TiB, which is the whole disk or a small part of a larger one.
    let [whole, part] = [1, 1000]
        .map(|parts| closed_loop(&mut Hdd::new(TURNS, parts << 40), 64, 1 << 20, 256 << 10, 2000));
    std::println!("1 MiB reads per second: of the whole disk {whole}, of a thousandth {part}");
    assert!(whole < 100 && part > whole, "{whole} and {part}, not 120");
}
