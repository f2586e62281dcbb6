//! A machine that is stopped under load and goes on, and one that shall migrate.

use super::export::{Disk, Export, is_forebay};
use super::machine::{Machine, distribution};
use serde_json::json;

/// A stop takes each ring away from the server, and its continuation hands them out again.
const NR_STOPS: usize = 20;

#[test]
fn guest_goes_on_after_each_stop_and_is_refused_migration() {
    let test = "guest_goes_on_after_each_stop_and_is_refused_migration";
    let Some(distribution) = distribution(test, &["fio"]) else { return };
    // At each stop, requests are in flight whose successors have ended.
    let faults = "rule=any:delay=30ms:rate=0.05";
    let export = Export::start(&Disk { faults, ..Disk::default() });
    let script = include_str!("scripts/load.sh");
    let mut machine = Machine::start(distribution, script, &["fio"], &export.device("a", ""));
    machine.await_point("loaded");
    for nth in 0..NR_STOPS {
        export.await_requests(50, || machine.check());
        machine.monitor("stop", json!({})).expect("it runs");
        let status = machine.monitor("query-status", json!({})).expect("a status");
        assert_eq!(status["status"], "paused", "stop {nth}");
        machine.monitor("cont", json!({})).expect("it is stopped");
    }
    // The other server logs dirty pages for a migration, and forebay does not.
    if is_forebay() {
        let to = json!({ "uri": "exec:cat > /dev/null" });
        let why = machine.monitor("migrate", to).expect_err("it cannot migrate");
        assert!(why.contains("Migration disabled: vhost"), "{why}");
    }
    machine.release("loaded");
    machine.finish();
    export.end();
}
