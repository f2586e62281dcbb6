//! Fallback when the kernel refuses io_uring, or AIO as well: which engine the disk uses, and what
//! it reports.

use crate::common::{LoopDevice, Scratch, feature, open, reap_all, submit};
use crate::seccomp;
use forebay::{BlockStatus, Buf, Disk, DiskInfo, FeatureState, Io, IoError, OpenError};
use std::path::Path;
use std::thread;

const URING: i64 = libc::SYS_io_uring_setup;
const AIO: i64 = libc::SYS_io_setup;

/// Runs `body` in a thread in which these system calls fail with these errors.
pub(crate) fn under(calls: &[(i64, i32)], body: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let work = || {
            seccomp::refuse(calls.iter().copied()).expect("a filter");
            body();
        };
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Writes and reads through a queue and with blocking calls, and checks the file itself.
fn use_it(disk: &Disk, scratch: &Scratch) {
    let mut queue = disk.queue();
    for nth in 0..64u64 {
        submit(&mut queue, Io::write(Buf::from(&[nth as u8; 4096][..]), nth * 4096).user_data(nth));
    }
    submit(&mut queue, Io::flush());
    assert!(reap_all(&mut queue).iter().all(|done| done.result.is_ok()));
    disk.write_zeroes(4096, 4096).expect("zeroes");
    let mut back = Buf::new(4 * 4096);
    assert_eq!(disk.read_at(&mut back, 0), Ok(back.len()));
    let file = std::fs::read(&scratch.path).expect("the file");
    assert_eq!(back[..], file[..back.len()]);
    for (nth, block) in file.chunks(4096).enumerate().take(64) {
        let expected = if nth == 1 { 0 } else { nth as u8 };
        assert!(block.iter().all(|byte| *byte == expected), "block {nth}");
    }
}

#[track_caller]
fn check_feature(info: &DiskInfo, name: &str, expected: Result<&str, &str>) {
    match (feature(info, name), expected) {
        (FeatureState::Present(how), Ok(part)) => assert!(how.contains(part), "{how}"),
        (FeatureState::Missing(why), Err(part)) => assert!(why.contains(part), "{why}"),
        (state, expected) => panic!("{name}: {state:?}, and not {expected:?}"),
    }
}

/// Every errno that means that the interface is unavailable, and the reason that is reported.
const REFUSALS: [(i32, &str); 4] = [
    (libc::EPERM, "not permitted (EPERM; "),
    (libc::ENOSYS, "not there (ENOSYS; "),
    (libc::ENOMEM, "short of memory (ENOMEM; "),
    (libc::EINVAL, "too old in this kernel (EINVAL)"),
];

#[test]
fn without_io_uring_a_file_goes_by_aio_and_says_so() {
    for (errno, text) in REFUSALS {
        under(&[(URING, errno)], || {
            let scratch = Scratch::new(1 << 20);
            let disk = open(&scratch.spec("direct=on"));
            let info = disk.info();
            let notice = info.notice.as_deref().expect("something to say");
            assert!(notice.starts_with(&format!("io_uring is {text}")), "{notice}");
            assert!(notice.ends_with(": using aio") && !notice.contains('\n'), "{notice}");
            check_feature(info, "io_uring", Err(text));
            check_feature(info, "aio", Ok("io_submit"));
            use_it(&disk, &scratch);
        });
    }
}

#[test]
fn without_aio_too_a_file_goes_by_blocking_calls_and_says_so() {
    for (errno, text) in REFUSALS.into_iter().chain([(libc::EAGAIN, "at its limit (EAGAIN; ")]) {
        under(&[(URING, libc::EPERM), (AIO, errno)], || {
            let scratch = Scratch::new(1 << 20);
            let disk = open(&scratch.spec(""));
            let info = disk.info();
            let notice = info.notice.as_deref().expect("something to say");
            assert!(notice.starts_with("io_uring is not permitted (EPERM; "), "{notice}");
            assert!(notice.contains(&format!("; aio is {text}")), "{notice}");
            assert!(notice.ends_with(": using psync"), "{notice}");
            check_feature(info, "io_uring", Err("using psync"));
            check_feature(info, "aio", Err("using psync"));
            check_feature(info, "psync", Ok("at most 32 threads"));
            use_it(&disk, &scratch);
        });
    }
}

#[test]
fn requested_engine_is_used_or_refused() {
    let scratch = Scratch::new(1 << 20);
    for engine in ["io_uring", "aio", "psync"] {
        let disk = open(&scratch.spec(&format!("engine={engine}")));
        assert_eq!(disk.info().notice, None);
        check_feature(disk.info(), engine, Ok(""));
        use_it(&disk, &scratch);
    }
    for (errno, _) in REFUSALS {
        under(&[(URING, errno), (AIO, errno)], || {
            let error = |spec: &str| Disk::open(spec).expect_err(spec);
            let uring = error(&scratch.spec("engine=io_uring"));
            assert!(matches!(&uring, OpenError::NoUring { .. }), "{uring}");
            let text = uring.to_string();
            assert!(text.starts_with("io_uring is not available: "), "{text}");
            for spec in [scratch.spec("engine=aio"), format!("aio:{}", scratch.spec(""))] {
                let aio = error(&spec);
                assert!(matches!(&aio, OpenError::NoAio { .. }), "{aio}");
            }
            use_it(&open(&format!("psync:{}", scratch.spec("nr_threads=2"))), &scratch);
        });
    }
}

#[test]
fn a_refusal_for_another_reason_is_an_error() {
    under(&[(URING, libc::EMFILE)], || {
        let scratch = Scratch::new(1 << 20);
        let error = Disk::open(&scratch.spec("")).expect_err("too many open files");
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    });
}

#[test]
fn durable_write_of_a_waiting_thread_syncs_its_data() {
    for driver in ["file", "aio", "psync"] {
        // The errno shows which call the thread makes.
        for (calls, expected) in [
            (&[(libc::SYS_pwritev2, libc::EIO)][..], Err(IoError::Ended(BlockStatus::Io))),
            (&[(libc::SYS_fdatasync, libc::EIO), (libc::SYS_pwrite64, libc::EIO)], Ok(4096)),
        ] {
            under(calls, || {
                let scratch = Scratch::new(1 << 20);
                let disk = open(&format!("{driver}:{}", scratch.spec("fua=on")));
                assert_eq!(disk.write_durable_at(&[1; 4096], 0), expected, "{driver}, {calls:?}");
            });
        }
    }
}

#[test]
fn forbidden_call_of_a_waiting_thread_is_made_by_the_ring() {
    for driver in ["file", "aio"] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let calls = [libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_fdatasync];
            under(&calls.map(|call| (call, errno)), || {
                let scratch = Scratch::new(1 << 20);
                let disk = open(&format!("{driver}:{}", scratch.spec("")));
                let mut buf = [0; 4096];
                for round in 1..4u8 {
                    assert_eq!(disk.write_at(&[round; 4096], 4096), Ok(4096), "{driver}");
                    assert_eq!(disk.read_at(&mut buf, 4096), Ok(4096), "{driver}");
                    assert_eq!(buf, [round; 4096]);
                    assert_eq!(disk.flush(), Ok(()), "{driver}");
                }
            });
        }
    }
}

