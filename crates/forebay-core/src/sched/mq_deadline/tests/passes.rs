//! Requests that pass an empty scheduler.

use super::*;
use alloc::vec::Vec;

/// The state that decides about later requests.
fn state(scheduler: &MqDeadline) -> impl PartialEq + core::fmt::Debug {
    let MqDeadline { direction, nr_in_batch, nr_starved, nr_queued, newest_discard, .. } =
        *scheduler;
    let classes = scheduler.classes.each_ref().map(|it| (it.latest, it.nr_inside));
    let places: Vec<Place> = scheduler.rows.iter().map(|row| row.place).collect();
    (direction, nr_in_batch, nr_starved, nr_queued, newest_discard, classes, places)
}

#[test]
fn request_that_passes_counts_as_if_it_had_been_queued() {
    let mut seed = 1_u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % bound
    };
    let params = MqDeadlineParams { fifo_batch: 3, ..MqDeadlineParams::default() };
    let (mut scheduler, mut out) = (MqDeadline::new(params, 8), Vec::new());
    let (mut nr_passed, mut nr_refused) = (0, 0);
    for now in 0..50_000 {
        let free = (0..8).map(Tag::from_index).find(|tag| !out.contains(tag));
        let Some(tag) = free.filter(|_| below(3) > 0) else {
            if !out.is_empty() {
                let tag = out.swap_remove(below(out.len() as u64) as usize);
                scheduler.completed(tag, now, 0);
            }
            continue;
        };
        let class = if below(10) == 0 { Class::ALL[below(3) as usize] } else { Class::BestEffort };
        let rq = Queued {
            tag,
            op: [Op::Read, Op::Write, Op::Discard][below(3) as usize],
            origin: of_class(class),
            start: below(20) * 512,
            len: 512,
            since_ns: now,
        };
        let mut queued = scheduler.clone();
        queued.insert(rq, Position::Tail, now);
        if scheduler.pass(rq) {
            assert_eq!(queued.next(now), Some(tag));
            assert_eq!(state(&scheduler), state(&queued));
            out.push(tag);
            nr_passed += 1;
        } else {
            nr_refused += 1;
        }
    }
    assert!(nr_passed > 10_000 && nr_refused > 1_000, "{nr_passed} {nr_refused}");
}
