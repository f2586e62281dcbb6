//! The engine that does a file's I/O, by fio's engine names, and the report when the kernel refuses
//! it to a program under a seccomp filter.

use std::process::Output;
use std::thread;

use tempfile::TempDir;

use crate::common::{data_file, folder, forebay, json, stderr, stdout};
use crate::seccomp;

const URING: i64 = libc::SYS_io_uring_setup;
const AIO: i64 = libc::SYS_io_setup;

/// Runs the program, with arguments separated by spaces, while these system calls fail.
fn run_under(calls: &[(i64, i32)], folder: &TempDir, args: &str) -> Output {
    let run = || {
        // The filter also applies to programs that this thread executes.
        seccomp::refuse(calls.iter().copied()).expect("a filter");
        forebay(folder).args(args.split_whitespace()).output().expect("it can be run")
    };
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

#[test]
fn substitute_is_reported_once_for_each_disk() {
    let folder = folder();
    data_file(&folder, "x.img", 1 << 20);
    data_file(&folder, "y.img", 1 << 20);
    let bench = "bench --filename=x.img --rw=randread --size=64k --name=a --numjobs=2 --name=b \
                 --name=c --filename=y.img --output-format=json";
    let calls = [(URING, libc::EPERM)];
    let output = run_under(&calls, &folder, bench);
    let line = |name: &str| {
        format!(
            "forebay: {name}: io_uring is not permitted (EPERM; /proc/sys/kernel/io_uring_disabled \
             or a container's seccomp profile): using aio\n"
        )
    };
    assert_eq!(stderr(&output), line("x.img") + &line("y.img"));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(json(&output)["jobs"][0]["read"]["total_ios"], 16);

    let output = run_under(&calls, &folder, "info x.img");
    assert_eq!(stderr(&output), line("x.img"));
    let text = stdout(&output);
    let feature = text.lines().find(|line| line.starts_with("  io_uring")).expect("the feature");
    assert!(feature.contains("no: not permitted (EPERM; "), "{feature}");

    let calls = [(URING, libc::ENOSYS), (AIO, libc::ENOSYS)];
    let output = run_under(&calls, &folder, "info x.img");
    assert!(stderr(&output).ends_with(": using psync\n"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn an_engine_that_was_named_is_used_or_refused() {
    let folder = folder();
    data_file(&folder, "x.img", 1 << 20);
    let calls = [(URING, libc::EPERM), (AIO, libc::ENOSYS)];
    let bench = |engine: &str| {
        let args = format!("bench --name=a --filename=x.img --size=64k --ioengine={engine}");
        run_under(&calls, &folder, &args)
    };
    for (engine, message) in [
        ("io_uring", "forebay: a: io_uring is not available: Operation not permitted"),
        ("libaio", "forebay: a: Linux AIO is not available: Function not implemented"),
    ] {
        let output = bench(engine);
        assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    }
    for engine in ["psync", "sync"] {
        let output = bench(engine);
        assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(0)));
        assert!(stdout(&output).contains("psync:x.img: ios=16/0"), "{}", stdout(&output));
    }
}

/// Each kind of sync makes the system call of its name: if that call fails, the job fails.
#[test]
fn fsync_and_fdatasync_are_two_system_calls() {
    let (fsync, fdatasync) = (libc::SYS_fsync, libc::SYS_fdatasync);
    for (option, call, other) in [
        ("--fsync=2", fsync, fdatasync),
        ("--end_fsync=1", fsync, fdatasync),
        ("--fsync_on_close=1", fsync, fdatasync),
        ("--fdatasync=2", fdatasync, fsync),
        // If two syncs are due at the same time, the stronger one is made.
        ("--fsync=2 --fdatasync=2", fsync, fdatasync),
    ] {
        let folder = folder();
        data_file(&folder, "x.img", 1 << 16);
        let bench = format!("bench --name=a --filename=x.img --rw=write --ioengine=psync {option}");
        let output = run_under(&[(other, libc::EROFS)], &folder, &bench);
        assert_eq!(output.status.code(), Some(0), "{option}: {}", stderr(&output));
        let output = run_under(&[(call, libc::EIO)], &folder, &bench);
        let name = if call == fsync { "fsync" } else { "flush" };
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert_eq!(stderr(&output), format!("forebay: a: {name}: I/O error\n"), "{option}");
    }
}
