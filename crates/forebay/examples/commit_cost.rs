//! The cost of durability with many threads: each repeatedly writes 4 KiB and waits until that is
//! durable. Prints a report in fio's JSON, with the number of syncs.
//!
//! `commit_cost --by=WHO --filename=FILE [--numjobs=N] [--runtime=SECONDS] [--rw=write|randwrite]
//! [--delay_us=N] [--delays=together|one_by_one] [--driver=file]`. Without arguments it compares
//! the first two in a temporary file. `--by` selects how the syncs are made:
//!
//! - `group`: `GroupCommit` of a new file to which all threads append;
//! - `alone`: each thread calls `fdatasync` itself, on the same kind of file;
//! - `durable`: `Disk::durable` of an existing file, with direct I/O;
//! - `fua`: the same with `Disk::write_durable_at`, one call instead of two;
//! - `direct`: each thread calls `fdatasync` itself, on the same existing file.
//!
//! The delay makes each sync take that much longer. `together` delays syncs concurrently, like a
//! distant device. `one_by_one` delays them one after another, like a device that takes one flush
//! at a time, without a layer above it that joins flushes.

#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay::{Buf, Disk, GroupCommit, SyncFile, SyncKind};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

struct Options {
    by: String,
    driver: String,
    filename: String,
    nr_threads: u64,
    runtime: Duration,
    is_random: bool,
    delay: Duration,
    is_one_by_one: bool,
}

/// A file that delays and counts each sync, whichever thread makes it.
struct Slow {
    file: File,
    delay: Duration,
    /// Held during a delay, if syncs are delayed one by one.
    one_by_one: Option<Mutex<()>>,
    nr_syncs: AtomicU64,
}

impl SyncFile for Slow {
    fn sync(&self, kind: SyncKind) -> io::Result<()> {
        self.nr_syncs.fetch_add(1, Relaxed);
        if !self.delay.is_zero() {
            let _alone = self.one_by_one.as_ref().map(|lock| lock.lock());
            thread::sleep(self.delay);
        }
        self.file.sync(kind)
    }
}

/// Writes a block at an offset, and returns once it is durable.
type Commit<'a> = &'a (dyn Fn(&[u8], u64) -> Result<()> + Sync);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.is_empty() {
        return run(&options(&arguments)?);
    }
    let path = std::env::temp_dir().join(format!("forebay-commit-cost-{}", std::process::id()));
    for by in ["group", "alone"] {
        let filename = path.display().to_string();
        run(&Options {
            by: by.to_owned(),
            driver: String::from("file"),
            filename,
            nr_threads: 8,
            runtime: Duration::from_millis(200),
            is_random: false,
            delay: Duration::ZERO,
            is_one_by_one: false,
        })?;
    }
    Ok(())
}

fn options(arguments: &[String]) -> Result<Options> {
    let value = |name: &str, usual: Option<&'static str>| {
        let found = arguments.iter().find_map(|argument| argument.strip_prefix(name));
        found.or(usual).ok_or_else(|| format!("{name}... is needed"))
    };
    Ok(Options {
        by: value("--by=", None)?.to_owned(),
        driver: value("--driver=", Some("file"))?.to_owned(),
        filename: value("--filename=", None)?.to_owned(),
        nr_threads: value("--numjobs=", Some("1"))?.parse()?,
        runtime: Duration::from_secs(value("--runtime=", Some("3"))?.parse()?),
        is_random: value("--rw=", Some("write"))? == "randwrite",
        delay: Duration::from_micros(value("--delay_us=", Some("0"))?.parse()?),
        is_one_by_one: value("--delays=", Some("together"))? == "one_by_one",
    })
}

