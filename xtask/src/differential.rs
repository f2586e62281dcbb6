//! `cargo xtask differential`: runs the same scripts by the library's threads under shuttle and by
//! the simulator's tasks, and compares the sets of their outcomes.
//!
//! The simulator shows properties of its own run of the core. This step shows that the library
//! does the same: no script ends in one of them as it cannot end in the other. The two sides
//! cannot be one program, because the core's atomics are shuttle's in one and the processor's in
//! the other. So each prints its outcomes as lines.
//!
//! Both sides try random interleavings, so one of them may miss a rare outcome. A script with a
//! difference is run again, longer, before the difference counts. At last a bug is planted in the
//! library's side, and the comparison must find it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::command::{Line, target};

/// The runs of a script in the simulator, and the schedules of each of shuttle's two kinds.
const SIM_RUNS: u32 = 3_000;
const SHUTTLE_RUNS: u32 = 1_000;

/// By how much more a script with a difference is tried.
const LONGER: u32 = 20;

/// The bugs that are planted in the library's side, each with the script that shows it.
const PLANTS: [(&str, &str); 2] =
    [("ForgetLoss", "failed-flush-alone"), ("EnterFrozen", "freeze-beside-submit")];

/// The outcomes of each script.
type Outcomes = BTreeMap<String, BTreeSet<String>>;

/// The two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Library,
    Simulator,
}

pub(crate) fn run() -> Outcome {
    let mut library = Side::Library.outcomes(None, 1, None)?;
    let mut simulator = Side::Simulator.outcomes(None, 1, None)?;
    if library.is_empty() || library.keys().ne(simulator.keys()) {
        return Err("differential: the two sides have not run the same scripts".to_owned());
    }
    let again: BTreeSet<String> =
        differences(&library, &simulator).into_iter().map(|found| found.script).collect();
    for script in &again {
        println!("differential: {script}: once more, longer, because the outcomes differ");
        add(&mut library, Side::Library.outcomes(Some(script), LONGER, None)?);
        add(&mut simulator, Side::Simulator.outcomes(Some(script), LONGER, None)?);
    }
    let found = differences(&library, &simulator);
    found.iter().for_each(|found| println!("differential: {found}"));
    if !found.is_empty() {
        return Err(format!("differential: {} outcomes differ", found.len()));
    }
    let nr: usize = library.values().map(BTreeSet::len).sum();
    println!("differential: {nr} outcomes of {} scripts are the same", library.len());
    for (bug, script) in PLANTS {
        let planted = Side::Library.outcomes(Some(script), 1, Some(bug))?;
        let own = simulator.get_key_value(script).map(|(name, own)| (name.clone(), own.clone()));
        let found = differences(&planted, &own.into_iter().collect());
        match found.first() {
            Some(found) => println!("differential: the planted {bug} is found: {found}"),
            None => return Err(format!("differential: the planted {bug} is not found")),
        }
    }
    Ok(())
}

impl Side {
    /// Runs all scripts, or one, and returns their outcomes.
    fn outcomes(
        self,
        script: Option<&str>,
        times: u32,
        bug: Option<&str>,
    ) -> Result<Outcomes, String> {
        let mut line = match self {
            // The seed is fixed: the same code has the same outcomes.
            Side::Library => Line::cargo("test --profile models --package forebay --lib")
                .argument("--target-dir".to_owned())
                .argument(target("differential"))
                .variable("RUSTFLAGS", "--cfg blk_shuttle --cfg forebay_plant")
                .variable("SHUTTLE_SILENCE_WARNINGS", "1")
                .variable("SHUTTLE_RANDOM_SEED", "1")
                .variable("BLK_SHUTTLE_SCHEDULES", (times * SHUTTLE_RUNS).to_string()),
            Side::Simulator => Line::cargo("test --package forebay-sim --test it")
                .variable("FOREBAY_SCRIPT_RUNS", (times * SIM_RUNS).to_string()),
        };
        if let Some(script) = script {
            line = line.variable("FOREBAY_SCRIPT", script);
        }
        if let Some(bug) = bug {
            line = line.variable("FOREBAY_PLANT", bug);
        }
        let line = ["--", "--nocapture", "outcomes_of_scripts"]
            .into_iter()
            .fold(line, |line, word| line.argument(word.to_owned()));
        println!("differential: {line}");
        Ok(parse(&line.output()?))
    }
}

/// Parses lines of the form `outcome SCRIPT OUTCOME`.
fn parse(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let lines = text.lines().filter_map(|line| line.strip_prefix("outcome ")?.split_once(' '));
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

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = match self.only {
            Side::Library => "the library",
            Side::Simulator => "the simulator",
        };
        write!(f, "{}: only in {side}: {}", self.script, self.outcome)
    }
}

/// Lists the outcomes that only one side has.
fn differences(library: &Outcomes, simulator: &Outcomes) -> Vec<Difference> {
    let none = BTreeSet::new();
    let scripts: BTreeSet<_> = library.keys().chain(simulator.keys()).collect();
    let mut found = Vec::new();
    for script in scripts {
        let [a, b] = [library, simulator].map(|side| side.get(script).unwrap_or(&none));
        for (only, has, lacks) in [(Side::Library, a, b), (Side::Simulator, b, a)] {
            found.extend(has.difference(lacks).map(|outcome| Difference {
                script: script.clone(),
                outcome: outcome.clone(),
                only,
            }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Side, add, differences, parse};

    #[test]
    fn outcome_of_one_side_is_found_and_named() {
        let library = parse("test x\noutcome a 0:write=1 disk=-\noutcome a lost\noutcome b c\n");
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
    }
}
