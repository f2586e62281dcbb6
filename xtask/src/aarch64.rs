//! `cargo xtask aarch64`: the workspace compiles for 64-bit ARM. The tests do not run there.

use std::path::Path;

use crate::Outcome;
use crate::command::Line;
use crate::tools;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The C compiler, for ring.
const COMPILER: &str = "aarch64-linux-gnu-gcc";

pub(crate) fn run() -> Outcome {
    if let Err(why) = check_tools() {
        if tools::are_required() {
            return Err(format!("aarch64: {why}"));
        }
        println!("aarch64: SKIPPED: {why}");
        return Ok(());
    }
    let line = Line::cargo(&format!("check --workspace --target {TARGET}"));
    println!("aarch64: {line}");
    line.run()
}

fn check_tools() -> Outcome {
    if !Line::new(COMPILER, "--version").succeeds() {
        return Err(format!("{COMPILER} is not installed (package gcc-aarch64-linux-gnu)"));
    }
    let directory = Line::new("rustc", &format!("--print target-libdir --target {TARGET}"));
    match Path::new(directory.output()?.trim()).exists() {
        true => Ok(()),
        false => Err(format!("the target is not installed: rustup target add {TARGET}")),
    }
}
