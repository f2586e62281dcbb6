//! How a test reports that it cannot run on this machine.
//!
//! The twin for the other crates' tests is this file, included by its path.

use std::io::Write;

/// Reports that a test, or a part of it, cannot run on this machine, and why. The caller returns
/// after this.
///
/// # Panics
/// If `FOREBAY_REQUIRE_TOOLS=1` is set: then every test must be able to run.
#[track_caller]
pub(crate) fn skip(test: &str, reason: &str) {
    let is_required = std::env::var_os("FOREBAY_REQUIRE_TOOLS").is_some_and(|value| value == "1");
    assert!(!is_required, "{test}: FOREBAY_REQUIRE_TOOLS=1, but {reason}");
    skip_always(test, reason);
}

/// Does the same, but never panics: the kernel or the machine lacks a feature, which no tool and no
/// privilege can add.
///
/// The line goes to the real standard error: libtest captures `eprintln!`, and drops what a test
/// that passes has printed.
pub(crate) fn skip_always(test: &str, reason: &str) {
    let line = format!("{test}: SKIPPED: {reason}\n");
    // It may be closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
