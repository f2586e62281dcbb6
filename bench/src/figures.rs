//! The figures: which two commands each one compares, and its aims.

mod commits;
pub(crate) mod library;

use crate::Options;
use crate::measure::{Sample, can_count, run, run_counted, say};
use crate::pread;
use crate::table::{Aim, Row, What};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A comparison of A with B.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    name: &'static str,
    title: &'static str,
    a: Side,
    b: Side,
    /// The load as fio options, the same for both sides.
    load: &'static str,
    /// The columns compared, each with its aim.
    rows: &'static [(What, Aim)],
}

/// One side of a comparison.
#[derive(Clone, Copy, Debug)]
struct Side {
    title: &'static str,
    program: Program,
    /// Options of this side only.
    options: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Program {
    /// `forebay bench` on the file.
    File,
    /// The same through io_uring, whatever `ioengine` is set to.
    Ring,
    /// `forebay bench` on the device of a spec.
    Device(&'static str),
    /// fio, on the file.
    Fio,
    /// The loop of `pread`, on the file.
    Pread,
    /// The example `commit_cost` on the file.
    Commits,
    /// The same on a new file, beside the file.
    Log,
}

/// The command of the published measurement: sequential reads of 4 KiB in batches of 16.
const S0: &str = "--rw=read --bs=4k --iodepth=128 --iodepth_batch=16 --iodepth_batch_complete=16";

/// The model's constants: a request costs 10.1 us, each I/O in it 4 us.
const S0_RAM: &str = "ram:2G?req_ns=10100&io_ns=4000";

const OUTERMOST: &str = "--plug=outermost";
const PER_LEVEL: &str = "--plug=per-level";

const NOT_SLOWER: &[(What, Aim)] = &[
    (What::Iops, Aim::AtLeast(0.97)),
    (What::P50, Aim::AtMost(1.05)),
    (What::P99, Aim::AtMost(1.15)),
    (What::Cpu, Aim::None),
];

/// A figure `threads` with this number of concurrent readers.
macro_rules! threads {
    ($title:literal, $numjobs:literal, $rows:expr) => {
        threads!($title, $numjobs, "", $rows)
    };
    ($title:literal, $numjobs:literal, $options:literal, $rows:expr) => {
        Figure {
            name: "threads",
            title: concat!("random 4k reads by ", $title, ", each with blocking calls, direct I/O"),
            a: Side { title: "forebay", program: Program::Ring, options: $options },
            b: Side { title: "pread", program: Program::Pread, options: "" },
            load: concat!(
                "--rw=randread --bs=4k --ioengine=psync --thread --group_reporting --numjobs=",
                $numjobs
            ),
            rows: $rows,
        }
    };
}

/// A figure `null` with this depth.
macro_rules! null {
    ($depth:literal, $aim:expr) => {
        Figure {
            name: "null",
            title: concat!(
                "random 4k reads on null, singly, iodepth ",
                $depth,
                ", against fio's null engine"
            ),
            a: Side { title: "forebay", program: Program::Device("null:8G"), options: "" },
            b: Side { title: "fio null", program: Program::Fio, options: "--ioengine=null" },
            load: concat!("--rw=randread --bs=4k --size=8G --iodepth=", $depth),
            rows: &[(What::Iops, $aim), (What::Cpu, Aim::None)],
        }
    };
}

/// The devices of the figure `kick`: each kick spins for 1 us, as long as a system call that
/// submits. So `per-request` is slower by construction, which the titles state.
const NULL: &str = "null:1G?kick_ns=1000";
const RAM: &str = "ram:1G?kick_ns=1000";

/// Random reads in batches as deep as the queue, with the kick deferred, against another policy.
macro_rules! kick {
    ($device:ident, $depth:literal, $threads:literal, "per-request", $aim:expr) => {
        kick!(
            $device,
            $depth,
            $threads,
            "per-request",
            "; by construction: per-request pays for a kick at each read",
            $aim
        )
    };
    ($device:ident, $depth:literal, $threads:literal, "per-device", $aim:expr) => {
        kick!($device, $depth, $threads, "per-device", "", $aim)
    };
    (
        $device:ident, $depth:literal, $threads:literal, $policy:literal, $how:literal, $aim:expr
    ) => {
        Figure {
            name: "kick",
            title: concat!(
                "S2: random 4k reads on ",
                stringify!($device),
                " with a kick of 1 us, iodepth ",
                $depth,
                ", threads: ",
                $threads,
                $how
            ),
            a: Side {
                title: "deferred",
                program: Program::Device($device),
                options: "--kick=deferred",
            },
            b: Side {
                title: $policy,
                program: Program::Device($device),
                options: concat!("--kick=", $policy),
            },
            load: concat!(
                "--rw=randread --bs=4k --plug=none --nr_hw_queues=3 --group_reporting --iodepth=",
                $depth,
                " --iodepth_batch=",
                $depth,
                " --iodepth_batch_complete_max=",
                $depth,
                " --numjobs=",
                $threads
            ),
            rows: &[(What::Iops, $aim)],
        }
    };
}

const SAME: Aim = Aim::AtLeast(0.96);
const ABOVE: Aim = Aim::AtLeast(1.2);

/// One thread needs no system call but its read; several threads may also wake each other.
const ONE_BLOCKING: &[(What, Aim)] = &blocking(Aim::AtMost(1.1));
const BLOCKING: &[(What, Aim)] = &blocking(Aim::AtMost(2.2));

const fn blocking(syscalls: Aim) -> [(What, Aim); 5] {
    [
        (What::Iops, Aim::AtLeast(0.97)),
        (What::P50, Aim::None),
        (What::P99, Aim::None),
        (What::Switches, Aim::AtMost(1.1)),
        (What::Syscalls, syscalls),
    ]
}

/// More threads than tags: without aims.
const TAGGED: &[(What, Aim)] = &[
    (What::Iops, Aim::None),
    (What::P50, Aim::None),
    (What::P99, Aim::None),
    (What::Switches, Aim::None),
    (What::Syscalls, Aim::None),
];

const FIGURES: &[Figure] = &[
    Figure {
        name: "s0-ram",
        title: "S0: outermost plug against per-level, RAM disk with constants fitted to the \
                published figures",
        a: Side { title: "outermost", program: Program::Device(S0_RAM), options: OUTERMOST },
        b: Side { title: "per-level", program: Program::Device(S0_RAM), options: PER_LEVEL },
        load: S0,
        rows: &[(What::Iops, Aim::AtLeast(2.95)), (What::Merged, Aim::Equal(15.0 / 16.0))],
    },
    Figure {
        name: "s0-file",
        title: "S0: outermost plug against per-level, a file, direct I/O",
        a: Side { title: "outermost", program: Program::File, options: OUTERMOST },
        b: Side { title: "per-level", program: Program::File, options: PER_LEVEL },
        load: S0,
        rows: &[
            (What::Iops, Aim::AtLeast(2.0)),
            (What::Merged, Aim::Equal(15.0 / 16.0)),
            (What::Cpu, Aim::None),
        ],
    },
    Figure {
        name: "rand-1",
        title: "random 4k reads, iodepth 1, against fio's io_uring engine",
        a: Side { title: "forebay", program: Program::File, options: "--ioengine=io_uring" },
        b: Side { title: "fio io_uring", program: Program::Fio, options: "--ioengine=io_uring" },
        load: "--rw=randread --bs=4k --iodepth=1",
        rows: NOT_SLOWER,
    },
    Figure {
        name: "rand-32",
        title: "random 4k reads, iodepth 32, against fio's io_uring engine",
        a: Side { title: "forebay", program: Program::File, options: "--ioengine=io_uring" },
        b: Side { title: "fio io_uring", program: Program::Fio, options: "--ioengine=io_uring" },
        load: "--rw=randread --bs=4k --iodepth=32",
        rows: NOT_SLOWER,
    },
    Figure {
        name: "seq-batch",
        title: "sequential 4k reads in batches of 16, against fio's libaio engine",
        a: Side { title: "forebay", program: Program::File, options: "--ioengine=io_uring" },
        b: Side { title: "fio libaio", program: Program::Fio, options: "--ioengine=libaio" },
        load: S0,
        rows: &[(What::Iops, Aim::AtLeast(0.97)), (What::Cpu, Aim::AtMost(1.0))],
    },
    kick!(NULL, "1", "1", "per-device", SAME),
    kick!(NULL, "1", "2", "per-device", SAME),
    kick!(NULL, "16", "1", "per-device", SAME),
    kick!(NULL, "16", "2", "per-device", SAME),
    kick!(NULL, "128", "1", "per-device", SAME),
    kick!(NULL, "128", "2", "per-device", SAME),
    kick!(NULL, "1", "1", "per-request", Aim::None),
    kick!(NULL, "1", "2", "per-request", Aim::None),
    kick!(NULL, "16", "1", "per-request", ABOVE),
    kick!(NULL, "16", "2", "per-request", ABOVE),
    kick!(NULL, "128", "1", "per-request", ABOVE),
    kick!(NULL, "128", "2", "per-request", ABOVE),
    kick!(RAM, "1", "1", "per-device", SAME),
    kick!(RAM, "1", "2", "per-device", SAME),
    kick!(RAM, "16", "1", "per-device", SAME),
    kick!(RAM, "16", "2", "per-device", SAME),
    kick!(RAM, "128", "1", "per-device", SAME),
    kick!(RAM, "128", "2", "per-device", SAME),
    kick!(RAM, "1", "1", "per-request", Aim::None),
    kick!(RAM, "1", "2", "per-request", Aim::None),
    kick!(RAM, "16", "1", "per-request", ABOVE),
    kick!(RAM, "16", "2", "per-request", ABOVE),
    kick!(RAM, "128", "1", "per-request", ABOVE),
    kick!(RAM, "128", "2", "per-request", ABOVE),
    null!("1", Aim::None),
    null!("32", Aim::AtLeast(2.4)),
    threads!("1 thread", "1", ONE_BLOCKING),
    threads!("8 threads", "8", BLOCKING),
    threads!("24 threads", "24", BLOCKING),
    threads!("64 threads", "64", BLOCKING),
    threads!("256 threads", "256", BLOCKING),
    threads!("1024 threads, 256 tags", "1024", TAGGED),
    threads!("1024 threads, 1024 tags", "1024", "--queue_depth=1024", BLOCKING),
];

/// Names of the durability figures, which have a table of their own.
pub(crate) const DURABLE: [&str; 2] = ["group-commit", "durable"];

/// Returns the names of all figures, in order.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names: Vec<_> =
        FIGURES.iter().chain(commits::FIGURES).map(|figure| figure.name).collect();
    names.dedup();
    names
}

/// Returns the figures with these names, or all figures if `names` is empty.
///
/// # Errors
/// A name that no figure has.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<Figure>> {
    let figures = FIGURES.iter().chain(commits::FIGURES);
    let all = self::names();
    if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
        bail!("no figure is called {unknown}; there are: {}", all.join(", "));
    }
    let wanted = |figure: &&Figure| names.is_empty() || names.iter().any(|n| n == figure.name);
    Ok(figures.filter(wanted).copied().collect())
}

