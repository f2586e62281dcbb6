//! The io_uring instances of an open disk, as the kernel sees them: which operations each allows,
//! and which thread may use it.
//!
//! A test process opens one disk, and the tests use the ring descriptors of that process directly.
//! So the results do not depend on what the driver reports about its rings.
// These tests make system calls on descriptors.
#![allow(unsafe_code)]

use crate::common::{Scratch, open, run_again};
use crate::skip::skip;
use io_uring::{Builder, IoUring, cqueue, squeue};
use std::io;
use std::os::fd::RawFd;

const GETEVENTS: u32 = 1;
/// `IORING_REGISTER_PROBE`: returns the operations that the kernel supports, and changes nothing.
const REGISTER_PROBE: u32 = 8;

/// Returns the rings of this process. A ring may appear under several descriptors.
fn rings() -> Vec<RawFd> {
    let is_ring = |fd: &RawFd| {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        link.is_ok_and(|link| link.to_string_lossy() == "anon_inode:[io_uring]")
    };
    let names = std::fs::read_dir("/proc/self/fd").expect("procfs");
    let names = names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    names.filter(is_ring).collect()
}

/// Runs a test in a process of its own. Returns `true` only in that process, and only if it can
/// create a ring.
fn is_child(test: &str) -> bool {
    if let Some(output) = run_again(test, &[]) {
        let (stdout, stderr) = (&output.stdout, &output.stderr);
        let text = [stdout, stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
        assert!(output.status.success(), "{text}");
        // The parent repeats the child's skip messages.
        let skips: Vec<_> = text.lines().filter(|line| line.contains("SKIPPED")).collect();
        skips.iter().for_each(|line| skip(test, line));
        return false;
    }
    match IoUring::new(1) {
        Ok(_) => true,
        Err(error) => {
            skip(test, &format!("there is no io_uring: {error}"));
            false
        }
    }
}

fn answer(result: libc::c_long) -> Result<(), i32> {
    if result >= 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error().raw_os_error().expect("a system call has failed"))
}

/// Probes a ring for the kernel's operations, with a register operation that no disk uses.
fn probe(ring: RawFd) -> Result<(), i32> {
    // `struct io_uring_probe`, followed by 256 `struct io_uring_probe_op`.
    let mut space = [0u64; 2 + 256];
    let place = space.as_mut_ptr();
    // SAFETY: the kernel writes to the structure, which has room for all the entries requested.
    answer(unsafe { libc::syscall(libc::SYS_io_uring_register, ring, REGISTER_PROBE, place, 256) })
}

/// Submits up to `nr_to_submit` entries or takes completions, on a ring that has none.
fn enter(ring: RawFd, nr_to_submit: u32, flags: u32) -> Result<(), i32> {
    let nothing = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the call submits the entries that the driver has published, which are none, and waits
    // for no completion.
    answer(unsafe {
        libc::syscall(libc::SYS_io_uring_enter, ring, nr_to_submit, 0, flags, nothing, 0)
    })
}

#[test]
fn each_ring_of_an_open_disk_is_restricted() {
    if !is_child("rings::each_ring_of_an_open_disk_is_restricted") {
        return;
    }
    let scratch = Scratch::new(1 << 20);
    let free = IoUring::new(1).expect("a ring");
    let of_test = rings();
    assert_eq!(probe(of_test[0]), Ok(()), "a ring without restrictions answers");
    for keys in ["nr_hw_queues=1", "nr_hw_queues=2", "direct=on&nr_hw_queues=2"] {
        let disk = open(&scratch.spec(keys));
        let queue = disk.queue();
        let mut found = rings();
        found.retain(|ring| !of_test.contains(ring));
        assert!(!found.is_empty(), "{keys}: it has no ring");
        for ring in found {
            assert_eq!(probe(ring), Err(libc::EACCES), "{keys}: a ring is not restricted");
        }
        drop(queue);
    }
    drop(free);
}

#[test]
fn the_ring_of_an_owned_context_is_its_threads_alone() {
    let test = "rings::the_ring_of_an_owned_context_is_its_threads_alone";
    if !is_child(test) {
        return;
    }
    let mut builder: Builder<squeue::Entry, cqueue::Entry> = IoUring::builder();
    if let Err(error) = builder.setup_single_issuer().setup_defer_taskrun().build(1) {
        return skip(test, &format!("rings for one thread need Linux 6.1: {error}"));
    }
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("nr_hw_queues=2"));
    let shared = rings();
    let queue = disk.queue();
    let owned: Vec<_> = rings().into_iter().filter(|ring| !shared.contains(ring)).collect();
    assert!(!shared.is_empty() && !owned.is_empty(), "{shared:?} {owned:?}");
    let both = |ring: RawFd| [enter(ring, 1, 0), enter(ring, 0, GETEVENTS)];
    let of_other = |ring: RawFd| std::thread::spawn(move || both(ring)).join().expect("no panic");
    for ring in shared {
        assert_eq!(of_other(ring), [Ok(()), Ok(())], "any thread may use the shared one");
    }
    for ring in owned {
        assert_eq!(both(ring), [Ok(()), Ok(())], "its thread may use it");
        let [submits, reaps] = of_other(ring);
        assert_eq!(submits, Err(libc::EEXIST), "it has no IORING_SETUP_SINGLE_ISSUER");
        assert_eq!(reaps, Err(libc::EEXIST), "it has no IORING_SETUP_DEFER_TASKRUN");
    }
    drop(queue);
}
