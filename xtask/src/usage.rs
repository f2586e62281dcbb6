//! Seconds and processor time of steps. The processor time shows the cost of a step, even on a busy
//! machine.

use std::fmt;
use std::fs;
use std::time::Instant;

/// Ticks of `/proc/self/stat` per second, on every architecture that this program supports.
const TICKS: f64 = 100.0;

/// Start of the line that a gate prints about its own processor time.
const LINE: &str = "processor time: ";

/// The time that a step took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
    /// Processor time in seconds, of the program and its children. `None` where it is not known.
    pub(crate) processor: Option<f64>,
}

/// A step that runs.
pub(crate) struct Watch {
    start: Instant,
    processor: Option<f64>,
}

impl Watch {
    pub(crate) fn start() -> Watch {
        Watch { start: Instant::now(), processor: processor_seconds() }
    }

    /// Returns the usage since the start. It includes the processor time of all children that have
    /// ended since.
    pub(crate) fn stop(&self, name: &'static str) -> Usage {
        let processor = processor_seconds().zip(self.processor).map(|(now, then)| now - then);
        Usage { name, seconds: self.start.elapsed().as_secs_f64(), processor }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:6.0} s", self.seconds)?;
        match self.processor {
            Some(processor) => write!(f, "{processor:8.0} s of processor time")?,
            None => write!(f, "{:>8} s of processor time", "?")?,
        }
        write!(f, "  {}", self.name)
    }
}

/// Prints the processor time of this program and its children, for the program that runs it.
pub(crate) fn print() {
    if let Some(seconds) = processor_seconds() {
        println!("{LINE}{seconds:.1} s");
    }
}

/// Returns the seconds that [`print()`] has printed last.
pub(crate) fn parse(output: &str) -> Option<f64> {
    let line = output.lines().rev().find_map(|line| line.strip_prefix(LINE))?;
    line.strip_suffix(" s")?.parse().ok()
}

/// Prints a line for each step, and one for all of them.
pub(crate) fn summarize(all: &[Usage]) {
    all.iter().for_each(|usage| println!("ci: {usage}"));
    let processor: f64 = all.iter().filter_map(|usage| usage.processor).sum();
    println!("ci: {:8}{processor:8.0} s of processor time  all of them", "");
}

/// Returns the processor time of this program, and of its children that have ended.
fn processor_seconds() -> Option<f64> {
    parse_stat(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Adds up the fields `utime`, `stime`, `cutime` and `cstime`.
fn parse_stat(stat: &str) -> Option<f64> {
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<f64> =
        fields.split_whitespace().skip(11).take(4).map_while(|ticks| ticks.parse().ok()).collect();
    (ticks.len() == 4).then(|| ticks.iter().sum::<f64>() / TICKS)
}

#[cfg(test)]
mod tests {
    use super::{LINE, Usage, parse, parse_stat, processor_seconds};

    #[test]
    fn the_times_of_a_program_and_its_children_are_added_up() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 9 8 0 0 100 20 3000 400 20 0 1 0 5";
        assert_eq!(parse_stat(stat), Some(35.2));
        assert_eq!(parse_stat("7 (a) S 1 7 7"), None);
        assert!(processor_seconds().is_some());
    }

    #[test]
    fn the_last_line_about_processor_time_counts() {
        assert_eq!(parse(&format!("{LINE}1.0 s\nx\n{LINE}12.5 s\n")), Some(12.5));
        assert_eq!(parse("x\n"), None);
    }

    #[test]
    fn a_time_that_is_not_known_is_shown_as_such() {
        let usage = |processor| Usage { name: "loom", seconds: 61.2, processor };
        assert_eq!(usage(Some(59.9)).to_string(), "    61 s      60 s of processor time  loom");
        assert_eq!(usage(None).to_string(), "    61 s       ? s of processor time  loom");
    }
}
