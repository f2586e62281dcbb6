//! The cost of one I/O of a disk: instructions, if this runs under callgrind, and system calls,
//! which it prints.
//!
//! `io_cost SPEC queue|calls DEPTH NR` reads NR blocks of 4 KiB, through a queue of depth DEPTH or
//! with blocking calls. Without arguments it reads 3200 blocks of a RAM disk at depth 32. Two runs
//! that differ only in NR give the cost of one I/O: the rest cancels out.

#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay::{Disk, Io};
use std::error::Error;

const BLOCK: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() {
        args = ["ram:1M", "queue", "32", "3200"].map(String::from).into();
    }
    let [spec, how, depth, nr] = args.as_slice() else {
        return Err("usage: io_cost SPEC queue|calls DEPTH NR".into());
    };
    let (depth, nr): (u64, u64) = (depth.parse()?, nr.parse()?);
    let disk = Disk::open(spec)?;
    let nr_blocks = disk.capacity_bytes().ok_or("the disk has a size")? / BLOCK;
    // Consecutive blocks are not adjacent, so nothing merges.
    let offset = |nth: u64| nth * 7 % nr_blocks * BLOCK;
    match how.as_str() {
        "queue" => by_queue(&disk, depth, nr, offset)?,
        "calls" => {
            let mut buf = forebay::Buf::new(BLOCK as usize);
            for nth in 0..nr {
                disk.read_at(&mut buf, offset(nth))?;
            }
        }
        _ => return Err(format!("{how}: queue or calls").into()),
    }
    let per_io = disk.stats().nr_syscalls as f64 / nr as f64;
    println!("{per_io:.3} system calls an I/O");
    Ok(())
}

fn by_queue(
    disk: &Disk,
    depth: u64,
    nr: u64,
    offset: impl Fn(u64) -> u64,
) -> Result<(), Box<dyn Error>> {
    let mut queue = disk.queue();
    let mut bufs: Vec<_> = (0..depth).map(|_| forebay::Buf::new(BLOCK as usize)).collect();
    let mut done = Vec::new();
    for first in (0..nr).step_by(depth as usize) {
        let plug = forebay::plug();
        for (nth, buf) in (first..).zip(bufs.drain(..)) {
            queue.submit(Io::read(buf, offset(nth)))?;
        }
        drop(plug);
        queue.reap(depth as usize, depth as usize, &mut done);
        for completion in done.drain(..) {
            completion.result?;
            bufs.extend(completion.buf);
        }
    }
    Ok(())
}
