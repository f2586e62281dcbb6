//! A machine that is killed while its guest writes.

use super::export::{Disk, Export};
use super::machine::{Machine, distribution};

/// How many records a guest writes before its machine is killed.
const NR_RECORDS: usize = 20;

#[test]
fn server_outlives_a_killed_machine_and_serves_its_next_boot() {
    let test = "server_outlives_a_killed_machine_and_serves_its_next_boot";
    let Some(distribution) = distribution(test, &[]) else { return };
    let export = Export::start(&Disk::default());
    let start = || {
        let script = include_str!("scripts/records.sh");
        let mut machine = Machine::start(distribution, script, &[], &export.device("a", ""));
        machine.await_point("found");
        machine
    };
    let mut machine = start();
    machine.release("found");
    machine.await_line(&format!("GUEST record {NR_RECORDS}"));
    let last: usize = machine.kill("record").parse().expect("a number");
    let contents = export.contents();
    for nr in 0..=last {
        let at = (nr + 1) * 512;
        let record = format!("{nr:08}\n");
        assert_eq!(&contents[at..at + 9], record.as_bytes(), "record {nr} of {last}");
    }
    let found: usize = start().value("found").trim().parse().expect("a number");
    assert!((last..=last + 1).contains(&found), "{found} of {last}");
    export.end();
}

/// How often the server is killed within one boot.
fn nr_kills() -> usize {
    std::env::var("FOREBAY_GUEST_KILLS").map_or(5, |nr| nr.parse().expect("a number"))
}

#[test]
fn guest_loses_no_acknowledged_write_when_its_server_is_killed() {
    let test = "guest_loses_no_acknowledged_write_when_its_server_is_killed";
    let Some(distribution) = distribution(test, &["fio"]) else { return };
    // At each kill, requests are in flight whose successors have ended.
    let faults = "rule=any:delay=100ms:rate=0.02&rule=any:delay=10ms:rate=0.1";
    let mut export = Export::start(&Disk { faults, ..Disk::default() });
    let script = include_str!("scripts/kills.sh");
    let device = export.device("a", "");
    let mut machine = Machine::start(distribution, script, &["fio"], &device);
    for nth in 0..nr_kills() {
        // Each server is killed in the middle of fio's load, at another point.
        export.await_requests(800 + 300 * (nth as u64 % 5), || machine.check());
        export.restart();
    }
    let nr_rounds = machine.console().matches("GUEST round").count();
    machine.await_line(&format!("GUEST round {}", nr_rounds + 1));
    machine.release("end");
    let console = machine.finish();
    let contents = export.contents();
    for nth in 0..4 {
        let begin = format!("GUEST register{nth} ");
        let nr = console.lines().find_map(|line| line.strip_prefix(&begin)).expect("a register");
        let expected = format!("{nr:0>511}\n");
        assert!(contents[nth * 512..][..512] == *expected.as_bytes(), "register {nth} is {nr}");
    }
    export.end();
}
