//! Command line of a comparison of servers.

use super::{Load, Server};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// A comparison, with the defaults of its options.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The command-line word.
    pub(crate) command: &'static str,
    /// The servers that it compares, such as `NBD servers`.
    pub(crate) subject: &'static str,
    /// A part of a load's name, as an example.
    pub(crate) example: &'static str,
    /// The servers that are measured by default. The first one is compared with the others.
    pub(crate) servers: &'static [&'static str],
    /// How long each run takes, seconds.
    pub(crate) seconds: u32,
    /// How long the client polls before it sleeps, us. `None`: there is no such option.
    pub(crate) poll_us: Option<u32>,
    pub(crate) file: &'static str,
    /// Whether an existing file is overwritten.
    pub(crate) overwrites: bool,
    pub(crate) size_mib: u64,
    pub(crate) min_size_mib: u64,
}

const PAIRS: usize = 5;
/// Pairs and seconds with `--quick`.
const QUICK_PAIRS: usize = 3;
const QUICK_SECONDS: u32 = 1;

/// Options of the command line.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) file: PathBuf,
    pub(crate) size_mib: u64,
    pub(crate) pairs: usize,
    pub(crate) seconds: u32,
    pub(crate) is_quick: bool,
    pub(crate) poll_us: Option<u32>,
    pub(crate) servers: Vec<String>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) list: bool,
    /// Parts of the names of loads.
    pub(crate) loads: Vec<String>,
}

impl Comparison {
    fn help(&self) -> String {
        let Comparison { command, subject, example, seconds, file, size_mib, .. } = self;
        let servers = self.servers.join(",");
        let made = if self.overwrites { "overwritten" } else { "made if missing" };
        let poll = self.poll_us.map_or(String::new(), |us| {
            format!(
                "  --poll-us N        how long the client polls before it sleeps; 0 for not at all \
                 (default: {us})\n"
            )
        });
        format!(
            "\
Measures {subject} in turn, and writes a Markdown table.

cargo run --release -p figures -- {command} [options] [load ...]

  load               a part of a load's name, such as '{example}'; all of them by default
  --pairs N          how many pairs (default: {PAIRS}); with --quick {QUICK_PAIRS}
  --quick            fewer loads, shorter
  --seconds S        how long each run takes (default: {seconds}); with --quick {QUICK_SECONDS}
{poll}  --servers A,B,...  which servers (default: {servers}); --list names all
  --file PATH        the file to serve, {made} (default: {file})
  --size MIB         its size when it is made (default: {size_mib})
  --out PATH         where the table goes (default: standard output)
  --list             print the names of loads and servers, and end
"
        )
    }

