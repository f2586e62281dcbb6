//! `cargo xtask nightly`: the one nightly toolchain that Miri and ThreadSanitizer need.
//!
//! It lives in a rustup home of its own, so that the user's toolchains stay as they are. The
//! version is fixed: another one may reject what this one takes.

use std::env;
use std::path::Path;

use crate::Outcome;
use crate::command::{Line, target};

const VERSION: &str = "nightly-2026-05-20";

/// Where the toolchain is kept, so that checkouts may share it; `rustup-nightly` in the target
/// directory if it is not set.
const HOME: &str = "FOREBAY_NIGHTLY_HOME";

/// Installs what is missing.
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

/// For a step of `ci`: whether it is to run. Says by name what is skipped where the toolchain is
/// not installed. With `FOREBAY_REQUIRE_TOOLS=1` nothing is skipped.
pub(crate) fn is_there_for(step: &str) -> bool {
    if is_installed() || env::var_os("FOREBAY_REQUIRE_TOOLS").is_some_and(|value| value == "1") {
        return true;
    }
    println!("{step}: SKIPPED, {VERSION} is not installed; CI has it; install it with");
    println!("      cargo xtask nightly");
    false
}

/// A command of the nightly cargo.
pub(crate) fn cargo(arguments: &str) -> Line {
    rustup(&format!("run {VERSION} cargo {arguments}"))
}

/// A place for what is built for this toolchain and no other.
pub(crate) fn place(name: &str) -> String {
    format!("{}/{VERSION}-{name}", home())
}

pub(crate) fn is_installed() -> bool {
    // Asked for a toolchain that is not there, rustup would print an error.
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
