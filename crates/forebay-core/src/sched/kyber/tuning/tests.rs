//! Tests of the arithmetic, by examples computed by hand.

use super::*;

const TARGETS_NS: [u64; 3] = [1000, 4000, 100_000];

/// Tuning for a device of depth 256, so with depths of 256, 128, 64 and 16.
fn full() -> Tuning {
    let mut tuning = Tuning::new(TARGETS_NS);
    tuning.set_device_depth(256);
    tuning
}

/// Adds 600 completions of a domain at `now`, which is enough for a decision.
fn add(tuning: &mut Tuning, domain: Domain, device_ns: u64, total_ns: u64, now: u64) {
    (0..600).for_each(|_| tuning.add(domain, device_ns, total_ns, now));
}

/// The depths after each of several windows with the same latencies: (reads, then writes) at
/// the device and in total.
fn depths<const N: usize>(reads: [u64; 2], writes: [u64; 2]) -> [[u32; 2]; N] {
    let mut tuning = full();
    core::array::from_fn(|nth| {
        let now = nth as u64 * WINDOW_NS;
        tuning.tune(now);
        add(&mut tuning, Domain::Read, reads[0], reads[1], now);
        add(&mut tuning, Domain::Write, writes[0], writes[1], now);
        tuning.tune(now + WINDOW_NS - 1);
        let before = tuning.clone();
        tuning.tune(now + WINDOW_NS);
        assert!(nth > 0 || before.depths == [256, 128, 64, 16], "the window has not ended");
        [tuning.depth(Domain::Read), tuning.depth(Domain::Write)]
    })
}

#[test]
fn nothing_changes_while_all_latencies_are_good() {
    assert_eq!(depths([1000, 1000], [4000, 4000]), [[256, 128]; 3]);
}

#[test]
fn congestion_scales_good_domains_by_their_share_of_the_target() {
    // Reads are above their target at the device and in total: bucket 4, so 5/4, and at most
    // 256. Writes take up to 3/4 of theirs: bucket 2, so 3/4.
    assert_eq!(depths([1250, 1250], [2000, 3000]), [[256, 96], [256, 72], [256, 54]]);
    // Up to a quarter: bucket 0, so 1/4, and at least 1.
    let least = depths([1250, 1250], [100, 900]);
    assert_eq!(least, [[256, 32], [256, 8], [256, 2], [256, 1], [256, 1]]);
}

#[test]
fn depth_grows_again_with_bad_totals() {
    let mut tuning = full();
    add(&mut tuning, Domain::Read, 5000, 5000, 0);
    add(&mut tuning, Domain::Write, 100, 900, 0);
    tuning.tune(WINDOW_NS);
    assert_eq!(tuning.depth(Domain::Write), 32);
    // No congestion, but the writes wait in the scheduler for more than 7/4 of their target:
    // bucket 7, so twice the depth.
    let mut now = WINDOW_NS;
    for depth in [64, 128, 128] {
        add(&mut tuning, Domain::Read, 100, 100, now);
        add(&mut tuning, Domain::Write, 100, 8000, now);
        now += WINDOW_NS;
        tuning.tune(now);
        assert_eq!((tuning.depth(Domain::Read), tuning.depth(Domain::Write)), (256, depth));
    }
    // Above one and up to 5/4 of the target: bucket 4, so 5/4.
    tuning.depths[Domain::Write as usize] = 10;
    add(&mut tuning, Domain::Write, 100, 5000, now);
    tuning.tune(now + WINDOW_NS);
    assert_eq!(tuning.depth(Domain::Write), 12);
}

#[test]
fn earlier_total_is_used_once_when_congestion_begins() {
    let mut tuning = full();
    add(&mut tuning, Domain::Write, 100, 2000, 0);
    tuning.tune(WINDOW_NS);
    assert_eq!(tuning.depth(Domain::Write), 128);
    for depth in [64, 64] {
        let now = 5 * WINDOW_NS;
        add(&mut tuning, Domain::Read, 5000, 5000, now);
        tuning.tune(now + WINDOW_NS);
        assert_eq!(tuning.depth(Domain::Write), depth);
    }
}

#[test]
fn few_samples_decide_after_a_second() {
    let mut tuning = full();
    let mut now = 0;
    // The first window ends after 0.1 s. The percentile waits for a second from then on.
    for nth in 0..11 {
        assert_eq!(tuning.depth(Domain::Read), 256, "window {nth}");
        tuning.add(Domain::Read, 1200, 200, now);
        now += WINDOW_NS;
        tuning.tune(now);
    }
    assert_eq!(tuning.depth(Domain::Read), 64);
}

#[test]
fn other_requests_are_not_measured() {
    let mut tuning = full();
    tuning.add(Domain::Other, 1 << 40, 1 << 40, 0);
    assert_eq!(tuning.window_end_ns, None);
    assert_eq!(tuning.depth(Domain::Other), 16);
}

#[test]
fn depths_are_shares_of_the_device_depth() {
    let depths = |device_depth| {
        let mut tuning = Tuning::new(TARGETS_NS);
        tuning.set_device_depth(device_depth);
        tuning.depths
    };
    assert_eq!(depths(1), [1, 1, 1, 1]);
    assert_eq!(depths(8), [8, 4, 2, 1]);
    assert_eq!(depths(32), [32, 16, 8, 2]);
    assert_eq!(depths(256), [256, 128, 64, 16]);
    assert_eq!(depths(1024), [256, 128, 64, 16]);
}
