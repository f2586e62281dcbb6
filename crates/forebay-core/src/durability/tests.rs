//! Tests of durable points and losses.

use super::*;

fn after_writes(nr: u64) -> Durability {
    let durability = Durability::new();
    assert!(!durability.is_durable(durability.point()), "who knows what was there before");
    (FIRST..nr).for_each(|_| _ = durability.writes_end());
    durability
}

#[test]
fn a_flush_covers_writes_that_ended_before_its_issue() {
    let durability = after_writes(3);
    let in_hand = durability.point();
    let late = durability.writes_end();
    durability.flushed(in_hand);
    assert_eq!((in_hand, late), (3, 4));
    assert!(durability.is_durable(3));
    assert!(!durability.is_durable(4));
}

#[test]
fn an_old_flush_does_not_take_back_a_new_ones_word() {
    let durability = after_writes(5);
    durability.flushed(5);
    durability.flushed(2);
    assert_eq!(durability.durable(), 5);
}

#[test]
fn loss_stays_until_it_is_acknowledged() {
    let durability = after_writes(2);
    durability.flushed(2);
    let lost = durability.writes_end();
    durability.flush_failed();
    let later = durability.writes_end();
    assert_eq!(durability.lost(), Some(LostWrites { after: 2, up_to: 3 }));
    // Another flush proves nothing about the lost writes.
    durability.flushed(later);
    assert!(durability.is_durable(2));
    assert!(!durability.is_durable(lost));
    assert!(!durability.is_durable(later), "it stands for what was before as well");
    assert_eq!(durability.check(Wanted::All(later)), None);
    assert_eq!(durability.check(Wanted::Point(later)), Some(1));
    assert_eq!(durability.acknowledge_loss(), Some(LostWrites { after: 2, up_to: 3 }));
    assert_eq!(durability.lost(), None);
    assert_eq!(durability.check(Wanted::All(later)), Some(1));
}

#[test]
fn waiter_before_a_loss_gets_the_error_although_the_loss_was_acknowledged() {
    let durability = after_writes(1);
    let since = durability.check(Wanted::All(1)).expect("nothing is lost");
    durability.flush_failed();
    durability.acknowledge_loss();
    assert_eq!(durability.check_since(since, Wanted::All(1)), None);
    assert_eq!(durability.check(Wanted::All(1)), Some(1));
}

#[test]
fn a_flush_that_failed_with_nothing_to_lose_loses_nothing() {
    let durability = after_writes(1);
    durability.flushed(1);
    durability.flush_failed();
    assert_eq!(durability.lost(), None);
    assert_eq!(durability.check(Wanted::All(1)), Some(1));
}

#[test]
fn more_losses_than_the_log_holds_count_as_a_loss_of_everything() {
    let durability = after_writes(1);
    durability.flushed(1);
    for _ in 0..=NR_LOSSES {
        durability.writes_end();
        durability.flush_failed();
    }
    assert_eq!(durability.lost(), Some(LostWrites { after: 0, up_to: 10 }));
    durability.acknowledge_loss();
    assert_eq!(durability.lost(), None);
}
