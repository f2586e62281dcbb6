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

#[test]
fn losses_cover_what_ended_since_the_last_durable_point() {
    let durability = after_writes(5);
    durability.flushed(2);
    durability.flush_failed();
    assert_eq!((durability.lost(), durability.nr_failures()), (LOST_3_TO_5, 1));
    let is_lost = |wanted| durability.check(wanted).is_none();
    for (point, all, alone) in
        [(2, false, false), (3, true, true), (5, true, true), (6, true, false)]
    {
        assert_eq!(is_lost(Wanted::All(point)), all, "{point}");
        assert_eq!(is_lost(Wanted::Point(point)), alone, "{point}");
        assert_eq!((Wanted::All(point).up_to(), Wanted::Point(point).up_to()), (point, point));
    }
    // A second failure extends the loss.
    let later = durability.writes_end();
    durability.flush_failed();
    let both = Some(LostWrites { after: 2, up_to: later });
    assert_eq!((durability.lost(), durability.nr_failures()), (both, 2));
    assert_eq!(durability.acknowledge_loss(), both);
    assert_eq!(durability.acknowledge_loss(), None);
}

const LOST_3_TO_5: Option<LostWrites> = Some(LostWrites { after: 2, up_to: 5 });

#[test]
fn writes_in_doubt_end_within_a_loss() {
    let durability = after_writes(5);
    durability.flushed(2);
    durability.flush_failed();
    // The recorded loss reports them, too.
    assert_eq!((durability.doubtful_writes_end(), durability.point()), (5, 6));
    assert_eq!(durability.lost(), LOST_3_TO_5);
    // That loss was acknowledged: they are a loss of their own.
    durability.acknowledge_loss();
    assert_eq!((durability.doubtful_writes_end(), durability.point()), (7, 7));
    assert_eq!(durability.acknowledge_loss(), Some(LostWrites { after: 6, up_to: 7 }));
    // A failure that has lost nothing reports none.
    durability.flushed(7);
    durability.flush_failed();
    assert_eq!(durability.lost(), None);
    assert_eq!(durability.doubtful_writes_end(), 8);
    assert_eq!(durability.lost(), Some(LostWrites { after: 7, up_to: 8 }));
}

#[test]
fn as_many_losses_as_the_log_holds_have_their_ranges() {
    let durability = after_writes(1);
    durability.flushed(1);
    for nth in 0..NR_LOSSES as u64 {
        durability.writes_end();
        durability.flush_failed();
        durability.flushed(durability.point());
        assert_eq!(durability.lost(), Some(LostWrites { after: 1, up_to: 2 + nth }));
    }
    assert_eq!(durability.check(Wanted::Point(1)), Some(NR_LOSSES as u64));
    // The oldest range is gone: it stands for all writes.
    durability.flush_failed();
    assert_eq!(durability.lost(), Some(LostWrites { after: 0, up_to: 9 }));
    assert_eq!(durability.check(Wanted::Point(1)), None);
    assert_eq!(durability.check_since(1, Wanted::Point(1)), Some(NR_LOSSES as u64 + 1));
}