#[test]
fn without_a_durable_write_a_flush_follows_the_write() {
    let fua = |disk: &Disk| {
        let mut queue = disk.queue();
        submit(&mut queue, Io::write(Buf::new(4096), 0).fua());
        reap_all(&mut queue).pop().expect("an end").result
    };
    let spec = |scratch: &Scratch| format!("psync:{}", scratch.spec("fua=on"));
    // Each refused call fails with its own errno, so the result shows which calls the driver makes.
    for (calls, expected) in [
        (&[(libc::SYS_pwritev2, libc::EIO)][..], Err(BlockStatus::Io)),
        (&[(libc::SYS_fdatasync, libc::EIO)], Ok(4096)),
        (&[(libc::SYS_pwritev2, libc::ENOSYS)], Ok(4096)),
        (
            &[(libc::SYS_pwritev2, libc::ENOSYS), (libc::SYS_fdatasync, libc::ENOSPC)],
            Err(BlockStatus::NoSpace),
        ),
        // The errno may belong to an earlier write, and no flush would report it again.
        (&[(libc::SYS_pwritev2, libc::EOPNOTSUPP)], Err(BlockStatus::NotSupported)),
    ] {
        under(calls, || {
            let scratch = Scratch::new(1 << 20);
            assert_eq!(fua(&open(&spec(&scratch))), expected, "{calls:?}");
        });
    }
}

