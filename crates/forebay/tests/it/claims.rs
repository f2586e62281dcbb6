//! Exclusive opens and locks of files and block devices, and when `elide=on` may skip a flush.
// These tests lock a file with a system call, as another program does.
#![allow(unsafe_code)]

use crate::common::{LoopDevice, Scratch, feature, open};
use crate::forked::in_child;
use crate::seccomp::{self, Refused};
use forebay::{BlockStatus, Disk, DiskInfo, FeatureState, IoError};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Returns the error message of a refused open.
#[track_caller]
fn refusal(spec: &str) -> String {
    match Disk::open(spec) {
        Ok(_) => panic!("{spec} opens"),
        Err(error) => error.to_string(),
    }
}

/// The drivers that open files, each as the prefix of a spec.
const DRIVERS: [&str; 4] = ["file:", "aio:", "psync:", "fault:psync:"];

#[test]
fn a_file_that_is_open_for_one_disk_is_refused_to_others_by_name() {
    for driver in DRIVERS {
        let scratch = Scratch::new(1 << 20);
        let spec = |keys| format!("{driver}{}", scratch.spec(keys));
        let path = scratch.path.display();
        let sole = open(&spec("exclusive=on"));
        assert!(sole.info().exclusive);
        for keys in ["", "exclusive=on", "read_only=on"] {
            assert_eq!(
                refusal(&spec(keys)),
                format!(
                    "{path}: a disk of this process has it open with exclusive=on; use a clone of \
                     that disk, or close it first"
                )
            );
        }
        // The same file under another name.
        let link = scratch.path.with_file_name("link");
        std::fs::hard_link(&scratch.path, &link).expect("a link");
        assert!(refusal(&link.display().to_string()).contains("has it open with exclusive=on"));
        drop(sole);
        let shared = open(&spec(""));
        assert_eq!(
            refusal(&spec("exclusive=on")),
            format!(
                "exclusive=on: {path}: this process has it open already; close that disk first, or \
                 use a clone of it"
            )
        );
        let second = open(&spec("read_only=on"));
        drop((shared, second));
        open(&spec("exclusive=on&read_only=on"));
    }
}

#[test]
fn a_file_can_be_had_again_as_soon_as_its_disk_is_dropped() {
    let scratch = Scratch::new(1 << 20);
    for round in 0..20 {
        for keys in ["nr_hw_queues=1", "nr_hw_queues=2", "service=on"] {
            let disk = open(&scratch.spec(&format!("exclusive=on&elide=on&{keys}")));
            let mut queue = disk.queue();
            queue.submit(forebay::Io::write(forebay::Buf::new(4096), 0)).expect("a write");
            queue.submit(forebay::Io::flush()).expect("a flush");
            if round % 2 == 0 {
                crate::common::reap_all(&mut queue);
            }
        }
    }
}

#[test]
fn a_file_that_another_program_has_locked_is_refused() {
    let scratch = Scratch::new(1 << 20);
    let path = scratch.path.display();
    let other = OpenOptions::new().read(true).write(true).open(&scratch.path).expect("the file");
    lock(&other, libc::F_WRLCK, 0);
    assert_eq!(
        refusal(&scratch.spec("exclusive=on")),
        format!("exclusive=on: {path}: another program has locked it; lslocks shows which")
    );
    assert_eq!(
        refusal(&scratch.spec("")),
        format!(
            "{path}: another program has locked it, as exclusive=on does; stop that program \
             (lslocks names it), or use read_only=on&lock=off"
        )
    );
    assert!(refusal(&scratch.spec("read_only=on")).contains("another program has locked it"));
    let reader = open(&scratch.spec("read_only=on&lock=off"));
    // A writer is refused even with `lock=off`.
    assert!(refusal(&scratch.spec("lock=off")).contains("another program has locked it"));
    drop(reader);
    // A lock on other bytes conflicts only with a disk that needs the whole file.
    lock(&other, libc::F_UNLCK, 0);
    lock(&other, libc::F_WRLCK, 100);
    open(&scratch.spec(""));
    assert!(refusal(&scratch.spec("exclusive=on")).contains("another program has locked it"));
    drop(other);
    // The other program cannot lock the file while the disk has it.
    let _disk = open(&scratch.spec("exclusive=on"));
    let other = OpenOptions::new().read(true).write(true).open(&scratch.path).expect("the file");
    assert!(!try_lock(&other, libc::F_RDLCK, 0));
}

