//! Scripts over `fault:`, which makes write-backs fail.

use crate::common::{Numbers, Scratch};
use crate::scripts::worker::{Ended, Kind};
use crate::scripts::{self, Counts, ENGINES, PAGE, Storage, oracle};
use forebay::{Buf, Disk};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Size of the disks, in bytes.
const LEN: u64 = 4 << 20;

/// Memory or a file behind `fault:`. A write that matches a fault rule never reaches it.
struct Faulty {
    /// The file and its engine; `None` for memory.
    file: Option<(Scratch, &'static str)>,
    fua: bool,
    /// Operations and effect, in the syntax of a rule.
    fault: &'static str,
    /// Whether no write-back fails.
    is_quiet: bool,
}

impl Faulty {
    /// Returns the storage of this seed, with write-backs that fail.
    fn new(engine: Option<&'static str>, seed: u64) -> Faulty {
        let file = engine.map(|engine| (Scratch::new(LEN), engine));
        let is_quiet = (seed / 6).is_multiple_of(8);
        Faulty { file, fua: (seed / 3).is_multiple_of(2), fault: "write:writeback=io", is_quiet }
    }
}

impl Storage for Faulty {
    fn spec(&self, numbers: &mut Numbers) -> String {
        let Faulty { file, fua, fault, is_quiet } = self;
        let target = match file {
            Some((file, engine)) => format!("{}?engine={engine}", file.path.display()),
            None => format!("ram:{LEN}?"),
        };
        let fua = if *fua { "on" } else { "off" };
        let rate = match is_quiet {
            true => "0",
            false => ["0.02", "0.2"][numbers.below(2) as usize],
        };
        let late = ["", "&rule=flush:delay=200us:nth=2"][numbers.below(2) as usize];
        let seed = numbers.below(1 << 32);
        let direct = if file.is_some() && numbers.below(4) == 0 { "&direct=on" } else { "" };
        // A read of the first page makes another program sync the file. No script writes that page:
        // the last rule makes the disk a file in a page cache, independent of `fault`.
        format!(
            "fault:{target}&fua={fua}&nr_hw_queues=4&seed={seed}{direct}\
             &rule={fault}:rate={rate}&rule=read:foreign_sync:range=0+512{late}\
             &rule=write:writeback=io:range=0+512"
        )
    }

    fn is_shared(&self) -> bool {
        self.file.is_some()
    }

    fn page_distance(&self) -> u64 {
        1
    }

    fn fails_writes(&self) -> bool {
        false
    }

    fn stores(&self, disk: &Disk, page: u64, value: u64) -> bool {
        let mut stored = Buf::new(PAGE);
        let offset = page * PAGE as u64;
        match &self.file {
            Some((file, _)) => {
                let file = File::open(&file.path).expect("the file");
                file.read_exact_at(&mut stored, offset).expect("a read");
            }
            None => {
                disk.read_at(&mut stored, offset).expect("a read");
            }
        }
        *stored == *oracle::content(value)
    }

    fn disturb(&self, disk: &Disk, _: &mut Numbers) {
        disk.read_at(&mut Buf::new(PAGE), 0).expect("a read");
    }

    /// The failed writes are those that are not stored. (A write whose preflush failed was never
    /// issued.)
    fn nr_failed(&self, disk: &Disk, ended: &[Ended]) -> u64 {
        let is_struck = |ended: &&Ended| {
            let is_made = ended.result.is_ok() || matches!(ended.kind, Kind::WriteFua { .. });
            let written = ended.kind.written().filter(|_| is_made);
            written.is_some_and(|(page, value)| !self.stores(disk, page, value))
        };
        ended.iter().filter(is_struck).count() as u64
    }

    fn heal(&self) {}
}

/// Runs the scripts of a test, `nr_scripts` by default.
fn run_all(test: &str, nr_scripts: u64, engine: Option<&'static str>) -> Counts {
    let test = format!("scripts::over_fault::{test}");
    scripts::run_all(&test, nr_scripts, |seed| Some(scripts::run(&Faulty::new(engine, seed), seed)))
}

#[test]
fn memory_keeps_acknowledged_durability() {
    run_all("memory_keeps_acknowledged_durability", 100, None);
}

#[track_caller]
fn check_file(test: &str, nr_scripts: u64, engine: &'static str) {
    let counts = run_all(test, nr_scripts, Some(engine));
    let is_met = counts.second_disks > 0 && counts.early_closes > 0;
    assert!(is_met || counts.scripts < nr_scripts, "{counts:?}");
}

#[test]
fn file_through_io_uring_keeps_acknowledged_durability() {
    check_file("file_through_io_uring_keeps_acknowledged_durability", 60, ENGINES[0]);
}

#[test]
fn file_through_aio_keeps_acknowledged_durability() {
    // Runs fewer scripts: the kernel needs up to 50 ms to destroy an AIO context.
    check_file("file_through_aio_keeps_acknowledged_durability", 12, ENGINES[1]);
}

#[test]
fn file_through_psync_keeps_acknowledged_durability() {
    check_file("file_through_psync_keeps_acknowledged_durability", 60, ENGINES[2]);
}

/// Runs up to 20 scripts on a disk that breaks a rule of the model. Asserts that one of them fails
/// for this reason.
#[track_caller]
fn check_found(fault: &'static str, reason: &str) {
    let run = |seed| {
        let storage = Faulty { file: None, fua: true, fault, is_quiet: false };
        scripts::run(&storage, seed).err()
    };
    let mut failures = (0..20).filter_map(run);
    assert!(failures.any(|failure| failure.contains(reason)), "20 scripts find the fault");
}

#[test]
fn script_finds_a_lost_write_that_no_flush_reports() {
    check_found("write:lie", "unreported loss: ");
}

#[test]
fn script_finds_a_flush_that_fails_without_a_failed_write_back() {
    check_found("flush:io", "no reason: a flush failed, and no write-back did");
}
