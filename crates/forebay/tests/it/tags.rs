//! Tag waits: all I/O ends under every wake policy, even while the number of tags changes, and
//! disks that share a tag set wake each other.

use crate::common::{Numbers, open, submit};
use forebay::{BlockStatus, Buf, Disk, Io};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const POLICIES: [&str; 4] = ["fair", "batch", "stash", "single"];

/// Opens a slow disk with few tags, on which each I/O of 64 KiB takes four of them.
fn scarce(wake: &str, more: &str) -> Disk {
    open(&format!(
        "ram:64M?wake={wake}&queue_depth=8&nr_hw_queues=1&max_sectors_kb=16&req_ns=20000{more}"
    ))
}

/// Reads at random offsets, one I/O after another.
fn read_one_by_one(disk: &Disk, thread: u64, nr: u64) {
    let mut numbers = Numbers(thread);
    let mut buf = vec![0; 64 << 10];
    for _ in 0..nr {
        let at = numbers.below(512) * (64 << 10);
        assert_eq!(disk.read_at(&mut buf, at), Ok(64 << 10));
    }
}

/// Reads at random offsets, with several reads in flight.
fn read_in_batches(disk: &Disk, thread: u64, nr: u64) {
    let (mut numbers, mut queue) = (Numbers(thread), disk.queue());
    let (mut nr_begun, mut done) = (0, Vec::new());
    while nr_begun < nr || !queue.is_empty() {
        while nr_begun < nr && queue.len() < 6 {
            let at = numbers.below(512) * (64 << 10);
            submit(&mut queue, Io::read(Buf::new(64 << 10), at));
            nr_begun += 1;
        }
        queue.reap(1, usize::MAX, &mut done);
        assert!(done.drain(..).all(|done| done.result == Ok(64 << 10)));
    }
}

fn run_all(disk: &Disk) {
    std::thread::scope(|scope| {
        for thread in 0..12 {
            scope.spawn(move || read_one_by_one(disk, thread, 60));
            scope.spawn(move || read_in_batches(disk, thread + 100, 60));
        }
    });
}

/// Checks that each disk that waited for a tag was woken for it, instead of finding a tag when it
/// retried after 3 ms.
#[track_caller]
fn check_wake_ups(disks: &[Disk]) {
    let rescues: Vec<_> = disks.iter().map(|disk| disk.stats().tag_rescues).collect();
    assert!(rescues.iter().all(|&nr| nr == 0), "wake-ups were lost: {rescues:?}");
}

#[test]
fn threads_that_share_few_tags_all_come_to_their_end() {
    for wake in POLICIES {
        let disk = scarce(wake, "");
        run_all(&disk);
        let stats = disk.stats();
        assert_eq!(stats.queue.op(forebay::Op::Read).bios, 24 * 60, "wake={wake}");
        assert!(stats.queue.tag_waits > 0, "wake={wake}: tags were not scarce");
        let count = |name| stats.queue.emulation.get(name).expect(name);
        let (wakes_threads, tag_wakeups) = (wake != "fair", count("tag_wakeups"));
        assert_eq!(tag_wakeups > 0, wakes_threads, "wake={wake}");
        assert!(count("vain_wakeups") <= tag_wakeups, "wake={wake}");
        assert!(count("tag_sleeps") <= tag_wakeups, "wake={wake}");
    }
}

#[test]
fn threads_come_to_their_end_beside_a_thread_of_the_disk() {
    for wake in POLICIES {
        run_all(&scarce(wake, "&service=on"));
    }
}

#[test]
fn threads_come_to_their_end_where_completions_are_there_at_once() {
    for wake in POLICIES {
        for more in ["", "&service=on"] {
            let keys = "queue_depth=8&nr_hw_queues=1&max_sectors_kb=16";
            run_all(&open(&format!("null:64M?wake={wake}&{keys}{more}")));
        }
    }
    let spec = "null:64M?tag_set=silent&queue_depth=8&max_sectors_kb=16";
    let disks = [open(spec), open(spec)];
    std::thread::scope(|scope| disks.iter().for_each(|disk| _ = scope.spawn(|| run_all(disk))));
    check_wake_ups(&disks);
}

#[test]
fn the_number_of_tags_changes_under_load() {
    for wake in POLICIES {
        let (disk, is_over) = (scarce(wake, ""), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut numbers = Numbers(7);
                while !is_over.load(Ordering::Relaxed) {
                    disk.set_nr_requests(1 + numbers.below(8) as u32).expect("within the depth");
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            scope.spawn(|| {
                run_all(&disk);
                is_over.store(true, Ordering::Relaxed);
            });
        });
        disk.set_nr_requests(8).expect("the depth");
        run_all(&disk);
    }
}

#[test]
fn no_more_requests_than_allowed_are_at_the_driver() {
    let disk = open("ram:1M?queue_depth=64&nr_requests=3&nr_hw_queues=1&req_ns=5000000");
    let mut queue = disk.queue();
    let plug = forebay::plug();
    for at in 0..20 {
        submit(&mut queue, Io::read(Buf::new(4096), at * 8192));
    }
    drop(plug);
    let mut done = Vec::new();
    queue.reap(20, 20, &mut done);
    let waited = done.iter().filter(|done| done.tag_wait_ns.is_some()).count();
    assert_eq!(waited, 17);
}

