//! A test that cannot run here says so, or fails where every test must run.

use crate::common::run_again;
use crate::skip::skip;

#[test]
fn a_skipped_test_is_reported_though_its_output_is_captured() {
    let test = "skips::a_skipped_test_is_reported_though_its_output_is_captured";
    let Some(output) = run_again(test, ("FOREBAY_REQUIRE_TOOLS", "")) else {
        return skip("this", "there is no such tool");
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("this: SKIPPED: there is no such tool\n"), "{stderr}");
}

#[test]
fn a_skipped_test_fails_where_all_tools_are_required() {
    let test = "skips::a_skipped_test_fails_where_all_tools_are_required";
    let Some(output) = run_again(test, ("FOREBAY_REQUIRE_TOOLS", "1")) else {
        return skip("this", "there is no such tool");
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{stdout}");
    let expected = "this: FOREBAY_REQUIRE_TOOLS=1, but there is no such tool";
    assert!(stdout.contains(expected), "{stdout}");
}
