//! `cargo xtask bare`: builds core, models and protocol for a machine without an operating system.
//!
//! `#![no_std]` alone does not prove much: a dependency or a feature may bring std back. A target
//! that has no std at all cannot be fooled.

use std::path::Path;

use crate::Outcome;
use crate::command::Line;

/// Has `core` and `alloc` and nothing else, and rustup ships it ready-made.
const TARGET: &str = "x86_64-unknown-none";

/// What must do without an operating system.
const PACKAGES: &[&str] = &["forebay-core", "forebay-model", "forebay-nbd"];

pub(crate) fn run() -> Outcome {
    if !installed()? {
        Line::new("rustup", &format!("target add {TARGET}")).run()?;
    }
    for package in PACKAGES {
        Line::cargo(&format!("build --quiet --package {package} --lib --target {TARGET}")).run()?;
        println!("bare: {package} builds for {TARGET}");
    }
    Ok(())
}

/// Asks the compiler in use, not rustup: the target may have come by another way.
fn installed() -> Result<bool, String> {
    let directory = Line::new("rustc", &format!("--print target-libdir --target {TARGET}"));
    Ok(Path::new(directory.output()?.trim()).exists())
}
