//! Third-party programs, each with a timeout.

use std::process::{Command, Output};

use crate::common::{skip_without, stderr, stdout};
use tempfile::TempDir;

/// Timeout of a program, in seconds. All of them need only seconds, unless they hang.
const LIMIT: &str = "120";

/// Returns whether a tool is installed. If not, skips the test by name.
#[track_caller]
pub(crate) fn is_there(tool: &str, test: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(tool).exists());
    if !is_there {
        skip_without(tool, test);
    }
    is_there
}

/// Runs a program in `folder`, and returns its output, whatever its exit status is.
#[track_caller]
pub(crate) fn try_run(folder: &TempDir, tool: &str, args: &[&str]) -> Output {
    let output = Command::new("timeout")
        .args(["--kill-after=5", LIMIT, tool])
        .args(args)
        .current_dir(folder.path())
        .output()
        .expect("timeout is in coreutils");
    assert_ne!(output.status.code(), Some(124), "{tool} {args:?} hangs: {}", stderr(&output));
    output
}

/// Runs a program that must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn run(folder: &TempDir, tool: &str, args: &[&str]) -> String {
    let output = try_run(folder, tool, args);
    let said = stderr(&output);
    let end = said.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
    assert!(output.status.success(), "{tool} {args:?}: {}: {}", output.status, &said[end..]);
    stdout(&output)
}
