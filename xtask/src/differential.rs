//! `cargo xtask differential`: runs the same scripts by the library's threads under shuttle and by
//! the simulator's tasks, and compares the sets of their outcomes.
//!
//! The simulator shows properties of its own run of the core. This step shows that the library
//! does the same: a script has no outcome in one that it cannot have in the other. The two sides
//! cannot be one program, because the core's atomics are shuttle's in one and the processor's in
//! the other. So each prints its outcomes as lines.
//!
//! Both sides try random interleavings, so either may miss a rare outcome. In further rounds each
//! side searches for the outcomes that only the other one has shown, with new seeds. A difference
//! counts if it is left after the last round. The seeds are fixed: the same code gives the same
//! result.
//!
//! Finally the step plants bugs in the library's side, one after another. The comparison must find
//! each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::time::Instant;

use crate::command::{Ending, Line, target};
use crate::{Outcome, shuttle};

/// The largest number of runs of a script in the first round, and in each further one.
const RUNS: [(Side, u32, u32); 2] =
    [(Side::Library, 50_000, 200_000), (Side::Simulator, 100_000, 400_000)];

/// The number of rounds.
const ROUNDS: u32 = 5;

/// A bug planted in the library's side.
struct Plant {
    /// Its name in `core/src/plant.rs`.
    bug: &'static str,
    /// The script that shows it.
    script: &'static str,
    shows: Shows,
}

