//! `cargo xtask sessions`: simulates NBD clients, guests and a server in virtual time, from many
//! seeds.

use crate::Outcome;
use crate::command::Line;
use crate::suite::{self, Suite};

const SUITES: &[Suite] = &[Suite {
    target: "--package forebay-sim --test it",
    names: &["--ignored", "--nocapture", "thousands_of_seeds_of_nbd", "thousands_of_seeds_of_blk"],
    skips: &[],
}];

pub(crate) fn run() -> Outcome {
    suite::run("sessions", SUITES, &Line::cargo("test --release"))
}
