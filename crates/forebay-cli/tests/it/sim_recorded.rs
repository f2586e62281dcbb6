//! `forebay sim --trace`: recorded loads in virtual time.

use std::fs;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{bench, bench_json, data_file, folder, forebay, json, stderr, stdout};

fn sim(folder: &TempDir, args: &str) -> Output {
    forebay(folder).arg("sim").args(args.split_whitespace()).output().expect("it can be run")
}

#[track_caller]
fn good(folder: &TempDir, args: &str) -> String {
    let output = sim(folder, args);
    assert_eq!(output.status.code(), Some(0), "{args}: {}", stderr(&output));
    stdout(&output)
}

/// Returns the only run of a report.
#[track_caller]
fn run_of(folder: &TempDir, args: &str) -> Value {
    json(&sim(folder, &format!("{args} --json")))["forebay"][0].clone()
}

/// Returns the number of I/Os that each thread of a run has done.
fn ios_of_threads(run: &Value) -> Vec<u64> {
    let threads = run["threads"].as_array().expect("threads");
    threads.iter().map(|it| it["latency_ns"]["n"].as_u64().expect("a number")).collect()
}

/// Has each kind of I/O: trims and syncs beside reads and writes.
const LOG: &str = "fio version 3 iolog\n0 disk add\n0 disk open\n0 disk read 0 4096\n\
                   100 disk write 8192 4096\n150 disk sync 0 0\n150 disk trim 65536 4096\n\
                   900 disk read 4096 4096\n1000 disk close\n";

#[test]
fn log_of_bench_runs_on_a_model_twice_with_the_same_bytes() {
    let folder = folder();
    data_file(&folder, "disk", 1 << 20);
    let args = "--name=a --filename=disk --rw=randrw --bsrange=4k-16k --number_ios=60 --iodepth=4 \
                --fdatasync=20";
    bench_json(&folder, &format!("{args} --write_iolog=one"));
    bench_json(&folder, &format!("{args} --write_iolog=two"));
    let args = "--trace one --trace two --device nvme:size=1g --seed 7";
    let text = good(&folder, args);
    assert!(text.contains(" I/Os of 2 threads, the last one due at "), "{text}");
    assert!(text.contains("\n  late (us)    : avg="), "{text}");
    assert!(text.contains("\n  one       60  ") && text.contains("\n  two       60  "), "{text}");
    let replay =
        "replay with  : forebay sim --trace one --trace two --device nvme:size=1g --seed 7\n";
    assert!(text.contains(replay), "{text}");
    assert_eq!(good(&folder, args), text);
    let run = run_of(&folder, args);
    assert_eq!(ios_of_threads(&run), [60, 60]);
    assert!(run["fairness"].is_f64() && run["late_ns"]["p99"].is_u64(), "{run}");
}

#[test]
fn traces_of_bench_and_of_sim_have_their_threads() {
    let folder = folder();
    let ran = bench(
        &folder,
        "--filename=ram:8M --rw=randwrite --bs=4k --number_ios=40 --numjobs=2 --name=a --trace=t",
    );
    assert!(ran.status.success(), "{}", stderr(&ran));
    assert_eq!(ios_of_threads(&run_of(&folder, "--trace t --seed 1")), [40, 40]);
    good(&folder, "--trace t --seed 1 --device hdd --write-trace again");
    let again = run_of(&folder, "--trace again --seed 1");
    assert_eq!(ios_of_threads(&again), [40, 40]);
    let names: Vec<_> = again["threads"].as_array().expect("threads").iter().collect();
    assert_eq!(
        (&names[0]["name"], &names[1]["name"]),
        (&"task 0 (1)".into(), &"task 1 (2)".into())
    );
    // The first run submits at the times of the trace, and so does that of its trace.
    let report =
        forebay(&folder).args(["trace", "report", "again"]).output().expect("it can be run");
    assert!(report.status.success(), "{}", stderr(&report));
}

#[test]
fn times_depth_and_every_kind_of_io_take_effect() {
    let folder = folder();
    fs::write(folder.path().join("log"), LOG).expect("a log");
    let run = |options: &str| run_of(&folder, &format!("--trace log --seed 1 {options}"));
    let time_ns = |run: &Value| run["virtual_time_ns"].as_u64().expect("a time");
    let recorded = run("");
    assert_eq!((ios_of_threads(&recorded), &recorded["fairness"]), (vec![4], &Value::Null));
    assert_eq!(recorded["flush_latency_ns"]["n"], 1);
    assert_eq!((&recorded["bios"]["discard"], &recorded["bios"]["flush"]), (&1.into(), &1.into()));
    assert!((900_000..1_100_000).contains(&time_ns(&recorded)), "{recorded}");
    assert!((1_800_000..2_000_000).contains(&time_ns(&run("--replay-time-scale 50"))));
    let at_once = run("--replay-no-stall");
    assert!(time_ns(&at_once) < 400_000 && at_once["late_ns"].is_null(), "{at_once}");
    let reads: String = (0..9).map(|nth| format!("5 disk read {} 4096\n", nth * 8192)).collect();
    fs::write(folder.path().join("log"), format!("fio version 3 iolog\n0 disk add\n{reads}"))
        .expect("a log");
    let late = |run: &Value| run["late_ns"]["max"].as_u64().expect("a time");
    assert!(late(&run("")) < 10_000);
    assert!(late(&run("--iodepth 1")) > 8 * 80_000);
}

