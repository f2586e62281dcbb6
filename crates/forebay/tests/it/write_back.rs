//! Failed write-backs are reported, and the data that they lost is not durable: on a block device
//! with storage that is full for a while.

use crate::common::{open, reap_all, submit};
use crate::fallback::under;
use crate::thin_device::ThinDevice;
use forebay::{BlockStatus, Buf, Disk, Io, IoError};
use std::fs::File;

const PAGE: usize = 4096;
const ENGINES: [&str; 3] = ["io_uring", "aio", "psync"];
const A: [u8; PAGE] = [0xA5; PAGE];
const FAILED: Result<(), IoError> = Err(IoError::Ended(BlockStatus::Io));

/// Checks that every report of `disk` says that the writes up to `point` are lost.
#[track_caller]
fn assert_lost(disk: &Disk, point: u64, what: &str) {
    assert_eq!(disk.flush(), FAILED, "{what}");
    assert!(!disk.is_durable(point), "{what}");
    assert_eq!(disk.durable(point).wait(), FAILED, "{what}");
    let lost = disk.lost_writes().unwrap_or_else(|| panic!("{what}: nothing is lost"));
    assert!(lost.after < point && point <= lost.up_to, "{what}: {lost:?}, not {point}");
}

#[test]
fn flush_fails_after_a_fua_write_that_got_the_error_of_an_earlier_write() {
    for engine in ENGINES {
        for fua in ["on", "off"] {
            let Some(device) = ThinDevice::new("flush_fails_after_a_fua_write_...") else { return };
            let what = format!("{}?engine={engine}&fua={fua}", device.node);
            let disk = open(&what);
            disk.write_at(&A, 0).expect("a write into the cache");
            let point = disk.durable_point();
            device.fail_write_back();
            let durable = disk.write_durable_at(&[1; PAGE], 1 << 20);
            assert_eq!(durable, Err(IoError::Ended(BlockStatus::Io)), "{what}");
            assert!(!device.stores(&A, 0), "it is lost");
            assert_lost(&disk, point, &what);
            // Later writes become durable. The storage below the device may report its failed
            // write-backs one by one, as late as it likes: one for each page, and one for its sync.
            let is_durable_again = (0..4).any(|_| {
                disk.acknowledge_loss().expect("a loss");
                disk.write_at(&A, 0).expect("a write");
                disk.flush().is_ok()
            });
            assert!(is_durable_again, "{what}");
            assert!(disk.is_durable(disk.durable_point()) && device.stores(&A, 0), "{what}");
        }
    }
}

/// Flushes through a queue of a new thread, which opens the file again.
fn flush_by_a_new_thread(disk: &Disk) -> Result<u64, BlockStatus> {
    let flush = || {
        let mut queue = disk.queue();
        submit(&mut queue, Io::flush());
        reap_all(&mut queue).pop().expect("an end").result
    };
    std::thread::scope(|scope| scope.spawn(flush).join().expect("no panic"))
}

/// Writes a page into the cache through the shared context. Returns its durable point.
fn write_a(disk: &Disk) -> u64 {
    disk.write_at(&A, 0).expect("a write into the cache");
    disk.durable_point()
}

#[test]
fn flush_through_a_file_opened_later_does_not_hide_an_error_another_program_got() {
    for engine in ENGINES {
        let Some(device) = ThinDevice::new("flush_through_a_file_opened_later_...") else { return };
        let spec = format!("{}?engine={engine}&nr_hw_queues=4", device.node);
        let disk = open(&spec);
        let point = write_a(&disk);
        device.fail_write_back();
        device.sync().expect("the error was reported");
        assert_eq!(flush_by_a_new_thread(&disk), Err(BlockStatus::Io), "{spec}");
        assert!(!device.stores(&A, 0), "it is lost");
        assert_lost(&disk, point, &spec);
        // After the loss is acknowledged, a new thread reports no further loss.
        disk.acknowledge_loss().expect("a loss");
        let point = write_a(&disk);
        assert_eq!(flush_by_a_new_thread(&disk), Ok(0), "{spec}");
        assert!(disk.is_durable(point) && disk.lost_writes().is_none() && device.stores(&A, 0));
    }
}

