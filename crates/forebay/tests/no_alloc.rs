//! No allocation per I/O: counted by the allocator itself.
// An allocator is unsafe code.
#![allow(unsafe_code)]

use forebay::{BioQueue, Buf, Completion, Disk, Io};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static NR_ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is handed to the system's allocator; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = NR_ALLOCATIONS.try_with(|nr| nr.set(nr.get() + 1));
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DEPTH: usize = 64;

/// Keeps `DEPTH` I/Os in the layer, submitted in plugged batches of 16, the buffers used again.
/// Boxes and lists are made for the most I/Os that there ever were in one place, and how soon the
/// rounds get there is a matter of the disk's speed: so one of a few passes must do without.
fn run(disk: &Disk, nr_rounds: u64) {
    let mut queue = disk.queue();
    let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(4096)).collect();
    let mut done: Vec<Completion> = Vec::with_capacity(DEPTH);
    let mut counted = Vec::with_capacity(6);
    for _ in 0..6 {
        let before = NR_ALLOCATIONS.get();
        pass(disk, &mut queue, &mut bufs, &mut done, nr_rounds);
        counted.push(NR_ALLOCATIONS.get() - before);
        if counted.len() > 1 && counted.last() == Some(&0) {
            return;
        }
    }
    let nr_ios = nr_rounds * 16;
    panic!("{}: allocations in passes of {nr_ios} I/Os: {counted:?}", disk.info().spec);
}

fn pass(
    disk: &Disk,
    queue: &mut BioQueue,
    bufs: &mut Vec<Buf>,
    done: &mut Vec<Completion>,
    nr_rounds: u64,
) {
    for round in 0..nr_rounds {
        let plug = forebay::plug();
        for nth in 0..16 {
            let inner = forebay::plug();
            let Some(buf) = bufs.pop() else { break };
            let page = (round * 16 + nth * (1 + round % 2)) % 256;
            let io = match round % 3 {
                0 => Io::write(buf, page * 4096),
                _ => Io::read(buf, page * 4096),
            };
            queue.submit(io).expect("a good I/O");
            drop(inner);
        }
        drop(plug);
        queue.reap(if bufs.len() < 16 { 16 } else { 0 }, DEPTH, done);
        bufs.extend(done.drain(..).filter_map(|completion| completion.buf));
        if round % 100 == 0 {
            disk.flush().expect("a flush");
        }
    }
}

#[test]
fn no_io_allocates_once_the_layer_is_warm() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    let file = path.display();
    for spec in [
        String::from("null:1M"),
        String::from("ram:1M"),
        String::from("ram:1M?nomerges=2&queue_depth=8"),
        String::from("ram:1M?req_ns=300&io_ns=100&max_sectors_kb=8"),
        String::from("model:virtio-ram?size=1M&latency_ns=50000"),
        String::from("fault:ram:1M?rule=any:short=1k:nth=3"),
        format!("{file}"),
        format!("{file}?direct=on"),
        format!("aio:{file}?direct=on"),
        format!("psync:{file}?direct=on"),
        format!("psync:{file}?nr_hw_queues=1"),
    ] {
        run(&Disk::open(&spec).expect("a disk"), 500);
    }
}
