//! [`forebay::DiskFacts`], from which programs choose operations: the facts that each driver
//! reports, and the settings that turn a fact off.

use crate::common::{Scratch, open};
use crate::nbd_server::{NbdServer, export};
use forebay::DiskFacts;

/// Returns `keeps_data`, `discards_to_zeroes`, `zeroes_fast` and `uses_tcp`.
fn facts(spec: &str) -> [bool; 4] {
    let DiskFacts { keeps_data, discards_to_zeroes, zeroes_fast, uses_tcp, .. } =
        open(spec).info().facts;
    [keeps_data, discards_to_zeroes, zeroes_fast, uses_tcp]
}

#[test]
fn each_driver_reports_its_true_features() {
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
fn reads_fill_a_cache_where_there_is_a_page_cache_or_a_server() {
    let scratch = Scratch::new(1 << 20);
    let file = scratch.path.display();
    let server = NbdServer::new(export(1 << 20), &[]);
    for (spec, expected) in [
        ("null:1M", false),
        ("ram:1M", false),
        ("model:nvme?size=1M", false),
        (&format!("{file}"), true),
        (&format!("fault:psync:{file}"), true),
        (&format!("{file}?direct=on"), false),
        (&server.uri(), true),
    ] {
        assert_eq!(open(spec).info().facts.caches_reads, expected, "{spec}");
    }
}

/// A server that offers fast zeroes may also zero slowly. It refuses a slow request only if the
/// client sends `FAST_ZERO`.
#[test]
fn fast_zeroing_of_a_server_is_unknown() {
    for can_fast_zero in [true, false] {
        let mut export = export(1 << 20);
        (export.can.write_zeroes, export.can.fast_zero) = (true, can_fast_zero);
        let server = NbdServer::new(export, &[]);
        let wrapped = format!("fault:nbd:unix:{}:exportname=disk", server.socket.display());
        for spec in [server.uri(), wrapped] {
            assert_eq!(facts(&spec), [true, false, false, false], "{spec}");
        }
    }
}

#[test]
fn a_disk_that_lacks_the_end_of_its_file_says_so() {
    let scratch = Scratch::new(1_000_000);
    let path = scratch.path.display();
    for driver in ["", "aio:", "psync:", "fault:"] {
        let look = |keys: &str| {
            let disk = open(&format!("{driver}{path}?{keys}"));
            let info = disk.info();
            (info.limits.capacity_bytes, info.facts.out_of_reach_bytes, info.notice.clone())
        };
        let said = "direct=on needs whole blocks of 512 bytes: the last 64 bytes of the file are \
                    not part of the disk; extend the file, or omit direct=on";
        assert_eq!(look("direct=on"), (Some(999_936), 64, Some(said.to_owned())), "{driver}");
        assert_eq!(look("direct=off"), (Some(1_000_000), 0, None), "{driver}");
        assert_eq!(look("direct=on&capacity=growing"), (None, 0, None), "{driver}");
    }
    let server = NbdServer::new(export(1_000_000), &[]);
    let disk = open(&server.uri());
    assert_eq!(disk.info().facts.out_of_reach_bytes, 64);
    let said = disk.info().notice.as_deref().expect("something to say");
    assert!(said.contains("the last 64 bytes of the export are not part of the disk"), "{said}");
}
