//! Search for the outcomes of scripts: how often each script runs, and with which seeds.
//!
//! Two programs compile this file, as they do with the scripts. `cargo xtask differential` directs
//! both by variables:
//!
//! | variable | value |
//! |---|---|
//! | `FOREBAY_SCRIPT` | the name of a script: no other runs |
//! | `FOREBAY_SCRIPT_RUNS` | the largest number of runs of each script |
//! | `FOREBAY_SCRIPT_ROUND` | the number of the round: each round has seeds of its own |
//! | `FOREBAY_SCRIPT_WANTED` | a file of outcomes: the search is for these alone |
//!
//! The file has the lines that the programs print. Only the scripts in it run, each until its
//! outcomes are found. Without wanted outcomes a search ends when new outcomes have become rare:
//! when it has run `PATIENCE` times as often as it took to find the newest one. So the scripts
//! with many outcomes get most of the runs.

use super::script::Script;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The least number of runs of a script, if no outcome is wanted.
const RUNS_MIN: u64 = 3_000;

/// A search ends after this many times the runs that it took to find the newest outcome.
const PATIENCE: u64 = 10;

/// The number of seeds of a round, more than there are runs.
const ROUND: u64 = 1 << 32;

/// The search for the outcomes of one script.
#[derive(Clone, Debug)]
pub struct Search {
    script: Script,
    first_seed: u64,
    runs_max: u64,
    nr_runs: u64,
    /// The number of runs after which the newest outcome was found.
    newest: u64,
    found: BTreeSet<String>,
    /// Outcomes that are not found yet; `None` if none was wanted.
    wanted: Option<BTreeSet<String>>,
}

impl Search {
    fn new(script: Script, round: u64, runs_max: u64, wanted: Option<BTreeSet<String>>) -> Search {
        let first_seed = round * ROUND;
        Search {
            script,
            first_seed,
            runs_max,
            nr_runs: 0,
            newest: 0,
            found: BTreeSet::new(),
            wanted,
        }
    }

    /// Returns the script.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Returns the seed of the next run, or `None` once the search is over.
    pub fn next_seed(&mut self) -> Option<u64> {
        let is_done = match &self.wanted {
            Some(wanted) => wanted.is_empty(),
            None => self.nr_runs >= RUNS_MIN.max(PATIENCE * self.newest),
        };
        if is_done || self.nr_runs >= self.runs_max {
            return None;
        }
        self.nr_runs += 1;
        Some(self.first_seed + self.nr_runs)
    }

    /// Adds the outcome of a run.
    pub fn add(&mut self, outcome: String) {
        if let Some(wanted) = &mut self.wanted {
            wanted.remove(&outcome);
        }
        if self.found.insert(outcome) {
            self.newest = self.nr_runs;
        }
    }

    /// Returns the outcomes as lines, and a comment about the effort.
    pub fn report(&self) -> String {
        let Search { script, nr_runs, newest, found, .. } = self;
        let lines = found.iter().map(|outcome| format!("outcome {} {outcome}\n", script.name));
        let (lines, nr) = (lines.collect::<String>(), found.len());
        format!("{lines}search {}: {nr} outcomes in {nr_runs} runs, newest {newest}", script.name)
    }
}

/// Runs `explore` for each script that the variables select, in several threads. It runs its
/// script as long as the search has seeds. `runs_max` applies if no variable has another number.
///
/// # Panics
/// Panics if a variable has no valid value, or a run panics.
pub fn search_all(runs_max: u64, explore: impl Fn(Search) -> Search + Sync) -> Vec<Search> {
    let searches = selected(runs_max);
    let nr_threads = number("RUST_TEST_THREADS")
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, |nr| nr.get() as u64));
    let done = Mutex::new(BTreeMap::new());
    let waiting = Mutex::new(searches.into_iter().enumerate());
    let work = || {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((at, search)) = next else { return };
            let named = Named(search.script.name.clone());
            let search = explore(search);
            drop(named);
            done.lock().unwrap_or_else(PoisonError::into_inner).insert(at, search);
        }
    };
    thread::scope(|scope| (0..nr_threads).for_each(|_| drop(scope.spawn(work))));
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Returns the searches that the variables select.
fn selected(runs_max: u64) -> Vec<Search> {
    let runs_max = number("FOREBAY_SCRIPT_RUNS").unwrap_or(runs_max);
    let round = number("FOREBAY_SCRIPT_ROUND").unwrap_or(0);
    let only = env::var("FOREBAY_SCRIPT").ok();
    let wanted = env::var("FOREBAY_SCRIPT_WANTED").ok().map(|file| {
        parse(&std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}")))
    });
    let mut searches = Vec::new();
    for script in Script::all() {
        if only.as_ref().is_some_and(|only| *only != script.name) {
            continue;
        }
        let wanted = match &wanted {
            None => None,
            Some(wanted) => match wanted.get(&script.name) {
                None => continue,
                wanted => wanted.cloned(),
            },
        };
        searches.push(Search::new(script, round, runs_max, wanted));
    }
    searches
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}

/// Parses lines of the form `outcome SCRIPT OUTCOME`.
fn parse(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut outcomes = BTreeMap::<_, BTreeSet<String>>::new();
    for line in text.lines() {
        let parts = line.strip_prefix("outcome ").and_then(|line| line.split_once(' '));
        let (script, outcome) = parts.unwrap_or_else(|| panic!("`{line}` is no outcome"));
        outcomes.entry(script.to_owned()).or_default().insert(outcome.to_owned());
    }
    outcomes
}

/// Prints the name of a script if its run panics.
struct Named(String);

impl Drop for Named {
    #[allow(clippy::print_stderr, reason = "the panic's own message does not name the script")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("script {} has failed", self.0);
        }
    }
}
