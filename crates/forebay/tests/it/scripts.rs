//! Random scripts of failed write-backs on every engine, checked by a model of durability.
//!
//! A script is a random sequence of steps on one file: writes, FUA writes, preflushes and flushes
//! by several threads; threads that begin, and so open the file late, and end; second disks on the
//! file; disks that are closed with writes not yet durable; acknowledgements of losses; failed
//! write-backs; and other programs that sync the file and so get its error. [`oracle`] has the
//! rules that every step is checked against.
//!
//! - [`over_fault`]: the driver `fault:` lets write-backs fail, on memory and on files through each
//!   engine. Needs no privilege.
//! - [`over_kernel`]: the kernel's write-back fails, on a block device whose storage is full for a
//!   while, through each engine. Needs root.
//!
//! A seed gives a script and its kind of storage. A script that fails prints its seed and its
//! steps; `FOREBAY_SCRIPTS_SEED=N FOREBAY_SCRIPTS=1` runs that script again. `FOREBAY_SCRIPTS` is
//! the number of scripts of each test, `FOREBAY_SCRIPTS_SEED` the first seed. The steps are the
//! same each time. The interleaving of threads that run at once is not.

mod oracle;
mod over_fault;
mod over_kernel;
mod worker;

use crate::common::{Numbers, open};
use forebay::{BlockStatus, Disk};
use oracle::{Failure, Pages, Reasons, State};
use std::collections::HashSet;
use worker::{Ended, Kind, Worker};

pub(crate) const PAGE: usize = 4096;

/// The engines that every kind of script runs through.
pub(crate) const ENGINES: [&str; 3] = ["io_uring", "aio", "psync"];

const NR_STEPS: u64 = 40;

/// The thread number of blocking calls; [`Worker`]s have numbers from 1.
const MAIN: u64 = 0;

/// Limit of the final flushes that may fail. Each failure acknowledges a loss ([`Reasons`] bounds
/// their number).
const NR_LAST_FLUSHES: u32 = 40;

/// Storage for one file of a script.
pub(crate) trait Storage {
    /// Returns the spec of a disk on it, which may vary from disk to disk.
    fn spec(&self, numbers: &mut Numbers) -> String;

    /// Returns whether several disks may be opened on it, one after another or at once.
    fn is_shared(&self) -> bool;

    /// Returns the distance between the pages that scripts write, in pages.
    fn page_distance(&self) -> u64;

    /// Returns whether a plain write may fail.
    fn fails_writes(&self) -> bool;

    /// Returns whether a page on stable storage has this value.
    fn stores(&self, disk: &Disk, page: u64, value: u64) -> bool;

    /// Makes a write-back fail, or lets another program sync the file, or similar.
    fn disturb(&self, disk: &Disk, numbers: &mut Numbers);

    /// Returns how many write-backs failed, or may have, in the step that submitted these writes.
    fn nr_failed(&self, disk: &Disk, ended: &[Ended]) -> u64;

    /// Ends the failures.
    fn heal(&self);
}

/// Counts of the situations that scripts are meant to reach.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    scripts: u64,
    /// Writes that a flush covered.
    covered: u64,
    /// Writes of acknowledged losses that are not stored.
    lost: u64,
    acknowledged: u64,
    failed_flushes: u64,
    /// First uses of a disk by a thread while writes are not durable.
    late_opens: u64,
    second_disks: u64,
    /// Disks that were closed while writes are not durable.
    early_closes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.scripts += other.scripts;
        self.covered += other.covered;
        self.lost += other.lost;
        self.acknowledged += other.acknowledged;
        self.failed_flushes += other.failed_flushes;
        self.late_opens += other.late_opens;
        self.second_disks += other.second_disks;
        self.early_closes += other.early_closes;
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs the scripts of `test`: `default` of them unless the environment sets another number.
/// `run_one` runs the script of one seed, or returns `None` if it cannot run.
///
/// # Panics
/// If a script fails, with its seed and steps; or if many scripts reached too few situations.
#[allow(clippy::print_stdout, reason = "libtest prints it if the test fails")]
fn run_all(
    test: &str,
    default: u64,
    mut run_one: impl FnMut(u64) -> Option<Result<Counts, String>>,
) -> Counts {
    let seed = number("FOREBAY_SCRIPTS_SEED");
    let first = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20);
    let nr_scripts = number("FOREBAY_SCRIPTS").unwrap_or(default);
    let mut counts = Counts::default();
    for nth in 0..nr_scripts {
        let seed = first.wrapping_add(nth);
        match run_one(seed) {
            Some(Ok(more)) => counts += more,
            Some(Err(why)) => panic!(
                "script {} of {nr_scripts}: {why}\nto run this script again: \
                 FOREBAY_SCRIPTS_SEED={seed} FOREBAY_SCRIPTS=1 cargo test -p forebay --test it \
                 {test} -- --exact",
                nth + 1
            ),
            None => return Counts::default(),
        }
    }
    println!("from seed {first}: {counts:?}");
    let Counts { covered, lost, acknowledged, late_opens, .. } = counts;
    let is_met = covered > 0 && lost > 0 && acknowledged > 0 && late_opens > 0;
    assert!(is_met || nr_scripts < default, "{counts:?}");
    counts
}

