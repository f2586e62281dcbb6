//! A program that can be watched: it listens at a socket while it works, and prints its counters in
//! two formats at its end.
//!
//! ```console
//! $ mkdir -m 700 run
//! $ cargo run --example insight -- run/insight 60 &
//! $ forebay top run/insight
//! ```

#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay::{Disk, Limits, Rate, open_disks};
use forebay_insight::{Insight, diskstats, openmetrics};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    // Without a path, the program runs for a moment and cannot be watched.
    let insight = arguments.next().map(Insight::listen).transpose()?;
    let seconds = arguments.next().map_or(Ok(0), |text| text.parse())?;
    if let Some(insight) = &insight {
        println!("run in another terminal: {insight}");
    }
    // A request takes 100 us. All disks of the process are shown, whenever they are opened.
    let disk = Disk::open("ram:64M?req_ns=100000&nr_hw_queues=1")?;
    let tenant = disk.owner("tenant")?;
    let mut limits = Limits::default();
    limits.both.iops = Rate::per_s(2000);
    tenant.set_limits(&limits)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| work(end, |at| tenant.read_at(&mut [0; 4096], at).map(drop)));
        work(end, |at| disk.write_at(&[7; 4096], at).map(drop))?;
        disk.flush()?;
        other.join().map_err(|_| "the other thread has panicked")??;
        Ok::<(), Box<dyn Error>>(())
    })?;
    print!("{}", diskstats(&open_disks()));
    let text = openmetrics(&open_disks());
    let of_owner = text.lines().find(|line| line.starts_with("forebay_owner_ios_total{"));
    println!("{}", of_owner.ok_or("the owner has no counters")?);
    Ok(())
}

/// Runs I/O at changing offsets, at least 100 times, and until this time.
fn work(
    end: Instant,
    mut io: impl FnMut(u64) -> Result<(), forebay::IoError>,
) -> Result<(), forebay::IoError> {
    let mut nr = 0_u64;
    while nr < 100 || Instant::now() < end {
        io(nr * 7919 % 16384 * 4096)?;
        nr += 1;
    }
    Ok(())
}