    /// Returns the options of the command line. `None`: it has asked for the help text, which is
    /// printed.
    pub(crate) fn options(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Options>> {
        use lexopt::prelude::{Long, Value, ValueExt};
        let (mut pairs, mut seconds) = (None, None);
        let mut options = Options {
            file: PathBuf::from(self.file),
            size_mib: self.size_mib,
            pairs: PAIRS,
            seconds: self.seconds,
            is_quick: false,
            poll_us: self.poll_us,
            servers: self.servers.iter().map(|name| (*name).to_owned()).collect(),
            out: None,
            list: false,
            loads: Vec::new(),
        };
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("file") => options.file = parser.value()?.into(),
                Long("size") => options.size_mib = parser.value()?.parse()?,
                Long("pairs") => pairs = Some(parser.value()?.parse()?),
                Long("seconds") => seconds = Some(parser.value()?.parse()?),
                Long("quick") => options.is_quick = true,
                Long("poll-us") if self.poll_us.is_some() => {
                    options.poll_us = Some(parser.value()?.parse()?);
                }
                Long("servers") => {
                    let names = parser.value()?.string()?;
                    options.servers = names.split(',').map(str::to_owned).collect();
                }
                Long("out") => options.out = Some(parser.value()?.into()),
                Long("list") => options.list = true,
                Long("help") => {
                    std::io::stdout().write_all(self.help().as_bytes())?;
                    return Ok(None);
                }
                Value(name) => options.loads.push(name.string()?),
                other => bail!("{}; see {} --help", other.unexpected(), self.command),
            }
        }
        if options.is_quick {
            (options.pairs, options.seconds) = (QUICK_PAIRS, QUICK_SECONDS);
        }
        options.pairs = pairs.unwrap_or(options.pairs);
        options.seconds = seconds.unwrap_or(options.seconds);
        ensure!(options.pairs > 0 && options.seconds > 0, "take numbers above 0");
        let min = self.min_size_mib;
        ensure!(options.size_mib >= min, "--size takes {min} MiB or more");
        Ok(Some(options))
    }

    /// Returns the command that measures `pairs` pairs with these options.
    pub(crate) fn command(&self, options: &Options, pairs: usize) -> String {
        let Options { seconds, size_mib, .. } = options;
        let mut command = format!("cargo run --release -p figures -- {}", self.command);
        if options.is_quick {
            command += " --quick";
        }
        command += &format!(" --pairs {pairs} --seconds {seconds} --size {size_mib}");
        if let Some(us) = options.poll_us {
            command += &format!(" --poll-us {us}");
        }
        if options.servers != self.servers {
            command += &format!(" --servers {}", options.servers.join(","));
        }
        if let Some(out) = &options.out {
            command += &format!(" --out {}", out.display());
        }
        options.loads.iter().for_each(|name| command += &format!(" '{name}'"));
        command
    }
}

impl Options {
    /// Writes the table. It is written after each pair, so an interrupted run keeps its results.
    pub(crate) fn write_table(&self, text: &str, is_last: bool) -> Result<()> {
        match &self.out {
            Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string()),
            None if is_last => Ok(std::io::stdout().write_all(text.as_bytes())?),
            None => Ok(()),
        }
    }
}

/// Prints the names of servers and loads.
pub(crate) fn list<W, A>(servers: &[Server], loads: &[Load<W, A>]) -> Result<()> {
    let mut out = std::io::stdout();
    for server in servers {
        writeln!(out, "server {}", server.name)?;
    }
    for load in loads {
        writeln!(out, "load   {}", load.name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&Comparison; 2] = [&crate::nbd::COMPARISON, &crate::vhost::COMPARISON];

    fn options(comparison: &Comparison, line: &str) -> Result<Options> {
        let words = line.split_whitespace().map(OsString::from);
        Ok(comparison.options(words)?.expect("no --help"))
    }

    #[test]
    fn help_names_each_default() {
        for comparison in ALL {
            let help = comparison.help();
            let options = options(comparison, "").expect("the defaults");
            let quick = super::tests::options(comparison, "--quick").expect("the quick defaults");
            for expected in [
                format!("-- {} [options]", comparison.command),
                format!("(default: {}); with --quick {}\n", options.pairs, quick.pairs),
                format!("(default: {}); with --quick {}\n", options.seconds, quick.seconds),
                format!("(default: {}); --list", options.servers.join(",")),
                format!("(default: {})\n", options.file.display()),
                format!("(default: {})\n", options.size_mib),
            ] {
                assert!(help.contains(&expected), "{expected}: {help}");
            }
            assert_eq!(help.contains("--poll-us"), options.poll_us.is_some());
            assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        }
    }

    #[test]
    fn printed_command_has_the_same_options() {
        for comparison in ALL {
            for line in ["", "--quick --seconds 7", "--servers forebay,qsd --out o --size 99 part"]
            {
                let before = options(comparison, line).expect(line);
                let command = comparison.command(&before, before.pairs).replace('\'', "");
                let (_, line) = command.split_once(comparison.command).expect("the word");
                assert_eq!(options(comparison, line).expect(line), before);
            }
        }
    }

    #[test]
    fn options_without_effect_are_refused() {
        assert!(options(&crate::nbd::COMPARISON, "--poll-us 0").is_err());
        assert!(options(&crate::nbd::COMPARISON, "--size 1").is_err());
        assert!(options(&crate::vhost::COMPARISON, "--pairs 0").is_err());
    }
}
