//! `cargo xtask miri`: tests in an interpreter that knows undefined behaviour when it meets it.
//!
//! Tests of threads run with several seeds: they decide who runs when, and which old values a weak
//! load may still see.

use crate::command::Line;
use crate::suite::{self, Suite};
use crate::{Outcome, nightly};

/// One thread and no `unsafe`: another seed would do the same. The exhaustive tests, and those that
/// take minutes here, repeat safe code thousands of times.
const ALONE: &[Suite] = &[Suite {
    target: "--package forebay-core --lib",
    names: &[],
    skips: &["exhaustive", "counters_that_wrap_around", "what_is_no_longer_remembered"],
}];

/// Miri is some hundred times slower, and knows neither io_uring nor madvise.
const THREADS: &[Suite] = &[
    Suite { target: "--package forebay --lib", names: &["models", "miri"], skips: &[] },
    Suite { target: "--package forebay --test it", names: &["miri", "group_commit"], skips: &[] },
];

/// Clocks are real, and integers may become pointers, as they do in a driver's user data.
const FLAGS: &str = "-Zmiri-permissive-provenance -Zmiri-disable-isolation";
const SEEDS: &str = "-Zmiri-many-seeds=0..2";

/// The names of tests are the same whatever the seed.
pub(crate) fn run() -> Outcome {
    nightly::install()?;
    miri("setup").run()?;
    // A test that has to panic would take a second to find the names of its callers.
    let test = miri("test").variable("RUST_BACKTRACE", "0");
    suite::run("miri", ALONE, &test.clone().variable("MIRIFLAGS", FLAGS))?;
    suite::run("miri", THREADS, &test.variable("MIRIFLAGS", format!("{SEEDS} {FLAGS}")))
}

/// std as Miri wants it is built once, beside the toolchain.
fn miri(arguments: &str) -> Line {
    nightly::cargo(&format!("miri {arguments}"))
        .variable("MIRI_SYSROOT", nightly::place("miri-sysroot"))
}
