//! A server that is restarted while its guest reads and writes.

use super::export::{Disk, Export};
use super::machine::{Machine, distribution};

/// How often the server is restarted within one boot.
const NR_RESTARTS: u64 = 3;
/// How often the server is killed within one boot.
const NR_KILLS: u64 = 5;

#[test]
fn guest_goes_on_after_each_restart_of_its_server() {
    check("guest_goes_on_after_each_restart_of_its_server", NR_RESTARTS, Export::restart);
}

#[test]
fn guest_loses_no_acknowledged_write_when_its_server_is_killed() {
    let test = "guest_loses_no_acknowledged_write_when_its_server_is_killed";
    let nr =
        std::env::var("FOREBAY_GUEST_KILLS").map_or(NR_KILLS, |nr| nr.parse().expect("a number"));
    check(test, nr, Export::kill_and_restart);
}

fn check(test: &str, nr_restarts: u64, restart: fn(&mut Export)) {
    let Some(distribution) = distribution(test, &["fio"]) else { return };
    // At each restart, requests are in flight whose successors have ended.
    let faults = "rule=any:delay=100ms:rate=0.02&rule=any:delay=10ms:rate=0.1";
    let mut export = Export::start(&Disk { faults, ..Disk::default() });
    let script = include_str!("scripts/restarts.sh");
    let device = export.device("a", "");
    let mut machine = Machine::start(distribution, script, &["fio"], &device);
    for nth in 0..nr_restarts {
        machine.begin_step();
        // Each server ends in the middle of fio's load, at another point.
        export.await_requests(800 + 300 * (nth % 5), || machine.check());
        restart(&mut export);
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
