//! `cargo xtask plants`: bugs planted in the code that ships, each found by its rule.
//!
//! The bugs are compiled with `--cfg forebay_plant` only. A run of the simulator chooses one of
//! them. The test prints the table: bug, number of seeds, and the rule that has found it.

use crate::Outcome;
use crate::command::{Line, target};
use crate::suite::{self, Suite};

const SUITES: &[Suite] = &[Suite {
    target: "--package forebay-sim --test it",
    names: &[
        "--nocapture",
        "plants::",
        "every_planted_bug_of_nbd",
        "every_planted_bug_of_blk",
        "every_planted_bug_of_the_hold",
    ],
    skips: &[],
}];

pub(crate) fn run() -> Outcome {
    // A separate directory: switching flags in a shared one would rebuild everything each time.
    let line = Line::cargo("test --target-dir")
        .argument(target("plants"))
        .variable("RUSTFLAGS", "--cfg forebay_plant");
    suite::run("plants", SUITES, &line)
}
