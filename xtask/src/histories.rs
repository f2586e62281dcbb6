//! `cargo xtask histories`: checks every short history of bios on a device with a volatile cache,
//! with a crash at each point in time.
//!
//! `--all` adds histories of four bios with one failure each, which takes ten minutes.

use crate::Outcome;
use crate::command::Line;
use crate::suite::{self, Suite};

const SUITES: &[Suite] = &[Suite {
    target: "--package forebay-sim --test it",
    names: &["--ignored", "--nocapture", "every_history"],
    skips: &[],
}];

const ALL: &[Suite] = &[Suite {
    target: "--package forebay-sim --test it",
    names: &["--ignored", "--nocapture", "histories"],
    skips: &[],
}];

pub(crate) fn run() -> Outcome {
    suite::run("histories", SUITES, &Line::cargo("test --release"))
}

pub(crate) fn run_all() -> Outcome {
    suite::run("histories", ALL, &Line::cargo("test --release"))
}
