//! Failures of a cluster, and of an image, while a disk is open.

use super::{cluster, data, has_feature, name};
use crate::ceph::{self, Cluster, Used};
use crate::common::open;
use crate::skip::skip;
use forebay::{BlockStatus, Buf, Disk, Io, IoError};
use std::sync::RwLockWriteGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns the cluster for a test that disturbs it.
fn cluster_alone() -> Option<Used<RwLockWriteGuard<'static, ()>>> {
    has_feature().then(ceph::cluster_alone)?.map_err(|why| skip(&name(), &why)).ok()
}

/// Returns the spec of a new image without a write cache, so that each write reaches the OSD before
/// it ends.
fn uncached(cluster: &Cluster) -> String {
    let image = cluster.create(16 << 20, "layering");
    cluster.set(&image, "rbd_cache", "false");
    cluster.spec(&image)
}

/// A cluster that is full. Dropping it makes room again, also after a failed assertion: the other
/// tests use the same cluster.
struct Full<'a>(&'a Cluster);

impl Full<'_> {
    const KINDS: [&'static str; 3] =
        ["set-nearfull-ratio", "set-backfillfull-ratio", "set-full-ratio"];

    fn new(cluster: &Cluster) -> Full<'_> {
        let full = Full(cluster);
        for kind in Full::KINDS {
            cluster.ceph(&["osd", kind, "0.000001"]);
        }
        full
    }
}

impl Drop for Full<'_> {
    fn drop(&mut self) {
        for (kind, ratio) in Full::KINDS.into_iter().zip(["0.85", "0.9", "0.95"]).rev() {
            let output = self.0.command("ceph", &["osd", kind, ratio]);
            assert!(output.status.success() || std::thread::panicking(), "{kind} {ratio}");
        }
        if std::thread::panicking() {
            wait_for_room(self.0);
        }
    }
}

/// Waits until the monitor no longer has the OSD as full. An OSD that is killed before then does
/// not join again: it waits for the monitor, which ignores it as long as its predecessor is not
/// reported as down. Returns false if that takes too long.
fn wait_for_room(cluster: &Cluster) -> bool {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(60) {
        let health = cluster.command("ceph", &["health"]);
        if health.status.success() && !String::from_utf8_lossy(&health.stdout).contains("full") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

fn ended(status: BlockStatus) -> Result<usize, IoError> {
    Err(IoError::Ended(status))
}

/// Returns the stamp of a block: all of its words have the same number.
fn stamp(block: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("a word"));
    assert!((0..block.len()).step_by(8).all(|at| word(at) == word(0)), "a torn block");
    word(0)
}

#[test]
fn killed_osd_loses_nothing_that_was_acknowledged() {
    const NR_THREADS: u64 = 4;
    const NR_BLOCKS: u64 = 16;
    let Some(cluster) = cluster_alone() else { return };
    let image = cluster.create(16 << 20, "layering");
    let spec = cluster.spec(&image);
    // A durable write is one command on the first disk, and has a flush after it on the second.
    let disks = [open(&spec), open(&format!("{spec}&fua=off"))];
    assert_eq!([disks[0].limits().fua, disks[1].limits().fua], [true, false]);
    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..NR_THREADS)
            .map(|thread| {
                let (disk, is_over) = (&disks[thread as usize % 2], &is_over);
                scope.spawn(move || {
                    let mut last = vec![0; NR_BLOCKS as usize];
                    let mut queue = disk.queue();
                    for number in 1_u64.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let at = number % NR_BLOCKS;
                        let block: Vec<u8> = number.to_le_bytes().repeat(512);
                        let offset = (thread * NR_BLOCKS + at) * 4096;
                        let write = Io::write(Buf::from(&block[..]), offset).fua();
                        queue.submit(write).expect("it is submitted");
                        let mut done = Vec::new();
                        queue.reap(1, 1, &mut done);
                        assert_eq!(done[0].result, Ok(4096), "librbd waits for the OSD");
                        last[at as usize] = number;
                    }
                    last
                })
            })
            .collect();
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(300));
            cluster.kill_osd();
            std::thread::sleep(Duration::from_millis(200));
            cluster.start_osd();
        }
        std::thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    for last in &acknowledged {
        assert!(last.iter().any(|number| *number > 0), "some writes have ended");
    }
    assert_eq!(disks[0].stats().queue.flushes_issued, 0);
    let since = Instant::now();
    drop(disks);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    // Another client reads what the OSD has kept.
    let disk = open(&spec);
    for (thread, last) in acknowledged.iter().enumerate() {
        for (at, number) in last.iter().enumerate() {
            let mut block = [0; 4096];
            let offset = (thread as u64 * NR_BLOCKS + at as u64) * 4096;
            disk.read_exact_at(&mut block, offset).expect("a read");
            assert_eq!(stamp(&block), *number, "block {at} of thread {thread}");
        }
    }
}

