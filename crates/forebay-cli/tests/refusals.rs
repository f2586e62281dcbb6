//! What is refused: with which words, and which exit code.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use common::{bench, data_file, folder, forebay, stderr, stdout};

#[track_caller]
fn check(args: &str, code: i32, message: &str) {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let output = bench(&folder, &format!("{args} --output-format=json"));
    assert_eq!(stderr(&output), format!("forebay: {message}\n"), "{args}");
    assert_eq!(output.status.code(), Some(code), "{args}");
    assert_eq!(stdout(&output), "", "{args}");
}

#[test]
fn unknown_options_get_the_nearest_one() {
    check("--name=a --iodpth=4", 2, "bench: unknown option --iodpth; did you mean --iodepth?");
    check(
        "--name=a --bssplit=4k/50:8k/50",
        2,
        "bench: --bssplit: fio knows it, forebay bench does not support it yet",
    );
    check(
        "job.fio",
        2,
        "bench: 'job.fio' is not an option; options begin with --, and job files are not supported \
         yet",
    );
}

#[test]
fn bad_values_say_what_would_do() {
    check(
        "--name=a --bs=4z",
        2,
        "bench: --bs=4z: 'z' is not a unit here; accepted: one size such as 4096, 4k, 1m or 1g \
         (k = 1024, ki = 1000)",
    );
    check(
        "--name=a --rw=reed",
        2,
        "bench: --rw=reed: it is none of the words; accepted: read, write, randread, randwrite, \
         rw, readwrite, randrw, trim, randtrim",
    );
    check(
        "--name=a --ioengine=psync",
        2,
        "bench: --ioengine=psync: it is none of the words; accepted: libaio, io_uring, null",
    );
    check("--name=a --time_based", 2, "bench: a: --time_based needs a --runtime");
}

#[test]
fn bad_specs_are_errors_of_usage() {
    check(
        "--name=a --filename=ram:1M?plugg=none",
        2,
        "a: unknown key `plugg` for driver `ram`; did you mean `plug`?",
    );
    check(
        "--name=a --filename=ram:1M --plug=maybe",
        2,
        "a: plug=maybe: expected outermost, per-level or none",
    );
    check(
        "--name=a --filename=disk.img?direct",
        2,
        "bench: a: --filename=disk.img?direct: `direct` is not key=value",
    );
}

#[test]
fn missing_files_need_a_size() {
    check(
        "--name=a --filename=missing.img",
        1,
        "a: missing.img does not exist or is empty; give --size, so that it can be laid out",
    );
    check(
        "--name=a --size=50%",
        1,
        "a: a.0.0 does not exist or is empty; give --size, so that it can be laid out",
    );
}

#[test]
fn jobs_must_fit_their_disk() {
    check(
        "--name=a --filename=ram:1M --size=2M",
        1,
        "a: offset 0 + size 2097152 goes past the end of the device, which has 1048576 bytes; \
         lower --size or --offset",
    );
    check(
        "--name=a --filename=disk.img --bs=2m",
        1,
        "a: the block size (2097152 bytes) is larger than what there is to work on (1048576 \
         bytes); lower --bs or raise --size",
    );
}

#[test]
fn direct_io_needs_aligned_blocks() {
    check(
        "--name=a --filename=disk.img --direct=1 --bs=1000",
        1,
        "a: --bs=1000 is not a multiple of the logical block size of disk.img, 512 bytes",
    );
    check(
        "--name=a --filename=disk.img --direct=1 --offset=100",
        1,
        "a: --offset=100 is not a multiple of the logical block size of disk.img, 512 bytes",
    );
}

#[test]
fn no_permission_is_said_so() {
    let folder = folder();
    let path = data_file(&folder, "disk.img", 1 << 20);
    let mode = |path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    mode(folder.path(), 0o755);
    mode(&path, 0o000);
    let mut command = forebay(&folder);
    command.args(["bench", "--name=a", "--filename=disk.img", "--output-format=json"]);
    // The superuser may do everything; as somebody else the file is out of reach.
    let as_root = std::fs::read(&path).is_ok();
    if as_root {
        command.uid(65_534).gid(65_534);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            skip("no_permission_is_said_so", &error.to_string());
            return;
        }
    };
    assert_eq!(stderr(&output), "forebay: a: disk.img: no permission to read it\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_first_error_ends_the_job_and_is_reported() {
    let folder = folder();
    let args = "--name=a --filename=fault:ram:1M?rule=read:medium:range=64k+4k --iodepth=4 \
                --output-format=json";
    let output = bench(&folder, args);
    assert_eq!(
        stderr(&output),
        "forebay: a: read of 4096 bytes at offset 65536: medium error: these sectors cannot be \
         read or written\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let report = common::json(&output);
    assert_eq!(report["jobs"][0]["error"], 61);
    let ios = report["jobs"][0]["read"]["total_ios"].as_u64().expect("a number");
    assert!((16..=20).contains(&ios), "{ios}");
}

#[test]
fn info_describes_and_refuses() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let info =
        |args: &[&str]| forebay(&folder).arg("info").args(args).output().expect("it can be run");
    let output = info(&["disk.img?direct=on", "--json"]);
    let value = common::json(&output);
    assert_eq!((&value["driver"], &value["capacity_bytes"]), (&"file".into(), &(1 << 20).into()));
    assert_eq!(value["features"]["direct"]["present"], true);
    assert_eq!(value["limits"]["logical_block_size"], 512);

    let text = stdout(&info(&["null:1M"]));
    assert!(text.contains("\n  flush                     no: there is no cache"), "{text}");

    let output = info(&["nbd:somewhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("forebay: nbd:somewhere: driver `nbd` does not exist"));
    let output = info(&["missing.img"]);
    assert_eq!(output.status.code(), Some(1));
    let output = info(&[]);
    assert_eq!(output.status.code(), Some(2));
}

#[allow(clippy::print_stderr)]
fn skip(test: &str, why: &str) {
    eprintln!("{test}: SKIPPED: {why}");
}
