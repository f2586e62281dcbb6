//! Limits of each client of an export, for devices of virtual machines: a connection is a client,
//! with all its rings.

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "rings/guest.rs"]
mod guest;

use forebay::{Disk, Rate};
use forebay_serve::{ExportLimits, ExportOptions};
use guest::{DATA, Guest, options, serve_with};
use std::time::Duration;

#[test]
fn connection_of_a_guest_is_an_owner_until_it_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::open("ram:1M").expect("a disk");
    let mut limits = ExportLimits::default();
    limits.client.limits.both.iops = Rate { per_s: 10_000_000, burst: Some(8) };
    let mut options = options(folder.path(), &["ram:1M"], None);
    options.exports =
        vec![ExportOptions { disk: Some(disk.clone()), limits, ..ExportOptions::default() }];
    let mut seen: Vec<Vec<u64>> = Vec::new();
    serve_with(options, || {
        for _ in 0..3 {
            let mut guest = Guest::connect(&folder.path().join("0"));
            guest.request_of(0, false, 1, [(DATA, 512)]);
            guest.kick();
            guest.wait();
            seen.push(disk.owners().into_iter().map(|owner| owner.stats().ios).collect());
            drop(guest);
            // Until the server has seen the end, the next connection would be one beside it.
            for _ in 0..6000 {
                if disk.owners().len() == 1 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        seen.push(disk.owners().into_iter().map(|owner| owner.stats().ios).collect());
    });
    // The export, and the client beside it.
    let expected: [&[u64]; 4] = [&[0, 1], &[0, 1], &[0, 1], &[0]];
    assert_eq!(seen, expected);
}
