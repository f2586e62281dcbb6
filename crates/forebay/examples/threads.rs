//! Many threads with blocking calls on one disk: each writes and reads back its own blocks.
//!
//! The first threads own a hardware context each. The others share one context, in which one of the
//! waiting threads waits for all of them.

#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay::{Disk, IoError};
use std::thread;

const THREADS: u8 = 16;
const BLOCKS: u64 = 100;
const LEN: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A request takes 20 us, so that threads wait concurrently. With `nr_hw_queues=1` all share.
    let disk = Disk::open("ram:64M?nr_hw_queues=3&req_ns=20000")?;
    thread::scope(|scope| {
        let start = |number| {
            let disk = &disk;
            scope.spawn(move || write_and_read(disk, number))
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let stats = disk.stats();
    println!("{} requests by {THREADS} threads", stats.queue.issued);
    // A RAM disk needs no system calls; a file needs one for each batch or wait.
    println!("system calls: {}", stats.nr_syscalls);
    println!("turns: {}, of which {} found nothing", stats.queue.turns, stats.queue.empty_turns);
    println!("runs: {}, of which {} were left to another", stats.runs(), stats.skipped_runs);
    assert_eq!(stats.queue.issued, 2 * BLOCKS * u64::from(THREADS));
    Ok(())
}

fn write_and_read(disk: &Disk, number: u8) -> Result<(), IoError> {
    let mut block = [0; LEN];
    for nth in 0..BLOCKS {
        let offset = (u64::from(number) * BLOCKS + nth) * LEN as u64;
        disk.write_at(&[number; LEN], offset)?;
        disk.read_at(&mut block, offset)?;
        assert_eq!(block, [number; LEN]);
    }
    Ok(())
}
