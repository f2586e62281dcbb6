//! Programs that a step needs in addition to cargo.

/// Returns whether a step must fail if a program is missing, instead of being skipped. CI sets
/// `FOREBAY_REQUIRE_TOOLS=1`.
pub(crate) fn are_required() -> bool {
    std::env::var_os("FOREBAY_REQUIRE_TOOLS").is_some_and(|value| value == "1")
}
