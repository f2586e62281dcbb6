//! Durable points, shared flushes, and losses, through the library.

use crate::common::{Scratch, open};
use crate::progress::run;
use forebay::{BlockStatus, Buf, Disk, Io, IoError, LostWrites};

const PAGE: usize = 4096;

fn open_image(image: &Scratch, before: &str, after: &str) -> Disk {
    open(&format!("{before}{}{after}", image.path.display()))
}

#[test]
fn a_write_is_durable_once_its_point_was_waited_for() {
    let image = Scratch::new(1 << 20);
    let disk = open_image(&image, "", "");
    disk.write_at(&[1; PAGE], 0).expect("a write");
    let point = disk.durable_point();
    assert!(!disk.is_durable(point));
    disk.durable(point).wait().expect("a flush");
    assert!(disk.is_durable(point));
    disk.durable(point).wait().expect("nothing to do");
    let stats = disk.stats().queue;
    assert_eq!((stats.flushes_asked, stats.flushes_issued), (1, 1), "it is known to be durable");
}

#[test]
fn a_completion_tells_the_point_to_wait_for() {
    let image = Scratch::new(1 << 20);
    for spec in ["", "aio:", "psync:"] {
        let disk = open_image(&image, spec, "");
        let mut queue = disk.queue();
        let mut done = Vec::new();
        queue.submit(Io::write(Buf::new(PAGE), 0)).expect("a write");
        queue.submit(Io::read(Buf::new(PAGE), 8192)).expect("a read");
        queue.reap(2, 2, &mut done);
        let point = done.iter().map(|completion| completion.durable_point).max();
        let point = point.expect("two have ended");
        assert!(point > 0 && done.iter().any(|completion| completion.durable_point == 0));
        queue.submit(Io::flush_up_to(point).user_data(7)).expect("a flush");
        done.clear();
        queue.reap(1, 1, &mut done);
        assert_eq!((done[0].user_data, done[0].result), (7, Ok(0)));
        assert!(disk.is_durable(point));
    }
}

#[test]
fn a_point_is_awaited_as_a_future() {
    let image = Scratch::new(1 << 20);
    let disk = open_image(&image, "", "?service=on");
    let ios = async {
        let written = disk.start(Io::write(Buf::new(PAGE), 0)).await.expect("taken");
        disk.durable(written.durable_point).await.expect("a flush");
        assert!(disk.is_durable(written.durable_point));
        disk.durable(written.durable_point).await.expect("nothing to do");
    };
    run(ios, std::thread::park);
    assert_eq!(disk.stats().queue.flushes_issued, 1);
}

#[test]
fn a_durable_write_needs_no_flush_or_one() {
    let image = Scratch::new(1 << 20);
    for (spec, nr_flushes) in [("?fua=on", 0), ("?fua=off", 1)] {
        let disk = open_image(&image, "", spec);
        assert_eq!(disk.write_durable_at(&[7; PAGE], 4096), Ok(4096));
        assert_eq!(disk.stats().queue.flushes_issued, nr_flushes, "{spec}");
    }
}

#[test]
fn a_disk_without_a_cache_makes_everything_durable_at_once() {
    let disk = open("ram:1M");
    disk.write_at(&[1; PAGE], 0).expect("a write");
    assert_eq!(disk.durable_point(), 0);
    disk.durable(disk.durable_point()).wait().expect("nothing to do");
    disk.flush().expect("nothing to do");
    assert_eq!(disk.stats().queue.flushes_asked, 0);
}

#[test]
fn threads_that_wait_for_their_own_writes_share_flushes() {
    const NR_THREADS: u64 = 16;
    const NR_WRITES: u64 = 50;
    let image = Scratch::new(1 << 20);
    let disk = open_image(&image, "", "");
    std::thread::scope(|scope| {
        for nth in 0..NR_THREADS {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..NR_WRITES {
                    let page = (nth * NR_WRITES + round) % 256;
                    disk.write_at(&[1; PAGE], page * PAGE as u64).expect("a write");
                    let point = disk.durable_point();
                    disk.durable(point).wait().expect("a flush");
                    assert!(disk.is_durable(point));
                }
            });
        }
    });
    let stats = disk.stats().queue;
    let answered = stats.flushes_issued + stats.flushes_joined + stats.flushes_elided;
    assert_eq!(stats.flushes_asked, answered, "each is accounted for: {stats:?}");
    assert!(stats.flushes_asked <= NR_THREADS * NR_WRITES);
    assert!(disk.is_durable(disk.durable_point()));
}

#[test]
fn a_flush_that_failed_is_everybodys_until_somebody_says_so() {
    let image = Scratch::new(1 << 20);
    let disk = open_image(&image, "fault:", "?rule=flush:io:nth=2&fua=on");
    disk.write_at(&[1; PAGE], 0).expect("a write");
    disk.flush().expect("the first flush");
    let safe = disk.durable_point();
    disk.write_at(&[2; PAGE], 0).expect("a write");
    let lost = disk.durable_point();
    let failed = Err(IoError::Ended(BlockStatus::Io));
    assert_eq!(disk.flush(), failed);
    assert_eq!(disk.lost_writes(), Some(LostWrites { after: safe, up_to: lost }));
    assert_eq!(disk.flush(), failed, "another flush would prove nothing");
    assert_eq!(disk.fsync(), failed);
    assert_eq!(disk.durable(lost).wait(), failed);
    disk.durable(safe).wait().expect("what was durable is");
    disk.write_durable_at(&[3; PAGE], 8192).expect("what is durable by itself has lost nothing");
    assert_eq!(disk.acknowledge_loss(), Some(LostWrites { after: safe, up_to: lost }));
    assert_eq!(disk.lost_writes(), None);
    disk.flush().expect("a flush again");
}
