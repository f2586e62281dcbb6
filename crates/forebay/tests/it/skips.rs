//! A test that cannot run on this machine reports that, or fails where every test must run.

use crate::common::{LoopDevice, run_again};
use crate::skip::skip;
use crate::thin_device::ThinDevice;

#[test]
fn a_skipped_test_is_reported_though_its_output_is_captured() {
    let test = "skips::a_skipped_test_is_reported_though_its_output_is_captured";
    let Some(output) = run_again(test, &[("FOREBAY_REQUIRE_TOOLS", "")]) else {
        return skip("this", "there is no such tool");
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("this: SKIPPED: there is no such tool\n"), "{stderr}");
}

#[test]
fn a_skipped_test_fails_where_all_tools_are_required() {
    let test = "skips::a_skipped_test_fails_where_all_tools_are_required";
    let Some(output) = run_again(test, &[("FOREBAY_REQUIRE_TOOLS", "1")]) else {
        return skip("this", "there is no such tool");
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{stdout}");
    let expected = "this: FOREBAY_REQUIRE_TOOLS=1, but there is no such tool";
    assert!(stdout.contains(expected), "{stdout}");
}

/// Environment in which the program that sets up a device is missing.
const NO_PROGRAMS: (&str, &str) = ("PATH", "/nowhere");
/// Environment variable that names the device to set up, in a process of its own.
const DEVICE: &str = "FOREBAY_TEST_DEVICE";
const DEVICES: [&str; 2] = ["thin", "loop"];

fn set_up_device() {
    match std::env::var(DEVICE).as_deref() {
        Ok("thin") => assert!(ThinDevice::new("this").is_none()),
        Ok("loop") => assert!(LoopDevice::or_skip("this", 1 << 20).is_none()),
        device => panic!("{device:?}"),
    }
}

#[test]
fn device_that_cannot_be_set_up_is_reported() {
    let test = "skips::device_that_cannot_be_set_up_is_reported";
    for device in DEVICES {
        let variables = [("FOREBAY_REQUIRE_TOOLS", ""), NO_PROGRAMS, (DEVICE, device)];
        let Some(output) = run_again(test, &variables) else { return set_up_device() };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{device}: {stderr}");
        assert!(stderr.contains("this: SKIPPED: "), "{device}: {stderr}");
    }
}

#[test]
fn device_that_cannot_be_set_up_fails_where_all_tools_are_required() {
    let test = "skips::device_that_cannot_be_set_up_fails_where_all_tools_are_required";
    for device in DEVICES {
        let variables = [("FOREBAY_REQUIRE_TOOLS", "1"), NO_PROGRAMS, (DEVICE, device)];
        let Some(output) = run_again(test, &variables) else { return set_up_device() };
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{device}: {stdout}");
        assert!(stdout.contains("this: FOREBAY_REQUIRE_TOOLS=1, but "), "{device}: {stdout}");
    }
}
