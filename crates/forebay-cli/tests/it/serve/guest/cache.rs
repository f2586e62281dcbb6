//! The mode of a disk's cache, and flushes of the guest.

use super::export::{Disk, Export, is_forebay};
use super::machine::{Machine, distribution};
use crate::serve::masking::{CONFIG_WCE, FLUSH, Proxy};

/// The number of writes before each flush, as in the script.
const NR_WRITES: u64 = 64;

/// Returns how often the disk has made data durable, or has found them durable.
fn durable(export: &Export) -> u64 {
    if is_forebay() { export.counter("forebay_disk_flushes_asked_total") } else { 0 }
}

#[test]
fn cache_mode_decides_when_writes_of_a_guest_are_durable() {
    let test = "cache_mode_decides_when_writes_of_a_guest_are_durable";
    let Some(distribution) = distribution(test, &[]) else { return };
    let exports = [(); 3].map(|()| Export::start(&Disk::default()));
    let [export, fixed, bare] = &exports;
    let bare_socket = bare.folder().path().join("bare.sock");
    let proxy = Proxy::start(&bare_socket, &bare.socket(), FLUSH | CONFIG_WCE);
    let devices = [
        export.device("a", ",config-wce=on"),
        fixed.device("b", ",config-wce=off"),
        bare.device_at(&bare_socket, "c", ""),
    ];
    let script = include_str!("scripts/cache.sh");
    let mut machine = Machine::start(distribution, script, &[], &devices.concat());
    for (mode, is_write_back) in [("back", true), ("through", false), ("again", true)] {
        let points = [mode.to_owned(), format!("{mode}-written"), format!("{mode}-synced")];
        let [at_first, written, synced] = points.map(|point| {
            machine.await_point(&point);
            let nr = durable(export);
            machine.release(&point);
            nr
        });
        let expected = if is_write_back { "write back" } else { "write through" };
        assert_eq!(machine.value(&format!("{mode}.cache")), expected);
        if !is_forebay() {
            continue;
        }
        let (by_writes, by_fsync) = (written - at_first, synced - written);
        if is_write_back {
            assert_eq!(by_writes, 0, "{mode}: no write needs a flush");
        } else {
            assert!(by_writes >= NR_WRITES, "{mode}: {by_writes} flushes for {NR_WRITES} writes");
        }
        assert!(by_fsync >= 1, "{mode}: the guest's fsync must reach the disk");
    }
    // Linux needs no flush: it takes each write for durable when it ends.
    machine.await_point("bare");
    let at_first = durable(bare);
    machine.release("bare");
    machine.await_point("bare-written");
    let by_writes = durable(bare) - at_first;
    if is_forebay() {
        assert!(by_writes >= NR_WRITES, "{by_writes} flushes for {NR_WRITES} writes");
    }
    machine.release("bare-written");
    let console = machine.finish();
    assert!(console.contains("GUEST bare.cache write through\n"), "{console}");
    drop(proxy);
    if is_forebay() {
        assert!(console.contains("GUEST at_first write back\n"), "{console}");
        assert!(console.contains("GUEST fixed.cache write back\n"), "{console}");
        assert!(console.contains("GUEST fixed.still write back\n"), "{console}");
    }
    exports.into_iter().for_each(Export::end);
}
