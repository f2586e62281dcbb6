//! Readers of counters, and the list of the disks that this process has open.

use crate::info::{DiskInfo, DiskStats};
use crate::runtime::meters::Meters;
use crate::sys::clock;
use crate::sys::fork::PerProcess;
use forebay_core::{Limits, Owner, OwnerActivity, OwnerStats, Scheduling};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The counters of all disks that this process has opened. A child of a fork starts with none.
static OPEN: PerProcess<Open> = PerProcess::new();

/// See [`OPEN`].
#[derive(Default)]
struct Open {
    /// The oldest first.
    disks: Vec<Weak<Meters>>,
    nr_opened: u64,
}

/// Adds a disk that was just opened.
pub(crate) fn list(meters: &Arc<Meters>) {
    let mut open = OPEN.lock();
    open.disks.retain(|meters| meters.strong_count() > 0);
    open.nr_opened += 1;
    meters.set_number(open.nr_opened);
    open.disks.push(Arc::downgrade(meters));
}

/// Returns a reader of each disk that this process has open, the oldest first. It includes disks
/// that other code of the process has opened. For programs that report what all disks do.
///
/// ```
/// use forebay::{Disk, open_disks};
///
/// let disk = Disk::open("ram:1M")?;
/// disk.write_all_at(&[7; 4096], 0)?;
/// let meter = open_disks().into_iter().find(|meter| meter.info().spec == "ram:1M");
/// let meter = meter.ok_or("no such disk")?;
/// assert!(meter.stats().counters().any(|counter| counter == ("write_bytes", 4096)));
/// drop(disk);
/// assert!(meter.is_closed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_disks() -> Vec<DiskMeter> {
    let open = OPEN.lock();
    let all = open.disks.iter().filter_map(Weak::upgrade);
    all.filter(|meters| !meters.is_closed()).map(DiskMeter).collect()
}

/// A reader of the counters of a disk. It does not keep the disk open, and may outlive it: then the
/// counters do not change any more. From [`Disk::meter`](crate::Disk::meter) and [`open_disks`].
#[derive(Clone, Debug)]
pub struct DiskMeter(Arc<Meters>);

impl DiskMeter {
    pub(crate) fn new(meters: Arc<Meters>) -> DiskMeter {
        DiskMeter(meters)
    }

    /// Returns the number of the disk: the first that the process has opened is 1, and no number is
    /// used again.
    pub fn number(&self) -> u64 {
        self.0.number()
    }

    /// Returns the properties of the disk, as it was opened.
    pub fn info(&self) -> &DiskInfo {
        self.0.info()
    }

    /// Returns the counters since the disk was opened, as [`Disk::stats`](crate::Disk::stats) does,
    /// without those of the worker of an emulated system (`run_queue=always`).
    pub fn stats(&self) -> DiskStats {
        self.0.stats()
    }

    /// Returns the size in bytes, or `None` for a file that grows.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.0.size().get()
    }

    /// Returns the present scheduler, with its settings.
    pub fn scheduling(&self) -> Scheduling {
        self.0.scheduling()
    }

    /// Returns whether the device is gone: see [`Disk::is_failed`](crate::Disk::is_failed).
    pub fn is_failed(&self) -> bool {
        self.0.is_failed()
    }

    /// Returns whether the disk is closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns readers of all owners of the disk, in no particular order.
    pub fn owners(&self) -> Vec<OwnerMeter> {
        self.0.owners().into_iter().map(OwnerMeter).collect()
    }
}

/// A reader of the counters of an [`Owner`](crate::Owner). It does not keep its disk open.
#[derive(Clone, Debug)]
pub struct OwnerMeter(Arc<Owner>);

impl OwnerMeter {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the name of the owner above this one. `None` if there is none.
    pub fn parent(&self) -> Option<&str> {
        Some(self.0.parent()?.name())
    }

    /// Returns the weight.
    pub fn weight(&self) -> u32 {
        self.0.weight()
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        self.0.limits()
    }

    /// Returns the counters, without those of owners below.
    pub fn stats(&self) -> OwnerStats {
        self.0.stats()
    }

