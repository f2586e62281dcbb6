//! Scripts for nbdsh: every command and flag that libnbd can send, even with strict mode off.

use super::server::Server;
use super::tools::{is_there, run};
use crate::common::{data_file, folder};

/// Runs a script from `scripts/` with the default export's URI. The script contains the assertions.
#[track_caller]
fn script(test: &str, args: &str, text: &str) {
    script_on(test, args, text, 4 << 20);
}

/// Does the same on an image of another size. Returns the server's peak memory in KiB; `None` if
/// the test was skipped.
#[track_caller]
fn script_on(test: &str, args: &str, text: &str, len: usize) -> Option<u64> {
    if !is_there("nbdsh", test) || !is_there("python3", test) {
        return None;
    }
    let folder = folder();
    data_file(&folder, "disk.img", len);
    let path = folder.path().join("script.py");
    std::fs::write(&path, text).expect("a script");
    let server = Server::start(&folder, args);
    let source = format!("uri = {:?}; exec(open({path:?}).read(), globals())", server.uri(""));
    // nbdsh runs the first python3 in PATH, which may not be the one that has libnbd.
    run(&folder, "env", &["PATH=/usr/bin:/bin", "nbdsh", "-c", &source]);
    let most = server.memory_kib("VmHWM");
    assert!(server.terminate().success());
    Some(most)
}

#[test]
fn payloads_of_64_mib_are_taken_and_memory_stays_bounded() {
    let test = "payloads_of_64_mib_are_taken_and_memory_stays_bounded";
    let args = "disk.img --memory-mib=4 --threads=1 --max-connections=10";
    let text = include_str!("scripts/payloads.py");
    if let Some(most) = script_on(test, args, text, 80 << 20) {
        assert!(most < 48 << 10, "the server had {most} KiB");
    }
}

#[test]
fn every_command_and_flag_does_what_it_says() {
    let test = "every_command_and_flag_does_what_it_says";
    script(test, "disk.img", include_str!("scripts/commands.py"));
}

#[test]
fn structured_replies_and_extents_cover_the_requested_range() {
    let test = "structured_replies_and_extents_cover_the_requested_range";
    script(test, "disk.img", include_str!("scripts/structured.py"));
}

#[test]
fn illegal_requests_are_refused_and_the_connection_goes_on() {
    let test = "illegal_requests_are_refused_and_the_connection_goes_on";
    script(test, "disk.img", include_str!("scripts/illegal.py"));
}

#[test]
fn nothing_is_written_to_a_read_only_export() {
    let test = "nothing_is_written_to_a_read_only_export";
    script(test, "disk.img --read-only", include_str!("scripts/read_only.py"));
}

#[test]
fn options_are_haggled_one_by_one() {
    let test = "options_are_haggled_one_by_one";
    script(test, "disk.img", include_str!("scripts/options.py"));
}
