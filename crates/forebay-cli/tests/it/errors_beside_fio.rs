//! Jobs that continue after errors, and jobs that fill their file system, beside fio.
//!
//! Writes fail behind a limit on the length of files (EFBIG), or on a full file system in memory
//! (ENOSPC), which the test mounts in a namespace of its own.

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{
    bench, bench_json, folder, json, skip_unless_required, skip_without, stderr, stdout,
};

const EILSEQ: i64 = 84;
/// The error of a write behind the limit: EFBIG, which the layer reports as EINVAL.
const TOO_LONG: [i64; 2] = [27, 22];

/// The programs to compare.
const PROGRAMS: [&str; 2] = ["fio", concat!(env!("CARGO_BIN_EXE_forebay"), " bench")];

fn has_fio(test: &str) -> bool {
    let is_there = Command::new("fio").arg("--version").output().is_ok();
    if !is_there {
        skip_without("fio", test);
    }
    is_there
}

/// Runs a shell command in `folder`.
fn shell(folder: &TempDir, command: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder.path()).output().expect("a shell")
}

/// Returns the JSON report in the output of either program.
fn report(output: &Output) -> Value {
    let text = stdout(output);
    let start = text.find("{\n").unwrap_or_else(|| panic!("{text}{}", stderr(output)));
    text[start..].parse().expect("a JSON report")
}

/// Returns the figures that must be the same: exit code, error, count of errors and I/Os, bytes,
/// measured latencies.
fn figures(output: &Output, direction: &str) -> Vec<Option<i64>> {
    let report = report(output);
    let job = &report["jobs"][0];
    let of = &job[direction];
    let values = [
        &job["error"],
        &job["total_err"],
        &job["first_error"],
        &of["total_ios"],
        &of["io_bytes"],
        &of["clat_ns"]["N"],
    ];
    let code = output.status.code().map(i64::from);
    std::iter::once(code).chain(values.map(Value::as_i64)).collect()
}

#[test]
fn writes_that_fail_are_counted_as_in_fio() {
    if !has_fio("writes_that_fail_are_counted_as_in_fio") {
        return;
    }
    for (engine, options) in [
        ("psync", "--ignore_error=,EFBIG:EINVAL"),
        ("psync", "--ignore_error=,5:27:22 --error_dump=1"),
        ("libaio", "--continue_on_error=read --ignore_error=,EFBIG:EINVAL --iodepth=4"),
    ] {
        for (program, errno) in PROGRAMS.into_iter().zip(TOO_LONG) {
            let folder = folder();
            std::fs::write(folder.path().join("data"), vec![0; 131_072]).expect("a file");
            let output = shell(
                &folder,
                &format!(
                    "trap '' XFSZ; exec prlimit --fsize=65536 {program} --name=a --filename=data \
                     --rw=write --size=128k --ioengine={engine} {options} --output-format=json"
                ),
            );
            let found = figures(&output, "write");
            let expected = [0, errno, 16, errno, 32, 65_536, 16];
            assert_eq!(found, expected.map(Some), "{program} {options}: {}", stderr(&output));
        }
    }
}

#[test]
fn error_that_is_not_listed_ends_the_job_as_in_fio() {
    if !has_fio("error_that_is_not_listed_ends_the_job_as_in_fio") {
        return;
    }
    for (program, errno) in PROGRAMS.into_iter().zip(TOO_LONG) {
        let folder = folder();
        std::fs::write(folder.path().join("data"), vec![0; 131_072]).expect("a file");
        let command = format!(
            "trap '' XFSZ; exec prlimit --fsize=65536 {program} --name=a --filename=data \
             --rw=write --size=128k --ioengine=psync --continue_on_error=all --output-format=json"
        );
        let output = shell(&folder, &command);
        let found = figures(&output, "write");
        assert_eq!(output.status.code(), Some(1), "{program}");
        assert_eq!((found[1], found[4], found[5]), (Some(errno), Some(17), Some(65_536)));
    }
}

#[test]
fn bad_blocks_are_counted_as_in_fio() {
    if !has_fio("bad_blocks_are_counted_as_in_fio") {
        return;
    }
    let folder = folder();
    let write = "--name=a --filename=data --rw=write --size=64k --verify=crc32c --do_verify=0";
    assert!(shell(&folder, &format!("fio {write}")).status.success());
    let path = folder.path().join("data");
    let mut bytes = std::fs::read(&path).expect("a file");
    (bytes[9000], bytes[29_000]) = (!bytes[9000], !bytes[29_000]);
    std::fs::write(&path, bytes).expect("a file");
    for kinds in ["verify", "all"] {
        for program in PROGRAMS {
            let command = format!(
                "{program} --name=a --filename=data --rw=read --size=64k --verify=crc32c \
                 --ioengine=psync --continue_on_error={kinds} --output-format=json"
            );
            let found = figures(&shell(&folder, &command), "read");
            let expected = [0, EILSEQ, 2, EILSEQ, 16, 65_536, 16];
            assert_eq!(found, expected.map(Some), "{command}");
        }
    }
    // An end at the first bad block wins.
    let args = "--name=a --filename=data --rw=read --size=64k --verify=crc32c --verify_fatal=1 \
                --continue_on_error=all --output-format=json";
    let output = bench(&folder, args);
    let report = json(&output);
    assert_eq!((output.status.code(), report["jobs"][0]["total_err"].as_i64()), (Some(1), Some(1)));
}

