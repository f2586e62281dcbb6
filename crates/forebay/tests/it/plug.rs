//! Plugs on a thread: nesting, several disks, and every event that flushes a plug.

use crate::common::{open, reap_all, submit};
use forebay::{BioQueue, Buf, Disk, Io, UnplugCause};

/// Submits reads of the 4 KiB pages in `pages`.
fn read_pages(queue: &mut BioQueue, pages: std::ops::Range<u64>) {
    pages.for_each(|page| submit(queue, Io::read(Buf::new(4096), page * 4096).user_data(page)));
}

fn issued(disk: &Disk) -> u64 {
    disk.stats().queue.issued
}

#[test]
fn only_the_outermost_guard_lets_bios_through() {
    let disk = open("ram:1M");
    let mut queue = disk.queue();
    let outer = forebay::plug();
    for page in 0..16 {
        let inner = forebay::plug();
        read_pages(&mut queue, page..page + 1);
        drop(inner);
        assert_eq!(issued(&disk), 0);
    }
    drop(outer);
    assert_eq!(issued(&disk), 1);
    assert_eq!(disk.stats().queue.unplugs(UnplugCause::Outermost), 1);
    assert_eq!(reap_all(&mut queue).len(), 16);
}

#[test]
fn per_level_lets_each_level_through() {
    let disk = open("ram:1M?plug=per-level");
    let mut queue = disk.queue();
    let outer = forebay::plug();
    read_pages(&mut queue, 100..101);
    for page in 0..4 {
        let inner = forebay::plug();
        read_pages(&mut queue, page..page + 1);
        drop(inner);
        assert_eq!(issued(&disk), page + 1);
    }
    drop(outer);
    assert_eq!(issued(&disk), 5);
    assert_eq!(disk.stats().queue.unplugs(UnplugCause::Level), 4);
    assert_eq!(reap_all(&mut queue).len(), 5);
}

#[test]
fn an_explicit_unplug_keeps_the_plug_open() {
    let disk = open("ram:1M");
    let mut queue = disk.queue();
    let plug = forebay::plug();
    read_pages(&mut queue, 0..4);
    plug.unplug();
    assert_eq!(issued(&disk), 1);
    read_pages(&mut queue, 4..8);
    assert_eq!(issued(&disk), 1);
    drop(plug);
    assert_eq!(issued(&disk), 2);
}

#[test]
fn waiting_lets_bios_through_on_all_disks() {
    let (one, two) = (open("ram:1M"), open("ram:1M"));
    let (mut queue_one, mut queue_two) = (one.queue(), two.queue());
    let plug = forebay::plug();
    read_pages(&mut queue_one, 0..4);
    read_pages(&mut queue_two, 0..4);
    assert_eq!((issued(&one), issued(&two)), (0, 0));
    assert_eq!(queue_one.reap(1, 16, &mut Vec::new()), 4);
    assert_eq!((issued(&one), issued(&two)), (1, 1));
    assert_eq!(one.stats().queue.unplugs(UnplugCause::Wait), 1);
    read_pages(&mut queue_two, 8..12);
    one.read_at(&mut [0; 512], 0).expect("a blocking call waits too");
    assert_eq!(issued(&two), 2);
    drop(plug);
}

#[test]
fn a_blocking_call_merges_with_plugged_bios() {
    let disk = open("ram:1M");
    let mut queue = disk.queue();
    let plug = forebay::plug();
    read_pages(&mut queue, 0..4);
    disk.read_at(&mut [0; 4096], 4 * 4096).expect("a neighbour");
    assert_eq!(issued(&disk), 1);
    drop(plug);
}

#[test]
fn a_forgotten_guard_lets_bios_through_at_a_wait_and_at_the_end_of_the_thread() {
    let scratch = crate::common::Scratch::new(1 << 20);
    let spec = scratch.spec("");
    std::thread::spawn(move || {
        let disk = open(&spec);
        let mut queue = disk.queue();
        std::mem::forget(forebay::plug());
        submit(&mut queue, Io::write(Buf::from(&[1; 4096][..]), 0));
        assert_eq!(queue.reap(1, 1, &mut Vec::new()), 1);
        submit(&mut queue, Io::write(Buf::from(&[2; 4096][..]), 4096));
        assert_eq!(issued(&disk), 1);
        // Neither is dropped nor reaped: only the end of the thread remains to issue the writes.
        std::mem::forget((disk, queue));
    })
    .join()
    .expect("the thread ends well");
    let written = std::fs::read(&scratch.path).expect("the file");
    assert_eq!((written[0], written[4096]), (1, 2));
}

#[test]
fn dropping_disk_and_queue_waits_for_plugged_and_issued_io() {
    let scratch = crate::common::Scratch::new(1 << 20);
    let plug = forebay::plug();
    {
        let disk = open(&scratch.spec("direct=on"));
        let mut queue = disk.queue();
        for page in 0..64u64 {
            submit(&mut queue, Io::write(Buf::from(&[7; 4096][..]), page * 8192));
        }
    }
    let written = std::fs::read(&scratch.path).expect("the file");
    assert!((0..64).all(|page| written[page * 8192] == 7));
    drop(plug);
}

