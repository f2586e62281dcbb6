//! Models of waiting in a shared context: leader, followers, hand-off and kick (W1 to W5).
//!
//! A failure shows as a deadlock, or as a thread that never ends.

use crate::runtime::hctx::SHARED;
use crate::runtime::shared::Shared;
use crate::runtime::toy::{AT_ONCE, By, Caller, How, Toy};
use crate::sys::primitive::{check, check_within, thread};
use std::sync::Arc;

/// Runs `nr_threads` threads of `nr_reads` blocking reads each, and the device's own thread if it
/// has one.
pub(crate) fn read_from(how: How, nr_threads: usize, nr_reads: usize) {
    let toy = Toy::new(how);
    let shared = Toy::open(&toy);
    let work = move |shared: &Arc<Shared>| {
        let mut caller = Caller::new(shared);
        (0..nr_reads).for_each(|_| caller.read(shared));
    };
    let mut others = Vec::new();
    if how.by == By::Thread {
        others.push(thread::spawn(move || toy.work(nr_threads * nr_reads)));
    }
    for _ in 1..nr_threads {
        let shared = Arc::clone(&shared);
        others.push(thread::spawn(move || work(&shared)));
    }
    work(&shared);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    let run = &shared.hctx(SHARED).run;
    assert!(!run.is_running() && !run.has_leader() && !run.is_kicked(), "all is given back");
}

/// Shuttle needs two threads.
#[cfg(not(blk_shuttle))]
#[test]
fn one_thread_alone_leads_and_stops() {
    check(|| read_from(AT_ONCE, 1, 2));
    check(|| read_from(How { by: By::Silence, ..AT_ONCE }, 1, 2));
    check(|| read_from(How { nr_busy: 2, ..AT_ONCE }, 1, 1));
}

#[test]
fn one_thread_and_a_device() {
    check(|| read_from(How { by: By::Thread, ..AT_ONCE }, 1, 1));
}

#[test]
fn two_threads_whose_bios_complete_at_once() {
    check_within(4, || read_from(AT_ONCE, 2, 1));
}

#[test]
fn two_threads_of_two_reads_each() {
    check_within(2, || read_from(AT_ONCE, 2, 2));
}

/// One request stays at the device until the other is issued; then the last one completes first.
#[test]
fn two_threads_whose_bios_complete_together_and_reversed() {
    check_within(2, || read_from(How { batch: 2, ..AT_ONCE }, 2, 1));
}

#[test]
fn two_threads_whose_bios_complete_silently() {
    check_within(4, || read_from(How { by: By::Silence, ..AT_ONCE }, 2, 1));
}

#[test]
fn two_threads_and_a_device() {
    check_within(2, || read_from(How { by: By::Thread, ..AT_ONCE }, 2, 1));
}

#[test]
fn two_threads_with_one_tag() {
    check_within(3, || read_from(How { queue_depth: 1, ..AT_ONCE }, 2, 1));
}

/// Runs two threads: the other one flushes `nr_flushes` times, and this one does `work`. The flush
/// machine issues the next flush in the turn that ends the previous one, whichever thread makes
/// that turn.
fn beside_flushes(how: How, nr_flushes: usize, work: fn(&mut Caller, &Shared)) {
    let shared = Toy::disk(How { flushes_alone: true, ..how });
    let other = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let mut caller = Caller::new(&shared);
            (0..nr_flushes).for_each(|_| caller.flush(&shared));
        })
    };
    work(&mut Caller::new(&shared), &shared);
    other.join().unwrap();
    let run = &shared.hctx(SHARED).run;
    assert!(!run.is_running() && !run.has_leader() && !run.is_kicked(), "all is given back");
}

#[test]
fn two_threads_share_the_flush_machine() {
    check_within(3, || beside_flushes(AT_ONCE, 1, Caller::flush));
    check_within(2, || beside_flushes(AT_ONCE, 2, Caller::flush));
    check_within(2, || beside_flushes(How { by: By::Silence, ..AT_ONCE }, 1, Caller::flush));
    check_within(2, || beside_flushes(BY_WAIT, 1, Caller::flush));
}

/// F5.
#[test]
fn requests_held_during_a_flush_continue() {
    check_within(3, || beside_flushes(AT_ONCE, 1, Caller::read));
    check_within(2, || beside_flushes(AT_ONCE, 2, Caller::read));
    check_within(2, || beside_flushes(How { by: By::Silence, ..AT_ONCE }, 1, Caller::read));
    check_within(2, || beside_flushes(BY_WAIT, 1, Caller::read));
}

