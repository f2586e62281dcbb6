//! Verification with fio, if it is installed: each program checks what the other has written, and
//! finds one flipped bit.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{bench, bench_json, folder, json, skip_without, stderr};

/// Every value of `verify` with a header.
#[rustfmt::skip]
const METHODS: &[&str] = &[
    "crc32c",
    "crc32c-intel",
    "crc32",
    "crc64",
    "crc16",
    "crc7",
    "md5",
    "sha1",
    "sha256",
    "sha512",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "xxhash",
    "meta",
];

/// The formats of blocks: options that both programs get for writing and for reading.
#[rustfmt::skip]
const FORMATS: &[&str] = &[
    "bs=4k",
    "bs=16k verify_interval=1k",
    "bs=4k verify_offset=512",
    "bs=4k verify_pattern=0xabcdef",
    "bs=16k verify_interval=2k verify_offset=300 verify_pattern=%o",
];

/// The same without a header, and with several sizes: each program draws its own.
const SIZES: &[&str] = &[
    "verify=pattern verify_pattern=%o0xab bs=4k",
    "verify=md5 bsrange=1k-8k",
    "verify=crc64 bssplit=2k/50:6k/50",
    "verify=crc32c bssplit=1k/50:4k/50 verify_interval=512",
];

const JSON: &str = "--output-format=json";

/// The error that fio reports for a bad block.
const EILSEQ: i64 = 84;

/// A job for both programs.
#[derive(Debug)]
struct Job {
    file: String,
    options: String,
    /// A byte that fio 3.33 checks.
    checked: usize,
}

/// Returns the jobs whose file names begin with `prefix`: every method, and every format with two
/// of them.
fn jobs(prefix: &str) -> Vec<Job> {
    let mut jobs = Vec::new();
    for method in METHODS {
        for (nr, format) in FORMATS.iter().enumerate() {
            if nr > 0 && !["crc32c", "md5"].contains(method) {
                continue;
            }
            let checked = match *method {
                // In the offset of the header.
                "meta" => 4096 + 18,
                // The last bytes of the data.
                "sha512" => 8192 - 10,
                _ => 4096 + 700,
            };
            let file = format!("{prefix}-{method}-{nr}");
            jobs.push(Job { file, options: format!("verify={method} {format}"), checked });
        }
    }
    for (nr, options) in SIZES.iter().enumerate() {
        jobs.push(Job {
            file: format!("{prefix}-{nr}"),
            options: (*options).into(),
            checked: 9000,
        });
    }
    jobs
}

/// Writes a job file with `common` for all jobs.
fn write_jobs(folder: &TempDir, name: &str, common: &str, jobs: &[Job]) {
    let lines = |options: &str| options.replace(' ', "\n");
    // Without `verify_fatal` fio 3.33 forgets a bad interval if a good one follows it.
    let mut text = format!("[global]\nsize=64k\nverify_fatal=1\n{}\n", lines(common));
    for Job { file, options, .. } in jobs {
        text += &format!("[{file}]\nfilename={file}\n{}\n", lines(options));
    }
    std::fs::write(folder.path().join(name), text).expect("a job file");
}

/// Runs fio on a job file. Returns its JSON, or `None` if it is not installed.
fn fio(folder: &TempDir, file: &str) -> Option<Value> {
    let output = Command::new("fio")
        .args([file, "--output-format=json", "--output=fio.json"])
        .current_dir(folder.path())
        .output();
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        output => output.expect("fio runs"),
    };
    let text = std::fs::read_to_string(folder.path().join("fio.json")).expect("fio's JSON");
    Some(text[text.find("{\n").expect("a JSON value")..].parse().expect("fio's JSON"))
}

/// Checks the errors of all jobs in a report.
#[track_caller]
fn check_errors(program: &str, report: &Value, jobs: &[Job], expected: i64) {
    let found = report["jobs"].as_array().expect("a list");
    assert_eq!(found.len(), jobs.len(), "{program}");
    for (found, job) in found.iter().zip(jobs) {
        assert_eq!(found["error"], expected, "{program}: {job:?}");
    }
}

/// Flips a bit of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).expect("a file");
}