#[test]
fn a_new_number_of_tags_holds_for_later_owners_of_a_context() {
    let disk = open("ram:1M?queue_depth=64&nr_hw_queues=2&req_ns=20000000");
    let nr_waiting = || {
        let mut queue = disk.queue();
        let plug = forebay::plug();
        for at in 0..3 {
            submit(&mut queue, Io::read(Buf::new(4096), at * 8192));
        }
        drop(plug);
        let mut done = Vec::new();
        queue.reap(3, 3, &mut done);
        done.iter().filter(|done| done.tag_wait_ns.is_some()).count()
    };
    // Each thread takes the context that the last one has left.
    let in_thread =
        || std::thread::scope(|scope| scope.spawn(nr_waiting).join().expect("no panic"));
    assert_eq!(in_thread(), 0);
    disk.set_nr_requests(1).expect("within the depth");
    assert_eq!((in_thread(), in_thread()), (2, 2));
}

#[test]
fn a_number_of_tags_that_cannot_be_is_refused() {
    let disk = open("null:1M?queue_depth=4");
    for nr in [0, 5] {
        let error = disk.set_nr_requests(nr).expect_err("no such number");
        assert!(error.to_string().contains("nr_requests"), "{error}");
        assert!(error.to_string().contains("queue_depth"), "{error}");
    }
    assert_eq!(disk.set_nr_requests(4), Ok(()));
}

/// Fills all tags with writes of one flag, then submits one of another. Returns the result of that
/// one.
fn beside(spec: &str, fill: fn(Io) -> Io, other: fn(Io) -> Io) -> Result<u64, BlockStatus> {
    let disk = open(spec);
    let mut queue = disk.queue();
    let plug = forebay::plug();
    for at in 0..8 {
        submit(&mut queue, fill(Io::write(Buf::new(4096), at * 8192).user_data(1)));
    }
    submit(&mut queue, other(Io::write(Buf::new(4096), 512 << 10)).nowait().user_data(2));
    drop(plug);
    let mut done = Vec::new();
    queue.reap(9, 9, &mut done);
    done.iter().find(|done| done.user_data == 2).expect("all have ended").result
}

#[test]
fn reserved_tags_are_for_reserved_io_only() {
    let spec = "ram:1M?queue_depth=4&reserved_tags=1&nr_hw_queues=1&req_ns=20000000";
    assert_eq!(beside(spec, |io| io, Io::reserved), Ok(4096));
    assert_eq!(beside(spec, |io| io, |io| io), Err(BlockStatus::Again));
    assert_eq!(beside(spec, Io::reserved, Io::reserved), Err(BlockStatus::Again));
}

#[test]
fn background_io_leaves_tags_to_others() {
    let spec = "ram:1M?queue_depth=4&async_depth=2&nr_hw_queues=1&req_ns=20000000";
    assert_eq!(beside(spec, Io::background, |io| io), Ok(4096));
    assert_eq!(beside(spec, Io::background, Io::background), Err(BlockStatus::Again));
    assert_eq!(beside(spec, |io| io, |io| io), Err(BlockStatus::Again));
}

#[test]
fn classes_and_large_bios_mix_under_every_policy() {
    for wake in POLICIES {
        let disk = scarce(wake, "&reserved_tags=2&async_depth=3");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let disk = &disk;
                scope.spawn(move || {
                    let (mut numbers, mut queue) = (Numbers(thread), disk.queue());
                    let mut done = Vec::new();
                    for _ in 0..100 {
                        let len = 4096 << numbers.below(5);
                        let io = Io::write(Buf::new(len), numbers.below(512) * (64 << 10));
                        let io = match numbers.below(4) {
                            0 => io.reserved(),
                            1 => io.background(),
                            2 if numbers.below(4) == 0 => io.nowait(),
                            _ => io,
                        };
                        submit(&mut queue, io);
                        let min = numbers.below(queue.len() as u64 + 1) as usize;
                        queue.reap(min, usize::MAX, &mut done);
                    }
                    queue.reap(queue.len(), usize::MAX, &mut done);
                    assert_eq!(done.len(), 100, "wake={wake}");
                });
            }
        });
    }
}

#[test]
fn disks_that_share_tags_have_no_more_together() {
    let spec = "ram:64M?tag_set=together&queue_depth=8&req_ns=100000";
    let disks = [open(spec), open(spec), open(spec)];
    std::thread::scope(|scope| {
        for (disk, thread) in disks.iter().cycle().take(9).zip(0..) {
            scope.spawn(move || read_in_batches(disk, thread, 40));
        }
    });
    assert!(disks.iter().any(|disk| disk.stats().queue.tag_waits > 0), "tags were scarce");
    check_wake_ups(&disks);
    // All tags were returned: I/O that must not wait finds them.
    for disk in disks {
        let mut queue = disk.queue();
        let plug = forebay::plug();
        for at in 0..9 {
            submit(&mut queue, Io::read(Buf::new(4096), at * 8192).nowait());
        }
        drop(plug);
        let mut done = Vec::new();
        queue.reap(9, 9, &mut done);
        assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 8);
    }
}

