//! No allocation per request of up to 256 KiB without TLS: neither in the server nor in its client,
//! the library's NBD driver. (A larger read has one, for its pieces.)

#[path = "../../forebay/tests/support/allocations.rs"]
mod allocations;
mod support;

use allocations::check;
use forebay::Disk;
use support::serve;

#[test]
fn no_request_allocates_once_client_and_server_are_warm() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    let file = path.display().to_string();
    for (spec, nr_workers) in [("ram:1M", 1), (&*file, 2)] {
        serve(folder.path(), spec, nr_workers, |socket| {
            for nr_threads in [1, 4] {
                let client = format!("nbd+unix:///?socket={}", socket.display());
                let disk = Disk::open(&client).expect("a client");
                check(&format!("{spec}, {nr_workers} workers"), &[disk], nr_threads);
            }
        });
    }
}
