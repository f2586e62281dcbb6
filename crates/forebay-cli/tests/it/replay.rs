//! Logs of I/Os: written and replayed by us and by fio, and refusals of replays.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{bench, bench_json, data_file, folder, skip_without, stderr};

/// Runs fio. Returns its JSON, or `None` if it is not installed.
#[track_caller]
fn fio(folder: &TempDir, test: &str, args: &str) -> Option<Value> {
    let args = args.split_whitespace().chain(["--output-format=json", "--output=fio.json"]);
    match Command::new("fio").args(args).current_dir(folder.path()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip_without("fio", test);
            None
        }
        output => {
            let output = output.expect("it can be run");
            assert!(output.status.success(), "{}", stderr(&output));
            let text = std::fs::read_to_string(folder.path().join("fio.json")).expect("JSON");
            Some(text[text.find("{\n").expect("JSON")..].parse().expect("JSON"))
        }
    }
}

/// Returns the numbers of reads, writes and syncs of the first job.
fn ios(report: &Value) -> [Option<u64>; 3] {
    ["read", "write", "sync"].map(|kind| report["jobs"][0][kind]["total_ios"].as_u64())
}

/// Returns the lines of I/Os in a log, without times and names.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("a log");
    let words = text.lines().skip(1).map(|line| line.split(' ').skip(2).collect::<Vec<_>>());
    words.filter(|words| words.len() == 3).map(|words| words.join(" ")).collect()
}

#[track_caller]
fn check_refusal(folder: &TempDir, args: &str, reason: &str) {
    let output = bench(folder, args);
    assert!(!output.status.success() && stderr(&output).contains(reason), "{}", stderr(&output));
}

#[test]
fn replay_of_a_written_log_does_the_same_ios_and_fio_reads_it() {
    let test = "replay_of_a_written_log_does_the_same_ios_and_fio_reads_it";
    let folder = folder();
    data_file(&folder, "disk", 1 << 20);
    bench_json(
        &folder,
        "--name=a --filename=disk --rw=randrw --bsrange=4k-16k --number_ios=60 --iodepth=4 \
         --fdatasync=5 --write_iolog=first",
    );
    let replay = bench_json(&folder, "--name=b --read_iolog=first --write_iolog=second");
    let first = lines(&folder.path().join("first"));
    assert_eq!(first.iter().filter(|line| !line.contains("sync")).count(), 60);
    assert_eq!(lines(&folder.path().join("second")), first);
    let late = &replay["forebay"][0]["jobs"][0]["replay"];
    assert!(late["ios"] == 60 && late["late_ns"]["max"].is_u64(), "{replay}");
    let Some(theirs) = fio(&folder, test, "--name=c --read_iolog=second --replay_no_stall=1")
    else {
        return;
    };
    assert_eq!(ios(&theirs)[..2], ios(&replay)[..2]);
}

#[test]
fn log_of_fio_is_replayed_and_its_writes_are_done() {
    let test = "log_of_fio_is_replayed_and_its_writes_are_done";
    let folder = folder();
    data_file(&folder, "disk", 256 << 10);
    let args = "--name=a --filename=disk --rw=randrw --bs=4k --size=256k --fsync=8 \
                --write_iolog=log";
    let Some(theirs) = fio(&folder, test, args) else { return };
    let ours = bench_json(&folder, "--name=b --read_iolog=log --iodepth=8 --iodepth_batch=4");
    assert_eq!(ios(&ours)[..2], ios(&theirs)[..2]);
    let reads = bench_json(&folder, "--name=b --read_iolog=log --replay_skip=write,sync");
    assert_eq!(ios(&reads)[..2], [ios(&theirs)[0], Some(0)]);
}

#[test]
fn waits_of_version_2_and_the_speed_determine_the_time() {
    let folder = folder();
    let log = "fio version 2 iolog\nnone add\nnone open\nnone read 0 4096\nnone wait 300 0\n\
               none read 4096 4096\nnone sync 0 0\nnone write 8192 512\nnone datasync 0 0\n\
               none close\n";
    std::fs::write(folder.path().join("log"), log).expect("a log");
    let of = |options: &str| {
        let args = format!("--name=a --read_iolog=log --replay_redirect=ram:1M {options}");
        bench_json(&folder, &args)["jobs"][0].clone()
    };
    let runtime = |job: &Value| job["job_runtime"].as_u64().expect("a number");
    let job = of("");
    assert!(runtime(&job) >= 300, "{job}");
    assert_eq!((&job["read"]["total_ios"], &job["write"]["total_ios"]), (&2.into(), &1.into()));
    assert_eq!(job["sync"]["total_ios"], 2, "the last one too");
    assert!(runtime(&of("--replay_time_scale=50")) >= 600);
    assert!(runtime(&of("--replay_no_stall=1")) < 300, "no waits");
    assert_eq!(of("--loops=2 --replay_no_stall=1")["read"]["total_ios"], 4);
}

#[test]
fn trace_is_replayed_on_another_disk_and_swept() {
    let folder = folder();
    bench_json(
        &folder,
        "--name=a --filename=ram:1M --rw=randrw --bs=4k --number_ios=100 --fdatasync=9 --trace=t",
    );
    let replay = "--name=b --read_iolog=t --replay_redirect=model:sata?size=1M --iodepth=4";
    let ours = bench_json(&folder, replay);
    let nr: u64 = ios(&ours)[..2].iter().flatten().sum();
    assert_eq!(nr, 100);
    let swept = bench_json(&folder, &format!("{replay} --sweep=iodepth=1,4"));
    assert_eq!(swept["points"].as_array().map(Vec::len), Some(2), "{swept}");
}