/// Runs both sides in turn, and returns the figure's rows.
pub(crate) fn measure(figure: &Figure, forebay: &Path, options: &Options) -> Result<Vec<Row>> {
    let mut pairs: Vec<(Sample, Sample)> = Vec::new();
    let is_counted = |what| matches!(what, What::Syscalls);
    let wanted = figure.rows.iter().any(|&(what, _)| is_counted(what));
    let counts = wanted && can_count();
    if wanted && !counts {
        say("perf cannot count system calls here: that row is left out");
    }
    // The first pair is a warm-up; its times do not count.
    for nth in 0..=options.pairs {
        say(&format!("{}: {}: pair {nth} of {}", figure.name, figure.title, options.pairs));
        let measure = if counts && nth == 0 { run_counted } else { run };
        let side = |side| {
            let (program, arguments) = command(side, figure.load, forebay, options)?;
            measure(&program, &arguments)
        };
        pairs.push((side(figure.a)?, side(figure.b)?));
    }
    let row = |&(what, aim): &(What, Aim)| Row {
        title: figure.title,
        sides: [figure.a.title, figure.b.title],
        what,
        aim,
        pairs: if is_counted(what) { &pairs[..1] } else { &pairs[1..] }
            .iter()
            .map(|(a, b)| (what.of(a), what.of(b)))
            .collect(),
    };
    let measured = figure.rows.iter().filter(|&&(what, _)| counts || !is_counted(what));
    Ok(measured.map(row).collect())
}

