//! A front end that truncates the memory of its guest stops its device, and nothing else.

#[path = "rings/guest.rs"]
mod guest;

use forebay_serve::survive_truncated_memory;
use guest::{DATA, Guest, serve};
use std::io::{BufRead, BufReader};
use vm_memory::{Bytes, GuestAddress};

#[test]
fn truncated_memory_stops_its_device_and_no_other() {
    survive_truncated_memory().expect("a handler");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    let (log, writer) = std::io::pipe().expect("a pipe");
    let mut lines = BufReader::new(log).lines().map(|line| line.expect("a line"));
    serve(folder.path(), &["ram:1M", "ram:1M"], Some(writer.into()), || {
        let mut good = Guest::connect(&folder.path().join("1"));
        for round in 0..3 {
            let mut bad = Guest::connect(&folder.path().join("0"));
            bad.request(0, true, 0, (DATA, 4));
            bad.kick();
            bad.wait();
            assert_eq!(bad.status(0), 0);
            bad.request(0, true, 0, (DATA, 4));
            bad.publish();
            bad.truncate(0);
            bad.signal();
            let line = lines.find(|line| line.contains("stops")).expect("a line");
            assert!(
                line.contains("ring 0 stops: the front end has truncated the memory"),
                "{line}"
            );
            // The entry was not taken.
            assert_eq!(bad.stop(), 1);
            drop(bad);
            good.write(DATA, &[round; 512]);
            good.request(0, true, 7, (DATA, 1));
            good.kick();
            good.wait();
            good.request(0, false, 7, (DATA + 4096, 1));
            good.kick();
            good.wait();
            let mut found = [0; 512];
            good.memory.read_slice(&mut found, GuestAddress(DATA + 4096)).expect("data");
            assert_eq!((good.status(0), found), (0, [round; 512]));
        }
        assert_eq!(good.stop(), 6);
    });
}