#[test]
fn fio_and_bench_check_the_blocks_of_each_other() {
    let folder = folder();
    let (theirs, ours) = (jobs("theirs"), jobs("ours"));
    let write = "rw=write do_verify=0 verify_state_save=0";
    write_jobs(&folder, "theirs.fio", write, &theirs);
    write_jobs(&folder, "ours.fio", write, &ours);
    let Some(report) = fio(&folder, "theirs.fio") else {
        return skip_without("fio", "fio_and_bench_check_the_blocks_of_each_other");
    };
    check_errors("fio", &report, &theirs, 0);
    bench_json(&folder, "ours.fio");

    let all: Vec<_> = theirs.into_iter().chain(ours).collect();
    write_jobs(&folder, "read.fio", "rw=read verify_state_save=0", &all);
    write_jobs(&folder, "only.fio", "rw=write verify_only verify_state_save=0", &all);
    for file in ["read.fio", "only.fio"] {
        check_errors("fio", &fio(&folder, file).expect("fio"), &all, 0);
        check_errors("bench", &bench_json(&folder, file), &all, 0);
    }
    for job in &all {
        flip(&folder.path().join(&job.file), job.checked);
    }
    check_errors("fio", &fio(&folder, "read.fio").expect("fio"), &all, EILSEQ);
    for job in &all {
        // The first error ends a run of bench.
        let output = bench(&folder, &format!("read.fio --section={} {JSON}", job.file));
        check_errors("bench", &json(&output), std::slice::from_ref(job), EILSEQ);
    }
}

#[test]
fn flipped_bit_that_sha512_of_fio_misses_is_found_in_own_blocks() {
    let folder = folder();
    let write = "--name=w --rw=write --filename=d --size=64k --verify=sha512 --do_verify=0";
    bench_json(&folder, write);
    flip(&folder.path().join("d"), 4096 + 2000);
    let output = bench(&folder, "--name=r --rw=read --filename=d --size=64k --verify=sha512");
    let message = "forebay: r: verify: damaged data at offset 4096, byte 2000: expected 0x";
    assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
}

#[test]
fn bad_blocks_are_written_to_files() {
    let folder = folder();
    let job = "--name=w --rw=write --filename=disk.img --size=64k --verify=md5 --verify_dump=1";
    bench_json(&folder, job);
    let path = folder.path().join("disk.img");
    let good = std::fs::read(&path).expect("a file");
    flip(&path, 8192 + 700);
    flip(&path, 16_384 + 3);
    let output = bench(&folder, &format!("{job} --verify_only"));
    assert_eq!(output.status.code(), Some(1));
    let file = |name: &str| std::fs::read(folder.path().join(name)).expect(name);
    let bad = std::fs::read(&path).expect("a file");
    assert_eq!(file("disk.img.8192.received"), bad[8192..12_288]);
    assert_eq!(file("disk.img.8192.expected"), good[8192..12_288]);
    assert_eq!(file("disk.img.16384.hdr_fail"), bad[16_384..20_480]);
}

#[test]
fn backlog_is_read_back_between_the_writes() {
    let folder = folder();
    for (options, reads) in [
        ("--verify_backlog=4", 64),
        ("--verify_backlog=8 --verify_backlog_batch=3 --iodepth=4", 64),
        ("--verify_backlog=5 --ioengine=psync --loops=2", 128),
    ] {
        let job =
            format!("--name=w --rw=randwrite --filename=d --size=256k --verify=md5 {options}");
        let report = bench_json(&folder, &job);
        assert_eq!(report["jobs"][0]["read"]["total_ios"], reads, "{options}");
        assert_eq!(report["jobs"][0]["write"]["total_ios"], reads, "{options}");
    }
}

#[test]
fn overlapping_writes_go_one_after_the_other() {
    let folder = folder();
    // With two blocks in all, a third I/O always overlaps another one in flight.
    let job = "--name=w --rw=randwrite --filename=d --size=8k --io_size=1m --norandommap \
               --iodepth=16 --iodepth_batch=8";
    let shallow = |options: &str| {
        let report = bench_json(&folder, &format!("{job} {options}"));
        let level = |key: &str| report["jobs"][0]["iodepth_level"][key].as_f64().expect("a share");
        level("1") + level("2")
    };
    assert!(shallow("") < 50.0);
    assert!(shallow("--serialize_overlap=1") > 99.9);
}