#[test]
fn osd_that_does_not_answer_makes_writes_time_out_and_closes() {
    let Some(cluster) = cluster_alone() else { return };
    let spec = uncached(&cluster);
    // A delay within the time limit is only a delay.
    let disk = open(&format!("{spec}&io_timeout_ms=20000"));
    disk.write_at(&[1; 4096], 0).expect("a write");
    let paused = cluster.pause_osd();
    std::thread::scope(|scope| {
        let write = scope.spawn(|| disk.write_at(&[2; 4096], 0));
        std::thread::sleep(Duration::from_millis(300));
        drop(paused);
        assert_eq!(write.join().expect("a thread"), Ok(4096));
    });
    drop(disk);
    let disk = open(&format!("{spec}&io_timeout_ms=1000"));
    let paused = cluster.pause_osd();
    let since = Instant::now();
    assert_eq!(disk.write_at(&[3; 4096], 0), ended(BlockStatus::Timeout));
    assert_eq!(disk.read_at(&mut [0; 4096], 0), ended(BlockStatus::Timeout));
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    drop(paused);
    // The write that has timed out may have been performed; a later one is not overtaken by it.
    assert_eq!(disk.write_at(&[4; 4096], 0), Ok(4096));
    let mut block = [0; 4096];
    assert_eq!(disk.read_at(&mut block, 0), Ok(4096));
    assert_eq!(stamp(&block), u64::from_le_bytes([4; 8]));
    let paused = cluster.pause_osd();
    let mut queue = disk.queue();
    for nth in 0..8 {
        queue.submit(Io::write(Buf::from(&[5; 4096][..]), nth * 4096)).expect("a write");
    }
    let since = Instant::now();
    drop(queue);
    drop(disk);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    drop(paused);
    // Another client reads what the OSD has kept. The last writes may have been performed.
    let disk = open(&spec);
    let stamps: Vec<u64> = (0..8)
        .map(|nth| {
            disk.read_exact_at(&mut block, nth * 4096).expect("a read");
            stamp(&block)
        })
        .collect();
    let [acknowledged, last] = [4, 5].map(|byte| u64::from_le_bytes([byte; 8]));
    assert!([acknowledged, last].contains(&stamps[0]), "{stamps:x?}");
    assert!(stamps[1..].iter().all(|stamp| [0, last].contains(stamp)), "{stamps:x?}");
}

#[test]
fn durable_write_ends_only_when_the_osd_has_answered() {
    let Some(cluster) = cluster_alone() else { return };
    let image = cluster.create(16 << 20, "layering");
    let spec = cluster.spec(&image);
    let disk = open(&format!("{spec}&io_timeout_ms=1000"));
    disk.write_at(&[1; 4096], 0).expect("a write");
    disk.flush().expect("a flush, after which librbd uses its cache");
    let paused = cluster.pause_osd();
    assert_eq!(disk.write_at(&[2; 4096], 4096), Ok(4096), "a write in the cache has ended");
    assert_eq!(disk.write_durable_at(&[3; 4096], 8192), ended(BlockStatus::Timeout));
    drop(paused);
}

#[test]
fn full_cluster_fails_writes_in_time_and_recovers() {
    let Some(cluster) = cluster_alone() else { return };
    let disk = open(&format!("{}&io_timeout_ms=1000", uncached(&cluster)));
    disk.write_at(&[1; 4096], 0).expect("a write");
    let is_full = Full::new(&cluster);
    let since = Instant::now();
    // The OSD reports soon that it is full.
    let full = loop {
        match disk.write_at(&[2; 4096], 0) {
            Ok(_) if since.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            ended => break ended,
        }
    };
    let read = disk.read_at(&mut [0; 4096], 0);
    drop(is_full);
    // librados holds writes back until there is room, up to its time limit.
    let is_known = full == ended(BlockStatus::Timeout) || full == ended(BlockStatus::NoSpace);
    assert!(is_known, "{full:?}");
    assert_eq!(read, Ok(4096), "reads go on");
    let since = Instant::now();
    while disk.write_at(&[3; 4096], 0) != Ok(4096) {
        assert!(since.elapsed() < Duration::from_secs(20), "there is room again");
    }
    assert!(wait_for_room(&cluster), "the OSD reports that it has room");
}

