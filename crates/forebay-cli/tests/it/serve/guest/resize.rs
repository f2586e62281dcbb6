//! A disk that grows while its guest uses it.

use super::export::{Disk, Export, is_forebay};
use super::machine::{Machine, distribution};
use crate::common::skip_unless_required;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn guest_uses_a_disk_that_has_grown_up_to_its_new_end() {
    let test = "guest_uses_a_disk_that_has_grown_up_to_its_new_end";
    if !is_forebay() {
        return skip_unless_required(test, "the other server has no SIGHUP");
    }
    let Some(distribution) = distribution(test, &[]) else { return };
    let mut export = Export::start(&Disk::default());
    let script = include_str!("scripts/resize.sh");
    let mut machine = Machine::start(distribution, script, &[], &export.device("a", ""));
    machine.await_point("started");
    assert_eq!(machine.value("sectors"), (64 * MIB / 512).to_string());
    export.set_len(96 * MIB);
    export.server().signal("HUP");
    let line = format!("grown from {} to {} bytes", 64 * MIB, 96 * MIB);
    export.server().await_lines(&line, 1);
    machine.release("started");
    machine.await_point("grown");
    assert_written(&export, 96 * MIB);
    assert!(!export.server().log().contains("is not notified"), "{}", export.server().log());

    // QEMU keeps the size over a restart of the server. A reload without a change makes it read
    // the size, once it has started the device again.
    export.set_len(128 * MIB);
    export.restart();
    machine.release("grown");
    while !machine.console().contains("GUEST WAITS grown again") {
        machine.check();
        export.server().signal("HUP");
        std::thread::sleep(Duration::from_millis(500));
    }
    machine.await_point("grown again");
    assert_written(&export, 128 * MIB);
    assert_eq!(
        export.server().log().matches("grown from").count(),
        1,
        "the first server logged it"
    );

    export.set_len(64 * MIB);
    export.server().signal("HUP");
    let line = format!("refused to shrink from {} to {} bytes", 128 * MIB, 64 * MIB);
    export.server().await_lines(&line, 1);
    machine.release("grown again");
    let console = machine.finish();
    assert_eq!(console.matches("GUEST FAILED").count(), 0);
    assert_eq!(export.contents().len() as u64, 128 * MIB, "a write has made it longer again");
    assert_written(&export, 128 * MIB);
    export.end();
}

/// Asserts that the guest has written the last MiB of the file.
#[track_caller]
fn assert_written(export: &Export, len: u64) {
    let contents = export.contents();
    assert_eq!(contents.len() as u64, len);
    let last = &contents[(len - MIB) as usize..];
    assert!(last.as_chunks::<512>().0.iter().all(|sector| sector.starts_with(b"new area")));
}
