//! The figure `aio`: fio's libaio engine and sysbench, unmodified, under `forebay run` and without.
//!
//! Side A is the same command under `forebay run`, and its counters must show iocbs. The
//! processor time is that of all processes of a run, including start-up.
//!
//! Some loads are on a file whose flushes take a set time ([`SlowFile`]), one at a time. Let n
//! threads write and flush. Plain, each flush serves one thread. If concurrent flushes are shared,
//! a thread waits for the rest of the flush in front of its own, and then for its own. So a thread
//! writes once in two flushes, and the ratio is about n / 2. Writes do not overlap with flushes on
//! this file, so the processor time w of a write, 10 to 30 us, lowers the ratio: n * w comes on
//! top of two flushes. The aims are half of n / 2, and less where n * w is half of a flush or more.
//! The processor time of the file system is in neither side.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_slowfs::SlowFile;
use tempfile::TempDir;

use crate::Options;
use crate::measure::{self, Sample, say};
use crate::process::cpu_time_of_children;
use crate::table::{self, Aim, Row, What};

/// The name that selects this table.
pub(crate) const NAME: &str = "aio";

/// The name that selects its loads on a file with slow flushes.
pub(crate) const FLUSH_NAME: &str = "aio-flush";

/// A load of both sides.
struct Load {
    title: &'static str,
    program: Program,
    options: &'static str,
    aim: Aim,
    /// The time of a flush, on a file where it is set.
    flush: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Fio,
    Sysbench,
}

const fn fio(title: &'static str, options: &'static str, aim: Aim) -> Load {
    Load { title, program: Program::Fio, options, aim, flush: None }
}

const fn sysbench(title: &'static str, options: &'static str, aim: Aim) -> Load {
    Load { title, program: Program::Sysbench, options, aim, flush: None }
}

/// sysbench with `fsync` after each random write, where a flush takes this time.
macro_rules! slow {
    ($threads:literal, $time:literal, $us:literal, $ratio:literal) => {
        Load {
            flush: Some(Duration::from_micros($us)),
            ..sysbench(
                concat!(
                    "sysbench, random writes, ",
                    $threads,
                    " threads, fsync each, flush of ",
                    $time
                ),
                concat!("--file-test-mode=rndwr --threads=", $threads),
                Aim::AtLeast($ratio),
            )
        }
    };
}

const EQUAL: Aim = Aim::Reaches(1.0);

const LOADS: [Load; 17] = [
    fio("sequential reads one by one, depth 128", "--rw=read --iodepth=128", Aim::AtLeast(2.0)),
    fio("sequential reads one by one, depth 32", "--rw=read --iodepth=32", Aim::None),
    fio(
        "sequential reads in batches of 16, depth 128",
        "--rw=read --iodepth=128 --iodepth_batch=16 --iodepth_batch_complete_min=16",
        EQUAL,
    ),
    fio("random reads, depth 1", "--rw=randread --iodepth=1", EQUAL),
    fio("random reads, depth 32", "--rw=randread --iodepth=32", EQUAL),
    fio("sequential writes one by one, depth 32", "--rw=write --iodepth=32", EQUAL),
    fio(
        "sequential writes in batches of 16, depth 32",
        "--rw=write --iodepth=32 --iodepth_batch=16 --iodepth_batch_complete_min=16",
        EQUAL,
    ),
    fio("random writes, depth 32", "--rw=randwrite --iodepth=32", EQUAL),
    sysbench(
        "sysbench, sequential rewrites, 16 threads, fsync each",
        "--file-test-mode=seqrewr --threads=16",
        EQUAL,
    ),
    sysbench(
        "sysbench, random writes, 16 threads, fsync each",
        "--file-test-mode=rndwr --threads=16",
        EQUAL,
    ),
    sysbench(
        "sysbench, random writes, 64 threads, fsync each",
        "--file-test-mode=rndwr --threads=64",
        EQUAL,
    ),
    slow!(16, "200 us", 200, 3.0),
    slow!(64, "200 us", 200, 5.0),
    slow!(16, "1 ms", 1000, 4.0),
    slow!(64, "1 ms", 1000, 10.0),
    slow!(16, "5 ms", 5000, 4.0),
    slow!(64, "5 ms", 5000, 16.0),
];

/// The options of sysbench that select its file.
const SYSBENCH_FILE: &str = "fileio --file-num=1 --file-total-size=256M";
const SYSBENCH_SIZE: u64 = 256 << 20;

/// The name that sysbench gives its file.
const SYSBENCH_NAME: &str = "test_file.0";

/// Measures the loads that the options select, and returns the table.
pub(crate) fn render(forebay: &Path, options: &Options) -> Result<String> {
    measure::build_preloaded()?;
    let file = std::path::absolute(&options.file)?;
    let folder = tempfile::tempdir_in(file.parent().context("a file is in a folder")?)?;
    let side = Side { forebay, file: &file, folder: folder.path(), seconds: options.seconds };
    side.prepare_sysbench()?;
    let mut rows = Vec::new();
    let all = options.names == [NAME];
    for load in LOADS.iter().filter(|load| all || load.flush.is_some()) {
        let slow = match load.flush.map(|flush| Slow::new(flush, side.folder)).transpose() {
            Ok(slow) => slow,
            Err(reason) => {
                say(&format!("{NAME}: {}: SKIPPED: {reason:#}", load.title));
                continue;
            }
        };
        let folder = slow.as_ref().map_or(side.folder, |slow| slow.folder.path());
        let mut pairs: Vec<(Sample, Sample)> = Vec::new();
        // The first pair is a warm-up; its figures do not count.
        for nth in 0..=options.pairs {
            say(&format!("{NAME}: {}: pair {nth} of {}", load.title, options.pairs));
            pairs.push((side.measure(load, folder, true)?, side.measure(load, folder, false)?));
        }
        let row = |what: What, aim| Row {
            title: load.title,
            sides: ["forebay run", "plain"],
            what,
            aim,
            pairs: pairs[1..].iter().map(|(a, b)| (what.of(a), what.of(b))).collect(),
        };
        rows.extend([row(What::Iops, load.aim), row(What::Cpu, Aim::None)]);
        if load.program == Program::Fio {
            rows.push(row(What::P99, Aim::None));
        }
    }
    table::render(&rows, options)
}