/// Returns the command of a side.
fn command(
    side: Side,
    load: &str,
    forebay: &Path,
    options: &Options,
) -> Result<(PathBuf, Vec<String>)> {
    let file = options.file.display().to_string();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (program, first, filename) = match side.program {
        Program::File => (forebay.to_owned(), "bench", file),
        Program::Ring => (forebay.to_owned(), "bench", format!("{file}?engine=io_uring")),
        Program::Device(spec) => (forebay.to_owned(), "bench", spec.to_owned()),
        Program::Fio => (PathBuf::from("fio"), "", file),
        Program::Pread => (std::env::current_exe()?, pread::COMMAND, file),
        Program::Commits => (commits::program(forebay), "", file),
        Program::Log => (commits::program(forebay), "", format!("{file}.log")),
    };
    let mut arguments = words(first);
    arguments.extend(words("--name=job1 --time_based --direct=1 --output-format=json"));
    arguments.push(format!("--runtime={}", options.seconds));
    arguments.push(format!("--filename={filename}"));
    arguments.extend(words(load));
    arguments.extend(words(side.options));
    Ok((program, arguments))
}

#[cfg(test)]
mod tests {
    use super::{DURABLE, chosen};
    use crate::recorded;

    /// Returns the titles of figures in the order of their headings, without consecutive
    /// duplicates.
    fn titles(names: &[String]) -> Vec<&'static str> {
        let mut titles: Vec<_> = chosen(names).unwrap().iter().map(|figure| figure.title).collect();
        titles.dedup();
        titles
    }

    fn headings(table: &'static str) -> Vec<&'static str> {
        table.lines().filter_map(|line| line.strip_prefix("## ")).collect()
    }

    #[test]
    fn the_recorded_tables_have_the_figures_and_titles_of_the_program() {
        let [results, durable] = recorded();
        assert_eq!(headings(include_str!("../RESULTS.md")), titles(&results.names));
        assert_eq!(headings(include_str!("../DURABLE.md")), titles(&durable.names));
        assert_eq!(durable.names, DURABLE);
        assert!(results.pairs >= 5 && durable.pairs >= 5);
    }

    #[test]
    fn figures_that_follow_from_their_construction_are_titled_so() {
        let by_construction = |figure: &&super::Figure| {
            figure.b.title == "per-request" || figure.b.options.contains("one_by_one")
        };
        let figures = chosen(&[]).unwrap();
        let found: Vec<_> = figures.iter().filter(by_construction).collect();
        assert_eq!(found.len(), 21);
        assert!(found.iter().all(|figure| figure.title.contains("by construction")));
    }
}
