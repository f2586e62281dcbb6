//! Models of the end of a window in two threads, for loom.

use super::*;
use alloc::sync::Arc;
use alloc::vec::Vec;
use loom::thread;

const FULL: u32 = 64;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Returns a group in its first window, which ends at 2: an owner with a goal of 1 us, and one
/// without a goal. `nr` slow I/Os have ended.
fn group(nr: usize) -> Arc<(Peers, [OwnerGoal; 2])> {
    let goals = [OwnerGoal::default(), OwnerGoal::default()];
    goals[0].set_target_us(1);
    let peers = Peers::new(1);
    peers.end_windows(1, FULL, goals.iter());
    (0..nr).for_each(|_| goals[0].note(5000));
    Arc::new((peers, goals))
}

/// Both threads find a window over that missed the goal: it counts once.
#[test]
fn window_ends_once() {
    explore(|| {
        let group = group(5);
        let end = |group: &(Peers, [OwnerGoal; 2])| {
            if group.0.is_over(2) {
                group.0.end_windows(2, FULL, group.1.iter());
            }
        };
        let other = Arc::clone(&group);
        let second = thread::spawn(move || end(&other));
        end(&group);
        second.join().unwrap();
        assert_eq!((group.1[1].depth(), group.1[0].nr_missed()), (Some(32), 1));
    });
}

/// A thread ends a window while I/O ends in another: the I/O counts in this window or the next.
#[test]
fn io_that_ends_beside_a_window_counts_once() {
    explore(|| {
        let group = group(4);
        let other = Arc::clone(&group);
        let second = thread::spawn(move || other.1[0].note(5000));
        group.0.end_windows(2, FULL, group.1.iter());
        second.join().unwrap();
        let is_missed = group.1[1].depth().is_some();
        group.0.end_windows(3, FULL, group.1.iter());
        let nr_missed = group.1[0].nr_missed();
        assert_eq!(nr_missed, 1, "five I/Os decide one window: {is_missed}");
        let depths: Vec<_> = group.1.iter().map(OwnerGoal::depth).collect();
        assert_eq!(depths[0], None);
    });
}

/// Two windows that end in two threads, one after the other: the second one continues the first.
/// Both miss the goal, or some I/O of the second one counts in the first, and leaves it too few.
#[test]
fn second_window_continues_the_first() {
    explore(|| {
        let group = group(5);
        let other = Arc::clone(&group);
        let end = |group: &(Peers, [OwnerGoal; 2]), now| {
            group.0.end_windows(now, FULL, group.1.iter());
        };
        let second = thread::spawn(move || end(&other, 2));
        end(&group, 2);
        (0..5).for_each(|_| group.1[0].note(5000));
        end(&group, 3);
        second.join().unwrap();
        end(&group, 3);
        match (group.1[0].nr_missed(), group.1[1].depth()) {
            (2, Some(16)) | (1, Some(32 | 36)) => {}
            wrong => panic!("missed windows, and the depth: {wrong:?}"),
        }
    });
}
