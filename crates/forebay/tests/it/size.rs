//! Files and devices whose size changes while they are open as disks.

use crate::common::{LoopDevice, Scratch, open, reap_all};
use crate::nbd_server::{NbdServer, export};
use forebay::{Buf, Io, IoError, SubmitErrorKind};
use std::fs::OpenOptions;
use std::sync::Barrier;

const LEN: u64 = 1 << 20;

/// Sets the length of the file.
fn set_len(scratch: &Scratch, len: u64) {
    let file = OpenOptions::new().write(true).open(&scratch.path).expect("it is there");
    file.set_len(len).expect("room for it");
}

fn is_out_of_range(result: Result<usize, IoError>) -> bool {
    matches!(result, Err(IoError::Refused(SubmitErrorKind::OutOfRange { .. })))
}

#[test]
fn file_that_has_grown_is_used_up_to_its_new_end_by_all_threads() {
    for keys in ["", "direct=on", "engine=psync", "nr_hw_queues=2&direct=on"] {
        let scratch = Scratch::new(LEN);
        let disk = open(&scratch.spec(keys));
        let write = |offset| {
            let mut io = Io::write(Buf::new(4096), offset);
            let mut queue = disk.queue();
            loop {
                match queue.submit(io) {
                    Ok(()) => return reap_all(&mut queue)[0].result.is_ok(),
                    Err(error) if matches!(error.kind, SubmitErrorKind::OutOfRange { .. }) => {
                        return false;
                    }
                    Err(error) => io = error.io,
                }
            }
        };
        // This thread and another one have compared a bio with the former size before.
        let step = Barrier::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(!write(LEN), "{keys}");
                step.wait();
                step.wait();
                assert!(write(LEN + 4096), "{keys}");
            });
            assert!(!write(LEN), "{keys}");
            step.wait();
            set_len(&scratch, LEN + 8192);
            assert!(!write(LEN), "{keys}: no thread looks at the file by itself");
            assert_eq!(disk.reread_size().expect("its size"), Some(LEN + 8192), "{keys}");
            assert!(!write(LEN), "{keys}: a read of the size changes nothing");
            disk.grow(LEN + 8192).expect("the file is that long");
            step.wait();
            assert!(write(LEN), "{keys}");
            other.join().expect("no panic");
        });
        assert_eq!(disk.capacity_bytes(), Some(LEN + 8192), "{keys}");
        assert!(!write(LEN + 8192), "{keys}");
        assert!(is_out_of_range(disk.write_at(&[1; 4096], LEN + 8192)), "{keys}");
        assert_eq!(scratch.path.metadata().expect("it is there").len(), LEN + 8192);
    }
}

#[test]
fn disk_has_the_whole_blocks_of_the_new_size() {
    let scratch = Scratch::new(LEN);
    let disk = open(&scratch.spec("direct=on"));
    set_len(&scratch, LEN + 700);
    assert_eq!(disk.reread_size().expect("its size"), Some(LEN + 700));
    disk.grow(LEN + 700).expect("the file is that long");
    let block = u64::from(disk.limits().logical_block_size);
    assert_eq!(disk.capacity_bytes(), Some(LEN + 700 - 700 % block));
}

#[test]
fn file_that_was_truncated_keeps_its_capacity_and_fails_no_other_io() {
    let scratch = Scratch::new(LEN);
    let disk = open(&scratch.spec(""));
    disk.write_at(&[7; 4096], 0).expect("a write");
    set_len(&scratch, LEN / 2);
    assert_eq!(disk.reread_size().expect("its size"), Some(LEN / 2));
    disk.grow(LEN / 2).expect("a smaller size changes nothing");
    assert_eq!(disk.capacity_bytes(), Some(LEN));
    let mut read = [1; 4096];
    assert_eq!(disk.read_at(&mut read, LEN / 2 - 512).expect("a read"), 512, "it is short");
    assert_eq!(disk.read_at(&mut read, 0).expect("a read"), 4096);
    assert_eq!(read, [7; 4096]);
    disk.write_at(&[8; 4096], LEN - 4096).expect("it makes the file longer again");
    assert_eq!(disk.reread_size().expect("its size"), Some(LEN));
}

#[test]
fn size_of_a_growing_file_is_reported_and_bounds_nothing() {
    let scratch = Scratch::new(LEN);
    let disk = open(&scratch.spec("capacity=growing"));
    disk.write_at(&[1; 4096], LEN).expect("a write");
    assert_eq!(disk.reread_size().expect("its size"), Some(LEN + 4096));
    disk.grow(LEN + 4096).expect("the file is that long");
    assert_eq!(disk.capacity_bytes(), None);
}

#[test]
fn disk_does_not_grow_beyond_its_file() {
    let scratch = Scratch::new(LEN);
    let disk = open(&scratch.spec(""));
    let refused = disk.grow(2 * LEN).expect_err("the file has the old size").to_string();
    assert!(refused.contains(&format!("it has {LEN} bytes: extend it first")), "{refused}");
    assert_eq!(disk.capacity_bytes(), Some(LEN));
}

#[test]
fn disk_without_a_file_keeps_its_size() {
    let server = NbdServer::new(export(LEN), &[]);
    for spec in ["null:1M", "ram:1M", &server.uri()] {
        let disk = open(spec);
        assert_eq!(disk.reread_size().expect("nothing to read"), None, "{spec}");
        let refused = disk.grow(2 * LEN).expect_err(spec).to_string();
        assert!(refused.contains("its size is fixed while it is open"), "{refused}");
        assert_eq!(disk.capacity_bytes(), Some(LEN), "{spec}");
    }
}

#[test]
fn block_device_that_has_grown_is_used_up_to_its_new_end() {
    let test = "block_device_that_has_grown_is_used_up_to_its_new_end";
    let Some(device) = LoopDevice::or_skip(test, LEN) else { return };
    let disk = open(&device.node);
    set_len(&device.scratch, 2 * LEN);
    assert_eq!(disk.reread_size().expect("its size"), Some(LEN), "the device has its old size");
    let resized = std::process::Command::new("losetup").args(["-c", &device.node]).status();
    assert!(resized.expect("it can be run").success());
    assert_eq!(disk.reread_size().expect("its size"), Some(2 * LEN));
    disk.grow(2 * LEN).expect("the device is that long");
    disk.write_at(&[1; 4096], 2 * LEN - 4096).expect("a write");
    disk.flush().expect("a flush");
}