/// A disk, and the number by which threads identify it.
struct OpenDisk {
    number: usize,
    disk: Disk,
}

struct Script<'a> {
    storage: &'a dyn Storage,
    numbers: Numbers,
    disks: Vec<OpenDisk>,
    workers: Vec<Worker>,
    pages: Pages,
    reasons: Reasons,
    nr_disks: usize,
    nr_workers: u64,
    /// Number of pages that were written. They begin after the first page of the file.
    nr_pages: u64,
    /// The pages written in this step.
    used: Vec<u64>,
    /// The disks that each thread has used.
    uses: HashSet<(u64, usize)>,
    counts: Counts,
    log: Vec<String>,
}

/// Runs the script of a seed.
///
/// # Errors
/// The broken rule, and the steps.
fn run(storage: &dyn Storage, seed: u64) -> Result<Counts, String> {
    let mut script = Script {
        storage,
        numbers: Numbers(seed),
        disks: Vec::new(),
        workers: Vec::new(),
        pages: Pages::default(),
        reasons: Reasons::default(),
        nr_disks: 0,
        nr_workers: 0,
        nr_pages: 0,
        used: Vec::new(),
        uses: HashSet::new(),
        counts: Counts::default(),
        log: Vec::new(),
    };
    script.open();
    let steps = (0..NR_STEPS).try_for_each(|_| script.step());
    let verdict = steps.and_then(|()| script.finish());
    let (covered, lost) = script.pages.counts();
    let log = script.log.join("\n  ");
    match verdict {
        Ok(()) => Ok(Counts { scripts: 1, covered, lost, ..script.counts }),
        Err(why) => Err(format!("{why}\nsteps:\n  {log}")),
    }
}