#[test]
fn sweeps_have_a_row_for_each_combination_and_mark_the_front() {
    let folder = folder();
    let reads: String = (0..400).map(|nth| format!("{nth} a read {} 4096\n", nth * 8192)).collect();
    for name in ["one", "two"] {
        fs::write(folder.path().join(name), format!("fio version 3 iolog\n{reads}"))
            .expect("a log");
    }
    let args = "--trace one --trace two --device nvme --seed 1 --sweep wake=fair,batch \
                --sweep queue_depth=1,16 --svg front.svg";
    let text = good(&folder, args);
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("wake=")).collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(text.lines().next().is_some_and(|line| line.ends_with("fairness  front")), "{text}");
    assert!(rows.iter().any(|row| row.ends_with(" *")), "{text}");
    let is_marked = |row: &&&str| row.starts_with("wake=fair queue_depth=1 ") && row.ends_with('*');
    assert!(!rows.iter().any(|row| is_marked(&row)), "slower than with 16 in each figure: {text}");
    let svg = fs::read_to_string(folder.path().join("front.svg")).expect("a figure");
    assert!(svg.contains(">front</text>") && svg.contains("1: wake=fair queue_depth=1<"), "{svg}");
    let value = json(&sim(&folder, &format!("{args} --json")));
    let marks: Vec<_> =
        value["forebay"].as_array().expect("runs").iter().map(|run| &run["on_front"]).collect();
    let expected: Vec<_> = rows.iter().map(|row| Value::from(row.ends_with('*'))).collect();
    assert_eq!(marks, expected.iter().collect::<Vec<_>>());
    let seeds =
        good(&folder, "--trace one --device nvme --seeds 3 --seed 1 --sweep queue_depth=1,16");
    assert!(seeds.contains("late p99 us") && seeds.contains("--seeds 3"), "{seeds}");
}

#[track_caller]
fn check_refused(args: &str, log: &str, message: &str) {
    let folder = folder();
    fs::write(folder.path().join("log"), log).expect("a log");
    fs::write(folder.path().join("job.fio"), "[a]\ninclude more.fio\n").expect("a file");
    fs::write(folder.path().join("more.fio"), "size=1m\n").expect("a file");
    fs::write(folder.path().join("my.model"), "family=nvme\nlatency_ns=7\n").expect("a file");
    let output = sim(&folder, args);
    assert!(!output.status.success(), "{args}");
    let text = stderr(&output);
    assert!(text.starts_with(&format!("forebay: {message}")), "{args}: {text}");
}

#[test]
fn recordings_that_cannot_be_run_are_refused_with_the_reason() {
    let head = "fio version 3 iolog\n";
    check_refused("--trace none", "", "--trace=none: cannot read the recording: No such file");
    check_refused("--trace log", "", "--trace=log: line 1: expected 'fio version 2 iolog' or");
    check_refused("--trace log", head, "--trace=log: the recording has no I/O");
    let wrong = format!("{head}0 a read 0 512\n1 a raed 0 512\n");
    check_refused("--trace log", &wrong, "--trace=log: line 3: ");
    let odd = format!("{head}0 a read 100 512\n");
    check_refused(
        "--trace log",
        &odd,
        "--trace=log: log: an I/O of 512 bytes at 100: expected multiples of 512 and at most ",
    );
    check_refused(
        "--trace log --device nvme:size=1m",
        &format!("{head}0 a read 1048576 4096\n"),
        "--trace=log: the recording uses 1052672 bytes of its disk, and the device has 1048576: ",
    );
    let late = format!("{head}0 a read 0 512\n18446744073709551 a read 0 512\n");
    check_refused("--trace log", &late, "--trace=log: log: an I/O 18446744073 s after the first");
    check_refused(
        "--trace log --sweep wake=fair,batch --svg ./log",
        LOG,
        "--svg=./log: it would overwrite ./log, and the run reads this file; choose another file",
    );
    check_refused(
        "job.fio --sweep wake=fair,batch --svg sv",
        LOG,
        "--svg=sv: the name does not end in .svg; this run has one figure: expected a file such as \
         sv.svg",
    );
    for svg in ["job.fio", "more.fio", "my.model"] {
        check_refused(
            &format!("job.fio --sweep device=nvme,./my.model --svg {svg}"),
            LOG,
            &format!("--svg={svg}: it would overwrite {svg}, and the run reads this file"),
        );
    }
    check_refused("--trace log --trace .", LOG, "--trace=.: a trace has the I/Os of all threads");
    check_refused("--iodepth 3 job.fio", LOG, "--iodepth needs --trace: it changes a recorded");
    check_refused("--replay-no-stall --random", LOG, "--replay-no-stall needs --trace");
    check_refused("--trace log job.fio", LOG, "--trace cannot be combined with");
    check_refused(
        "--trace log --replay-no-stall --replay-time-scale 2",
        LOG,
        "--replay-no-stall ignores the times that --replay-time-scale changes",
    );
    check_refused(
        "--trace log --replay-time-scale 2",
        "fio version 2 iolog\na read 0 512\n",
        "--replay-time-scale: the recording has no times; leave the option out",
    );
    check_refused("--trace log --write-trace t --seeds 2", LOG, "--write-trace: expected a job");
    check_refused("--trace log --sweep wake=fair --sweep wake=batch", LOG, "--sweep=wake=batch: w");
}
