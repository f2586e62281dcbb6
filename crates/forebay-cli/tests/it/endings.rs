//! Runs that end early: by a signal, or because data differ from what was written.

use std::io::{Seek, SeekFrom, Write};
use std::process::Command;

use crate::common::{bench, bench_at_work, bench_json, data_file, folder, json, stderr, stdout};

#[test]
fn a_signal_ends_the_run_early_and_the_report_is_printed() {
    for signal in ["INT", "TERM"] {
        let folder = folder();
        let child = bench_at_work(
            &folder,
            "--name=a --filename=ram:4M --rw=randread --numjobs=2 --runtime=120 --time_based \
             --output-format=json",
        );
        let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill").success());
        let output = child.wait_with_output().expect("it ends");
        let message = "\nforebay: stopped early by a signal\n";
        assert!(stderr(&output).contains(message), "{signal}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(1), "{signal}");
        let report = json(&output);
        let ios = |job: usize| report["jobs"][job]["read"]["total_ios"].as_u64();
        assert!(ios(0).zip(ios(1)).is_some_and(|(a, b)| a + b > 0), "{signal}");
        for job in 0..2 {
            assert_eq!(report["jobs"][job]["error"], 0, "{signal}");
        }
    }
}

#[test]
fn written_data_is_read_back() {
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
    let message = "forebay: a: verify: damaged data at offset 40960: expected crc32c ";
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
    let message = "forebay: a: verify: no header at offset 0: expected magic 0xacca, found 0x";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    assert!(stderr(&output).ends_with(" (and 255 more bad blocks)\n"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 10, "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    let output = bench(&folder, "--name=a --filename=disk.img --verify=crc32c --verify_fatal=1");
    assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn a_failed_write_ends_the_job_before_anything_is_read_back() {
    let folder = folder();
    // The first run writes good blocks; in the second one the tenth write fails.
    let args = "--name=a --rw=write --filename=disk.img --size=1m --verify=crc32c";
    bench_json(&folder, args);
    let faulty = args.replace("disk.img", "fault:disk.img?rule=write:io:nth=10");
    let output = bench(&folder, &faulty);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "forebay: a: write of 4096 bytes at offset 36864: I/O error\n");
    assert!(!stdout(&output).contains("\n  read: "), "{}", stdout(&output));
}

#[test]
fn a_file_that_becomes_shorter_ends_the_job() {
    let folder = folder();
    let path = data_file(&folder, "disk.img", 1 << 20);
    let child = bench_at_work(&folder, "--name=a --filename=disk.img --runtime=120 --time_based");
    std::fs::File::options().write(true).open(path).expect("the file").set_len(0).expect("cut");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let message = ": no bytes were transferred; the file or device has become smaller since the \
                   start\n";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    // The errno that fio reports in this case.
    assert!(stdout(&output).contains("\na: (groupid=0, jobs=1): err= 5 (read of 4096 bytes at "));
}