fn run(options: &Options) -> Result<()> {
    let path = &options.filename;
    let slow = |file| Slow {
        file,
        delay: options.delay,
        one_by_one: options.is_one_by_one.then(Mutex::default),
        nr_syncs: AtomicU64::new(0),
    };
    // Only the log file is new in each run.
    let log = || File::options().create_new(true).append(true).open(path).map(slow);
    match options.by.as_str() {
        "group" => {
            let log = GroupCommit::new(log()?);
            let commit = |block: &[u8], _| {
                let point = log.point();
                (&log.file().file).write_all(block)?;
                Ok(log.commit_since(point)?)
            };
            measure(options, u64::MAX, &commit, &|| log.stats().syncs)?;
            Ok(fs::remove_file(path)?)
        }
        "alone" => {
            let log = log()?;
            let commit = |block: &[u8], _| {
                (&log.file).write_all(block)?;
                Ok(log.sync(SyncKind::Data)?)
            };
            measure(options, u64::MAX, &commit, &|| log.nr_syncs.load(Relaxed))?;
            Ok(fs::remove_file(path)?)
        }
        "durable" | "fua" => {
            let rule = format!("&rule=flush:delay={}us", options.delay.as_micros());
            let (fault, rule) = if options.delay.is_zero() { ("", "") } else { ("fault:", &*rule) };
            let disk = Disk::open(&format!("{fault}{}:{path}?direct=on{rule}", options.driver))?;
            let is_fua = options.by == "fua";
            let commit = |block: &[u8], offset| {
                if is_fua {
                    return Ok(disk.write_durable_at(block, offset).map(drop)?);
                }
                disk.write_at(block, offset)?;
                Ok(disk.durable(disk.durable_point()).wait()?)
            };
            let capacity = disk.capacity_bytes().ok_or("the file has a size")?;
            measure(options, capacity, &commit, &|| disk.stats().queue.flushes_issued)
        }
        "direct" => {
            let file = File::options().write(true).custom_flags(libc::O_DIRECT).open(path)?;
            let file = slow(file);
            let commit = |block: &[u8], offset| {
                file.file.write_all_at(block, offset)?;
                Ok(file.sync(SyncKind::Data)?)
            };
            let capacity = file.file.metadata()?.len();
            measure(options, capacity, &commit, &|| file.nr_syncs.load(Relaxed))
        }
        other => Err(format!("--by={other}: group, alone, durable, fua or direct").into()),
    }
}

/// Runs the threads, and prints the results.
fn measure(
    options: &Options,
    capacity: u64,
    commit: Commit<'_>,
    nr_syncs: &dyn Fn() -> u64,
) -> Result<()> {
    let (nr_blocks, next) = (capacity / BLOCK, AtomicU64::new(0));
    if nr_blocks == 0 {
        return Err("the file is shorter than a write; make it longer".into());
    }
    let block = || match options.is_random {
        true => mix(next.fetch_add(1, Relaxed)) % nr_blocks,
        false => next.fetch_add(1, Relaxed) % nr_blocks,
    };
    let barrier = Barrier::new(options.nr_threads as usize);
    let work = || -> Result<(Vec<u64>, u64, Duration)> {
        let (buf, mut latencies_ns) = (Buf::new(BLOCK as usize), Vec::new());
        let switches = voluntary_switches();
        barrier.wait();
        let (start, mut now) = (Instant::now(), Duration::ZERO);
        while now < options.runtime {
            let issued = start.elapsed();
            commit(&buf, block() * BLOCK)?;
            now = start.elapsed();
            latencies_ns.push((now - issued).as_nanos() as u64);
        }
        Ok((latencies_ns, voluntary_switches() - switches, now))
    };
    let (mut latencies_ns, mut switches, mut runtime) = (Vec::new(), 0, Duration::ZERO);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..options.nr_threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            let done = thread.join().expect("a thread that writes")?;
            latencies_ns.extend(done.0);
            switches += done.1;
            runtime = runtime.max(done.2);
            Result::Ok(())
        })
    })?;
    latencies_ns.sort_unstable();
    let total = latencies_ns.len();
    let percentile = |percent: usize| latencies_ns[(total - 1) * percent / 100];
    println!(
        "{{\"jobs\": [{{\"write\": {{\"iops\": {:.1}, \"total_ios\": {total}, \"runtime\": {}, \
         \"clat_ns\": {{\"percentile\": {{\"50.000000\": {}, \"99.000000\": {}}}}}}}, \
         \"usr_cpu\": 0.0, \"sys_cpu\": 0.0}}], \
         \"forebay\": [{{\"jobs\": [{{\"voluntary_switches\": {switches}, \"syncs\": {}}}]}}]}}",
        total as f64 / runtime.as_secs_f64(),
        runtime.as_millis(),
        percentile(50),
        percentile(99),
        nr_syncs(),
    );
    Ok(())
}

/// Maps each number to a different pseudorandom number. Source: G. Steele et al., "Fast Splittable
/// Pseudorandom Number Generators", 2014 (SplitMix64).
fn mix(n: u64) -> u64 {
    let n = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// Returns the number of voluntary context switches of this thread so far.
fn voluntary_switches() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let number = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}
