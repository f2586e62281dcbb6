//! `cargo xtask shuttle [SEED]`: large models of concurrent code, in random schedules.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::Outcome;
use crate::command::{Line, target};
use crate::suite::{self, Suite};

const SUITES: &[Suite] = &[
    Suite { target: "--package forebay-core --test shuttle", names: &[], skips: &[] },
    Suite { target: "--package forebay --lib", names: &["shuttle", "models"], skips: &[] },
];

/// Without a seed, another one each time: it is part of the line that is printed.
pub(crate) fn run(seed: Option<u64>) -> Outcome {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = seed.unwrap_or_else(|| now().as_nanos() as u64);
    println!("shuttle: the same once more: cargo xtask shuttle {seed}");
    let line = Line::cargo("test --profile models --target-dir")
        .argument(target("shuttle"))
        .variable("RUSTFLAGS", "--cfg blk_shuttle")
        .variable("SHUTTLE_RANDOM_SEED", seed.to_string())
        // It says each time that it knows no weak memory; loom does.
        .variable("SHUTTLE_SILENCE_WARNINGS", "1");
    suite::run("shuttle", SUITES, &line)
}
