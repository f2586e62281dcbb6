//! Models of waiting for tags: threads under every policy that makes threads wait, and disks that
//! share a tag set. No waiter sleeps forever, whichever thread holds the token when tags are freed,
//! and however many tags there are (T1, T2, T5, T6).

use crate::runtime::gates::Hold;
use crate::runtime::hctx::SHARED;
use crate::runtime::shared::Shared;
use crate::runtime::toy::{AT_ONCE, By, Caller, How, Posted, Toy};
use crate::runtime::wait::models::read_from;
use crate::sys::primitive::{AtomicBool, Ordering, check_within, thread};
use crate::tag_pool::{PoolDisk, TagPool, Woken};
use forebay_core::{Gate, Tag, WaitId, WakePolicy};
use std::sync::{Arc, Weak};

/// The policies under which threads wait. They differ only in the core, so Miri runs one.
#[cfg(not(miri))]
const POLICIES: [WakePolicy; 3] = [WakePolicy::Batch, WakePolicy::Stash, WakePolicy::Single];
#[cfg(miri)]
const POLICIES: [WakePolicy; 1] = [WakePolicy::Batch];

/// Reads with one tag for all threads.
fn one_tag(how: How, nr_threads: usize, bound: usize) {
    for wake in POLICIES {
        let how = How { queue_depth: 1, wake, ..how };
        check_within(bound, move || read_from(how, nr_threads, 1));
    }
}

#[test]
fn two_threads_wait_for_the_tag_of_the_other() {
    one_tag(AT_ONCE, 2, 2);
}

#[test]
fn two_threads_wait_for_a_tag_that_a_device_keeps() {
    one_tag(How { by: By::Thread, ..AT_ONCE }, 2, 1);
}

#[test]
fn two_threads_wait_for_tags_at_a_busy_device() {
    one_tag(How { nr_busy: 2, ..AT_ONCE }, 2, 1);
}

#[test]
fn two_threads_wait_for_tags_where_waits_begin_bios() {
    one_tag(How { begins: true, ..AT_ONCE }, 2, 1);
}

#[test]
fn three_threads_wait_for_one_tag() {
    one_tag(AT_ONCE, 3, 1);
}

/// T6: two threads read while a third one removes a tag, and restores it.
fn resized(wake: WakePolicy, nr_reads: usize) {
    let toy = Toy::new(How { queue_depth: 2, wake, ..AT_ONCE });
    let shared = Toy::open(&toy);
    let reader = |shared: &Arc<_>| {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let mut caller = Caller::new(&shared);
            (0..nr_reads).for_each(|_| caller.read(&shared));
        })
    };
    let readers = [reader(&shared), reader(&shared)];
    shared.set_nr_requests(1);
    shared.set_nr_requests(2);
    readers.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(!shared.hctx(SHARED).run.has_leader(), "all is given back");
}

#[test]
fn the_number_of_tags_changes_while_threads_wait() {
    check_within(1, || resized(WakePolicy::Fair, 1));
    for wake in POLICIES {
        check_within(1, move || resized(wake, 1));
    }
}

/// Checks that a disk never found a tag of a shared set without the wake-up that it was due.
fn check_wake_ups(disk: &Arc<Shared>) {
    assert_eq!(disk.hctx(SHARED).nr_tag_rescues(), 0, "a wake-up was lost");
}

/// T1, T2: two disks share one tag, and a thread reads from each.
fn shared_tags(nr_reads: usize, how: How) {
    let pool = Arc::new(TagPool::new("", 1));
    let work = move |pool: &Arc<TagPool>| {
        let shared = Toy::open_with(&Toy::new(how), Some(Arc::clone(pool)));
        let mut caller = Caller::new(&shared);
        (0..nr_reads).for_each(|_| caller.read(&shared));
        assert!(!shared.hctx(SHARED).run.has_leader(), "all is given back");
        check_wake_ups(&shared);
    };
    let other = Arc::clone(&pool);
    let thread = thread::spawn(move || work(&other));
    work(&pool);
    thread.join().unwrap();
    assert_eq!(pool.set.nr_free(), 1, "all is given back");
}

