//! Helpers that the tests share: a folder that supports direct I/O, and functions that run the
//! program.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Returns a new folder for a test, on the file system of the build.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Returns the command of the program, to be run in `folder`.
pub(crate) fn forebay(folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder.path());
    command
}

/// Runs `forebay bench` with these arguments, separated by spaces.
pub(crate) fn bench(folder: &TempDir, args: &str) -> Output {
    forebay(folder).arg("bench").args(args.split_whitespace()).output().expect("it can be run")
}

/// Runs fio with these arguments, separated by spaces. It must succeed. Skips the test, and returns
/// `None`, if fio is not installed.
#[track_caller]
pub(crate) fn fio(test: &str, folder: &TempDir, args: &str) -> Option<Output> {
    let output =
        Command::new("fio").args(args.split_whitespace()).current_dir(folder.path()).output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{test}: fio {args}: {}", stderr(&output));
            Some(output)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip_without("fio", test);
            None
        }
        Err(error) => panic!("{test}: fio: {error}"),
    }
}

/// One I/O of a log: its action, offset and length.
pub(crate) type Io = (String, u64, u64);

/// Parses a log of I/Os in fio's version 3.
pub(crate) fn ios(log: &str) -> Vec<Io> {
    let mut ios = Vec::new();
    for line in log.lines() {
        if let [_, _, action @ ("read" | "write" | "trim"), offset, len] =
            line.split_whitespace().collect::<Vec<_>>()[..]
        {
            ios.push((
                action.to_owned(),
                offset.parse().expect("a number"),
                len.parse().expect("a number"),
            ));
        }
    }
    ios
}

/// Runs the arguments with both programs on a file `x` of 1 MiB. They must contain
/// `--write_iolog=log`. Returns the I/Os of fio, if it is installed, and ours.
#[track_caller]
pub(crate) fn ios_beside_fio(test: &str, args: &str) -> Option<[Vec<Io>; 2]> {
    let (theirs, ours) = (folder(), folder());
    for folder in [&theirs, &ours] {
        data_file(folder, "x", 1 << 20);
    }
    fio(test, &theirs, args)?;
    let run = bench(&ours, args);
    assert_eq!(run.status.code(), Some(0), "{args}: {}", stderr(&run));
    let log =
        |folder: &TempDir| ios(&std::fs::read_to_string(folder.path().join("log")).expect("a log"));
    Some([log(&theirs), log(&ours)])
}

/// Runs all sets of arguments as [`ios_beside_fio`] does, concurrently: fio mostly sleeps.
pub(crate) fn all_beside_fio(
    test: &str,
    all: &[String],
    check: impl Fn(&str, [Vec<Io>; 2]) + Sync,
) {
    let check = &check;
    std::thread::scope(|scope| {
        for args in all {
            scope.spawn(move || {
                if let Some(both) = ios_beside_fio(test, args) {
                    check(args, both);
                }
            });
        }
    });
}

/// Starts `forebay bench`, and returns once its progress line shows that its jobs have done some
/// I/O. The standard error printed until then is consumed.
pub(crate) fn bench_at_work(folder: &TempDir, args: &str) -> Child {
    bench_until(folder, args, " IOPS]")
}

/// Does the same, but returns once the progress line contains `sign`.
pub(crate) fn bench_until(folder: &TempDir, args: &str, sign: &str) -> Child {
    let mut child = forebay(folder)
        .args(["bench", "--eta=always"])
        .args(args.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let (mut seen, mut byte) = (String::new(), [0]);
    let stderr = child.stderr.as_mut().expect("a pipe");
    while !seen.ends_with(sign) {
        assert_eq!(stderr.read(&mut byte).expect("a byte"), 1, "it has ended: {seen}");
        seen.push(byte[0].into());
    }
    child
}

/// Skips a test, or a part of it, that does not apply to this machine, for instance because the
/// kernel lacks a feature.
pub(crate) fn skip(test: &str, why: &str) {
    crate::skip_support::skip_always(test, why);
}

/// Skips a test that needs a missing tool. Under `FOREBAY_REQUIRE_TOOLS=1` that is an error.
#[track_caller]
pub(crate) fn skip_without(tool: &str, test: &str) {
    skip_unless_required(test, &format!("{tool} is not installed"));
}

/// Skips a test that lacks a tool or a privilege. Under `FOREBAY_REQUIRE_TOOLS=1` that is an error.
#[track_caller]
pub(crate) fn skip_unless_required(test: &str, why: &str) {
    crate::skip_support::skip(test, why);
}

/// Runs a bench that must succeed, and returns its JSON.
#[track_caller]
pub(crate) fn bench_json(folder: &TempDir, args: &str) -> Value {
    let output = bench(folder, &format!("{args} --output-format=json"));
    assert_eq!(output.status.code(), Some(0), "{args}: {}", stderr(&output));
    json(&output)
}

/// Parses standard output as exactly one JSON value.
#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    stdout(output).parse().unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

/// Returns standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Creates a file with `len` bytes of data that are neither zero nor compressible.
pub(crate) fn data_file(folder: &TempDir, name: &str, len: usize) -> PathBuf {
    let path = folder.path().join(name);
    let bytes: Vec<u8> =
        (0..len as u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    std::fs::write(&path, bytes).expect("a file");
    path
}