#[test]
fn disk_of_a_removed_pool_is_gone() {
    let Some(cluster) = cluster() else { return };
    cluster.ceph(&["osd", "pool", "create", "doomed", "1"]);
    cluster.rbd(&["pool", "init", "doomed"]);
    cluster.rbd(&["create", "doomed/disk", "--size", "16M", "--image-feature", "layering"]);
    let disk =
        open(&format!("rbd:doomed/disk?conf={}&io_timeout_ms=2000", cluster.conf().display()));
    disk.write_at(&data(4096), 0).expect("a write");
    disk.flush().expect("a flush");
    let removed = ["osd", "pool", "rm", "doomed", "doomed", "--yes-i-really-really-mean-it"];
    cluster.ceph(&removed);
    let mut block = [0; 4096];
    let since = Instant::now();
    // The client may get the new map a moment later.
    let mut read = disk.read_at(&mut block, 0);
    while read != ended(BlockStatus::Offline) {
        assert!(since.elapsed() < Duration::from_secs(10), "{read:?}");
        read = disk.read_at(&mut block, 0);
    }
    assert!(disk.is_failed());
    assert_eq!(disk.failure().as_deref(), Some("the image or its pool has been removed"));
    drop(disk);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

#[test]
fn image_in_use_is_not_removed() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create(16 << 20, "layering");
    let disk = open(&cluster.spec(&image));
    let removed = cluster.command("rbd", &["rm", "--no-progress", &format!("rbd/{image}")]);
    assert!(!removed.status.success(), "librbd watches it");
    disk.write_at(&[1; 4096], 0).expect("a write");
    drop(disk);
    cluster.rbd(&["rm", "--no-progress", &format!("rbd/{image}")]);
}

/// Removes the lock of an image, which also blocklists its owner.
fn break_lock(cluster: &Cluster, image: &str) {
    let image = format!("rbd/{image}");
    let locks = cluster.rbd(&["lock", "ls", &image, "--format", "json"]);
    let value: serde_json::Value = serde_json::from_str(&locks).expect("JSON");
    let text = |key| value[0][key].as_str().unwrap_or_else(|| panic!("{locks}")).to_owned();
    cluster.rbd(&["lock", "rm", &image, &text("id"), &text("locker")]);
}

#[test]
fn exclusive_disk_keeps_others_out_and_fails_when_its_lock_is_broken() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create(16 << 20, "layering,exclusive-lock");
    let spec = cluster.spec(&image);
    let disk = open(&format!("{spec}&exclusive=on&io_timeout_ms=2000"));
    assert!(disk.info().exclusive);
    disk.write_at(&[1; 4096], 0).expect("a write");
    disk.flush().expect("a flush");
    let error = Disk::open(&format!("{spec}&exclusive=on")).expect_err("it is kept").to_string();
    assert!(error.contains("another client has the exclusive lock and keeps it"), "{error}");
    let other = open(&format!("{spec}&io_timeout_ms=2000"));
    assert_eq!(other.read_at(&mut [0; 4096], 0), Ok(4096), "others may read");
    let written = other.write_at(&[2; 4096], 0);
    assert_eq!(written, ended(BlockStatus::ReadOnly));
    drop(other);
    break_lock(&cluster, &image);
    let since = Instant::now();
    while disk.failure().is_none() {
        assert!(since.elapsed() < Duration::from_secs(15), "an idle disk notices it");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(disk.write_at(&[3; 4096], 0), ended(BlockStatus::Offline));
    assert!(disk.is_failed());
    drop(disk);
    let disk = open(&format!("{spec}&exclusive=on"));
    let mut block = [0; 4096];
    disk.read_exact_at(&mut block, 0).expect("a read");
    assert_eq!(block, [1; 4096]);
}

/// Three operations time out, one after the other: the last check of the owner, the release of the
/// lock, and the end of the watch.
#[test]
fn exclusive_disk_closes_in_time_without_the_osd() {
    let Some(cluster) = cluster_alone() else { return };
    let image = cluster.create(16 << 20, "layering,exclusive-lock");
    let spec = cluster.spec(&image);
    let disk = open(&format!("{spec}&exclusive=on&io_timeout_ms=1000"));
    assert_eq!(disk.write_durable_at(&[1; 4096], 0), Ok(4096));
    cluster.kill_osd();
    let since = Instant::now();
    drop(disk);
    let closed = since.elapsed();
    cluster.start_osd();
    assert!(closed < Duration::from_secs(10), "{closed:?}");
    let disk = open(&spec);
    let mut block = [0; 4096];
    disk.read_exact_at(&mut block, 0).expect("a read");
    assert_eq!(block, [1; 4096]);
}

#[test]
fn image_without_the_feature_has_no_lock() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create(16 << 20, "layering");
    let error = Disk::open(&format!("{}&exclusive=on", cluster.spec(&image)));
    let error = error.expect_err("no lock").to_string();
    assert!(error.contains("the image has no exclusive lock: enable it with"), "{error}");
    let error = Disk::open(&format!("{}&elide=on", cluster.spec(&image)));
    assert!(error.expect_err("others may write").to_string().contains("add exclusive=on"));
}
