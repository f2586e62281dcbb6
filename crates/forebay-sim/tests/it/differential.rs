//! The outcomes of scripts in the simulator, as lines: `cargo xtask differential` compares them
//! with those of the library's threads.

use forebay_sim::differential::run_script;
use forebay_sim::differential::script::Script;
use std::collections::BTreeSet;

/// Runs of each script, unless the variable below has another number.
const NR_SEEDS: u64 = 300;

/// Prints the outcomes of each script, or of the one that a variable names.
#[allow(clippy::print_stdout, reason = "another program compares the lines")]
#[test]
fn outcomes_of_scripts_break_no_rule() {
    let number = std::env::var("FOREBAY_SCRIPT_RUNS").ok();
    let nr_seeds = number.map_or(NR_SEEDS, |number| number.parse().expect("a number"));
    let only = std::env::var("FOREBAY_SCRIPT").ok();
    for script in Script::all() {
        if only.as_ref().is_some_and(|only| *only != script.name) {
            continue;
        }
        let run = |seed| match run_script(&script, seed) {
            Ok(outcome) => outcome.line(&script),
            Err(violation) => panic!("{}: {violation}", script.name),
        };
        let outcomes: BTreeSet<String> = (0..nr_seeds).map(run).collect();
        for outcome in &outcomes {
            println!("outcome {} {outcome}", script.name);
        }
    }
}
