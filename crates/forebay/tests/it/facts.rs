//! What programs decide by ([`forebay::DiskFacts`]): said by each driver, and taken back by
//! settings.

use crate::common::{Scratch, open};
use crate::nbd_server::{NbdServer, export};
use forebay::DiskFacts;

/// Keeps data, discards to zeroes, zeroes fast, uses TCP.
fn facts(spec: &str) -> [bool; 4] {
    let DiskFacts { keeps_data, discards_to_zeroes, zeroes_fast, uses_tcp, .. } =
        open(spec).info().facts;
    [keeps_data, discards_to_zeroes, zeroes_fast, uses_tcp]
}

#[test]
fn each_driver_says_what_is_so() {
    let scratch = Scratch::new(1 << 20);
    let file = scratch.path.display();
    for (spec, expected) in [
        ("null:1M", [false, false, true, false]),
        ("fault:null:1M", [false, false, true, false]),
        ("ram:1M", [true, false, true, false]),
        ("ram:1M?read_only=on", [true, false, false, false]),
        ("model:nvme?size=1M", [true, false, true, false]),
        ("model:nvme?size=1M&data=off", [false, false, true, false]),
        (&format!("{file}"), [true, true, true, false]),
        (&format!("aio:{file}"), [true, true, true, false]),
        (&format!("fault:psync:{file}"), [true, true, true, false]),
        (&format!("{file}?read_only=on"), [true, false, false, false]),
    ] {
        assert_eq!(facts(spec), expected, "{spec}");
    }
}

#[test]
fn an_nbd_disk_goes_by_what_its_server_can() {
    for (can_zero, expected) in
        [(true, [true, false, true, false]), (false, [true, false, false, false])]
    {
        let mut export = export(1 << 20);
        export.can.write_zeroes = can_zero;
        let server = NbdServer::new(export, &[]);
        assert_eq!(facts(&server.uri()), expected);
        assert_eq!(
            facts(&format!("fault:nbd:unix:{}:exportname=disk", server.socket.display())),
            expected
        );
    }
}