#[test]
fn two_disks_share_one_tag() {
    check_within(2, || shared_tags(1, AT_ONCE));
}

/// A user of a set with one tag, which the model takes and puts directly.
struct Hand {
    pool: Arc<TagPool>,
    id: WaitId,
    tag: Tag,
    is_putting: Arc<AtomicBool>,
}

impl Hand {
    /// Takes the tag.
    fn take(pool: &Arc<TagPool>) -> Hand {
        let is_putting = Arc::new(AtomicBool::new(false));
        let id = pool.join(Weak::<Shared>::new(), &is_putting);
        let tag = pool.set.try_get(&mut 0).expect("the tag is free");
        Hand { pool: Arc::clone(pool), id, tag, is_putting }
    }

    /// Puts the tag, and returns the disks that this wakes.
    fn put(self) -> Woken {
        let mut woken = Woken::new();
        // Same order as `share_tags` in `hctx/tags.rs`.
        self.is_putting.store(true, Ordering::Relaxed);
        self.pool.set.put(self.tag);
        self.pool.put(self.id, 1, 0, &mut woken);
        self.is_putting.store(false, Ordering::Release);
        woken
    }
}

/// Runs the woken disks, and those that they wake in turn.
fn run(mut woken: Woken) {
    while let Some(disk) = woken.pop() {
        disk.upgrade().expect("the disk is open").run_for_tags(&mut woken);
    }
}

/// Opens two disks that share one tag, which is in use, and submits a read on each that waits for
/// it.
#[cfg(not(blk_shuttle))]
fn two_in_line() -> (Hand, [Arc<Shared>; 2], [Posted; 2]) {
    let pool = Arc::new(TagPool::new("", 1));
    let hand = Hand::take(&pool);
    let disks = [0, 1].map(|_| Toy::open_with(&Toy::new(AT_ONCE), Some(Arc::clone(&pool))));
    let reads = [Posted::submit(&disks[0]), Posted::submit(&disks[1])];
    assert!(!reads.iter().any(Posted::has_ended), "they have no tag");
    (hand, disks, reads)
}

/// Shuttle needs two threads.
#[cfg(not(blk_shuttle))]
#[test]
fn each_tag_that_is_put_wakes_one_disk() {
    check_within(None, || {
        let (hand, disks, reads) = two_in_line();
        let woken = hand.put();
        assert_eq!(woken.len(), 1, "the first in line");
        let first = Arc::downgrade(&disks[0]);
        let first: Weak<dyn PoolDisk> = first;
        assert!(woken[0].ptr_eq(&first), "the first in line");
        run(woken);
        reads.into_iter().for_each(Posted::check);
        disks.iter().for_each(check_wake_ups);
    });
}

/// A turn of another disk may find the tags of a user that leaves before the wake-ups are made.
#[cfg(not(blk_shuttle))]
#[test]
fn tags_of_a_user_that_leaves_are_found_or_wake_a_disk() {
    for is_found in [false, true] {
        check_within(None, move || {
            let pool = Arc::new(TagPool::new("", 1));
            let leaving = crate::runtime::hctx::PoolUser::new(&pool, Weak::<Shared>::new());
            let tag = pool.set.try_get(&mut 0).expect("the tag is free");
            let disk = Toy::open_with(&Toy::new(AT_ONCE), Some(Arc::clone(&pool)));
            let read = Posted::submit(&disk);
            let woken = leaving.leave(|| {
                pool.set.put(tag);
                if is_found {
                    disk.poll_shared();
                }
                1
            });
            assert_eq!(woken.len(), usize::from(!is_found));
            run(woken);
            read.check();
            check_wake_ups(&disk);
        });
    }
}

