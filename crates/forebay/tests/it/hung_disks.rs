//! Disks with time limits whose requests hang or are late, behind `fault`: every driver, with a
//! shared and with an owned context.
//!
//! A test names an act and the keys of the disks. [`on_each`] runs the act on every disk of the
//! table at the same time, since most of the time is spent in waits. Block devices are few, so all
//! disks of `timeouts::block_devices_keep_the_time_limits` are on one.

use crate::common::{LoopDevice, Scratch, open};
use forebay::Disk;
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for I/O that must succeed on a loaded machine: the kernel thread of `sqpoll` may
/// wait 100 ms for a processor.
pub(crate) const LIMIT: Duration = Duration::from_millis(200);
pub(crate) const GRACE: Duration = Duration::from_millis(100);

/// How long a request takes that no driver gives up. The tests wait for less.
pub(crate) const SLOW: Duration = Duration::from_secs(2);

/// Returns the keys of the tests' time limits.
pub(crate) fn limits() -> String {
    format!("io_timeout_ms={}&io_timeout_grace_ms={}", LIMIT.as_millis(), GRACE.as_millis())
}

/// The drivers of files and block devices.
const ENGINES: [&str; 4] = ["file:", "file:?sqpoll=on&sqpoll_idle_ms=1", "aio:", "psync:"];

/// The other drivers, with keys of their own. The modelled devices take microseconds. `sata`
/// accepts a flush only by itself.
const OTHERS: [&str; 4] = [
    "ram:1M",
    "null:1M",
    "model:nvme?size=1M&latency_ns=1000&service=off",
    "model:sata?size=1M&seek_ns=1k&position_ns=1k&flush_ns=1k&service=off",
];

/// A disk of the table, and the file that it is on.
pub(crate) struct HungDisk {
    pub(crate) spec: String,
    pub(crate) scratch: Scratch,
}

impl HungDisk {
    /// Returns a disk of `driver` with these keys, on a file of its own if it is on a file.
    fn new(driver: &str, keys: &str) -> HungDisk {
        let scratch = Scratch::new(1 << 20);
        let target = match driver.starts_with(|first| "fap".contains(first)) {
            true => scratch.path.display().to_string(),
            false => String::new(),
        };
        HungDisk { spec: spec(driver, &target, keys), scratch }
    }
}

/// Returns the spec of a faulty disk with time limits.
fn spec(driver: &str, target: &str, keys: &str) -> String {
    let (driver, own) = driver.split_once('?').unwrap_or((driver, ""));
    format!("fault:{driver}{target}?{keys}&{}&{own}", limits()).trim_end_matches('&').to_owned()
}

/// Returns all disks of the table with these keys.
pub(crate) fn disks(keys: &str) -> Vec<HungDisk> {
    let drivers = ENGINES.iter().chain(&OTHERS);
    let of = |driver: &&'static str| {
        let driver = *driver;
        // `sata` has one context.
        let max = if driver.contains("sata") { 1 } else { 2 };
        (1..=max).map(move |nr| HungDisk::new(driver, &with_contexts(keys, nr)))
    };
    drivers.flat_map(of).collect()
}

/// Returns a `file` disk with these keys. Its threads own contexts if `owned` is set.
pub(crate) fn file_disk(keys: &str, owned: bool) -> HungDisk {
    HungDisk::new(ENGINES[0], &with_contexts(keys, 1 + u32::from(owned)))
}

fn with_contexts(keys: &str, nr: u32) -> String {
    format!("{keys}&nr_hw_queues={nr}")
}

/// Returns whether a rule with these keys can act on the disk: only a device with a volatile cache
/// gets flushes.
fn can_act(spec: &str, keys: &str) -> bool {
    let has_cache = !["ram", "null", "nvme"].iter().any(|driver| spec.contains(driver));
    has_cache || !keys.contains("rule=flush")
}

/// Calls `act` with each disk of the table, all at the same time.
pub(crate) fn on_each(keys: &str, act: impl Fn(&Disk) + Sync) {
    let disks = disks(keys);
    thread::scope(|scope| {
        for disk in disks.iter().filter(|disk| can_act(&disk.spec, keys)) {
            let act = &act;
            scope.spawn(move || act(&open(&disk.spec)));
        }
    });
}

/// Opens a disk of each engine on the block device.
pub(crate) fn disks_on(device: &LoopDevice, keys: &str) -> Vec<Disk> {
    let spec = |driver: &str, nr| spec(driver, &device.node, &with_contexts(keys, nr));
    let of = |driver: &&str| [1, 2].map(|nr| open(&spec(driver, nr)));
    ENGINES.iter().flat_map(of).collect()
}

/// Returns whether other requests may be at the device beside a flush.
pub(crate) fn overlaps_flushes(disk: &Disk) -> bool {
    disk.info().limits.flush_queueable
}

/// Returns whether a read returns the data that was written.
pub(crate) fn moves_data(disk: &Disk) -> bool {
    !disk.info().spec.contains("null")
}

/// Asserts that something took this long: not less, and not nearly as long as a slow request.
pub(crate) fn assert_took(begin: Instant, limit: Duration, disk: &Disk) {
    let took = begin.elapsed();
    assert!(limit <= took && took < SLOW / 2, "{}: {took:?}", disk.info().spec);
}

/// Waits until other threads have issued `nr` requests.
pub(crate) fn await_issues(disk: &Disk, nr: u64) {
    while disk.stats().queue.issued < nr {
        thread::yield_now();
    }
}
