//! Step-by-step tests of each policy. `wait/exhaustive.rs` shows that no policy hangs.

use alloc::vec::Vec;

use super::super::{TagWaits, Wait, WaitId};
use super::*;

fn line(policy: WakePolicy, depth: u32, needs: &[u32]) -> TagWaits {
    filled(TagWaits::new(policy, depth), needs)
}

fn filled(mut waits: TagWaits, needs: &[u32]) -> TagWaits {
    let ids = (1..).map(WaitId);
    needs.iter().zip(ids).for_each(|(&need, id)| waits.push(Wait { id, need }));
    waits
}

#[track_caller]
fn check(woken: &[u64], step: impl FnOnce(&mut dyn FnMut(WaitId))) {
    let mut seen = Vec::new();
    step(&mut |id| seen.push(id.0));
    assert_eq!(seen, woken);
}

#[test]
fn fair_each_tag_wakes_one_in_order() {
    let mut waits = line(WakePolicy::Fair, 8, &[1, 1, 1]);
    check(&[1], |out| waits.wake(1, 7, &mut |id| out(id)));
    check(&[2, 3], |out| waits.wake(5, 2, &mut |id| out(id)));
    waits.push(Wait { id: WaitId(9), need: 1 });
    check(&[], |out| waits.wake(0, 8, &mut |id| out(id)));
    assert_eq!(waits.len(), 1, "what nobody waited for is not in the account");
}

#[test]
fn fair_a_large_need_is_saved_up_for_and_not_overtaken() {
    let mut waits = line(WakePolicy::Fair, 8, &[3, 1]);
    check(&[], |out| waits.wake(2, 6, &mut |id| out(id)));
    check(&[1, 2], |out| waits.wake(2, 4, &mut |id| out(id)));
    assert!(waits.is_empty());
}

#[test]
fn fair_waiter_that_leaves_the_head_lets_the_next_go() {
    let mut waits = line(WakePolicy::Fair, 8, &[3, 1, 2]);
    check(&[], |out| waits.wake(2, 6, &mut |id| out(id)));
    check(&[2], |out| assert!(waits.remove(WaitId(1), &mut |id| out(id))));
    check(&[], |out| assert!(!waits.remove(WaitId(1), &mut |id| out(id))));
    check(&[3], |out| waits.donate(1, 6, &mut |id| out(id)));
}

#[test]
fn waiter_woken_without_a_tag_keeps_or_loses_its_turn_by_policy() {
    for policy in [WakePolicy::Fair, WakePolicy::Single, WakePolicy::Batch, WakePolicy::Stash] {
        let mut waits = line(policy, 8, &[1, 1]);
        check(&[1], |out| waits.wake(1, 7, &mut |id| out(id)));
        waits.requeue(Wait { id: WaitId(1), need: 1 });
        let expected = match policy {
            WakePolicy::Fair | WakePolicy::Single => [1, 2],
            WakePolicy::Batch | WakePolicy::Stash => [2, 1],
        };
        check(&expected, |out| waits.wake(2, 6, &mut |id| out(id)));
    }
}

#[test]
fn single_wakes_one_waiter_for_each_tag() {
    let mut waits = line(WakePolicy::Single, 64, &[5, 1, 1]);
    check(&[1], |out| waits.wake(1, 63, &mut |id| out(id)));
    check(&[2, 3], |out| waits.wake(9, 54, &mut |id| out(id)));
}

#[test]
fn batch_wakes_eight_for_eight_tags_of_a_large_set() {
    let mut waits = line(WakePolicy::Batch, 1000, &[1; 20]);
    check(&[], |out| waits.wake(7, 993, &mut |id| out(id)));
    check(&[1, 2, 3, 4, 5, 6, 7, 8], |out| waits.wake(2, 991, &mut |id| out(id)));
    check(&[], |out| waits.wake(6, 985, &mut |id| out(id)));
    check(&[9, 10, 11, 12, 13, 14, 15, 16], |out| waits.donate(5, 985, &mut |id| out(id)));
}

#[test]
fn the_batch_is_an_eighth_of_the_depth_from_one_to_eight() {
    let batch = |depth| super::batch(WakePolicy::Batch, depth);
    let batches = [1, 8, 15, 16, 63, 64, 4096].map(batch);
    assert_eq!(batches, [1, 1, 1, 2, 7, 8, 8]);
}