/// T13: a disk that has all tags gives up those above its share, one by one, and no more.
#[cfg(not(blk_shuttle))]
#[test]
fn a_disk_that_has_all_tags_keeps_its_share_of_them() {
    const DEPTH: usize = 8;
    check_within(None, || {
        let pool = Arc::new(TagPool::new("", DEPTH as u32));
        let how = How { queue_depth: DEPTH as u32, by: By::Thread, ..AT_ONCE };
        let toys = [Toy::new(how), Toy::new(how)];
        let disks = [0, 1].map(|at| Toy::open_with(&toys[at], Some(Arc::clone(&pool))));
        let reads = [0, 1].map(|at: usize| [0; 2 * DEPTH].map(|_| Posted::submit(&disks[at])));
        let has = || [toys[0].nr_at_device(), toys[1].nr_at_device()];
        assert_eq!(has(), [DEPTH, 0]);
        // Each tag that the first disk frees goes to the second, until both have half of the tags.
        for nr_ended in 1..=DEPTH / 2 {
            toys[0].complete_one();
            disks[0].poll_shared();
            assert_eq!(has(), [DEPTH - nr_ended, nr_ended]);
        }
        // From then on each disk reuses the tags that it frees.
        for at in [0, 1, 0, 0, 1, 1] {
            toys[at].complete_one();
            disks[at].poll_shared();
            assert_eq!(has(), [DEPTH / 2, DEPTH / 2]);
        }
        // Once the second disk wants no more tags, the first has all of them.
        while has()[1] > 0 {
            toys[1].complete_one();
            disks[1].poll_shared();
        }
        assert_eq!(has(), [DEPTH, 0]);
        while has()[0] > 0 {
            toys[0].complete_one();
            disks[0].poll_shared();
        }
        reads.into_iter().flatten().for_each(Posted::check);
        disks.iter().for_each(check_wake_ups);
    });
}

/// T5: a wake-up of a disk that cannot use the tag goes to the next disk in the wait queue.
#[cfg(not(blk_shuttle))]
#[test]
fn a_wake_up_that_a_quiesced_disk_cannot_use_is_passed_on() {
    check_within(None, || {
        let (hand, disks, [first, second]) = two_in_line();
        let quiesced = Hold::new(&disks[0], Gate::Quiesced);
        run(hand.put());
        second.check();
        assert!(!first.has_ended(), "its disk is quiesced");
        drop(quiesced);
        first.check();
        disks.iter().for_each(check_wake_ups);
    });
}

/// The same, while a thread joins the wait queue.
#[test]
fn a_wake_up_is_passed_on_to_a_disk_that_joins_the_line() {
    check_within(2, || {
        let pool = Arc::new(TagPool::new("", 1));
        let hand = Hand::take(&pool);
        let open = || Toy::open_with(&Toy::new(AT_ONCE), Some(Arc::clone(&pool)));
        let (held, other) = (open(), open());
        let first = Posted::submit(&held);
        let quiesced = Hold::new(&held, Gate::Quiesced);
        let reader = {
            let other = Arc::clone(&other);
            thread::spawn(move || Caller::new(&other).read(&other))
        };
        run(hand.put());
        reader.join().unwrap();
        check_wake_ups(&other);
        drop(quiesced);
        first.check();
    });
}

/// Models that are too large for loom and too slow for Miri.
#[cfg(not(any(blk_loom, miri)))]
mod many {
    use super::{AT_ONCE, By, How, POLICIES, WakePolicy, read_from, resized, shared_tags};
    use crate::sys::primitive::check;

    /// Three threads per tag. Ten took three times as long, because each thread that is woken in
    /// vain asks again. The models in the core have seven.
    const THREADS: usize = 6;

    #[test]
    fn many_threads_wait_for_few_tags() {
        for wake in POLICIES {
            let how = How { queue_depth: 2, wake, ..AT_ONCE };
            check(move || read_from(how, THREADS, 2));
            check(move || read_from(How { nr_busy: 5, ..how }, THREADS, 2));
            check(move || read_from(How { by: By::Thread, ..how }, THREADS, 2));
        }
    }

    #[test]
    fn two_disks_share_one_tag_for_long() {
        check(|| shared_tags(4, AT_ONCE));
        check(|| shared_tags(3, How { nr_busy: 3, ..AT_ONCE }));
    }

    #[test]
    fn the_number_of_tags_changes_while_threads_read_again_and_again() {
        check(|| resized(WakePolicy::Batch, 4));
        check(|| resized(WakePolicy::Stash, 4));
    }
}
