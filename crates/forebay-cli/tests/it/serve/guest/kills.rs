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
    let nr_kills = std::env::var("FOREBAY_MACHINE_KILLS").map_or(1, |nr| nr.parse().expect("it"));
    let (mut machine, mut last) = (start(), 0);
    for nth in 1..=nr_kills {
        machine.release("found");
        machine.await_line(&format!("GUEST record {}", last + NR_RECORDS));
        last = machine.kill("record").parse().expect("a number");
        let contents = export.contents();
        for nr in 0..=last {
            let at = (nr + 1) * 512;
            let record = format!("{nr:08}\n");
            assert_eq!(
                &contents[at..at + 9],
                record.as_bytes(),
                "kill {nth}: record {nr} of {last}"
            );
        }
        machine = start();
        let found: usize = machine.value("found").trim().parse().expect("a number");
        assert!((last..=last + 1).contains(&found), "kill {nth}: {found} of {last}");
        last = found;
    }
    drop(machine);
    export.end();
}
