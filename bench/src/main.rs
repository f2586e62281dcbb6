//! Measures the project's targets, and writes a Markdown table.
//!
//! Every figure compares two commands that run in turn, A B A B ..., in one go, because machines
//! differ from minute to minute: what counts is the ratio, pair by pair. Nothing here passes or
//! fails a test; the table says what was aimed at and what was measured.
#![forbid(unsafe_code)]

mod figures;
mod measure;
mod nbd;
mod pread;
#[cfg(test)]
mod quoted;
mod table;

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::PathBuf;

const HELP: &str = "\
Measures the project's targets, side by side, and writes a Markdown table.

cargo run --release -p figures -- [options] [figure ...]

  figure           s0-ram, s0-file, rand-1, rand-32, seq-batch, kick, threads, group-commit,
                   durable; all of them by default
  --file PATH      the file to read from (default: target/figures.img, made if missing)
  --size MIB       its size when it is made (default: 2048)
  --pairs N        how many pairs (default: 5)
  --seconds S      how long each run takes (default: 3)
  --out PATH       where the table goes (default: standard output)

NBD servers are compared by: cargo run --release -p figures -- nbd (see nbd --help)
";

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) file: PathBuf,
    size_mib: u64,
    pub(crate) pairs: usize,
    pub(crate) seconds: u32,
    out: Option<PathBuf>,
    names: Vec<String>,
}

impl Options {
    /// The command that asks for the same.
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
        Some(first) if first == nbd::COMMAND => return nbd::main(),
        _ => {}
    }
    let Some(options) = options()? else {
        std::io::stdout().write_all(HELP.as_bytes())?;
        return Ok(());
    };
    let forebay = measure::build()?;
    measure::lay_out(&forebay, &options.file, options.size_mib)?;
    let figures = figures::chosen(&options.names)?;
    let mut rows = Vec::new();
    for figure in figures {
        rows.extend(figures::measure(&figure, &forebay, &options)?);
    }
    let text = table::render(&rows, &options)?;
    match &options.out {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string())?,
        None => std::io::stdout().write_all(text.as_bytes())?,
    }
    Ok(())
}

fn options() -> Result<Option<Options>> {
    use lexopt::prelude::{Long, Value, ValueExt};
    let mut options = Options {
        file: PathBuf::from("target/figures.img"),
        size_mib: 2048,
        pairs: 5,
        seconds: 3,
        out: None,
        names: Vec::new(),
    };
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
