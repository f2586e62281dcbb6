//! Reports tests that cannot run on this machine.
//!
//! The tests of other crates include this file by its path.

use std::io::Write;

/// Reports that a test, or a part of it, cannot run on this machine, and why. The caller returns
/// after this call.
///
/// # Panics
/// If `FOREBAY_REQUIRE_TOOLS=1` is set: then every test must be able to run.
#[track_caller]
pub(crate) fn skip(test: &str, reason: &str) {
    let is_required = std::env::var_os("FOREBAY_REQUIRE_TOOLS").is_some_and(|value| value == "1");
    assert!(!is_required, "{test}: FOREBAY_REQUIRE_TOOLS=1, but {reason}");
    skip_always(test, reason);
}

/// Does the same, but never panics: the kernel or the machine lacks a feature, which no tool or
/// privilege can add.
///
/// The line goes to the real standard error: libtest captures `eprintln!`, and drops the output of
/// a test that passes.
pub(crate) fn skip_always(test: &str, reason: &str) {
    let line = format!("{test}: SKIPPED: {reason}\n");
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