#[test]
fn flush_of_a_second_disk_does_not_hide_an_error_another_program_got() {
    for engine in ENGINES {
        for keys in ["", "&read_only=on", "&direct=on"] {
            let Some(device) = ThinDevice::new("flush_of_a_second_disk_...") else { return };
            let disk = open(&format!("{}?engine={engine}", device.node));
            let point = write_a(&disk);
            device.fail_write_back();
            let spec = format!("{}?engine={engine}{keys}", device.node);
            let second = open(&spec);
            for disk in [&second, &disk] {
                assert_lost(disk, point, &spec);
            }
        }
    }
}

#[test]
fn disk_that_is_closed_takes_no_error_with_it() {
    for engine in ENGINES {
        for opens_before in [true, false] {
            let Some(device) = ThinDevice::new("disk_that_is_closed_...") else { return };
            let spec = format!("{}?engine={engine}&nr_hw_queues=4", device.node);
            // The first disk is read-only, so the file is opened for writing only with the second
            // one.
            let reader = open(&format!("{spec}&read_only=on"));
            let writer = open(&spec);
            let other = opens_before.then(|| open(&spec));
            let point = write_a(&writer);
            drop(writer);
            device.fail_write_back();
            let other = other.unwrap_or_else(|| open(&spec));
            assert_eq!(flush_by_a_new_thread(&other), Err(BlockStatus::Io), "{spec}");
            assert_lost(&other, point, &spec);
            assert_lost(&reader, point, &spec);
        }
    }
}

#[test]
fn fua_write_of_a_second_disk_does_not_hide_an_error() {
    for keys in ["direct=on", "direct=off"] {
        let Some(device) = ThinDevice::new("fua_write_of_a_second_disk_...") else { return };
        let spec = format!("{}?fua=on&{keys}", device.node);
        let disk = open(&device.node);
        let second = open(&spec);
        let mut queue = second.queue();
        submit(&mut queue, Io::read(Buf::new(PAGE), 1 << 20));
        reap_all(&mut queue);
        let point = write_a(&disk);
        device.fail_write_back();
        submit(&mut queue, Io::write(Buf::new(PAGE), 1 << 20).fua());
        let result = reap_all(&mut queue).pop().expect("an end").result;
        assert!(!device.stores(&A, 0), "it is lost");
        // Direct I/O may bypass the page cache without checking its errors.
        assert!(keys == "direct=on" || result == Err(BlockStatus::Io), "{spec}");
        assert_lost(&second, point, &spec);
        assert_lost(&disk, point, &spec);
    }
}

#[test]
fn error_before_a_disk_was_opened_is_not_its_loss() {
    let Some(device) = ThinDevice::new("error_before_a_disk_was_opened_...") else { return };
    // The last close makes the kernel write the cache back, so another program keeps the device
    // open.
    let _other = File::open(&device.node).expect("the device");
    let disk = open(&device.node);
    write_a(&disk);
    drop(disk);
    device.fail_write_back();
    let disk = open(&device.node);
    let second = open(&device.node);
    let point = write_a(&second);
    assert_eq!(flush_by_a_new_thread(&disk), Ok(0));
    assert!(disk.is_durable(point) && disk.lost_writes().is_none() && device.stores(&A, 0));
}

#[test]
fn threads_that_open_the_file_at_once_agree_on_the_loss() {
    const NR_THREADS: usize = 8;
    for engine in ENGINES {
        let Some(device) = ThinDevice::new("threads_that_open_the_file_at_once_...") else {
            return;
        };
        let spec = format!("{}?engine={engine}&nr_hw_queues=9", device.node);
        let disk = open(&spec);
        let point = write_a(&disk);
        device.fail_write_back();
        let begin = std::sync::Barrier::new(NR_THREADS);
        std::thread::scope(|scope| {
            for _ in 0..NR_THREADS {
                scope.spawn(|| {
                    begin.wait();
                    let mut queue = disk.queue();
                    submit(&mut queue, Io::flush_up_to(point));
                    let result = reap_all(&mut queue).pop().expect("an end").result;
                    assert_eq!(result, Err(BlockStatus::Io), "{spec}");
                    assert!(!disk.is_durable(point));
                });
            }
        });
        assert_lost(&disk, point, &spec);
    }
}

#[test]
fn error_is_found_where_the_call_that_checks_for_it_is_forbidden() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        under(&[(libc::SYS_sync_file_range, errno)], || {
            let Some(device) = ThinDevice::new("error_is_found_where_...") else { return };
            let disk = open(&device.node);
            let point = write_a(&disk);
            device.fail_write_back();
            assert_eq!(flush_by_a_new_thread(&disk), Err(BlockStatus::Io));
            assert_lost(&disk, point, "by a sync");
        });
    }
}
