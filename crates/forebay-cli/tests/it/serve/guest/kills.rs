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