/// Same as `AT_ONCE`, on a device with waits that begin the requests left to them.
const BY_WAIT: How = How { begins: true, ..AT_ONCE };

#[cfg(not(blk_shuttle))]
#[test]
fn one_thread_whose_wait_begins_its_bios() {
    check(|| read_from(BY_WAIT, 1, 2));
    check(|| read_from(How { nr_busy: 2, ..BY_WAIT }, 1, 1));
    check(|| read_from(How { by: By::Thread, ..BY_WAIT }, 1, 1));
}

#[test]
fn two_threads_whose_waits_begin_their_bios() {
    check_within(2, || read_from(BY_WAIT, 2, 1));
}

#[test]
fn two_threads_whose_waits_begin_two_bios_each() {
    check_within(1, || read_from(BY_WAIT, 2, 2));
}

#[test]
fn two_threads_whose_waits_begin_bios_that_complete_together() {
    check_within(2, || read_from(How { batch: 2, ..BY_WAIT }, 2, 1));
}

#[test]
fn two_threads_whose_waits_begin_bios_with_one_tag() {
    check_within(2, || read_from(How { queue_depth: 1, ..BY_WAIT }, 2, 1));
}

#[test]
fn three_threads_whose_waits_begin_their_bios() {
    check_within(1, || read_from(BY_WAIT, 3, 1));
}

/// A leader that waits beside the token holder must be woken for a device that is busy with nothing
/// in flight.
#[test]
fn two_threads_at_a_busy_device() {
    check_within(2, || read_from(How { nr_busy: 2, ..AT_ONCE }, 2, 1));
}

#[test]
fn three_threads_whose_bios_complete_at_once() {
    check_within(1, || read_from(AT_ONCE, 3, 1));
}

/// A thread that waited on one disk, and may still be on its list of followers, waits on another.
fn go_from_disk_to_disk(nr_threads: usize, nr_reads: usize) {
    let disks = [Toy::disk(AT_ONCE), Toy::disk(AT_ONCE)];
    let work = move |disks: &[Arc<Shared>; 2], first: usize| {
        let mut callers = [Caller::new(&disks[0]), Caller::new(&disks[1])];
        for at in (first..).take(nr_reads).map(|at| at % 2) {
            callers[at].read(&disks[at]);
        }
    };
    let spawn = |first| {
        let disks = disks.clone();
        thread::spawn(move || work(&disks, first))
    };
    let others: Vec<_> = (1..nr_threads).map(spawn).collect();
    work(&disks, 0);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(disks.iter().all(|disk| !disk.hctx(SHARED).run.has_leader()));
}

#[test]
fn two_threads_go_from_disk_to_disk() {
    check_within(2, || go_from_disk_to_disk(2, 2));
}

/// Models that are too large for loom: for shuttle, ThreadSanitizer, and partly Miri.
#[cfg(not(blk_loom))]
mod many {
    use super::{AT_ONCE, BY_WAIT, By, How, check, go_from_disk_to_disk, read_from};

    const THREADS: usize = if cfg!(miri) { 4 } else { 12 };

    #[test]
    fn three_threads_of_several_reads() {
        check(|| read_from(AT_ONCE, 3, 4));
    }

    #[test]
    fn many_threads_whose_bios_complete_at_once() {
        check(|| read_from(AT_ONCE, THREADS, 2));
    }

    #[test]
    fn many_threads_whose_bios_complete_in_batches_reversed() {
        check(|| read_from(How { batch: THREADS / 2, ..AT_ONCE }, THREADS, 1));
    }

    #[test]
    fn many_threads_and_a_device() {
        check(|| read_from(How { by: By::Thread, ..AT_ONCE }, THREADS, 2));
    }

    #[test]
    fn many_threads_with_few_tags_at_a_busy_device() {
        check(|| read_from(How { queue_depth: 2, nr_busy: 5, ..AT_ONCE }, THREADS, 2));
        check(|| read_from(How { queue_depth: 1, by: By::Thread, ..AT_ONCE }, 3, 2));
    }

    #[test]
    fn many_threads_whose_waits_begin_their_bios() {
        check(|| read_from(BY_WAIT, THREADS, 2));
        check(|| read_from(How { batch: THREADS / 2, ..BY_WAIT }, THREADS, 1));
        check(|| read_from(How { queue_depth: 2, nr_busy: 5, ..BY_WAIT }, THREADS, 2));
    }

    #[test]
    fn many_threads_go_from_disk_to_disk() {
        check(|| go_from_disk_to_disk(THREADS / 2, 4));
    }
}
