//! A thousand disks, opened, used and closed one after the other, leave no descriptor, thread or
//! memory behind.
//!
//! Each test runs in a process of its own, since other tests open descriptors and start threads.
//! Back ends are covered by `backends/opening.rs`, C and Python by tests of their own.
#![allow(clippy::print_stdout, reason = "the counts are a part of the output of `xtask long`")]

use crate::common::{Scratch, open, run_again};
use crate::nbd_server::{NbdServer, export};
use crate::rbd;
use crate::skip::{skip, skip_always};
use crate::storage_daemon::StorageDaemon;
use forebay::{Buf, Io};
use std::time::{Duration, Instant};

/// Disks that are opened before the first count: tables, pools and allocators have their size then.
const NR_BEFORE: usize = 100;
const NR: usize = 1000;

/// The growth of memory, in KiB, that counts as a leak: 1 KiB for each disk and more.
const LEAK_KIB: usize = 1024;

/// Resources of this process.
#[derive(Debug)]
struct Held {
    nr_descriptors: usize,
    nr_threads: usize,
    memory_kib: usize,
}

impl Held {
    fn now() -> Held {
        let nr_of = |folder: &str| std::fs::read_dir(folder).expect("procfs").count();
        let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let memory_kib = memory.split_whitespace().next().and_then(|number| number.parse().ok());
        Held {
            nr_descriptors: nr_of("/proc/self/fd"),
            nr_threads: nr_of("/proc/self/task"),
            memory_kib: memory_kib.expect("a number"),
        }
    }
}

/// Opens a disk, uses it in each way, and closes it.
fn use_disk(spec: &str) {
    let disk = open(spec);
    disk.write_at(&Buf::from(&[1; 4096][..]), 0).expect("a write");
    let mut queue = disk.queue();
    queue.submit(Io::read(Buf::new(4096), 0)).expect("a read");
    let mut done = Vec::new();
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Ok(4096), "{spec}");
    disk.flush().expect("a flush");
}

/// Checks that [`NR`] uses of `spec` leave nothing behind.
fn check(spec: impl Fn() -> String) {
    (0..NR_BEFORE).for_each(|_| use_disk(&spec()));
    let before = Held::now();
    (0..NR).for_each(|_| use_disk(&spec()));
    // Threads of closed disks may need a moment to end.
    let end = Instant::now() + Duration::from_secs(10);
    let mut after = Held::now();
    while after.nr_threads > before.nr_threads && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
        after = Held::now();
    }
    println!("{NR} disks: {before:?}, then {after:?}: {}", spec());
    assert_eq!(after.nr_descriptors, before.nr_descriptors, "descriptors: {}", spec());
    assert_eq!(after.nr_threads, before.nr_threads, "threads: {}", spec());
    let is_small = after.memory_kib < before.memory_kib + LEAK_KIB;
    assert!(is_small, "memory: {before:?}, then {after:?}: {}", spec());
}

/// Runs `work` in a child, and shows its output.
fn in_child(test: &str, work: impl FnOnce()) {
    let Some(output) = run_again(&format!("leaks::{test}"), &[]) else { return work() };
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stdout));
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
#[ignore = "takes minutes: run `cargo xtask long opens`"]
fn thousand_disks_of_memory_and_files_leave_nothing_behind() {
    in_child("thousand_disks_of_memory_and_files_leave_nothing_behind", || {
        let scratch = Scratch::new(1 << 20);
        let file = scratch.spec("");
        check(|| String::from("ram:1M?service=on"));
        check(|| String::from("fault:ram:1M?rule=any:short=1k:nth=3"));
        for driver in ["file:", "aio:", "psync:"] {
            check(|| format!("{driver}{file}"));
        }
    });
}

#[test]
#[ignore = "takes minutes: run `cargo xtask long opens`"]
fn thousand_disks_of_an_nbd_server_leave_nothing_behind() {
    in_child("thousand_disks_of_an_nbd_server_leave_nothing_behind", || {
        let server = NbdServer::new(export(1 << 20), &[]);
        check(|| server.uri());
    });
}

#[test]
#[ignore = "takes minutes: run `cargo xtask long opens`"]
fn thousand_disks_of_a_vhost_user_server_leave_nothing_behind() {
    let test = "thousand_disks_of_a_vhost_user_server_leave_nothing_behind";
    if !cfg!(feature = "vhost-user") {
        return skip_always(test, "this build lacks the feature `vhost-user`");
    }
    in_child(test, || {
        let scratch = Scratch::new(1 << 20);
        match StorageDaemon::new(&scratch.path) {
            Ok(daemon) => check(|| daemon.spec()),
            Err(why) => skip(test, &why),
        }
    });
}

#[test]
#[ignore = "takes minutes: run `cargo xtask long opens`"]
fn thousand_disks_of_a_cluster_leave_nothing_behind() {
    // The cluster ends with the process that has started it.
    in_child("thousand_disks_of_a_cluster_leave_nothing_behind", || {
        let Some(cluster) = rbd::cluster() else { return };
        let image = cluster.create(16 << 20, "layering,exclusive-lock");
        check(|| cluster.spec(&image));
    });
}