/// Runs `body` in a thread in which a system call fails with this error, but only on descriptors of
/// the file `path` that are open now. So the error is one of the file, as a FUSE server may report.
fn under_error_of_file(path: &Path, call: i64, errno: i32, body: impl FnOnce() + Send) {
    let is_of_path =
        |fd: &u32| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|link| link == path);
    let fds = std::fs::read_dir("/proc/self/fd").expect("procfs");
    let fds = fds.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let refused = fds.filter(is_of_path).map(|fd| {
        let argument = Some((0, fd));
        seccomp::Refused { call, argument, errno }
    });
    let refused: Vec<_> = refused.collect();
    assert!(!refused.is_empty());
    thread::scope(|scope| {
        let work = || {
            seccomp::refuse(refused).expect("a filter");
            body();
        };
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn error_of_a_durable_write_is_final_whatever_its_number() {
    for driver in ["file", "aio", "psync"] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let scratch = Scratch::new(1 << 20);
            let disk = open(&format!("{driver}:{}", scratch.spec("fua=on&nr_hw_queues=1")));
            under_error_of_file(&scratch.path, libc::SYS_pwritev2, errno, || {
                let result = disk.write_durable_at(&[1; 4096], 0);
                assert!(result.is_err(), "{driver}, {errno}: a second sync would succeed");
                assert!(disk.lost_writes().is_some(), "{driver}, {errno}");
            });
        }
    }
}

#[test]
fn error_of_the_check_for_write_back_errors_is_a_loss_whatever_its_number() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EIO] {
        let scratch = Scratch::new(1 << 20);
        let disk = open(&scratch.spec("nr_hw_queues=2"));
        under_error_of_file(&scratch.path, libc::SYS_sync_file_range, errno, || {
            // The queue opens the file again.
            drop(disk.queue());
            assert!(disk.lost_writes().is_some(), "{errno}");
        });
    }
}

#[test]
fn a_durable_write_by_a_blocking_call_says_so() {
    const FLAGS: u32 = 5;
    thread::scope(|scope| {
        scope.spawn(|| {
            let refused = seccomp::Refused {
                call: libc::SYS_pwritev2,
                argument: Some((FLAGS, libc::RWF_DSYNC as u32)),
                errno: libc::EIO,
            };
            seccomp::refuse([refused]).expect("a filter");
            let scratch = Scratch::new(1 << 20);
            for keys in ["fua=on&nr_hw_queues=1", "fua=on&nr_hw_queues=2"] {
                let disk = open(&format!("psync:{}", scratch.spec(keys)));
                let write = |io: Io| {
                    let mut queue = disk.queue();
                    submit(&mut queue, io);
                    reap_all(&mut queue).pop().expect("an end").result
                };
                assert_eq!(write(Io::write(Buf::new(4096), 0)), Ok(4096), "{keys}");
                let durable = write(Io::write(Buf::new(4096), 0).fua());
                assert_eq!(durable, Err(BlockStatus::Io), "{keys}: it is not RWF_DSYNC");
            }
        });
    });
}

