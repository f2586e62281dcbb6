//! Memory use of a disk, and its complete release. The allocator counts, so this is a program of
//! its own with one test.
// This file implements an allocator.
#![allow(unsafe_code)]

use forebay::{Buf, Disk, Io};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of tags of each queue.
const DEPTH: usize = 256;
/// Number of threads that have a queue and so own a context.
const THREADS: usize = 2;

/// Returns the number of allocated bytes.
fn live() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

/// Fills a queue with reads, twice, and frees their memory.
fn use_queue(disk: &Disk) {
    let mut queue = disk.queue();
    let mut done = Vec::with_capacity(DEPTH);
    for _ in 0..2 {
        for block in 0..DEPTH {
            queue.submit(Io::read(Buf::new(512), block as u64 * 512)).expect("it is on the disk");
        }
        queue.reap(DEPTH, DEPTH, &mut done);
        done.clear();
    }
}

/// Uses a disk in every way from several threads. Returns the result of `look`, called when all
/// threads have used the disk and none has ended.
fn use_disk<T: Send>(disk: &Disk, look: impl Fn() -> T + Sync) -> T {
    let all_used = std::sync::Barrier::new(THREADS + 1);
    let seen = std::sync::Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                use_queue(disk);
                disk.read_at(&mut Buf::new(512), 0).expect("a read");
                all_used.wait();
                seen.wait();
            });
        }
        disk.read_at(&mut Buf::new(512), 512).expect("a read");
        drop(disk.start(Io::read(Buf::new(512), 1024)));
        all_used.wait();
        let found = look();
        seen.wait();
        found
    })
}

/// Returns how many bytes a disk holds while it is used.
fn held(spec: &str) -> i64 {
    let before = live();
    let disk = Disk::open(spec).expect(spec);
    use_disk(&disk, live) - before
}

/// Waits, for a limited time, until no more than `limit` bytes are allocated. A thread frees its
/// thread-local memory only after its end is visible.
fn settles_at(limit: i64) -> bool {
    for _ in 0..1000 {
        if live() <= limit {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_disk_takes_two_mebibytes_at_most_and_gives_them_back() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("its length");
    let path = file.path().display();
    let files = ["file", "aio", "psync"].map(|driver| format!("{driver}:{path}"));
    for driver in files.iter().map(String::as_str).chain(["null:1M", "ram:1M", "model:hdd"]) {
        let spec = format!("{driver}?queue_depth={DEPTH}&nr_hw_queues={}", THREADS + 1);
        // The first disk allocates what a process keeps permanently.
        held(&spec);
        std::thread::sleep(Duration::from_millis(50));
        let before = live();
        for _ in 0..100 {
            let held = held(&spec);
            assert!(held < 2 << 20, "{spec} holds {held} bytes");
        }
        // A thread keeps its part of the disk that it used last, so the total may grow by this
        // much.
        let limit = before + 8192;
        assert!(settles_at(limit), "{spec}: {} bytes are left of 100 disks", live() - before);
    }
}