#[test]
fn a_smaller_depth_wakes_waiters_whose_need_is_now_met() {
    let mut waits = line(WakePolicy::Batch, 64, &[1; 5]);
    check(&[], |out| waits.wake(3, 61, &mut |id| out(id)));
    check(&[1, 2], |out| waits.resize(16, &mut |id| out(id)));
    check(&[3, 4], |out| waits.resize(17, &mut |id| out(id)));
    assert_eq!(waits.depth(), 17);
}

#[test]
fn stash_wakes_one_for_each_tag_below_three_quarters_and_keeps_account_above() {
    let mut waits = line(WakePolicy::Stash, 16, &[1; 7]);
    check(&[], |out| waits.wake(3, 13, &mut |id| out(id)));
    check(&[1], |out| waits.wake(1, 12, &mut |id| out(id)));
    check(&[2], |out| waits.wake(1, 11, &mut |id| out(id)));
    // After these two wake-ups three waiters are left, so the stored surplus counts: one batch.
    check(&[3, 4, 5, 6], |out| waits.wake(2, 9, &mut |id| out(id)));
    check(&[7], |out| waits.wake(2, 9, &mut |id| out(id)));
}

#[test]
fn stash_keeps_no_more_than_a_batch_in_account() {
    let mut waits = line(WakePolicy::Stash, 16, &[1; 4]);
    check(&[], |out| waits.wake(100, 16, &mut |id| out(id)));
    check(&[2, 3], |out| assert!(waits.remove(WaitId(1), &mut |id| out(id))));
    assert_eq!(waits.len(), 1);
}

#[test]
fn stash_v1_fills_its_stash_in_silence_and_wakes_one_for_each_tag_while_it_lasts() {
    let mut waits = filled(TagWaits::stash_v1(16), &[1; 9]);
    check(&[], |out| waits.wake(4, 12, &mut |id| out(id)));
    check(&[1, 2], |out| waits.wake(2, 10, &mut |id| out(id)));
    waits.took(4);
    check(&[], |out| waits.wake(4, 10, &mut |id| out(id)));
    check(&[3], |out| waits.wake(1, 9, &mut |id| out(id)));
}

#[test]
fn stash_v1_of_few_tags_wakes_in_batches() {
    let mut waits = filled(TagWaits::stash_v1(15), &[1; 5]);
    assert!(waits.is_stash_v1() && waits.policy() == WakePolicy::Stash && waits.len() == 5);
    check(&[1], |out| waits.wake(1, 14, &mut |id| out(id)));
    // The second version has no smallest depth.
    let mut waits = line(WakePolicy::Stash, 8, &[1; 5]);
    assert!(!waits.is_stash_v1() && waits.policy() == WakePolicy::Stash);
    check(&[], |out| waits.wake(3, 8, &mut |id| out(id)));
    assert_eq!(waits.len(), 5);
}

#[test]
fn names_are_distinct() {
    let names = WakePolicy::ALL.map(WakePolicy::name);
    assert_eq!(names, ["fair", "batch", "stash", "single"]);
}

/// T3: the same script wakes the same waiters, whatever the first values of the counters.
#[test]
fn counters_that_wrap_around_lose_no_wake_and_add_none() {
    let of_disks = WakePolicy::ALL.map(|policy| TagWaits::new(policy, 24));
    for empty in of_disks.into_iter().chain([TagWaits::stash_v1(24)]) {
        let policy = empty.policy();
        let run = |start: u32| {
            let mut waits = empty.clone();
            waits.start_counters_at(start);
            let (mut woken, mut seed) = (Vec::new(), 7_u32);
            for id in 0..2000 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (kind, nr) = (seed >> 30, (seed >> 20) % 5);
                match kind {
                    0 | 1 => waits.push(Wait { id: WaitId(id), need: 1 + nr }),
                    2 => waits.wake(nr, (seed >> 8) % 25, &mut |id| woken.push(id)),
                    _ => waits.took(nr),
                }
            }
            (woken, waits.len())
        };
        let expected = run(0);
        assert!(expected.0.len() > 100, "{} wakes some", policy.name());
        for before in (1..300).step_by(if cfg!(miri) { 100 } else { 1 }) {
            assert_eq!(run(0_u32.wrapping_sub(before)), expected, "{}", policy.name());
        }
    }
}

#[test]
#[should_panic(expected = "a wait for 5 tags of 8")]
fn no_waiter_needs_more_than_half() {
    line(WakePolicy::Batch, 8, &[5]);
}