/// How a planted bug shows.
enum Shows {
    /// An outcome has this text, which no outcome of the simulator has.
    Adds(&'static str),
    /// No outcome has this text, which some outcomes of the simulator have.
    Removes(&'static str),
    /// A run fails, with this text.
    Fails(&'static str),
}

const fn plant(bug: &'static str, script: &'static str, shows: Shows) -> Plant {
    Plant { bug, script, shows }
}

/// Bugs of flushes, gates, retries, ends and tags.
const PLANTS: &[Plant] = &[
    plant("ForgetLoss", "failed-flush-alone", Shows::Adds("0:flush=Io 0:flush=0")),
    plant("FailFlush", "failed-flush-is-acknowledged", Shows::Removes("0:flush=0")),
    plant("EnterFrozen", "freeze-beside-submit", Shows::Removes("1:read=Again")),
    plant("DispatchQuiesced", "quiesce-beside-flush", Shows::Removes("1:flush=Again")),
    // The older data of a retry replace those of a later write.
    plant("PassRetry", "write-beside-a-retry", Shows::Adds("1:read=0.0.0 1:write=1 disk=0.0.0")),
    // The retry must be given up if a later write may have been overtaken.
    plant(
        "RetryOvertaken",
        "write-beside-a-retry",
        Shows::Removes("0:write=Medium 0:write=Medium"),
    ),
    plant("WrongMailbox", "overlapping-writes", Shows::Fails("a bio ends once")),
    // The second of three writes is made last.
    plant("TakeBackLast", "threads-wait-for-one-tag", Shows::Adds("disk=0.1.0")),
    plant("DropFreed", "threads-wait-for-one-tag", Shows::Fails("deadlock")),
];

/// The outcomes of each script.
type Outcomes = BTreeMap<String, BTreeSet<String>>;

/// The two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Library,
    Simulator,
}

pub(crate) fn run() -> Outcome {
    let mut library = Side::Library.outcomes(&Search::default())?;
    let mut simulator = Side::Simulator.outcomes(&Search::default())?;
    if library.is_empty() || library.keys().ne(simulator.keys()) {
        return Err("differential: the two sides have not run the same scripts".to_owned());
    }
    for round in 1..ROUNDS {
        let [for_library, for_simulator] =
            [missing(&library, &simulator), missing(&simulator, &library)];
        if for_library.is_empty() && for_simulator.is_empty() {
            break;
        }
        for (side, wanted, outcomes) in [
            (Side::Library, for_library, &mut library),
            (Side::Simulator, for_simulator, &mut simulator),
        ] {
            if !wanted.is_empty() {
                let nr: usize = wanted.values().map(BTreeSet::len).sum();
                println!("differential: round {round}: {side} has not shown {nr} outcomes yet");
                let search = Search { round, wanted: Some(wanted), ..Search::default() };
                add(outcomes, side.outcomes(&search)?);
            }
        }
    }
    let found = differences(&library, &simulator);
    found.iter().for_each(|found| println!("differential: {found}"));
    if !found.is_empty() {
        return Err(format!("differential: {} outcomes differ", found.len()));
    }
    let nr: usize = library.values().map(BTreeSet::len).sum();
    println!("differential: {nr} outcomes of {} scripts are the same", library.len());
    PLANTS.iter().try_for_each(|plant| plant.check(&simulator))
}

impl Plant {
    /// Checks that the comparison finds the bug.
    fn check(&self, simulator: &Outcomes) -> Outcome {
        let Plant { bug, script, shows } = self;
        let search = Search { script: Some(script), bug: Some(bug), ..Search::default() };
        let has = |side: &Outcomes, text: &str| {
            side.get(*script).is_some_and(|all| all.iter().any(|outcome| outcome.contains(text)))
        };
        let (is_found, change, text) = match shows {
            Shows::Adds(text) => {
                let planted = Side::Library.outcomes(&search)?;
                (has(&planted, text) && !has(simulator, text), "adds", text)
            }
            Shows::Removes(text) => {
                let planted = Side::Library.outcomes(&search)?;
                (!has(&planted, text) && has(simulator, text), "removes", text)
            }
            Shows::Fails(text) => {
                let ending = Side::Library.line(&search)?.ending()?;
                let fails = matches!(ending, Ending::Failure(output) if output.contains(text));
                (fails, "fails with", text)
            }
        };
        if !is_found {
            return Err(format!(
                "differential: the planted {bug} is not found: {script} never {change} `{text}`"
            ));
        }
        println!("differential: the planted {bug} is found: {script} {change} `{text}`");
        Ok(())
    }
}

/// One run of a side's program. By default it runs all scripts, without a planted bug.
#[derive(Default)]
struct Search<'a> {
    round: u32,
    script: Option<&'a str>,
    /// Ends the search for each script once these outcomes are found. Other scripts do not run.
    wanted: Option<Outcomes>,
    bug: Option<&'a str>,
}

impl Side {
    /// Runs the side's program, and returns the outcomes that it finds.
    fn outcomes(self, search: &Search<'_>) -> Result<Outcomes, String> {
        let line = self.line(search)?;
        println!("differential: {line}");
        let start = Instant::now();
        let text = line.output()?;
        let seconds = start.elapsed().as_secs_f64();
        println!("differential: {} runs in {seconds:.1} s", nr_runs(&text));
        Ok(parse(&text))
    }

    /// Returns the command that runs the side's program.
    fn line(self, search: &Search<'_>) -> Result<Line, String> {
        let mut line = match self {
            Side::Library => shuttle::test("--package forebay --lib"),
            Side::Simulator => Line::cargo("test --package forebay-sim --test it"),
        };
        let runs = RUNS.iter().find(|(side, ..)| *side == self);
        let &(_, first, later) = runs.expect("each side has an entry");
        let runs = if search.wanted.is_some() { later } else { first };
        line = line
            .variable("FOREBAY_SCRIPT_ROUND", search.round.to_string())
            .variable("FOREBAY_SCRIPT_RUNS", runs.to_string());
        if let Some(script) = search.script {
            line = line.variable("FOREBAY_SCRIPT", script);
        }
        if let Some(bug) = search.bug {
            line = line.variable("FOREBAY_PLANT", bug);
        }
        if let Some(wanted) = &search.wanted {
            let file = format!("{}/wanted-by-{self:?}-{}", target("differential"), search.round);
            let failed = |error| format!("{file}: {error}");
            fs::create_dir_all(target("differential")).map_err(failed)?;
            fs::write(&file, print(wanted)).map_err(failed)?;
            line = line.variable("FOREBAY_SCRIPT_WANTED", file);
        }
        let line = ["--", "--nocapture", "outcomes_of_scripts"]
            .into_iter()
            .fold(line, |line, word| line.argument(word.to_owned()));
        Ok(line)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Library => "the library",
            Side::Simulator => "the simulator",
        })
    }
}