#[test]
fn exclusive_reader_is_refused_while_another_program_has_any_lock() {
    let scratch = Scratch::new(1 << 20);
    let other = File::open(&scratch.path).expect("the file");
    // Covers a lock on the first bytes, as QEMU takes, and a lock on the whole file.
    for len in [101, 0] {
        lock(&other, libc::F_RDLCK, len);
        let error = refusal(&scratch.spec("exclusive=on&read_only=on"));
        assert!(error.contains("another program has locked it"), "{error}");
        lock(&other, libc::F_UNLCK, 0);
    }
    let _disk = open(&scratch.spec("exclusive=on&read_only=on"));
    let other = OpenOptions::new().write(true).open(&scratch.path).expect("the file");
    assert!(!try_lock(&other, libc::F_WRLCK, 101));
}

fn lock(file: &File, kind: i32, len: i64) {
    assert!(try_lock(file, kind, len), "{}", std::io::Error::last_os_error());
}

/// Tries to take an open file description (OFD) lock. It also conflicts with other such locks of
/// the same process.
pub(crate) fn try_lock(file: &File, kind: i32, len: i64) -> bool {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: the kernel only reads this structure.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

#[test]
fn flushes_are_not_skipped_where_others_may_write() {
    for driver in DRIVERS {
        let scratch = Scratch::new(1 << 20);
        let spec = format!("{driver}{}", scratch.spec("elide=on"));
        assert_eq!(
            refusal(&spec),
            format!(
                "{}: elide=on: other programs may write to it, and a skipped flush would not cover \
                 their writes; add exclusive=on to keep them out, or omit elide=on",
                spec.trim_start_matches("file:")
            )
        );
        assert!(open(&format!("{spec}&exclusive=on")).info().policy.elide);
        let disk = open(&format!("{driver}{}", scratch.spec("exclusive=on")));
        assert!(!disk.info().policy.elide, "off by default");
    }
    for (spec, elides) in [("ram:1M", true), ("null:1M", true), ("model:nvme?size=1M", false)] {
        assert_eq!(open(spec).info().policy.elide, elides, "{spec}");
    }
    for spec in ["ram:1M?elide=off", "fault:null:1M?elide=off"] {
        assert!(!open(spec).info().policy.elide, "{spec}");
    }
    assert!(open("model:nvme?size=1M&elide=on").info().policy.elide);
}

#[test]
fn a_block_device_for_one_disk_is_open_with_o_excl() {
    let test = "a_block_device_for_one_disk_is_open_with_o_excl";
    let Some(device) = LoopDevice::or_skip(test, 1 << 20) else { return };
    let exclusive = || OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&device.node);
    for driver in DRIVERS {
        let spec = format!("{driver}{}?exclusive=on&elide=on", device.node);
        let disk = open(&spec);
        let error = exclusive().expect_err("it is taken");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        let state = feature(disk.info(), "exclusive");
        assert!(matches!(state, FeatureState::Present(how) if how.starts_with("O_EXCL")));
        assert!(refusal(&device.node).contains("has it open with exclusive=on"));
        disk.write_at(&[1; 4096], 0).expect("a write");
        disk.flush().expect("a flush");
        drop(disk);
        let other = exclusive().expect("it is free");
        assert_eq!(
            refusal(&spec),
            format!(
                "exclusive=on: {}: it is in use: mounted, part of another device, or open with \
                 O_EXCL (EBUSY); lsblk and fuser show by which program",
                device.node
            )
        );
        drop(other);
    }
}

