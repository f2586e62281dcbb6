//! The outcomes of scripts in the simulator, as lines: `cargo xtask differential` compares them
//! with those of the library's threads.

use forebay_sim::differential::run_script;
use forebay_sim::differential::search::{Search, search_all};

/// Runs of each script, unless a variable has another number.
const RUNS_MAX: u64 = 300;

/// Prints the outcomes of each script.
#[allow(clippy::print_stdout, reason = "another program compares the lines")]
#[test]
fn outcomes_of_scripts_break_no_rule() {
    for search in search_all(RUNS_MAX, explore) {
        println!("{}", search.report());
    }
}

fn explore(mut search: Search) -> Search {
    while let Some(seed) = search.next_seed() {
        let script = search.script();
        let outcome = match run_script(script, seed) {
            Ok(outcome) => outcome.line(script),
            Err(violation) => panic!("{}: {violation}", script.name),
        };
        search.add(outcome);
    }
    search
}
