//! `figures nbd`: compares `forebay serve` with other NBD servers.
//!
//! A run goes through all loads in each round, and at each load through the servers in turn. The
//! results are the ratio of our server to the best of the others, round by round, and each server's
//! CPU time for an I/O. Every server is started for its run only, on the same file and a unix
//! socket. The clients are third-party programs: fio's engine `nbd`, and `nbdcopy`.

mod client;
mod idle;
mod layout;
mod loads;
mod rounds;
mod servers;
mod table;

use crate::distance::Distance;
use crate::measure;
use anyhow::{Context, Result, bail, ensure};
use loads::Load;
use rounds::Run;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// The command-line word for this comparison.
pub(crate) const COMMAND: &str = "nbd";

const HELP: &str = "\
Measures NBD servers in turn, and writes a Markdown table.

cargo run --release -p figures -- nbd [options] [load ...]

  load               a part of a load's name, such as 'random 4k'; all of them by default
  --pairs N          how many rounds (default: 5); with --quick 3
  --quick            fewer loads, shorter
  --seconds S        how long each run takes (default: 2); with --quick 1
  --servers A,B,...  which servers (default: forebay,nbdkit,qemu-nbd,qsd); --list names all
  --file PATH        the file to serve, overwritten (default: target/figures-nbd.img)
  --size MIB         its size (default: 1024)
  --out PATH         where the table goes (default: standard output)
  --list             print the names of loads and servers, and end
";

/// Options of the command line.
#[derive(Debug)]
struct Options {
    file: PathBuf,
    size_mib: u64,
    rounds: Option<usize>,
    seconds: Option<u32>,
    is_quick: bool,
    servers: Vec<String>,
    out: Option<PathBuf>,
    list: bool,
    loads: Vec<String>,
}

/// A load and its samples, in the order of the servers.
#[derive(Debug)]
struct Cell {
    load: &'static Load,
    /// By server and round; `None` if a run failed or there was none.
    samples: Vec<Vec<Option<Sample>>>,
    /// By round: the distance at which all its samples were taken.
    distances: Vec<Distance>,
}

/// Figures of one run of one server. A figure that the load does not have is NaN.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// I/Os per second; for nbdcopy, MiB per second; for memory, MiB.
    value: f64,
    /// Completion latency, us.
    p50_us: f64,
    p99_us: f64,
    /// The server's processor time for each I/O, us.
    server_us: f64,
    /// The clients' processor time for each I/O, us.
    client_us: f64,
    /// The share of a processor that each client thread used, 0 to 1.
    client_busy: f64,
}

pub(crate) fn main() -> Result<()> {
    let Some(options) = options()? else {
        std::io::stdout().write_all(HELP.as_bytes())?;
        return Ok(());
    };
    if options.list {
        return list();
    }
    let servers = servers::chosen(&options.servers)?;
    let forebay = if servers.iter().any(|server| server.is_ours()) {
        measure::build()?
    } else {
        PathBuf::new()
    };
    let loads = loads::chosen(&options.loads, options.is_quick)?;
    let media: Vec<_> = loads.iter().map(|load| load.medium).collect();
    let file = layout::lay_out(&options.file, options.size_mib, &media)?;
    let seconds = options.seconds.unwrap_or(if options.is_quick { 1 } else { 2 });
    let rounds = options.rounds.unwrap_or(if options.is_quick { 3 } else { 5 });
    let started = Instant::now();
    let run = Run { forebay: &forebay, file: &file, seconds, started };
    let mut cells: Vec<Cell> = loads
        .into_iter()
        .map(|load| Cell { load, samples: vec![Vec::new(); servers.len()], distances: Vec::new() })
        .collect();
    let mut text = String::new();
    for nth in 0..rounds {
        run.round(&mut cells, &servers, (nth, rounds));
        // The table is written after each round, so an interrupted run keeps its results.
        let command = options.command(seconds, nth + 1);
        text = table::render(&cells, &servers, &command, started.elapsed())?;
        if let Some(path) = &options.out {
            std::fs::write(path, &text).with_context(|| path.display().to_string())?;
        }
    }
    if options.out.is_none() {
        std::io::stdout().write_all(text.as_bytes())?;
    }
    Ok(())
}

fn list() -> Result<()> {
    let mut out = std::io::stdout();
    for server in servers::ALL {
        writeln!(out, "server {}", server.name)?;
    }
    for load in loads::ALL {
        writeln!(out, "load   {}", load.name)?;
    }
    Ok(())
}

impl Options {
    /// Returns the command with these options.
    fn command(&self, seconds: u32, rounds: usize) -> String {
        let mut command = format!("cargo run --release -p figures -- {COMMAND}");
        if self.is_quick {
            command += " --quick";
        }
        command += &format!(" --pairs {rounds} --seconds {seconds} --size {}", self.size_mib);
        if self.servers != servers::USUAL {
            command += &format!(" --servers {}", self.servers.join(","));
        }
        if let Some(out) = &self.out {
            command += &format!(" --out {}", out.display());
        }
        self.loads.iter().for_each(|name| command += &format!(" '{name}'"));
        command
    }
}

fn options() -> Result<Option<Options>> {
    use lexopt::prelude::{Long, Value, ValueExt};
    let mut options = Options {
        file: PathBuf::from("target/figures-nbd.img"),
        size_mib: 1024,
        rounds: None,
        seconds: None,
        is_quick: false,
        servers: servers::USUAL.map(str::to_owned).to_vec(),
        out: None,
        list: false,
        loads: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_args(std::env::args_os().skip(2));
    while let Some(argument) = parser.next()? {
        match argument {
            Long("file") => options.file = parser.value()?.into(),
            Long("size") => options.size_mib = parser.value()?.parse()?,
            Long("pairs") => options.rounds = Some(parser.value()?.parse()?),
            Long("seconds") => options.seconds = Some(parser.value()?.parse()?),
            Long("quick") => options.is_quick = true,
            Long("servers") => {
                let names = parser.value()?.string()?;
                options.servers = names.split(',').map(str::to_owned).collect();
            }
            Long("out") => options.out = Some(parser.value()?.into()),
            Long("list") => options.list = true,
            Long("help") => return Ok(None),
            Value(name) => options.loads.push(name.string()?),
            other => bail!("{}; see {COMMAND} --help", other.unexpected()),
        }
    }
    ensure!(options.rounds != Some(0) && options.seconds != Some(0), "take numbers above 0");
    ensure!(options.size_mib >= 64, "--size takes 64 MiB or more");
    Ok(Some(options))
}
