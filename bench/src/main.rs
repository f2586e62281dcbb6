//! Measures the project's performance targets, and writes a Markdown table.
//!
//! Every figure compares two commands, run alternately (A B A B ...) in one session, because a
//! machine's speed changes from minute to minute: the result is the ratio of each pair. Nothing
//! here passes or fails a test; the table lists aims and measured values.
#![forbid(unsafe_code)]

mod aio;
mod distance;
mod figures;
mod kernel;
mod library;
mod measure;
mod nbd;
mod pread;
mod process;
#[cfg(test)]
mod quoted;
mod rbd;
mod sched;
mod servers;
mod table;
mod vhost;

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};

const HELP: &str = "\
Measures the project's targets, side by side, and writes a Markdown table.

cargo run --release -p figures -- [options] [figure ...]
cargo run --release -p figures -- record

  figure           s0-ram, s0-file, rand-1, rand-32, seq-batch, kick, null, threads,
                   group-commit, durable; all of them by default
  --file PATH      the file to read from (default: target/figures.img, made if missing)
  --size MIB       its size when it is made (default: 2048)
  --pairs N        how many pairs (default: 5)
  --seconds S      how long each run takes (default: 3)
  --out PATH       where the table goes (default: standard output)

record writes bench/RESULTS.md and bench/DURABLE.md: all figures in 5 pairs, in about 35 minutes
beyond the build. Run it from the root of the checkout, on a machine with nothing else to do.

The figure library measures the interfaces of the library, and counts their instructions (valgrind,
python3 with venv). It is not one of all figures: name it alone. With --seconds 2 and
--out bench/LIBRARY.md it writes the published table, in about 3 minutes beyond the builds.

The figure rbd compares the driver rbd with fio's rbd engine, on a cluster of one node that it
starts (packages ceph-mon, ceph-osd, ceph-common). Name it alone, too. With --pairs 7 --seconds 1
and --out bench/RBD.md it writes the published table, in about 5 minutes.

The figure aio compares fio and sysbench, unmodified, under `forebay run` with the same commands
without it. Name it alone, too. With --seconds 1 and --out bench/AIO.md it writes the published
table, in about 6 minutes beyond the builds. Six of its loads are on a file whose flushes take 200
us, 1 ms or 5 ms (root, /dev/fuse). The figure aio-flush measures these only, in about 2 minutes.

The figure sched measures limits, weights and schedulers, and compares limits with those of
qemu-storage-daemon and nbdkit. Name it alone, too. With --pairs 5 --seconds 1 and
--out bench/SCHED.md it writes the published table, in about 5 minutes.

The figure sched-kernel compares schedulers with those of a Linux kernel, in a guest that QEMU
emulates (qemu-system-x86_64, dpkg-deb, and once apt-get). Name it alone, too. With --seconds 20 and
--out bench/SCHED-KERNEL.md it writes the published table, in about 16 minutes. The figure
sched-order measures only the order of service, in about 2 minutes.

NBD servers are compared by: cargo run --release -p figures -- nbd (see nbd --help), and
vhost-user-blk servers by: cargo run --release -p figures -- vhost (see vhost --help)
";

/// The argument that writes the published tables.
const RECORD: &str = "record";

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) file: PathBuf,
    size_mib: u64,
    pub(crate) pairs: usize,
    pub(crate) seconds: u32,
    out: Option<PathBuf>,
    names: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            file: PathBuf::from("target/figures.img"),
            size_mib: 2048,
            pairs: 5,
            seconds: 3,
            out: None,
            names: Vec::new(),
        }
    }
}

impl Options {
    /// Returns the command with these options.
    pub(crate) fn command(&self) -> String {
        let file = self.file.display();
        let mut command = format!(
            "cargo run --release -p figures -- --file {file} --size {} --pairs {} --seconds {}",
            self.size_mib, self.pairs, self.seconds
        );
        if let Some(out) = &self.out {
            command += &format!(" --out {}", out.display());
        }
        self.names.iter().for_each(|name| command += &format!(" {name}"));
        command
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == pread::COMMAND => return pread::main(arguments),
        Some(first) if first == nbd::COMPARISON.command => return nbd::main(),
        Some(first) if first == vhost::COMPARISON.command => return vhost::main(),
        Some(first) if first == RECORD => return record(),
        _ => {}
    }
    let Some(options) = options()? else {
        std::io::stdout().write_all(HELP.as_bytes())?;
        return Ok(());
    };
    let forebay = measure::build()?;
    if options.names == [library::NAME] {
        measure::lay_out(&forebay, &options.file, options.size_mib)?;
        return write(&library::render(&forebay, &options)?, &options);
    }
    if [aio::NAME, aio::FLUSH_NAME].iter().any(|name| options.names == [*name]) {
        measure::lay_out(&forebay, &options.file, options.size_mib)?;
        return write(&aio::render(&forebay, &options)?, &options);
    }
    if options.names == [sched::NAME] {
        return write(&sched::render(&forebay, &options)?, &options);
    }
    if [kernel::NAME, kernel::ORDER_NAME].iter().any(|name| options.names == [*name]) {
        return write(&kernel::render(&forebay, &options)?, &options);
    }
    if options.names == [rbd::NAME] {
        return write(&rbd::render(&forebay, &options)?, &options);
    }
    write_table(&forebay, &options)
}

/// Writes the published tables.
fn record() -> Result<()> {
    let forebay = measure::build()?;
    recorded().iter().try_for_each(|options| write_table(&forebay, options))
}

/// Returns the options of each published table. A published ratio is the median of at least five
/// pairs of commands that run in turn.
fn recorded() -> [Options; 2] {
    let names = |is_durable| {
        let all = figures::names().into_iter();
        all.filter(|name| figures::DURABLE.contains(name) == is_durable)
            .map(str::to_owned)
            .collect()
    };
    let results = Options {
        out: Some(PathBuf::from("bench/RESULTS.md")),
        names: names(false),
        ..Options::default()
    };
    let durable = Options {
        size_mib: 256,
        seconds: 1,
        out: Some(PathBuf::from("bench/DURABLE.md")),
        names: names(true),
        ..Options::default()
    };
    [results, durable]
}

/// Measures figures and writes their table.
fn write_table(forebay: &Path, options: &Options) -> Result<()> {
    measure::lay_out(forebay, &options.file, options.size_mib)?;
    let figures = figures::chosen(&options.names)?;
    let mut rows = Vec::new();
    for figure in figures {
        rows.extend(figures::measure(&figure, forebay, options)?);
    }
    write(&table::render(&rows, options)?, options)
}

/// Writes a table to its file, or to standard output.
fn write(text: &str, options: &Options) -> Result<()> {
    match &options.out {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string())?,
        None => std::io::stdout().write_all(text.as_bytes())?,
    }
    Ok(())
}

fn options() -> Result<Option<Options>> {
    use lexopt::prelude::{Long, Value, ValueExt};
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("file") => options.file = parser.value()?.into(),
            Long("size") => options.size_mib = parser.value()?.parse()?,
            Long("pairs") => options.pairs = parser.value()?.parse()?,
            Long("seconds") => options.seconds = parser.value()?.parse()?,
            Long("out") => options.out = Some(parser.value()?.into()),
            Long("help") => return Ok(None),
            Value(name) => options.names.push(name.string()?),
            other => bail!("{}; see --help", other.unexpected()),
        }
    }
    if options.pairs == 0 || options.seconds == 0 {
        bail!("--pairs and --seconds take numbers above 0");
    }
    Ok(Some(options))
}
