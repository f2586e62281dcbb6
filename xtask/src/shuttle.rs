//! `cargo xtask shuttle [SEED]`: checks large models of concurrent code in random schedules.
//!
//! Without a seed it first runs the models that failed before under the seeds recorded for them
//! (`xtask/shuttle-seeds.txt`), then all models under a new seed.

mod seeds;

use std::time::{SystemTime, UNIX_EPOCH};

use self::seeds::{Recorded, failed_tests};
use crate::Outcome;
use crate::command::{Line, root, target};
use crate::suite::{self, Suite};

/// The packages with models, and their suites.
const SUITES: [(&str, Suite); 2] = [
    (
        "forebay-core",
        Suite { target: "--package forebay-core --test shuttle", names: &[], skips: &[] },
    ),
    (
        "forebay",
        Suite { target: "--package forebay --lib", names: &["shuttle", "models"], skips: &[] },
    ),
];

/// Number of schedules of each kind with a new seed, unless the user has set [`SCHEDULES`].
/// Recorded seeds run as many schedules as when they failed.
const NR_SCHEDULES: u32 = 2500;
const SCHEDULES: &str = "BLK_SHUTTLE_SCHEDULES";

/// Path relative to the root of the checkout.
const SEEDS: &str = "xtask/shuttle-seeds.txt";

pub(crate) fn run(seed: Option<u64>) -> Outcome {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if seed.is_none() {
        run_recorded(&recorded()?)?;
    }
    let seed = seed.unwrap_or_else(|| now().as_nanos() as u64);
    println!("shuttle: the same once more: cargo xtask shuttle {seed}");
    for (package, suite) in &SUITES {
        let nr_schedules = std::env::var(SCHEDULES).unwrap_or_else(|_| NR_SCHEDULES.to_string());
        let line = line(seed).variable(SCHEDULES, nr_schedules);
        let (line, nr) = suite::line("shuttle", suite, &line)?;
        println!("shuttle: {nr} tests: {line}");
        let ran = line.run_and_keep()?;
        if ran.succeeded {
            continue;
        }
        let lines = failed_tests(&ran.stdout).map(|test| Recorded::line(package, test, seed));
        let lines: Vec<String> = lines.collect();
        let next = match lines.is_empty() {
            true => "the program ended before it named the model that failed".to_owned(),
            false => format!("add to {SEEDS}:\n{}", lines.join("\n")),
        };
        return Err(format!("shuttle: a model fails with the seed {seed}; {next}"));
    }
    Ok(())
}

/// Runs each recorded model under its recorded seed.
fn run_recorded(recorded: &[Recorded]) -> Outcome {
    for Recorded { package, test, seed } in recorded {
        let suite = SUITES.iter().find(|(name, _)| name == package);
        let (_, suite) = suite.ok_or(format!("{SEEDS}: `{package}` has no shuttle models"))?;
        let suite = Suite { names: &[], ..*suite };
        let (line, _) = suite::line("shuttle", &suite, &line(*seed))?;
        let line = ["--exact", test].map(str::to_owned).into_iter().fold(line, Line::argument);
        let listed = line.clone().argument("--list".to_owned()).output()?;
        if !listed.lines().any(|line| *line == format!("{test}: test")) {
            return Err(format!("{SEEDS}: {package} has no model `{test}`: remove its line"));
        }
        println!("shuttle: a seed that has failed before: {line}");
        line.run()?;
    }
    Ok(())
}

fn recorded() -> Result<Vec<Recorded>, String> {
    let text = std::fs::read_to_string(root().join(SEEDS));
    Recorded::parse(&text.map_err(|error| format!("{SEEDS}: {error}"))?)
        .map_err(|error| format!("{SEEDS}: {error}"))
}

fn line(seed: u64) -> Line {
    test("").variable("SHUTTLE_RANDOM_SEED", seed.to_string())
}

/// Returns a command that builds and runs tests under shuttle. The step `differential` uses the
/// same build, so it has the planted bugs, of which none shows by itself.
pub(crate) fn test(arguments: &str) -> Line {
    Line::cargo(&format!("test --profile models {arguments} --target-dir"))
        .argument(target("shuttle"))
        .variable("RUSTFLAGS", "--cfg blk_shuttle --cfg forebay_plant")
        // Shuttle prints each time that it does not model weak memory; loom does.
        .variable("SHUTTLE_SILENCE_WARNINGS", "1")
}

#[cfg(test)]
mod tests {
    use super::{SUITES, recorded};

    #[test]
    fn the_recorded_seeds_are_of_known_packages() {
        for seed in recorded().unwrap() {
            assert!(SUITES.iter().any(|(name, _)| *name == seed.package), "{}", seed.package);
        }
    }
}