#[test]
fn disks_on_one_file_share_durable_points() {
    let scratch = Scratch::new(1 << 20);
    let link = scratch.path.with_file_name("link");
    std::fs::hard_link(&scratch.path, &link).expect("a link");
    let one = open(&scratch.spec(""));
    let other = open(&format!("psync:{}", link.display()));
    one.write_at(&[1; 4096], 0).expect("a write");
    let point = one.durable_point();
    assert!(!one.is_durable(point) && !other.is_durable(point));
    other.flush().expect("a flush");
    assert!(one.is_durable(point) && other.is_durable(point));
    // Another file has its own durable points.
    let elsewhere = Scratch::new(1 << 20);
    let third = open(&elsewhere.spec(""));
    third.write_at(&[1; 4096], 0).expect("a write");
    other.flush().expect("a flush");
    assert!(!third.is_durable(third.durable_point()));
}

#[test]
fn loss_is_reported_to_every_disk_on_the_file() {
    let scratch = Scratch::new(1 << 20);
    let one = open(&scratch.spec(""));
    let path = scratch.path.display();
    let failing = open(&format!("fault:{path}?rule=flush:io:nth=2"));
    one.write_at(&[1; 4096], 0).expect("a write");
    failing.flush().expect("the first is good");
    one.write_at(&[2; 4096], 0).expect("a write");
    let failed = IoError::Ended(BlockStatus::Io);
    assert_eq!(failing.flush(), Err(failed));
    assert!(one.lost_writes().is_some());
    // A second flush proves nothing about the lost writes.
    assert!(one.flush().is_err() && failing.flush().is_err());
    let lost = one.acknowledge_loss();
    assert!(lost.is_some());
    assert_eq!(failing.lost_writes(), None);
    one.flush().expect("the loss is known");
    // A disk that is opened while no other disk has the file open reports no loss.
    drop((one, failing));
    assert_eq!(open(&scratch.spec("")).lost_writes(), None);
}

#[test]
fn a_child_of_a_fork_keeps_the_locks_of_its_parent() {
    let scratch = Scratch::new(1 << 20);
    let mut disk = Some(open(&scratch.spec("exclusive=on")));
    let dropped = in_child(|| {
        drop(disk.take());
        true
    });
    assert!(dropped);
    let other = OpenOptions::new().read(true).write(true).open(&scratch.path).expect("the file");
    assert!(!try_lock(&other, libc::F_RDLCK, 0), "it is still locked");
    drop(disk);
    assert!(try_lock(&other, libc::F_WRLCK, 0));
}

#[test]
fn a_file_system_without_byte_locks_causes_a_warning() {
    let scratch = Scratch::new(1 << 20);
    let open_without_locks = |keys: &str| {
        let info = open_where_locks_fail(libc::ENOLCK, &scratch.spec(keys)).expect("it opens");
        (info.notice.clone(), feature(&info, "lock").clone())
    };
    let (notice, state) = open_without_locks("");
    let why = "the file system has no byte locks";
    assert!(notice.is_some_and(|notice| notice.starts_with(why)));
    assert!(matches!(state, FeatureState::Missing(text) if text.starts_with(why)));
    let (notice, state) = open_without_locks("lock=off");
    assert_eq!(notice, None);
    assert_eq!(
        state,
        FeatureState::Missing(String::from("lock=off: all other programs may write"))
    );
}

#[test]
fn file_whose_locks_fail_is_refused_since_another_program_may_have_it() {
    let scratch = Scratch::new(1 << 20);
    let error = open_where_locks_fail(libc::EIO, &scratch.spec("")).expect_err("the lock failed");
    assert!(error.contains("fcntl(F_OFD_SETLK)"), "{error}");
    open_where_locks_fail(libc::EIO, &scratch.spec("lock=off")).expect("no lock is needed");
}

/// Opens a disk while `fcntl(F_OFD_SETLK)` fails with this error.
fn open_where_locks_fail(errno: i32, spec: &str) -> Result<DiskInfo, String> {
    let fail =
        Refused { call: libc::SYS_fcntl, argument: Some((1, libc::F_OFD_SETLK as u32)), errno };
    let body = || {
        seccomp::refuse([fail]).expect("a filter");
        Disk::open(spec).map(|disk| disk.info().clone()).map_err(|error| error.to_string())
    };
    std::thread::scope(|scope| scope.spawn(body).join().expect("no panic"))
}
