//! `cargo xtask outside`: builds and runs a user's program, which is not a member of the workspace
//! and uses only the published API of the library. It shares the target directory of the workspace.

use crate::Outcome;
use crate::command::{Line, root, target};
use std::fs;

pub(crate) fn run() -> Outcome {
    let package = root().join("tests/outside");
    // The same versions, so that little is built twice. Cargo removes unused packages from the
    // copy.
    let copied = fs::copy(root().join("Cargo.lock"), package.join("Cargo.lock"));
    copied.map_err(|error| format!("outside: Cargo.lock cannot be copied: {error}"))?;
    // Its panics are expected.
    Line::cargo("run --quiet --manifest-path")
        .argument(package.join("Cargo.toml").display().to_string())
        .argument("--target-dir".to_owned())
        .argument(target(""))
        .variable("RUST_BACKTRACE", "0")
        .run()
}
