//! `cargo xtask tsan`: tests under ThreadSanitizer, which sees races between real threads.
//!
//! It knows no stand-alone fences, so code that needs one is for loom and Miri to judge.

use crate::command::target;
use crate::suite::{self, Suite};
use crate::{Outcome, nightly};

/// std is built too, or its locks and channels would look like races.
const TEST: &str = "test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir";

const SUITES: &[Suite] = &[
    Suite { target: "--package forebay --lib", names: &["models"], skips: &[] },
    Suite {
        target: "--package forebay --test it",
        names: &["plug", "overlap", "threads", "miri"],
        // It counts on a turn that is faster than 200 us.
        skips: &["a_wait_does_not_wait_for_others"],
    },
];

pub(crate) fn run() -> Outcome {
    nightly::install()?;
    let line =
        nightly::cargo(TEST).argument(target("tsan")).variable("RUSTFLAGS", "-Zsanitizer=thread");
    suite::run("tsan", SUITES, &line)
}
