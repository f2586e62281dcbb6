//! `figures nbd`: our server beside the others that speak NBD.
//!
//! One run goes through loads, and at each load through the servers in turn, round by round: what
//! counts is the ratio of ours to the best of the others, round by round, and what each server
//! spends on an I/O. Every server is started for its run alone, on the same file and a unix socket;
//! the clients are other people's, fio's engine `nbd` and `nbdcopy`.

mod client;
mod idle;
mod loads;
mod process;
mod servers;
mod table;

use crate::measure::{self, say};
use anyhow::{Context, Result, bail, ensure};
use loads::{Load, Work};
use servers::{Medium, Server};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The word that asks for it.
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

/// What was asked for.
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

/// One load and what each server made of it, in the order of the servers.
#[derive(Debug)]
struct Cell {
    load: &'static Load,
    /// Of each server, of each round; none where a run failed or there was none.
    samples: Vec<Vec<Option<Sample>>>,
}

/// What one run of one server measured. What a load has no figure for is not a number.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// I/Os a second; of nbdcopy and memory, MiB a second and MiB.
    value: f64,
    /// Completion latency, us.
    p50_us: f64,
    p99_us: f64,
    /// The server's processor time for each I/O, us.
    server_us: f64,
    /// The clients' processor time for each I/O, us.
    client_us: f64,
    /// How much of a processor each client's thread had, 0 to 1.
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
    let file = lay_out(&options)?;
    let seconds = options.seconds.unwrap_or(if options.is_quick { 1 } else { 2 });
    let rounds = options.rounds.unwrap_or(if options.is_quick { 3 } else { 5 });
    let loads = loads::chosen(&options.loads, options.is_quick)?;
    let run = Run { forebay: &forebay, file: &file, seconds };
    let mut cells: Vec<Cell> = loads
        .into_iter()
        .map(|load| Cell { load, samples: vec![Vec::new(); servers.len()] })
        .collect();
    let started = Instant::now();
    let mut text = String::new();
    for nth in 0..rounds {
        run.round(&mut cells, &servers, (nth, rounds), started);
        // After each round, so that whoever stops it has what there is.
        let command = options.command(seconds, nth + 1);
        text = table::render(&cells, &servers, &command, started.elapsed())?;
        if let Some(path) = &options.out {
            std::fs::write(path, &text).with_context(|| path.display().to_string())?;
        }
    }
    progress("");
    if options.out.is_none() {
        std::io::stdout().write_all(text.as_bytes())?;
    }
    Ok(())
}

/// What all runs have in common.
struct Run<'a> {
    forebay: &'a Path,
    file: &'a Path,
    seconds: u32,
}

impl Run<'_> {
    /// Each load once, by each server in turn. Who begins changes from round to round.
    fn round(
        &self,
        cells: &mut [Cell],
        servers: &[&'static Server],
        (nth, of): (usize, usize),
        started: Instant,
    ) {
        let nr_cells = cells.len();
        for (at, cell) in cells.iter_mut().enumerate() {
            for step in 0..servers.len() {
                let which = (step + nth) % servers.len();
                let server = servers[which];
                if !server.serves(cell.load.medium) {
                    continue;
                }
                let done = nth * nr_cells + at;
                progress(&format!(
                    "round {} of {of}, load {} of {nr_cells} ({} s left): {}: {}",
                    nth + 1,
                    at + 1,
                    left(started, done, of * nr_cells).as_secs(),
                    cell.load.name,
                    server.name
                ));
                let sample = self.measure(cell.load, server);
                if let Err(error) = &sample {
                    progress("");
                    say(&format!("{}: {}: {error:#}", cell.load.name, server.name));
                }
                cell.samples[which].push(sample.ok());
            }
        }
    }

    fn measure(&self, load: &Load, server: &'static Server) -> Result<Sample> {
        let direct = direct_file(self.file);
        let file = if load.medium == Medium::Direct { &direct } else { self.file };
        let place = Place { forebay: self.forebay, file };
        let running = server.start(&place, load.medium)?;
        match load.work {
            Work::Fio(job) => client::fio(&running, &job, self.seconds, self.file),
            Work::CopyOut => client::copy(&running, self.file, client::Way::Out),
            Work::CopyIn => client::copy(&running, self.file, client::Way::In),
            Work::Idle(nr) => idle::measure(&running, nr),
        }
    }
}

/// Where the programs and the file are.
pub(crate) struct Place<'a> {
    pub(crate) forebay: &'a Path,
    pub(crate) file: &'a Path,
}

/// How long the rest will take, if it goes on like this.
fn left(started: Instant, done: usize, of: usize) -> Duration {
    let each = started.elapsed().as_secs_f64() / done.max(1) as f64;
    Duration::from_secs_f64(if done == 0 { 0.0 } else { each * (of - done) as f64 })
}

/// A line for whoever waits, in place of the last; none where nobody looks.
fn progress(line: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Nothing is lost if nobody listens.
        let _ = write!(stderr, "\r\x1b[K{line}");
        let _ = stderr.flush();
    }
}

/// Makes the files. Direct I/O has one of its own, since it drops pages of the cache that others
/// would then have to read again.
fn lay_out(options: &Options) -> Result<PathBuf> {
    let path = std::path::absolute(&options.file)?;
    for path in [direct_file(&path), path.clone()] {
        say(&format!("laying out {} ({} MiB)", path.display(), options.size_mib));
        make(&path, options.size_mib).with_context(|| path.display().to_string())?;
    }
    Ok(path)
}

/// The file beside `file` that is served with direct I/O.
fn direct_file(file: &Path) -> PathBuf {
    file.with_extension("direct")
}

/// Makes a file of bytes that nobody takes for zeroes. It is then in the page cache, in pages of
/// 4k: if it were read in, or written in large pieces, the kernel would keep it in large folios, of
/// which ext4 goes through all blocks for each small write, and nothing else would be measured.
fn make(path: &Path, size_mib: u64) -> Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut state = 1_u64;
    let mut block = [0_u8; 4096];
    for _ in 0..size_mib << 8 {
        for word in block.chunks_exact_mut(8) {
            // Any sequence would do. Source: G. Marsaglia, "Xorshift RNGs", 2003.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
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
    /// The command that asks for the same.
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
