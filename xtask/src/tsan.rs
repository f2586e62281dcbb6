//! `cargo xtask tsan`: tests under ThreadSanitizer, which detects races between real threads.
//!
//! It does not support stand-alone fences, so loom and Miri check code that needs one.

use crate::command::target;
use crate::suite::{self, Suite};
use crate::{Outcome, nightly};

/// std is instrumented too: otherwise its locks and channels would look like races.
const TEST: &str = "test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir";

const SUITES: &[Suite] = &[
    Suite { target: "--package forebay --lib", names: &["models"], skips: &[] },
    Suite {
        target: "--package forebay --test it",
        names: &["plug", "overlap", "threads", "miri"],
        // This test relies on a turn that takes less than 200 us.
        skips: &["a_wait_does_not_wait_for_others"],
    },
];

pub(crate) fn run() -> Outcome {
    nightly::install()?;
    let line =
        nightly::cargo(TEST).argument(target("tsan")).variable("RUSTFLAGS", "-Zsanitizer=thread");
    suite::run("tsan", SUITES, &line)
}
