//! `cargo xtask nightly`: installs the nightly toolchain that Miri and ThreadSanitizer need.
//!
//! It has its own rustup home, so that the user's toolchains do not change. The version is fixed,
//! because another one may reject code that this one accepts.

use std::env;
use std::path::Path;

use crate::Outcome;
use crate::command::{Line, target};
use crate::tools;

const VERSION: &str = "nightly-2026-05-20";

/// Environment variable with the directory of the toolchain, so that checkouts can share it. The
/// default is `rustup-nightly` in the target directory.
const HOME: &str = "FOREBAY_NIGHTLY_HOME";

/// Installs the missing components.
pub(crate) fn install() -> Outcome {
    if is_installed() {
        println!("nightly: {VERSION} is in {}", home());
        return Ok(());
    }
    println!("nightly: {VERSION} with miri and rust-src, 0.7 GB, to {}", home());
    rustup("toolchain install --profile minimal --component miri --component rust-src")
        .argument("--no-self-update".to_string())
        .argument(VERSION.to_string())
        .run()
}

/// Returns whether `step` of `ci` runs. Without the toolchain it is skipped by name, unless tools
/// are required.
pub(crate) fn is_there_for(step: &str) -> bool {
    if is_installed() || tools::are_required() {
        return true;
    }
    println!("{step}: SKIPPED, {VERSION} is not installed; CI has it; install it with");
    println!("      cargo xtask nightly");
    false
}

/// Returns a command of the nightly cargo.
pub(crate) fn cargo(arguments: &str) -> Line {
    rustup(&format!("run {VERSION} cargo {arguments}"))
}

/// Returns a directory for files built for this toolchain only.
pub(crate) fn place(name: &str) -> String {
    format!("{}/{VERSION}-{name}", home())
}

pub(crate) fn is_installed() -> bool {
    // For a missing toolchain, rustup would print an error.
    if !Path::new(&home()).join("toolchains").exists() {
        return false;
    }
    let components = rustup(&format!("component list --installed --toolchain {VERSION}")).output();
    components.is_ok_and(|list| ["miri", "rust-src"].iter().all(|name| list.contains(name)))
}

fn rustup(arguments: &str) -> Line {
    Line::new("rustup", arguments).variable("RUSTUP_HOME", home())
}

fn home() -> String {
    env::var(HOME).unwrap_or_else(|_| target("rustup-nightly"))
}