#[test]
fn impossible_replays_are_refused_before_anything_is_written() {
    let folder = folder();
    let log = "fio version 2 iolog\nd add\nd write 0 4096\n";
    std::fs::write(folder.path().join("log"), log).expect("a log");
    std::fs::write(folder.path().join("bad"), format!("{log}d fly 0 1\n")).expect("a log");
    let disks = "fio version 2 iolog\nram:1M read 0 512\nd read 0 512\n";
    std::fs::write(folder.path().join("disks"), disks).expect("a log");
    let check = |args: &str, reason: &str| check_refusal(&folder, args, reason);
    check("--name=a --read_iolog=none", "a: --read_iolog=none: cannot read the log: ");
    check("--name=a --read_iolog=bad", "a: --read_iolog=bad: line 4: action 'fly' is not known");
    check("--name=a --read_iolog=log --filename=x", "use --replay_redirect instead of --filename");
    check("--name=a --read_iolog=log --rate_iops=5", "--rate, --rate_iops and --thinktime: ");
    check("--name=a --read_iolog=log --verify=crc32c", "--verify: the log of --read_iolog");
    check("--readonly --name=a --read_iolog=log", "leave its writes out with --replay_skip=write");
    check("--name=a --read_iolog=log --replay_skip=write", "the log has no I/O to replay");
    check("--name=a --read_iolog=.", "a trace has no names of files; name the disk with ");
    check("--name=a --read_iolog=disks", "'ram:1M' is not a file");
    check("--name=a --filename=ram:1M --replay_scale=2", "--replay_* options need --read_iolog");
    let small = "--name=a --read_iolog=log --replay_redirect=ram:1k";
    check(small, "the log of --read_iolog needs 4096 bytes, and the device has 1024; choose");
    let twice = "--name=a --filename=ram:1M --write_iolog=w --numjobs=2";
    check(twice, "2 clones would write one log");
    check("--name=a --read_iolog=log --write_iolog=log", "the run replays this log");
    check("--name=a --read_iolog=log --write_iolog=./log", "the run replays this log");
    std::fs::write(folder.path().join("disk"), [7; 8192]).expect("a disk");
    let onto_disk = "--readonly --name=a --filename=disk --rw=read --write_iolog=./disk";
    check(onto_disk, "a job uses this file");
    assert_eq!(std::fs::read(folder.path().join("disk")).expect("it is there"), [7; 8192]);
    let of_other = "--readonly --name=a --filename=ram:1M --rw=read --write_iolog=b.0.0 --name=b \
                    --rw=read --size=8k";
    std::fs::write(folder.path().join("b.0.0"), [7; 8192]).expect("a disk");
    check(of_other, "a job uses this file");
    check("--readonly --name=a --filename=disk --output=disk", "a job uses this file");
    for name in ["disk", "b.0.0"] {
        assert_eq!(std::fs::read(folder.path().join(name)).expect("it is there"), [7; 8192]);
    }
    check("--name=a --read_iolog=log --replay_align=3k", "3072 is not a power of two");
    let compared = "--compare=plug=none --name=a --read_iolog=log";
    check(compared, "replays are not compared");
    assert!(!folder.path().join("d").exists());
}

/// Returns the names in a folder, sorted.
fn names_in(folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names
}

#[test]
fn log_with_names_like_specs_is_replayed_on_the_same_files() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("only")).expect("a directory");
    std::fs::write(folder.path().join("only/c%3Fd"), [0; 8192]).expect("a file");
    for job in ["a --opendir=only", "q?x", "a:b", "file:c --filename=ram\\:1M"] {
        let load = format!("--name={job} --rw=write --bs=4k --size=8k --write_iolog=log");
        bench_json(&folder, &load);
        let before = names_in(folder.path());
        let replay = bench_json(&folder, "--name=r --read_iolog=log --write_iolog=again");
        assert_eq!(replay["jobs"][0]["write"]["total_ios"], 2, "{job}");
        let names = |log: &str| {
            let text = std::fs::read_to_string(folder.path().join(log)).expect("a log");
            let names = text.lines().skip(1).filter_map(|line| line.split(' ').nth(1));
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(names("again"), names("log"), "{job}");
        std::fs::remove_file(folder.path().join("again")).expect("a log");
        assert_eq!(names_in(folder.path()), before, "{job}: the replay created a file");
    }
}

#[test]
fn log_goes_to_a_pipe_that_has_a_reader() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let job = "--name=a --filename=ram:1M --rw=read --bs=4k --size=8k --write_iolog";
    check_refusal(&folder, &format!("{job}=pipe"), "no program reads this pipe; start the reader");
    bench_json(&folder, &format!("{job}=/dev/null"));
    let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).expect("a log"));
    let args = format!("{job}=pipe");
    // The reader opens the pipe only after a while.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !bench(&folder, &args).status.success() {
        assert!(std::time::Instant::now() < deadline, "the pipe has a reader");
    }
    let log = reader.join().expect("no panic");
    assert_eq!(log.lines().filter(|line| line.contains(" read ")).count(), 2, "{log}");
}
