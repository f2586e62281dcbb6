//! Programs that a step needs beside cargo.

/// Returns whether a step must fail where a program is missing, instead of being skipped:
/// `FOREBAY_REQUIRE_TOOLS=1`, as CI sets it.
pub(crate) fn are_required() -> bool {
    std::env::var_os("FOREBAY_REQUIRE_TOOLS").is_some_and(|value| value == "1")
}