/// Adds up the runs of the lines `search SCRIPT: N outcomes in N runs, newest N`, and prints them.
fn nr_runs(text: &str) -> u64 {
    let searches = text.lines().filter_map(|line| line.strip_prefix("search "));
    let runs = searches.inspect(|search| println!("differential: {search}")).filter_map(|search| {
        let (_, runs) = search.split_once(" outcomes in ")?;
        runs.split_once(' ')?.0.parse::<u64>().ok()
    });
    runs.sum()
}

/// Prints outcomes as lines that [`parse`] reads.
fn print(outcomes: &Outcomes) -> String {
    let lines = outcomes.iter().flat_map(|(script, all)| {
        all.iter().map(move |outcome| format!("outcome {script} {outcome}\n"))
    });
    lines.collect()
}

/// Parses lines of the form `outcome SCRIPT OUTCOME`. The first one may follow the name of the
/// test, which the test harness prints without a line break if it has one thread.
fn parse(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let of_test = |line| str::rsplit_once(line, " ... ").map_or(line, |(_, output)| output);
    let lines = text.lines().map(of_test);
    let lines = lines.filter_map(|line| line.strip_prefix("outcome ")?.split_once(' '));
    for (script, outcome) in lines {
        outcomes.entry(script.to_owned()).or_default().insert(outcome.to_owned());
    }
    outcomes
}

fn add(outcomes: &mut Outcomes, more: Outcomes) {
    for (script, more) in more {
        outcomes.entry(script).or_default().extend(more);
    }
}

/// An outcome that only one side has.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    script: String,
    outcome: String,
    only: Side,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: only in {}: {}", self.script, self.only, self.outcome)
    }
}

/// Returns the outcomes of `all` that `side` has not shown.
fn missing(side: &Outcomes, all: &Outcomes) -> Outcomes {
    let none = BTreeSet::new();
    let missing = all.iter().map(|(script, all)| {
        let shown = side.get(script).unwrap_or(&none);
        (script.clone(), all.difference(shown).cloned().collect::<BTreeSet<_>>())
    });
    missing.filter(|(_, missing)| !missing.is_empty()).collect()
}

/// Lists the outcomes that only one side has.
fn differences(library: &Outcomes, simulator: &Outcomes) -> Vec<Difference> {
    let sides = [(Side::Library, library, simulator), (Side::Simulator, simulator, library)];
    let only = |(only, has, lacks)| {
        let outcomes = missing(lacks, has).into_iter();
        outcomes.flat_map(move |(script, outcomes)| {
            let difference = move |outcome| Difference { script: script.clone(), outcome, only };
            outcomes.into_iter().map(difference)
        })
    };
    sides.into_iter().flat_map(only).collect()
}

#[cfg(test)]
mod tests {
    use super::{Side, add, differences, missing, parse, print};

    #[test]
    fn outcome_of_one_side_is_found_and_named() {
        let library =
            parse("test x ... outcome a 0:write=1 disk=-\noutcome a lost\noutcome b c\nok\n");
        assert!(differences(&library, &library).is_empty());
        let mut simulator = parse("outcome a 0:write=1 disk=-\noutcome b d\n");
        let found = differences(&library, &simulator);
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "a: only in the library: lost",
            "b: only in the library: c",
            "b: only in the simulator: d",
        ];
        assert_eq!(texts, expected);
        assert_eq!(found[2].only, Side::Simulator);
        add(&mut simulator, parse("outcome a lost\noutcome b c\n"));
        assert_eq!(differences(&library, &simulator).len(), 1);
        assert!(missing(&simulator, &library).is_empty());
        let wanted = missing(&library, &simulator);
        assert_eq!(print(&wanted), "outcome b d\n");
        assert_eq!(parse(&print(&simulator)), simulator);
    }
}
