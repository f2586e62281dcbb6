//! `cargo xtask miri`: tests in an interpreter that knows undefined behaviour when it meets it.
//!
//! Each test runs with several seeds: they decide who runs when, and which old values a weak load
//! may still see.

use crate::command::Line;
use crate::suite::{self, Suite};
use crate::{Outcome, nightly};

/// Miri is some hundred times slower, and knows neither io_uring nor madvise. The exhaustive tests
/// have one thread, and nothing that it could mind.
const SUITES: &[Suite] = &[
    Suite { target: "--package forebay-core --lib", names: &[], skips: &["exhaustive"] },
    Suite { target: "--package forebay --lib", names: &["models", "miri"], skips: &[] },
    Suite { target: "--package forebay --test it", names: &["miri", "group_commit"], skips: &[] },
];

/// Clocks are real, and integers may become pointers, as they do in a driver's user data.
const FLAGS: &str = "-Zmiri-many-seeds=0..4 -Zmiri-permissive-provenance -Zmiri-disable-isolation";

/// The names of tests are the same whatever the seed.
pub(crate) fn run() -> Outcome {
    nightly::install()?;
    miri("setup").run()?;
    suite::run("miri", SUITES, &miri("test").variable("MIRIFLAGS", FLAGS))
}

/// std as Miri wants it is built once, beside the toolchain.
fn miri(arguments: &str) -> Line {
    nightly::cargo(&format!("miri {arguments}"))
        .variable("MIRI_SYSROOT", nightly::place("miri-sysroot"))
}
