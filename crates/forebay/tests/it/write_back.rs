//! A write-back that fails is reported, and what it has lost is not durable: on a block device
//! whose storage is full for a while.

use crate::common::open;
use crate::thin_device::ThinDevice;
use forebay::{BlockStatus, Disk, IoError};

const PAGE: usize = 4096;
const ENGINES: [&str; 3] = ["io_uring", "aio", "psync"];
const A: [u8; PAGE] = [0xA5; PAGE];
const FAILED: Result<(), IoError> = Err(IoError::Ended(BlockStatus::Io));

/// Everything that `disk` reports says that what was written up to `point` is lost.
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
            // The loss is reported once. What is written now is durable.
            disk.acknowledge_loss().expect("a loss");
            disk.write_at(&A, 0).expect("a write");
            disk.flush().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(disk.is_durable(disk.durable_point()) && device.stores(&A, 0), "{what}");
        }
    }
}
