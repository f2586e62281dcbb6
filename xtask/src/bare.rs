//! `cargo xtask bare`: builds core, models and protocol for a target without an operating system.
//!
//! `#![no_std]` alone proves little: a dependency or a feature may bring std back. A target without
//! std detects that reliably.
//!
//! It also checks the library without optional features, and with each alone ([`features`]).

use std::path::Path;

use crate::command::Line;
use crate::{Outcome, features};

/// A target with only `core` and `alloc`, for which rustup ships a prebuilt library.
const TARGET: &str = "x86_64-unknown-none";

/// Packages that must build without an operating system.
const PACKAGES: &[&str] = &["forebay-core", "forebay-model", "forebay-nbd"];

pub(crate) fn run() -> Outcome {
    if !installed()? {
        Line::new("rustup", &format!("target add {TARGET}")).run()?;
    }
    for package in PACKAGES {
        Line::cargo(&format!("build --quiet --package {package} --lib --target {TARGET}")).run()?;
        println!("bare: {package} builds for {TARGET}");
    }
    features::check()
}

/// Queries the compiler in use rather than rustup: the target may be installed in another way.
fn installed() -> Result<bool, String> {
    let directory = Line::new("rustc", &format!("--print target-libdir --target {TARGET}"));
    Ok(Path::new(directory.output()?.trim()).exists())
}
