//! `figures vhost`: compares `forebay serve --vhost-user-blk` with other vhost-user-blk servers.
//!
//! All servers have the same client, `forebay bench` on a disk `vhost-user:PATH` that polls. Every
//! server is started for its run only. A server that cannot be run is skipped by its name, with the
//! reason.

mod client;
mod loads;
mod servers;
mod table;

use crate::distance::{self, Distance};
use crate::measure::{self, say};
use anyhow::{Context, Result, bail, ensure};
use loads::{Load, Medium};
use servers::Server;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The command-line word for this comparison.
pub(crate) const COMMAND: &str = "vhost";

const HELP: &str = "\
Measures vhost-user-blk servers in turn, and writes a Markdown table.

cargo run --release -p figures -- vhost [options] [load ...]

  load               a part of a load's name, such as 'null: random'; all of them by default
  --pairs N          how many pairs (default: 5); with --quick 3
  --quick            fewer loads, shorter
  --seconds S        how long each run takes (default: 3); with --quick 1
  --poll-us N        how long the client polls before it sleeps; 0 for not at all (default: 1000)
  --servers A,B,...  which servers (default: forebay,qsd,spdk); --list names all
  --file PATH        the file to serve (default: target/figures.img, made if missing)
  --size MIB         its size when it is made (default: 2048)
  --out PATH         where the table goes (default: standard output)
  --list             print the names of loads and servers, and end
";

/// Options of the command line.
#[derive(Debug)]
struct Options {
    file: PathBuf,
    size_mib: u64,
    pairs: Option<usize>,
    seconds: Option<u32>,
    is_quick: bool,
    poll_us: u32,
    servers: Vec<String>,
    out: Option<PathBuf>,
    list: bool,
    loads: Vec<String>,
}

/// Figures of one run of one server. A figure that it does not have is NaN.
#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    nr_ios: f64,
    /// Completion latency, us.
    p50_us: f64,
    p99_us: f64,
    /// Processor time of the server, and of the client's threads, for each I/O, us.
    server_us: f64,
    client_us: f64,
    /// The share of the I/Os that our server merged into other requests.
    merged: f64,
}

/// A load and its samples, with the distance of each run.
#[derive(Debug)]
struct Cell {
    load: &'static Load,
    /// By server and pair; `None` if a run failed or there was none.
    samples: Vec<Vec<Option<(Sample, Distance)>>>,
}

pub(crate) fn main() -> Result<()> {
    let Some(options) = options()? else {
        return Ok(std::io::stdout().write_all(HELP.as_bytes())?);
    };
    if options.list {
        return list();
    }
    let loads = loads::chosen(&options.loads, options.is_quick)?;
    let forebay = measure::build()?;
    if loads.iter().any(|load| load.medium == Medium::Direct) {
        measure::lay_out(&forebay, &options.file, options.size_mib)?;
    }
    let file = std::path::absolute(&options.file)?;
    let mut skipped = Vec::new();
    let mut servers = servers::chosen(&options.servers)?;
    servers.retain(|server| match server.start(&forebay, &file, Medium::Null) {
        Ok(_) => true,
        Err(error) => {
            say(&format!("vhost: SKIPPED: {}: {error:#}", server.name));
            skipped.push((server.name, format!("{error:#}")));
            false
        }
    });
    ensure!(!servers.is_empty(), "no server can be run");
    let seconds = options.seconds.unwrap_or(if options.is_quick { 1 } else { 3 });
    let pairs = options.pairs.unwrap_or(if options.is_quick { 3 } else { 5 });
    let cell = |load| Cell { load, samples: vec![Vec::new(); servers.len()] };
    let mut cells: Vec<Cell> = loads.into_iter().map(cell).collect();
    for nth in 0..pairs {
        for cell in &mut cells {
            say(&format!("pair {} of {pairs}: {}", nth + 1, cell.load.name));
            for step in 0..servers.len() {
                let which = (step + nth) % servers.len();
                let sample = measure(&options, &forebay, &file, seconds, cell.load, servers[which]);
                cell.samples[which].push(sample);
            }
        }
        // The table is written after each pair, so an interrupted run keeps its results.
        let command = options.command(seconds, nth + 1);
        let text = table::render(&cells, &servers, &skipped, &command, options.poll_us)?;
        match &options.out {
            Some(path) => {
                std::fs::write(path, &text).with_context(|| path.display().to_string())?
            }
            None if nth + 1 == pairs => std::io::stdout().write_all(text.as_bytes())?,
            None => {}
        }
    }
    Ok(())
}

/// Runs a load on a server. A run that fails is reported and has no sample.
fn measure(
    options: &Options,
    forebay: &Path,
    file: &Path,
    seconds: u32,
    load: &'static Load,
    server: &'static Server,
) -> Option<(Sample, Distance)> {
    if !server.serves(load.medium) {
        return None;
    }
    let begun = distance::now();
    let sample = server
        .start(forebay, file, load.medium)
        .and_then(|running| client::run(forebay, &running, load, seconds, options.poll_us));
    match sample {
        Ok(sample) => Some((sample, begun.until(distance::now()))),
        Err(error) => {
            say(&format!("{}: {}: {error:#}", load.name, server.name));
            None
        }
    }
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
    fn command(&self, seconds: u32, pairs: usize) -> String {
        let mut command = format!("cargo run --release -p figures -- {COMMAND}");
        if self.is_quick {
            command += " --quick";
        }
        command += &format!(
            " --pairs {pairs} --seconds {seconds} --size {} --poll-us {}",
            self.size_mib, self.poll_us
        );
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
        file: PathBuf::from("target/figures.img"),
        size_mib: 2048,
        pairs: None,
        seconds: None,
        is_quick: false,
        poll_us: 1000,
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
            Long("pairs") => options.pairs = Some(parser.value()?.parse()?),
            Long("seconds") => options.seconds = Some(parser.value()?.parse()?),
            Long("quick") => options.is_quick = true,
            Long("poll-us") => options.poll_us = parser.value()?.parse()?,
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
    ensure!(options.pairs != Some(0) && options.seconds != Some(0), "take numbers above 0");
    Ok(Some(options))
}
