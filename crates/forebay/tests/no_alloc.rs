//! No allocation per I/O, on any driver and under any wake policy.

#[path = "support/allocations.rs"]
mod allocations;

#[cfg(feature = "vhost-user")]
#[path = "support/skip.rs"]
mod skip;
#[cfg(feature = "vhost-user")]
#[path = "support/storage_daemon.rs"]
mod storage_daemon;

use allocations::check;
use forebay::Disk;
#[cfg(feature = "vhost-user")]
use storage_daemon::StorageDaemon;

#[test]
fn no_io_allocates_once_the_layer_is_warm() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    let file = path.display();
    let few_tags = "queue_depth=8&nr_hw_queues=1";
    for spec in [
        String::from("null:1M"),
        String::from("ram:1M"),
        String::from("ram:1M?nomerges=2&queue_depth=8"),
        String::from("ram:1M?req_ns=300&io_ns=100&max_sectors_kb=8"),
        String::from("ram:1M?service=on"),
        String::from("ram:1M?run_queue=always&nr_hw_queues=1"),
        format!("ram:1M?wake=batch&{few_tags}"),
        format!("ram:1M?wake=stash&{few_tags}"),
        format!("ram:1M?wake=single&{few_tags}"),
        format!("ram:1M?wake=batch&{few_tags}&service=on&req_ns=300"),
        format!("ram:1M?wake=stash&{few_tags}&run_queue=always&max_sectors_kb=8"),
        String::from("model:virtio-ram?size=1M&latency_ns=50000"),
        String::from("fault:ram:1M?rule=any:short=1k:nth=3"),
        format!("{file}"),
        format!("{file}?direct=on"),
        format!("{file}?run_queue=always&service=on"),
        format!("{file}?wake=batch&{few_tags}"),
        format!("aio:{file}?direct=on"),
        format!("aio:{file}?wake=single&{few_tags}"),
        // The driver starts a thread when it first needs one. With one thread, the warm-up starts
        // it.
        format!("psync:{file}?direct=on&nr_threads=1"),
        format!("psync:{file}?wake=stash&{few_tags}&nr_threads=1"),
    ] {
        for nr_threads in [1, 4] {
            check(&spec, &[Disk::open(&spec).expect("a disk")], nr_threads);
        }
    }
    let spec = "ram:1M?tag_set=no_alloc&queue_depth=8&req_ns=300";
    check(spec, &[Disk::open(spec).expect("a disk"), Disk::open(spec).expect("a disk")], 4);
    #[cfg(feature = "vhost-user")]
    check_vhost_user(&path);
}

/// Checks a disk of qemu-storage-daemon on a file. This is no test of its own: the allocations of a
/// test that runs beside it would count.
#[cfg(feature = "vhost-user")]
fn check_vhost_user(file: &std::path::Path) {
    let daemon = match StorageDaemon::new(file) {
        Ok(daemon) => daemon,
        Err(why) => return skip::skip("no_io_allocates_once_the_layer_is_warm", &why),
    };
    for nr_threads in [1, 4] {
        let spec = daemon.spec();
        check(&spec, &[Disk::open(&spec).expect("a disk")], nr_threads);
    }
}
