//! The figures: which two commands each compares, and what is aimed at.

use crate::Options;
use crate::measure::{Sample, run, say};
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
    /// The load, in fio's words, the same for both sides.
    load: &'static str,
    /// What is compared.
    rows: &'static [(What, Aim)],
}

/// One side of a comparison.
#[derive(Clone, Copy, Debug)]
struct Side {
    title: &'static str,
    program: Program,
    /// Options of this side alone.
    options: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Program {
    /// Ours, on the file.
    File,
    /// Ours, on the RAM disk of the published model.
    Ram,
    /// fio, on the file.
    Fio,
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

const FIGURES: &[Figure] = &[
    Figure {
        name: "s0-ram",
        title: "S0: outermost plug against per-level, RAM disk of the published model",
        a: Side { title: "outermost", program: Program::Ram, options: OUTERMOST },
        b: Side { title: "per-level", program: Program::Ram, options: PER_LEVEL },
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
];

/// The figures of these names; all of them for none.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<Figure>> {
    let all: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
    if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
        bail!("no figure is called {unknown}; there are: {}", all.join(", "));
    }
    let wanted = |figure: &&Figure| names.is_empty() || names.iter().any(|n| n == figure.name);
    Ok(FIGURES.iter().filter(wanted).copied().collect())
}

/// Runs both sides in turn, and makes the figure's rows of the pairs.
pub(crate) fn measure(figure: &Figure, forebay: &Path, options: &Options) -> Result<Vec<Row>> {
    let mut pairs: Vec<(Sample, Sample)> = Vec::new();
    // The first pair warms up and does not count.
    for nth in 0..=options.pairs {
        say(&format!("{}: pair {nth} of {}", figure.name, options.pairs));
        let [a, b] = [figure.a, figure.b].map(|side| {
            let (program, arguments) = command(side, figure.load, forebay, options);
            run(&program, &arguments)
        });
        pairs.push((a?, b?));
    }
    let row = |(what, aim): &(What, Aim)| Row {
        title: figure.title,
        sides: [figure.a.title, figure.b.title],
        what: *what,
        aim: *aim,
        pairs: pairs[1..].iter().map(|(a, b)| (what.of(a), what.of(b))).collect(),
    };
    Ok(figure.rows.iter().map(row).collect())
}

/// The command of a side.
fn command(side: Side, load: &str, forebay: &Path, options: &Options) -> (PathBuf, Vec<String>) {
    let file = options.file.display().to_string();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (program, first, filename) = match side.program {
        Program::File => (forebay.to_owned(), "bench", file),
        Program::Ram => (forebay.to_owned(), "bench", S0_RAM.to_owned()),
        Program::Fio => (PathBuf::from("fio"), "", file),
    };
    let mut arguments = words(first);
    arguments.extend(words("--name=job1 --time_based --direct=1 --output-format=json"));
    arguments.push(format!("--runtime={}", options.seconds));
    arguments.push(format!("--filename={filename}"));
    arguments.extend(words(load));
    arguments.extend(words(side.options));
    (program, arguments)
}
