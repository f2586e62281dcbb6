//! `forebay top`: activity of the disks of a process, once or as a live view.
//!
//! - [`source`]: the process, which [`find`] finds; [`answer`]: its counters;
//! - [`sample`]: the rates between two answers, which are the output of `--json`;
//! - [`diskstats`]: the output of `--diskstats`;
//! - [`text`]: the output of `--once`; [`view`]: the live view; [`columns`]: the tables of both.

mod answer;
mod columns;
mod diskstats;
mod find;
mod sample;
mod source;
mod text;
mod view;

use crate::failure::Failure;
use crate::output;
use clap::Args;
use source::Source;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

/// The end of `forebay top --help`.
const EXAMPLES: &str = "\
Examples:
  forebay serve disk.img --control run/control &
  forebay top run/control                live view of its disks, exports and owners
  forebay top run/control --once         rates over one second, as text
  forebay top run/control --json         a line of JSON for each interval, until interrupted
  forebay top run/control --json --once  one line
  forebay top run/control --diskstats    counters so far, in the format of /proc/diskstats
The socket is that of forebay serve --control, of forebay bench --insight, or of a program that
calls Insight::listen of the crate forebay-insight. In the live view, ? lists the keys. NO_COLOR=1
turns colours off.";

/// Options of `forebay top`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Socket of the process [default: the only one in $XDG_RUNTIME_DIR/forebay and /run/forebay]
    #[arg(value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// Length of an interval in seconds, from 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Print the rates over one interval, and exit
    #[arg(long)]
    once: bool,
    /// Print a line of JSON for each interval; see docs/guide.md
    #[arg(long)]
    json: bool,
    /// Print a line for each disk in the format of /proc/diskstats, with the counters since the
    /// disk was opened, and exit
    #[arg(long, conflicts_with_all = ["interval", "once", "json"])]
    diskstats: bool,
}

/// Parses an interval.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    let seconds = seconds.ok_or("expected a number of seconds from 0.1 to 3600")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Runs `forebay top`.
pub(crate) fn main(args: &TopArgs) -> Result<(), Failure> {
    let is_view = !args.once && !args.json && !args.diskstats;
    let has_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if is_view && !has_terminal {
        let why = "the live view needs a terminal: use --once for text, --json or --diskstats";
        return Err(Failure::Usage(why.to_owned()));
    }
    let path = args.socket.clone().map_or_else(find::only_socket, Ok)?;
    if args.diskstats {
        return output::stdout(&diskstats::of(&source::answer(&path)?));
    }
    let mut source = Source::open(&path, args.interval)?;
    if is_view {
        return view::run(source, &path);
    }
    loop {
        let sample = source.next()?;
        output::stdout(&match args.json {
            true => {
                serde_json::to_string(&sample)
                    .map_err(|error| Failure::Run(format!("cannot write JSON: {error}")))?
                    + "\n"
            }
            false => text::of(&sample),
        })?;
        if args.once {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::interval;
    use std::time::Duration;

    /// Compares a text with a file of `snapshots`. With `FOREBAY_WRITE_SNAPSHOTS=1` it replaces the
    /// file, for a look at the difference.
    #[track_caller]
    pub(super) fn check_snapshot(name: &str, text: &str) {
        let path = format!("{}/src/top/snapshots/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("FOREBAY_WRITE_SNAPSHOTS").is_some_and(|value| value == "1") {
            std::fs::write(&path, text).expect("a snapshot");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            text, expected,
            "{path} differs; if this is intended, write it with FOREBAY_WRITE_SNAPSHOTS=1\n{text}"
        );
    }

    #[test]
    fn interval_has_bounds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "0.01", "-1", "3601", "x", "nan", "inf", ""] {
            let error = interval(bad).expect_err(bad);
            assert_eq!(error, "expected a number of seconds from 0.1 to 3600");
        }
    }
}
