//! A file whose flushes take a set time: its data, its flushes, its errors, and its end.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use forebay_slowfs::SlowFile;
use rustix::fs::OFlags;
use rustix::io::Errno;

#[path = "../../forebay/tests/support/skip.rs"]
mod skip_support;

const SIZE: u64 = 1 << 20;

/// Mounts a file, or skips the test. A missing privilege is an error under
/// `FOREBAY_REQUIRE_TOOLS=1`, and a kernel without FUSE is not.
fn mount(test: &str, flush: Duration) -> Option<SlowFile> {
    let skip = match Path::new("/dev/fuse").exists() {
        true => skip_support::skip,
        false => skip_support::skip_always,
    };
    SlowFile::mount(SIZE, flush).map_err(|reason| skip(test, &reason)).ok()
}

fn open(file: &SlowFile) -> File {
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("a flag");
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags).open(file.path()).expect("the file")
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

#[test]
fn data_is_read_back_and_the_size_is_fixed() {
    let test = "data_is_read_back_and_the_size_is_fixed";
    let Some(slow) = mount(test, Duration::ZERO) else { return };
    let file = open(&slow);
    assert_eq!(file.metadata().expect("attributes").len(), SIZE);
    // More than one request of the kernel.
    let data: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&data, 0).expect("written");
    file.write_all_at(&[7; 4096], 8192).expect("written");
    let mut read = vec![0; data.len()];
    open(&slow).read_exact_at(&mut read, 0).expect("read");
    assert!(read[..8192] == data[..8192] && read[12288..] == data[12288..]);
    assert!(read[8192..12288].iter().all(|byte| *byte == 7));
    assert_eq!(file.read_at(&mut read, SIZE - 512).expect("read"), 512);
    assert_eq!(file.read_at(&mut read, SIZE).expect("read"), 0);
    assert_eq!(errno(file.write_at(&[0; 4096], SIZE - 512)), Some(Errno::NOSPC));
    assert_eq!(errno(file.set_len(4096)), Some(Errno::PERM));
    let other = slow.path().with_file_name("other");
    assert_eq!(errno(fs::metadata(other)), Some(Errno::NOENT));
    assert_eq!(slow.nr_flushes(), 0);
}

#[test]
fn concurrent_flushes_take_their_time_one_after_another() {
    let test = "concurrent_flushes_take_their_time_one_after_another";
    let time = Duration::from_millis(20);
    let Some(slow) = mount(test, time) else { return };
    let file = open(&slow);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| file.sync_all().expect("flushed"));
            scope.spawn(|| file.sync_data().expect("flushed"));
        }
    });
    assert!(start.elapsed() >= 4 * time, "{:?}", start.elapsed());
    assert_eq!(slow.nr_flushes(), 4);
}

#[test]
fn reads_do_not_wait_for_a_flush() {
    let test = "reads_do_not_wait_for_a_flush";
    let Some(slow) = mount(test, Duration::from_secs(3600)) else { return };
    let file = open(&slow);
    thread::scope(|scope| {
        let flush = scope.spawn(|| errno(file.sync_all()));
        while slow.nr_flushes() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        for nth in 0..100 {
            file.read_exact_at(&mut [0; 4096], nth * 4096).expect("read");
        }
        assert!(!flush.is_finished());
        // It does not take its hour.
        drop(slow);
        assert_eq!(flush.join().expect("it does not panic"), Some(Errno::IO));
    });
}

#[test]
fn planned_flushes_fail_and_others_succeed() {
    let test = "planned_flushes_fail_and_others_succeed";
    let Some(slow) = mount(test, Duration::ZERO) else { return };
    let file = open(&slow);
    slow.fail_flush(2, Errno::IO.raw_os_error());
    slow.fail_flush(3, Errno::NOSPC.raw_os_error());
    file.sync_all().expect("flushed");
    assert_eq!(errno(file.sync_data()), Some(Errno::IO));
    assert_eq!(errno(file.sync_all()), Some(Errno::NOSPC));
    file.sync_all().expect("flushed");
    slow.fail_flush(slow.nr_flushes() + 1, Errno::IO.raw_os_error());
    assert_eq!(errno(open(&slow).sync_all()), Some(Errno::IO));
    assert_eq!(slow.nr_flushes(), 5);
}

#[test]
#[should_panic(expected = "is no error of a flush")]
fn error_that_linux_does_not_return_is_refused() {
    let test = "error_that_linux_does_not_return_is_refused";
    match mount(test, Duration::ZERO) {
        Some(slow) => slow.fail_flush(1, Errno::NOSYS.raw_os_error()),
        None => panic!("skipped: {} is no error of a flush", Errno::NOSYS),
    }
}

#[test]
fn dropped_file_ends_its_flush_and_all_later_io() {
    let test = "dropped_file_ends_its_flush_and_all_later_io";
    let Some(slow) = mount(test, Duration::from_secs(3600)) else { return };
    let (file, path) = (open(&slow), slow.path().to_owned());
    thread::scope(|scope| {
        let flush = scope.spawn(|| errno(file.sync_all()));
        while slow.nr_flushes() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        drop(slow);
        assert_eq!(flush.join().expect("it does not panic"), Some(Errno::IO));
    });
    assert!(fs::metadata(&path).is_err());
    assert_eq!(errno(file.read_at(&mut [0; 512], 0)), Some(Errno::IO));
    assert_eq!(errno(file.write_at(&[0; 512], 0)), Some(Errno::IO));
    assert_eq!(errno(file.sync_all()), Some(Errno::IO));
}
