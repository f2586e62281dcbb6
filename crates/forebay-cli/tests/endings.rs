//! How runs end: by a signal, and by data that is not what was written.

mod common;

use std::io::{Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{bench, bench_json, data_file, folder, forebay, json, stderr, stdout};

#[test]
fn a_signal_ends_the_run_early_and_the_report_is_printed() {
    for signal in ["INT", "TERM"] {
        let folder = folder();
        let started = Instant::now();
        let child = forebay(&folder)
            .args(["bench", "--name=a", "--filename=ram:4M", "--rw=randread", "--numjobs=2"])
            .args(["--runtime=60", "--time_based", "--output-format=json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be run");
        std::thread::sleep(Duration::from_millis(700));
        let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill").success());
        let output = child.wait_with_output().expect("it ends");
        assert!(started.elapsed() < Duration::from_secs(20), "{signal}");
        assert_eq!(stderr(&output), "\nforebay: ending early, on a signal\n", "{signal}");
        assert_eq!(output.status.code(), Some(1), "{signal}");
        let report = json(&output);
        for job in 0..2 {
            let read = &report["jobs"][job]["read"];
            assert!(read["total_ios"].as_u64().expect("a number") > 100, "{signal}");
            assert_eq!(report["jobs"][job]["error"], 0, "{signal}");
        }
    }
}

#[test]
fn what_was_written_is_read_back() {
    let folder = folder();
    for rw in ["write", "randwrite", "randrw"] {
        let args =
            format!("--name=a --rw={rw} --filename=d.{rw} --size=2m --verify=crc32c --iodepth=8");
        let report = bench_json(&folder, &args);
        let job = &report["jobs"][0];
        let count = |direction: &str| job[direction]["total_ios"].as_u64().expect("a number");
        let expected = if rw == "randrw" { 512 } else { 2 * count("write") };
        assert!(count("read") + count("write") >= expected, "{rw}");
        if rw != "randrw" {
            assert_eq!(count("read"), 512, "{rw}");
        }
    }
    let report = bench_json(
        &folder,
        "--name=a --rw=write --filename=e --size=2m --verify=crc32c --do_verify=0",
    );
    assert_eq!(report["jobs"][0]["read"]["total_ios"], 0);
}

#[test]
fn a_damaged_block_is_found() {
    let folder = folder();
    let write = "--name=a --rw=write --filename=disk.img --size=1m --verify=crc32c";
    bench_json(&folder, write);
    let read = "--name=a --rw=read --filename=disk.img --size=1m --verify=crc32c --iodepth=4";
    assert_eq!(bench_json(&folder, read)["jobs"][0]["read"]["total_ios"], 256);

    let path = folder.path().join("disk.img");
    let mut file = std::fs::OpenOptions::new().write(true).open(path).expect("the file");
    file.seek(SeekFrom::Start(40_960 + 100)).expect("seek");
    file.write_all(b"damage").expect("write");
    drop(file);

    let output = bench(&folder, read);
    let message = "forebay: a: verify: damaged data at offset 40960: expected crc 0x";
    assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    let line = "a: (groupid=0, jobs=1): err=84 (verify: damaged data at offset 40960: ";
    assert!(stdout(&output).contains(line), "{}", stdout(&output));
}

#[test]
fn blocks_that_were_never_written_do_not_pass() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let output = bench(&folder, "--name=a --filename=disk.img --verify=crc32c");
    let message = "forebay: a: verify: no header at offset 0: expected magic 0x63764246, found 0x";
    assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_failed_write_ends_the_job_before_anything_is_read_back() {
    let folder = folder();
    // The first run leaves good blocks behind; in the second one the tenth write fails.
    let args = "--name=a --rw=write --filename=disk.img --size=1m --verify=crc32c";
    bench_json(&folder, args);
    let faulty = args.replace("disk.img", "fault:disk.img?rule=write:io:nth=10");
    let output = bench(&folder, &faulty);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "forebay: a: write of 4096 bytes at offset 36864: I/O error\n");
    assert!(!stdout(&output).contains("\n  read: "), "{}", stdout(&output));
}