#[test]
fn a_full_layer_gives_the_io_back() {
    let disk = open("ram:1M?nr_bios=8&queue_depth=2&req_ns=1000000");
    let mut queue = disk.queue();
    let plug = forebay::plug();
    read_pages(&mut queue, 0..8);
    let io = Io::read(Buf::new(4096), 0).user_data(99);
    let error = queue.submit(io).expect_err("eight are in the layer");
    assert_eq!(error.kind, forebay::SubmitErrorKind::WouldBlock);
    assert_eq!(error.io.into_buf().map(|buf| buf.len()), Some(4096));
    assert_eq!(queue.reap(1, 1, &mut Vec::new()), 1);
    submit(&mut queue, Io::read(Buf::new(4096), 0));
    drop(plug);
    assert_eq!(reap_all(&mut queue).len(), 8);
}

#[test]
fn unreaped_completions_count_against_the_limit() {
    let disk = open("ram:1M?nr_bios=8");
    let mut queue = disk.queue();
    for page in 0..8 {
        read_pages(&mut queue, page..page + 1);
        disk.read_at(&mut [0; 512], 0).expect("a turn, which ends what was submitted");
    }
    let error = queue.submit(Io::read(Buf::new(4096), 0)).expect_err("eight wait to be reaped");
    assert_eq!(error.kind, forebay::SubmitErrorKind::WouldBlock);
    disk.queue().submit(Io::flush()).expect("another queue has room");
    assert_eq!(reap_all(&mut queue).len(), 8);
    submit(&mut queue, Io::read(Buf::new(4096), 0));
}

#[test]
fn a_wait_does_not_wait_for_others() {
    // The device serves two requests at a time, in order, so our reads come first.
    let disk = open("ram:1M?req_ns=100000&queue_depth=2");
    let (mut other, mut ours) = (disk.queue(), disk.queue());
    read_pages(&mut ours, 0..3);
    (0..10).for_each(|_| read_pages(&mut other, 100..200));
    assert_eq!(ours.reap(3, 3, &mut Vec::new()), 3);
    // The other reads take a tenth of a second, however this thread is scheduled.
    let nr_done = disk.stats().queue.op(forebay::Op::Read).bios;
    assert!(nr_done < 1003, "all of the other's have been waited for");
}

#[test]
fn a_blocking_call_that_need_not_wait_commits_its_requests() {
    // Long enough that the first read ends after the second is submitted, on any machine.
    let disk = open("ram:1M?queue_depth=1&req_ns=300000000");
    let mut queue = disk.queue();
    read_pages(&mut queue, 0..1);
    read_pages(&mut queue, 2..3);
    assert_eq!(issued(&disk), 1);
    // After the first read, a turn issues the second.
    std::thread::sleep(std::time::Duration::from_millis(301));
    disk.write_at(&[], 0).expect("nothing to write");
    assert_eq!((issued(&disk), disk.stats().queue.commits), (2, 2));
    assert_eq!(reap_all(&mut queue).len(), 2);
}

/// Submits 16 reads that do not merge inside a section. Returns the number of driver kicks.
fn kicks(keys: &str) -> u64 {
    let disk = open(&format!("ram:1M?{keys}"));
    let mut queue = disk.queue();
    let section = forebay::defer();
    let inner = forebay::defer();
    for n in 0..8 {
        submit(&mut queue, Io::read(Buf::new(512), n * 4096));
    }
    drop(inner);
    for n in 0..8 {
        submit(&mut queue, Io::read(Buf::new(512), n * 4096));
    }
    drop(section);
    let in_section = disk.stats().queue.commits;
    assert_eq!(reap_all(&mut queue).len(), 16, "{keys}");
    assert!(disk.stats().queue.commits <= in_section + 1);
    in_section
}

#[test]
fn a_section_kicks_once_by_the_policy() {
    for queues in ["nr_hw_queues=1", "nr_hw_queues=2"] {
        for (kick, expected) in
            [("deferred", 1), ("per-device", 1), ("per-request", 16), ("loop-end", 0)]
        {
            assert_eq!(kicks(&format!("kick={kick}&{queues}")), expected, "{kick} {queues}");
        }
    }
}

#[test]
fn wait_in_a_section_kicks_first() {
    for keys in ["nr_hw_queues=1", "nr_hw_queues=2", "kick=loop-end"] {
        let (one, other) = (open(&format!("ram:1M?{keys}")), open(&format!("ram:1M?{keys}")));
        let (mut first, mut second) = (one.queue(), other.queue());
        let section = forebay::defer();
        submit(&mut first, Io::write(Buf::new(512), 0));
        submit(&mut second, Io::write(Buf::new(512), 0));
        one.read_at(&mut [0; 512], 0).expect("a read");
        assert_eq!(other.stats().queue.commits, 1, "the other disk was not forgotten");
        assert_eq!(reap_all(&mut second).len(), 1);
        submit(&mut second, Io::write(Buf::new(512), 0));
        // The queue is dropped while its commit is still deferred.
        drop((second, other));
        drop(section);
        assert_eq!(reap_all(&mut first).len(), 1);
    }
}