#[test]
fn each_kind_of_error_is_continued_by_its_option_alone() {
    for (rule, rw, kinds) in [
        ("read:io:nth=3", "read", ["read", "io", "all", "1"].as_slice()),
        ("write:io:nth=3", "write", &["write", "io", "all", "1"]),
        ("flush:io", "write --fsync=8 --size=64k", &["write", "io", "all", "1"]),
    ] {
        for word in ["none", "read", "write", "io", "verify", "all", "0", "1"] {
            for engine in ["", "--ioengine=psync"] {
                let folder = folder();
                // Only a disk with a volatile cache gets flushes.
                let disk = if rule == "flush:io" { "data" } else { "ram:64k" };
                let args = format!(
                    "--name=a --filename=fault:{disk}?rule={rule} --rw={rw} {engine} \
                     --continue_on_error={word} --output-format=json"
                );
                let output = bench(&folder, &args);
                assert!(output.status.code() != Some(2), "{}", stderr(&output));
                let report = json(&output);
                let job = &report["jobs"][0];
                let is_continued = kinds.contains(&word);
                assert_eq!(output.status.code(), Some(i32::from(!is_continued)), "{args}");
                assert_eq!(job["error"], 5, "{args}");
                let counts = ![Some("none"), Some("0")].contains(&Some(word));
                assert_eq!(job.get("total_err").is_some(), counts, "{args}");
                if is_continued {
                    assert!(job["total_err"].as_i64() >= Some(1), "{args}");
                    let direction = rw.split(' ').next().expect(rw);
                    assert_eq!(job[direction]["total_ios"], 16, "{args}");
                    assert!(stderr(&output).contains(" did not end the job; the first: "));
                }
            }
        }
    }
}

#[test]
fn block_whose_write_failed_is_not_verified() {
    let args = "--name=a --filename=fault:ram:64k?rule=write:io:nth=3 --rw=write --verify=crc32c \
                --continue_on_error=write";
    // Each third of 16 writes.
    let nr_failed = 5;
    for more in ["", "--bssplit=4k/100", "--ioengine=psync", "--verify_backlog=4", "--error_dump=1"]
    {
        let folder = folder();
        let output = bench(&folder, &format!("{args} {more} --output-format=json"));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{more}: {text}");
        let report = json(&output);
        let errors = report["jobs"][0]["total_err"].as_i64();
        assert_eq!(errors, Some(nr_failed), "{more}: a block that was not written is no bad block");
        let nr_lines = if more == "--error_dump=1" { 6 } else { 1 };
        assert_eq!(text.lines().count(), nr_lines, "{text}");
    }
}

#[test]
fn text_report_counts_errors_in_the_form_of_fio() {
    let args = "--name=a --filename=fault:ram:64k?rule=read:medium:nth=3 --rw=read \
                --ignore_error=ENODATA:EIO";
    let output = bench(&folder(), args);
    let text = stdout(&output);
    let line = "\n     errors    : total=5, first_error=61/<No data available>\n     latency   : ";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("(groupid=0, jobs=1): err=61 (read of 4096 bytes at offset 8192: "));
    assert!(text.contains("issued rwts: total=16,0,0,0 "), "{text}");
}

#[test]
fn job_fills_its_file_system_and_ends_without_an_error_as_in_fio() {
    let test = "job_fills_its_file_system_and_ends_without_an_error_as_in_fio";
    if !has_fio(test) {
        return;
    }
    for options in ["--size=1m", "", "--verify=crc32c --bs=8k"] {
        for program in PROGRAMS {
            let folder = folder();
            let command = format!(
                "mkdir full && mount -t tmpfs -o size=256k tmpfs full || exit 77
                 {program} --name=a --filename=full/data --rw=write --ioengine=psync \
                 --fill_device=1 {options} --output-format=json && stat -c %s full/data >&2"
            );
            let output = Command::new("unshare")
                .args(["-rm", "sh", "-c", &command])
                .current_dir(folder.path())
                .output();
            let Ok(output) = output else { return skip_without("unshare", test) };
            if output.status.code().is_none_or(|code| code == 77) || stdout(&output).is_empty() {
                skip_unless_required(test, "no file system can be mounted in a namespace");
                return;
            }
            let report = report(&output);
            let job = &report["jobs"][0];
            assert_eq!(output.status.code(), Some(0), "{program}: {}", stderr(&output));
            let found = (&job["error"], &job["write"]["io_bytes"]);
            assert_eq!(found, (&0.into(), &262_144.into()), "{program} {options}");
            // fio does not remove the end of a file that had its length from --size.
            assert_eq!(stderr(&output).lines().last(), Some("262144"), "{program} {options}");
        }
    }
}

#[test]
fn later_stage_reads_what_was_filled() {
    let folder = folder();
    let output = bench(
        &folder,
        "--filename=fault:data?rule=write:nospace:range=512k+4k --bs=4k --verify=crc32c --name=a \
         --rw=write --fill_device=1 --do_verify=0 --name=b --stonewall --rw=read \
         --output-format=json",
    );
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(report["jobs"][0]["write"]["io_bytes"], 512 << 10);
    assert_eq!(report["jobs"][1]["read"]["io_bytes"], 512 << 10);
    let len = std::fs::metadata(folder.path().join("data")).expect("the file").len();
    assert_eq!(len, 512 << 10);
    // A stage before neither fills the file nor ends it, and another path names the same file.
    let output = bench(
        &folder,
        "--name=before --filename=ram:64k --rw=write --name=fill --stonewall \
         --filename=fault:data?rule=write:nospace:range=640k+4k --bs=4k --rw=write --fill_device=1 \
         --name=read --stonewall --filename=fault:./data --rw=read --output-format=json",
    );
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(report["jobs"][1]["write"]["io_bytes"], 640 << 10);
    assert_eq!(report["jobs"][2]["read"]["io_bytes"], 640 << 10);
    // A device has its own end.
    let args = "--name=a --filename=ram:64k --rw=write --fill_device=1";
    assert_eq!(bench_json(&folder, args)["jobs"][0]["write"]["io_bytes"], 64 << 10);
}