#[test]
fn wrapping_driver_passes_on_the_inner_notice() {
    under(&[(URING, libc::EPERM)], || {
        let scratch = Scratch::new(1 << 20);
        let disk = open(&format!("fault:{}?rule=discard:io", scratch.path.display()));
        assert!(disk.info().notice.is_some());
        use_it(&disk, &scratch);
    });
}

#[test]
fn a_flush_leaves_out_metadata_and_an_fsync_does_not() {
    for driver in ["psync:", "fault:psync:"] {
        let refused = [(libc::SYS_fsync, true, false), (libc::SYS_fdatasync, false, true)];
        for (call, flushes, syncs) in refused {
            under(&[(call, libc::EROFS)], || {
                let scratch = Scratch::new(1 << 20);
                let open = || open(&format!("{driver}{}", scratch.spec("nr_hw_queues=1")));
                assert_eq!(open().flush().is_ok(), flushes, "{driver}");
                assert_eq!(open().fsync().is_ok(), syncs, "{driver}");
                let disk = open();
                let mut queue = disk.queue();
                submit(&mut queue, Io::fsync());
                assert_eq!(reap_all(&mut queue)[0].result.is_ok(), syncs, "{driver}");
            });
        }
    }
}

#[test]
fn without_holes_zeroes_are_written_and_nothing_is_discarded() {
    for driver in ["psync:", "aio:", "fault:psync:"] {
        under(&[(libc::SYS_fallocate, libc::EOPNOTSUPP)], || {
            let scratch = Scratch::new(4 << 20);
            let disk = open(&format!("{driver}{}", scratch.spec("direct=on")));
            let mut sevens = Buf::new(4 << 20);
            sevens.fill(7);
            assert_eq!(disk.write_at(&sevens, 0), Ok(4 << 20));
            disk.write_zeroes(4096, 3 << 20).expect("zeroes");
            // The range needs several calls.
            let end = 4096 + (3 << 20);
            let file = std::fs::read(&scratch.path).expect("the file");
            assert!(file[4096..end].iter().all(|byte| *byte == 0), "{driver}");
            assert!(file[..4096].iter().chain(&file[end..]).all(|byte| *byte == 7), "{driver}");
            assert!(disk.discard(0, 4096).is_err());
            check_feature(disk.info(), "discard", Err("punches no holes"));
            check_feature(disk.info(), "write_zeroes", Ok("zeroes are written"));
            let facts = disk.info().facts;
            assert!(!facts.zeroes_fast && !facts.discards_to_zeroes, "{driver}");
        });
    }
}

#[test]
fn a_block_device_discards_without_holes() {
    let test = "a_block_device_discards_without_holes";
    let Some(device) = LoopDevice::or_skip(test, 1 << 20) else { return };
    for driver in ["psync:", "aio:"] {
        under(&[(libc::SYS_fallocate, libc::EOPNOTSUPP)], || {
            let disk = open(&format!("{driver}{}", device.node));
            disk.write_at(&[7; 8192], 0).expect("a write");
            disk.flush().expect("a flush");
            disk.discard(0, 4096).expect("a discard");
            let mut back = [1; 8192];
            disk.read_at(&mut back, 0).expect("a read");
            assert!(back[..4096] == [0; 4096] && back[4096..] == [7; 4096], "{driver}");
        });
    }
}

#[test]
fn a_file_is_left_as_it_is_when_its_file_system_is_asked() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new(1 << 20);
    let folder = scratch.path.parent().expect("a folder");
    let state = |path: &std::path::Path| {
        let found = std::fs::metadata(path).expect("metadata");
        (found.len(), found.blocks(), found.mtime_nsec(), found.ctime_nsec(), found.nlink())
    };
    let before = [state(&scratch.path), state(folder)];
    for driver in ["file:", "aio:", "psync:"] {
        open(&format!("{driver}{}", scratch.spec("")));
    }
    assert_eq!([state(&scratch.path), state(folder)], before);
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 1);
}