/// The files and the time of all runs.
struct Side<'a> {
    forebay: &'a Path,
    file: &'a Path,
    folder: &'a Path,
    seconds: u32,
}

/// A file with slow flushes, and a folder where sysbench finds it.
struct Slow {
    folder: TempDir,
    _file: SlowFile,
}

impl Slow {
    fn new(flush: Duration, parent: &Path) -> Result<Slow> {
        let file = SlowFile::mount(SYSBENCH_SIZE, flush).map_err(anyhow::Error::msg)?;
        let folder = tempfile::tempdir_in(parent)?;
        symlink(file.path(), folder.path().join(SYSBENCH_NAME))?;
        Ok(Slow { folder, _file: file })
    }
}

impl Side<'_> {
    fn prepare_sysbench(&self) -> Result<()> {
        let mut command = Command::new("sysbench");
        command.args(SYSBENCH_FILE.split(' ')).arg("prepare").current_dir(self.folder);
        let output = command.output().context("sysbench: is it installed?")?;
        ensure!(output.status.success(), "sysbench prepare failed with {}", output.status);
        Ok(())
    }

    /// Runs a load in a folder, on the layer or without it.
    fn measure(&self, load: &Load, folder: &Path, on_layer: bool) -> Result<Sample> {
        let mut words: Vec<String> = Vec::new();
        if on_layer {
            // Without `--stats`, which costs time.
            words.extend(["run", "--"].map(str::to_owned));
        }
        words.extend(self.command(load));
        let program = match on_layer {
            true => self.forebay.to_owned(),
            false => PathBuf::from(words.remove(0)),
        };
        let before = cpu_time_of_children()?;
        let mut command = Command::new(&program);
        let output = command.args(&words).current_dir(folder).output();
        let output = output.with_context(|| format!("{}: is it installed?", program.display()))?;
        let cpu = cpu_time_of_children()?.saturating_sub(before);
        let (mut sample, nr_ios) = match load.program {
            Program::Fio => measure::read(&program, &words, &output)?,
            Program::Sysbench => {
                ensure!(output.status.success(), "sysbench failed with {}", output.status);
                let text = String::from_utf8_lossy(&output.stdout);
                of_sysbench(&text).context("sysbench: no rates in its output")?
            }
        };
        sample.cpu_us = cpu.as_secs_f64() * 1e6 / nr_ios;
        if on_layer {
            let report = String::from_utf8_lossy(&output.stderr);
            ensure!(iocbs_of(&report) > 0, "forebay run has counted no iocbs: {report}");
        }
        Ok(sample)
    }

    fn command(&self, load: &Load) -> Vec<String> {
        let seconds = self.seconds;
        let fixed = match load.program {
            Program::Fio => format!(
                "fio --name=a --ioengine=libaio --direct=1 --bs=4k --thread --size=100% \
                 --time_based --runtime={seconds} --output-format=json --filename={}",
                self.file.display()
            ),
            Program::Sysbench => format!(
                "sysbench {SYSBENCH_FILE} --file-io-mode=async --file-extra-flags=direct \
                 --file-block-size=4096 --file-fsync-all=on --time={seconds}"
            ),
        };
        let words = fixed.split(' ').chain(load.options.split(' '));
        let run = (load.program == Program::Sysbench).then_some("run");
        words.chain(run).map(str::to_owned).collect()
    }
}

/// Reads the rates of sysbench's report. Returns the figures, and the number of I/Os.
fn of_sysbench(report: &str) -> Option<(Sample, f64)> {
    let value = |name: &str| {
        let line = report.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.trim().trim_end_matches('s').parse::<f64>().ok()
    };
    let iops = value("reads/s:")? + value("writes/s:")?;
    let time = Duration::try_from_secs_f64(value("total time:")?).ok()?;
    let nan = f64::NAN;
    let sample = Sample {
        iops,
        p50_us: nan,
        p99_us: nan,
        cpu_us: nan,
        merged: nan,
        switches: nan,
        syscalls: nan,
        shared: nan,
    };
    Some((sample, iops * time.as_secs_f64()))
}

/// Returns the iocbs of all processes in a report of `forebay run`, after the program's own lines.
fn iocbs_of(report: &str) -> u64 {
    let lines = report.lines().skip_while(|line| !line.starts_with("forebay run:"));
    let lines = lines.filter(|line| !line.trim_start().starts_with("sum"));
    lines.filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_counters_are_read_from_the_reports() {
        let report = "File operations:\n    reads/s:                      1.50\n    \
                      writes/s:                     998.50\n    fsyncs/s:  998.50\n\
                      General statistics:\n    total time:                          2.0000s\n";
        let (sample, nr_ios) = of_sysbench(report).expect("rates");
        assert_eq!((sample.iops, nr_ios), (1000.0, 2000.0));
        assert!(of_sysbench("reads/s: x").is_none());
        let report = "a b 9\nforebay run: iocbs of libaio\n  pid name  iocbs requests merged\n   \
                      7 fio   10  2  8\n   8 fio  5 5 0\n  sum   15 7 8\n";
        assert_eq!(iocbs_of(report), 15);
    }
}