    /// Counts I/O of the owner that starts within this time, from its start to its end. A counted
    /// I/O costs about 200 instructions more. So an observer passes a few seconds, and calls this
    /// again while it goes on. A call with less time than another one has left changes nothing.
    ///
    /// ```
    /// use forebay::Disk;
    /// use std::time::Duration;
    ///
    /// let disk = Disk::open("ram:1M")?;
    /// let tenant = disk.owner("tenant")?;
    /// let meter = disk.meter().owners().remove(0);
    /// tenant.write_at(&[7; 4096], 0)?;
    /// meter.watch(Duration::from_secs(10));
    /// tenant.write_at(&[7; 4096], 0)?;
    /// let activity = meter.activity();
    /// assert_eq!((activity.in_flight, activity.total.count()), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(&self, time: Duration) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.watch(clock::now_ns().saturating_add(time_ns));
    }

    /// Returns the I/O that was counted because of [`watch`](OwnerMeter::watch), without that of
    /// owners below.
    pub fn activity(&self) -> OwnerActivity {
        self.0.activity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk;

    fn numbers(spec: &str) -> Vec<u64> {
        let all = open_disks().into_iter().filter(|meter| meter.info().spec == spec);
        all.map(|meter| meter.number()).collect()
    }

    #[test]
    fn list_has_open_disks_only_and_each_has_a_number_of_its_own() {
        let spec = "null:1M?nr_requests=7";
        let [one, two] = [(); 2].map(|()| Disk::open(spec).expect("it opens"));
        let all = numbers(spec);
        assert_eq!(all, [one.meter().number(), two.meter().number()]);
        assert!(0 < all[0] && all[0] < all[1], "{all:?}");
        drop(one);
        assert_eq!(numbers(spec), all[1..]);
        let again = Disk::open(spec).expect("it opens");
        assert!(again.meter().number() > all[1], "numbers are not used again");
    }

    #[test]
    fn meter_outlives_its_disk_with_the_last_counts() {
        let disk = Disk::open("ram:1M").expect("it opens");
        let owner = disk.owner("tenant").expect("an owner");
        owner.write_at(&[1; 4096], 0).expect("a write");
        let meter = disk.meter();
        let before = meter.stats().queue.issued;
        let owners = meter.owners();
        assert_eq!((owners[0].name(), owners[0].stats().bytes), ("tenant", 4096));
        drop((disk, owner));
        assert!(meter.is_closed());
        assert_eq!((before, meter.stats().queue.issued, meter.stats().in_flight), (1, 1, 0));
    }

    #[test]
    fn activity_of_a_watched_owner_has_each_io_once() {
        let disk = Disk::open("ram:1M?req_ns=30000000&nr_hw_queues=1").expect("it opens");
        let owners = ["one", "two"].map(|name| disk.owner(name).expect("an owner"));
        let meters = disk.meter().owners();
        let counts = || {
            let activity = meters.iter().map(OwnerMeter::activity);
            activity.map(|it| (it.in_flight, it.total.count())).collect::<Vec<_>>()
        };
        owners[0].write_at(&[1; 4096], 0).expect("a write");
        assert_eq!(counts(), [(0, 0), (0, 0)]);
        meters.iter().for_each(|meter| meter.watch(Duration::from_secs(600)));
        let mut queue = disk.queue();
        for (owner, block) in [(0, 0), (1, 10), (0, 20), (0, 30)] {
            let read = crate::Io::read(crate::Buf::new(512), block * 4096);
            queue.submit(read.origin(owners[owner].origin())).expect("a read");
        }
        assert_eq!(counts(), [(3, 0), (1, 0)]);
        queue.reap(4, 4, &mut Vec::new());
        assert_eq!(counts(), [(0, 3), (0, 1)]);
        let plug = crate::plug();
        for block in [0, 10, 20] {
            let read = crate::Io::read(crate::Buf::new(512), block * 4096);
            queue.submit(read.origin(owners[1].origin())).expect("a read");
        }
        assert_eq!(counts(), [(0, 3), (0, 1)], "they are in the plug");
        drop(plug);
        assert_eq!(counts(), [(0, 3), (3, 1)]);
        queue.reap(3, 3, &mut Vec::new());
        let activity = meters[1].activity();
        assert_eq!((counts(), activity.driver.count()), (vec![(0, 3), (0, 4)], 4));
        assert!(activity.driver.sum() >= 4 * 30_000_000, "{}", activity.driver.sum());
        assert!(activity.total.sum() >= activity.driver.sum());
    }

    #[test]
    fn meter_counts_what_its_disk_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.img");
        std::fs::write(&path, [0; 1 << 16]).expect("a file");
        for driver in ["", "psync:", "aio:"] {
            let disk = Disk::open(&format!("{driver}{}", path.display())).expect("it opens");
            disk.write_all_at(&[7; 4096], 4096).expect("a write");
            disk.read_at(&mut [0; 512], 0).expect("a read");
            disk.flush().expect("a flush");
            let counted = |stats: DiskStats| stats.counters().collect::<Vec<_>>();
            assert_eq!(counted(disk.stats()), counted(disk.meter().stats()), "{driver}");
        }
    }

    #[test]
    fn requests_at_the_driver_are_in_flight() {
        let disk = Disk::open("ram:1M?req_ns=50000000&nr_hw_queues=1").expect("it opens");
        let mut queue = disk.queue();
        for n in 0..3 {
            queue.submit(crate::Io::read(crate::Buf::new(512), n * 8192)).expect("a read");
        }
        assert_eq!(disk.stats().in_flight, 3);
        queue.reap(3, 3, &mut Vec::new());
        assert_eq!(disk.stats().in_flight, 0);
    }
}
