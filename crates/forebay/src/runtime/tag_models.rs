//! Models of threads that wait for tags, by every policy under which threads do: nobody sleeps for
//! ever, whoever holds the token when tags come free, and however many tags there are (T1, T2, T6).

use crate::runtime::primitive::{check_within, thread};
use crate::runtime::shared::SHARED;
use crate::runtime::tag_pool::TagPool;
use crate::runtime::toy::{AT_ONCE, By, Caller, How, Toy};
use crate::runtime::wait::models::read_from;
use forebay_core::WakePolicy;
use std::sync::Arc;

/// The policies under which threads wait. They differ in core, which Miri need not look at.
#[cfg(not(miri))]
const POLICIES: [WakePolicy; 3] = [WakePolicy::Batch, WakePolicy::Stash, WakePolicy::Single];
#[cfg(miri)]
const POLICIES: [WakePolicy; 1] = [WakePolicy::Batch];

/// With one tag for all.
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

/// T6: two threads read while a third one takes a tag away, and gives it back.
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

/// T1, T2: each of two disks is read by a thread, and both share one tag.
fn shared_tags(nr_reads: usize, how: How) {
    let pool = Arc::new(TagPool::new("", 1));
    let work = move |pool: &Arc<TagPool>| {
        let shared = Toy::open_with(&Toy::new(how), Some(Arc::clone(pool)));
        let mut caller = Caller::new(&shared);
        (0..nr_reads).for_each(|_| caller.read(&shared));
        assert!(!shared.hctx(SHARED).run.has_leader(), "all is given back");
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

/// What is too large for loom, and too long for Miri.
#[cfg(not(any(blk_loom, miri)))]
mod many {
    use super::{AT_ONCE, By, How, POLICIES, WakePolicy, read_from, resized, shared_tags};
    use crate::runtime::primitive::check;

    /// Three for each tag. Ten took three times as long, as each that is woken in vain asks again;
    /// core's own models have seven.
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