/// (The models of `tag_set`, where no time passes, count how many tags each disk has.)
#[test]
fn a_disk_goes_on_beside_one_that_wants_all_tags_of_their_set() {
    let spec = "ram:16M?tag_set=shares&queue_depth=8&req_ns=100000";
    let (greedy, modest) = (open(spec), open(spec));
    let (mut all, mut some) = (greedy.queue(), modest.queue());
    let read = |nth: u64| Io::read(Buf::new(4096), nth % 1000 * 8192);
    for nth in 0..400 {
        submit(&mut all, read(nth));
    }
    all.reap(0, 0, &mut Vec::new());
    for nth in 0..40 {
        submit(&mut some, read(nth));
    }
    let (mut done_all, mut done_some) = (Vec::new(), Vec::new());
    while done_some.len() < 40 {
        some.reap(1, usize::MAX, &mut done_some);
        all.reap(0, usize::MAX, &mut done_all);
    }
    all.reap(all.len(), usize::MAX, &mut done_all);
    assert_eq!(done_all.len(), 400);
    check_wake_ups(&[greedy, modest]);
}

#[test]
fn a_share_that_is_no_more_than_what_is_reserved_still_serves_the_others() {
    let keys = "queue_depth=8&reserved_tags=4&max_sectors_kb=16&req_ns=2000";
    let spec = format!("ram:64M?tag_set=kept&{keys}");
    let disks = [open(&spec), open(&spec), open(&spec)];
    std::thread::scope(|scope| disks.iter().for_each(|disk| _ = scope.spawn(|| run_all(disk))));
    check_wake_ups(&disks);
}

#[test]
fn disks_with_one_tag_for_all_wake_each_other() {
    let spec = "ram:1M?tag_set=one&queue_depth=1&req_ns=20000";
    let disks = [open(spec), open(spec), open(spec)];
    std::thread::scope(|scope| {
        for disk in &disks {
            scope.spawn(|| {
                let mut buf = [0; 4096];
                (0..100).for_each(|nth| assert_eq!(disk.read_at(&mut buf, nth * 8192), Ok(4096)));
            });
        }
    });
    assert!(disks.iter().any(|disk| disk.stats().queue.tag_waits > 0), "the tag was scarce");
    check_wake_ups(&disks);
}

#[test]
fn a_set_of_tags_that_cannot_be_shared_so_is_refused() {
    let _first = open("null:1M?tag_set=odd&queue_depth=4");
    let refused = |keys: &str, word: &str| {
        let error = Disk::open(&format!("null:1M?tag_set=odd&{keys}")).expect_err(keys);
        assert!(error.to_string().contains(word), "{error}");
    };
    refused("queue_depth=5", "queue_depth=5");
    refused("queue_depth=4&nr_hw_queues=2", "nr_hw_queues=2");
    refused("queue_depth=4&wake=batch", "wake=batch");
    refused("queue_depth=4&service=off", "service=off");
    let _second = open("null:1M?tag_set=odd&queue_depth=4");
}

#[test]
fn waiting_for_tags_after_each_submission_leaves_no_bio_without_one() {
    for wake in ["batch", "stash", "single"] {
        let disk = scarce(wake, "");
        let mut queue = disk.queue();
        for nr in 1..=40 {
            submit(&mut queue, Io::read(Buf::new(16 << 10), nr * (64 << 10)));
            queue.wait_for_tags();
            assert_eq!(disk.stats().queue.issued, nr, "wake={wake}");
        }
    }
}

#[test]
fn wait_for_tags_unplugs_other_disks() {
    let disk = open("ram:64M?wake=batch&queue_depth=1&nr_hw_queues=1&req_ns=5000000");
    let other = open("null:1M");
    let (mut queue, mut queue_of_other) = (disk.queue(), other.queue());
    for nr in 0..4 {
        submit(&mut queue, Io::read(Buf::new(16 << 10), nr * (64 << 10)));
    }
    let plug = forebay::plug();
    submit(&mut queue_of_other, Io::read(Buf::new(4096), 0));
    assert_eq!(other.stats().queue.issued, 0, "it is in the plug");
    // The bios lack tags, so `wait_for_tags` sleeps. Before that it flushes the plugs of this
    // thread.
    queue.wait_for_tags();
    assert_eq!(other.stats().queue.issued, 1);
    drop(plug);
}

#[test]
fn no_thread_waits_for_tags_if_bios_do() {
    let disk = scarce("fair", "");
    let mut queue = disk.queue();
    // While the disk is quiesced, no bio gets a tag: a thread that waited for one would block
    // forever.
    let quiesced = disk.quiesce();
    for nr in 1..=16 {
        submit(&mut queue, Io::read(Buf::new(16 << 10), nr * (64 << 10)));
        queue.wait_for_tags();
    }
    assert_eq!(disk.stats().queue.issued, 0);
    drop(quiesced);
}
