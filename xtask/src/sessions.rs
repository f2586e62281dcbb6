//! `cargo xtask sessions`: simulates NBD clients, guests and a server in virtual time, from many
//! seeds.
//!
//! Without an argument it runs a quarter of the seeds, selected by the hash of the commit. `--all`
//! runs all of them.

use crate::Outcome;
use crate::command::Line;
use crate::commit;
use crate::suite::{self, Suite};

/// Number of parts of the seeds; a CI run takes one of them.
const NR_PARTS: u32 = 4;

const SUITES: &[Suite] = &[Suite {
    target: "--package forebay-sim --test it",
    names: &["--ignored", "--nocapture", "thousands_of_seeds_of_nbd", "thousands_of_seeds_of_blk"],
    skips: &[],
}];

pub(crate) fn run_part() -> Outcome {
    let number = commit::number()
        .map_err(|why| format!("sessions: {why}; `cargo xtask sessions --all` needs no commit"))?;
    run_parts([number % NR_PARTS])
}

pub(crate) fn run_all() -> Outcome {
    run_parts(0..NR_PARTS)
}

fn run_parts(parts: impl IntoIterator<Item = u32>) -> Outcome {
    parts.into_iter().try_for_each(|part| {
        println!("sessions: part {} of {NR_PARTS} of the seeds", part + 1);
        let part = format!("{part}/{NR_PARTS}");
        let line = Line::cargo("test --release").variable("FOREBAY_SEEDS_PART", part);
        suite::run("sessions", SUITES, &line)
    })
}
