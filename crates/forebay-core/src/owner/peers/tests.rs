//! Unit tests of peers: windows in time.

use super::*;

const MS: u64 = 1_000_000;

/// Returns a group of an owner with a goal of 10 ms, and one without a goal.
fn group() -> (Peers, [OwnerGoal; 2]) {
    let goals = [OwnerGoal::default(), OwnerGoal::default()];
    goals[0].set_target_us(10_000);
    (Peers::default(), goals)
}

/// Ends the windows that are over, then counts I/Os of the first owner.
fn note(peers: &Peers, goals: &[OwnerGoal], at_ms: u64, latency_ms: u64, nr: usize) {
    if peers.is_over(at_ms * MS) {
        peers.end_windows(at_ms * MS, 32, goals.iter());
    }
    (0..nr).for_each(|_| goals[0].note(latency_ms * MS));
}

#[test]
fn slow_window_limits_peers_when_it_is_over() {
    let (peers, goals) = group();
    note(&peers, &goals, 1000, 11, 10);
    note(&peers, &goals, 1099, 11, 10);
    assert_eq!((goals[1].depth(), goals[0].nr_missed()), (None, 0));
    note(&peers, &goals, 1100, 11, 10);
    assert_eq!((goals[1].depth(), goals[0].nr_missed()), (Some(16), 1));
    assert_eq!(goals[0].depth(), None, "a goal does not limit its own owner");
    note(&peers, &goals, 1200, 1, 10);
    assert_eq!((goals[1].depth(), goals[0].nr_missed()), (Some(8), 2));
    note(&peers, &goals, 1300, 1, 10);
    assert_eq!(goals[1].depth(), Some(10));
}

#[test]
fn windows_that_pass_without_io_give_the_depth_back() {
    let (peers, goals) = group();
    note(&peers, &goals, 1, 11, 10);
    note(&peers, &goals, 101, 11, 10);
    note(&peers, &goals, 201, 1, 0);
    assert_eq!(goals[1].depth(), Some(8));
    note(&peers, &goals, 201 + 300, 1, 0);
    assert_eq!(goals[1].depth(), Some(14), "three more windows");
    note(&peers, &goals, 3_600_000, 1, 0);
    assert_eq!(goals[1].depth(), None);
    assert!(!peers.is_over(3_600_000 * MS), "the window that is open ends later");
}

#[test]
fn goal_that_is_removed_gives_the_depth_back() {
    let (peers, goals) = group();
    assert_eq!((goals[0].target_us(), goals[0].has_target()), (10_000, true));
    note(&peers, &goals, 1, 11, 10);
    note(&peers, &goals, 101, 11, 10);
    goals[0].set_target_us(0);
    assert_eq!((goals[0].target_us(), goals[0].has_target()), (0, false));
    note(&peers, &goals, 201, 11, 10);
    assert_eq!(goals[1].depth(), Some(18));
    goals[1].lift();
    assert_eq!(goals[1].depth(), None);
}