impl Script<'_> {
    fn pick(&mut self, len: usize) -> usize {
        self.numbers.below(len as u64) as usize
    }

    /// Returns the disk through which the script checks the storage.
    fn first(&self) -> &Disk {
        &self.disks[0].disk
    }

    fn open(&mut self) {
        let spec = self.storage.spec(&mut self.numbers);
        self.log.push(format!("open disk {}: {spec}", self.nr_disks));
        self.disks.push(OpenDisk { number: self.nr_disks, disk: open(&spec) });
        self.nr_disks += 1;
        self.counts.second_disks += u64::from(self.disks.len() > 1);
    }

    fn close(&mut self) {
        let nth = self.pick(self.disks.len());
        let OpenDisk { number, disk } = self.disks.remove(nth);
        self.log.push(format!("close disk {number}"));
        self.counts.early_closes += u64::from(self.pages.newest_point() > 0);
        self.workers.iter().for_each(|worker| worker.close(number));
        drop(disk);
        if self.disks.is_empty() {
            self.pages.forget_points();
            self.open();
        }
    }

    fn begin_thread(&mut self) {
        self.nr_workers += 1;
        self.log.push(format!("thread {} begins", self.nr_workers));
        self.workers.push(Worker::start(self.nr_workers));
    }

    fn step(&mut self) -> Result<(), String> {
        self.used.clear();
        match self.numbers.below(20) {
            0 if self.storage.is_shared() && self.disks.len() < 3 => self.open(),
            1 if self.storage.is_shared() => self.close(),
            2 | 3 if self.workers.len() < 5 => self.begin_thread(),
            3 | 4 if !self.workers.is_empty() => {
                let nth = self.pick(self.workers.len());
                let worker = self.workers.remove(nth);
                self.log.push(format!("thread {} ends", worker.number));
            }
            5..8 => self.acknowledge(),
            8 | 9 => self.call()?,
            10 | 11 => self.disturb_alone(),
            12 | 13 => self.first_sync()?,
            _ => self.batches()?,
        }
        self.check_durable_points()
    }

    fn disturb(&mut self) {
        self.log.push(String::from("disturb the file"));
        self.storage.disturb(&self.disks[0].disk, &mut self.numbers);
    }

    /// Disturbs the storage while no I/O runs.
    fn disturb_alone(&mut self) {
        self.disturb();
        let nr_failed = self.storage.nr_failed(self.first(), &[]);
        self.reasons.write_backs_failed(nr_failed);
    }

    fn note_use(&mut self, thread: u64, disk: usize) {
        let is_late = self.uses.insert((thread, disk)) && self.pages.newest_point() > 0;
        self.counts.late_opens += u64::from(is_late);
    }

    /// Runs I/O of several threads at once, and perhaps a disturbance meanwhile.
    fn batches(&mut self) -> Result<(), String> {
        if self.workers.is_empty() {
            self.begin_thread();
        }
        let before = self.pages.newest_point();
        let had_loss = self.first().lost_writes().is_some();
        let nr_workers = self.workers.len().min(1 + self.pick(3));
        let first = self.pick(self.workers.len());
        let mut by = None;
        for nth in 0..nr_workers {
            let kinds: Vec<Kind> = (0..1 + self.numbers.below(6)).map(|_| self.kind()).collect();
            let at = self.pick(self.disks.len());
            let is_plugged = self.numbers.below(2) == 0;
            let worker = &self.workers[(first + nth) % self.workers.len()];
            let OpenDisk { number, disk } = &self.disks[at];
            self.log.push(format!("thread {}, disk {number}: {kinds:?}", worker.number));
            worker.begin(*number, disk, kinds, is_plugged);
            by = Some((worker.number, *number));
            self.note_use(worker.number, *number);
        }
        if self.numbers.below(4) == 0 {
            self.disturb();
        }
        let nr_all = self.workers.len();
        let workers = (0..nr_workers).map(|nth| &self.workers[(first + nth) % nr_all]);
        let ended: Vec<Ended> = workers.flat_map(Worker::ended).collect();
        self.log.push(format!("completed: {ended:?}"));
        let by = by.filter(|_| nr_workers == 1);
        self.take(before, &Failure { by, had_loss }, &ended)
    }

    /// Makes a blocking call on this thread.
    fn call(&mut self) -> Result<(), String> {
        let kind = self.kind();
        let at = self.pick(self.disks.len());
        self.call_on(at, kind)
    }

    fn call_on(&mut self, at: usize, kind: Kind) -> Result<(), String> {
        let before = self.pages.newest_point();
        let had_loss = self.first().lost_writes().is_some();
        let OpenDisk { number, disk } = &self.disks[at];
        let ended = worker::call(disk, kind);
        self.log.push(format!("blocking call, disk {number}: {ended:?}"));
        let by = Some((MAIN, *number));
        self.take(before, &Failure { by, had_loss }, &[ended])
    }

    /// Runs a write, a disturbance, and the first sync after it: a FUA write, a flush by a new
    /// thread, or a flush by the same thread.
    fn first_sync(&mut self) -> Result<(), String> {
        let at = self.pick(self.disks.len());
        let (page, value) = self.write();
        self.call_on(at, Kind::Write { page, value })?;
        self.disturb_alone();
        match self.numbers.below(3) {
            0 => {
                let (page, value) = self.write();
                self.call_on(at, Kind::WriteFua { page, value })?;
            }
            1 if self.workers.len() < 5 => {
                self.begin_thread();
                self.flush_by_newest(at)?;
            }
            _ => {}
        }
        self.call_on(at, Kind::Flush)
    }

    fn flush_by_newest(&mut self, at: usize) -> Result<(), String> {
        let before = self.pages.newest_point();
        let had_loss = self.first().lost_writes().is_some();
        let worker = self.workers.last().expect("a thread began");
        let OpenDisk { number, disk } = &self.disks[at];
        worker.begin(*number, disk, vec![Kind::Flush], false);
        let ended = worker.ended();
        let (by, disk) = ((worker.number, *number), *number);
        self.log.push(format!("thread {}, disk {disk}: {ended:?}", by.0));
        self.note_use(by.0, disk);
        self.take(before, &Failure { by: Some(by), had_loss }, &ended)
    }

    fn kind(&mut self) -> Kind {
        let is_write = self.numbers.below(8) < 6;
        if !is_write {
            let points = self.pages.points();
            return match self.numbers.below(4) {
                0 if !points.is_empty() => Kind::FlushUpTo(points[self.pick(points.len())]),
                1 => Kind::Fsync,
                _ => Kind::Flush,
            };
        }
        let (page, value) = self.write();
        match self.numbers.below(8) {
            0..2 => Kind::WriteFua { page, value },
            2 => Kind::WritePreflush { page, value },
            _ => Kind::Write { page, value },
        }
    }

    /// Returns the page and the value of the next write.
    fn write(&mut self) -> (u64, u64) {
        // A step writes each page once: a new page, or one from an earlier step.
        let distance = self.storage.page_distance();
        let old = self.numbers.below(self.nr_pages + 1) * distance;
        let is_old = old > 0 && self.numbers.below(4) == 0 && !self.used.contains(&old);
        self.nr_pages += u64::from(!is_old);
        let page = if is_old { old } else { self.nr_pages * distance };
        self.used.push(page);
        (page, self.pages.begin(page))
    }

    /// Checks the results of a step. `before` was the newest point when it began.
    fn take(&mut self, before: u64, failure: &Failure, ended: &[Ended]) -> Result<(), String> {
        self.reasons.write_backs_failed(self.storage.nr_failed(&self.disks[0].disk, ended));
        let has_failed = |ended: &&Ended| ended.result.is_err();
        if let Some(ended) = ended.iter().find(has_failed) {
            self.counts.failed_flushes += 1;
            let why = |why| format!("{:?}: {why}", ended.kind);
            self.reasons.check(failure).map_err(why)?;
        }
        for &Ended { kind, result, point } in ended {
            match (kind, result) {
                (_, Err(BlockStatus::Io | BlockStatus::NoSpace))
                    if self.storage.fails_writes() || !matches!(kind, Kind::Write { .. }) => {}
                (_, Err(status)) => return Err(format!("{kind:?} ended with {status}")),
                (Kind::Flush | Kind::Fsync | Kind::WritePreflush { .. }, Ok(_)) if before > 0 => {
                    self.cover(before, &format!("{kind:?}"))?;
                }
                (Kind::FlushUpTo(point), Ok(_)) => self.cover(point, &format!("{kind:?}"))?,
                _ => {}
            }
            let (Some((page, value)), Ok(len)) = (kind.written(), result) else { continue };
            let is_fua = matches!(kind, Kind::WriteFua { .. });
            match len == PAGE as u64 {
                true if is_fua => self.pages.end(page, value, State::Durable),
                true => self.pages.end(page, value, State::Completed(point)),
                false => return Err(format!("{kind:?} wrote {len} bytes only")),
            }
        }
        self.pages.check(&self.disks[0].disk, self.storage)
    }

    fn cover(&mut self, up_to: u64, why: &str) -> Result<(), String> {
        let covered = self.pages.cover(up_to, &self.disks[0].disk, self.storage);
        covered.map_err(|broken| {
            format!("unreported loss: {why} covers points up to {up_to}, but {broken}")
        })
    }

    /// Checks everything that a disk claims to be durable.
    fn check_durable_points(&mut self) -> Result<(), String> {
        let points = self.pages.points();
        for nth in 0..self.disks.len() {
            let disk = &self.disks[nth].disk;
            let newest = points.iter().copied().filter(|point| disk.is_durable(*point)).max();
            if let Some(newest) = newest {
                self.cover(newest, "is_durable")?;
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self) {
        let nth = self.pick(self.disks.len());
        let disk = &self.disks[nth].disk;
        if let Some(lost) = disk.acknowledge_loss() {
            self.log.push(format!("acknowledge {lost:?}"));
            self.counts.acknowledged += 1;
            self.pages.acknowledge(lost, disk, self.storage);
        }
    }

    /// Flushes every disk until that succeeds, and acknowledges the losses on the way.
    fn finish(&mut self) -> Result<(), String> {
        self.storage.heal();
        self.log.push(String::from("no more failures"));
        for nth in 0..self.disks.len() {
            self.finish_disk(nth)?;
        }
        Ok(())
    }

    fn finish_disk(&mut self, nth: usize) -> Result<(), String> {
        for _ in 0..NR_LAST_FLUSHES {
            let before = self.pages.newest_point();
            let had_loss = self.first().lost_writes().is_some();
            let OpenDisk { number, disk } = &self.disks[nth];
            let ended = worker::call(disk, Kind::Flush);
            self.log.push(format!("last flush, disk {number}: {ended:?}"));
            let by = Some((MAIN, *number));
            self.take(before, &Failure { by, had_loss }, &[ended])?;
            if ended.result.is_ok() {
                return Ok(());
            }
            self.acknowledge();
        }
        Err(String::from("the last flushes fail forever"))
    }
}
