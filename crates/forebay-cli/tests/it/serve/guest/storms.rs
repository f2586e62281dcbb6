//! A disk whose driver is taken away under load, and the write cache of another, switched under
//! load.

use super::export::{Disk, Export, is_forebay};
use super::machine::{Machine, distribution};

#[test]
fn disk_survives_resets_under_load_and_another_the_switching_of_its_cache() {
    let test = "disk_survives_resets_under_load_and_another_the_switching_of_its_cache";
    let Some(distribution) = distribution(test, &["fio"]) else { return };
    // At each reset, and at each switch, requests are in flight whose successors have ended.
    let faults = "rule=any:delay=20ms:rate=0.05";
    let exports = [(); 2].map(|()| Export::start(&Disk { faults, ..Disk::default() }));
    let [reset, switched] = &exports;
    let devices = [reset.device("a", ""), switched.device("b", ",config-wce=on")].concat();
    let script = include_str!("scripts/storms.sh");
    let mut machine = Machine::start(distribution, script, &["fio"], &devices);
    machine.await_line("GUEST records 20");
    let console = machine.finish();
    let value = |name: &str| {
        let begin = format!("GUEST {name} ");
        let value = console.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name}: {console}"))
    };
    let (rounds, toggles): (u64, u64) = (value("rounds"), value("toggles"));
    assert!(rounds >= 1 && toggles >= 10, "{rounds} rounds, {toggles} switches");
    assert!(reset.contents().starts_with(b"00000020"), "the last record");
    if is_forebay() {
        // Each reset stops four rings. The end of the machine does so once more.
        let stops = reset.log().matches(": ring ").count();
        assert!(stops >= 20 * 4, "{stops} stops of rings");
    }
    exports.into_iter().for_each(Export::end);
}
