//! `forebay sim`: a job file and random scenarios in virtual time, and replay from the seed.

use std::process::Output;

use tempfile::TempDir;

use crate::common::{folder, forebay, stderr, stdout};

const JOB: &str = "; reads in batches\n[global]\nbs=4k\nsize=1m\n[a]\nrw=read\niodepth=16\n\
                   iodepth_batch=16\niodepth_batch_complete=16\n";

fn sim(folder: &TempDir, args: &str) -> Output {
    forebay(folder).arg("sim").args(args.split_whitespace()).output().expect("it can be run")
}

#[test]
fn a_job_runs_in_virtual_time_and_again_by_its_seed() {
    let folder = folder();
    std::fs::write(folder.path().join("job.fio"), JOB).expect("a file");
    let first = sim(&folder, "job.fio --seed 3");
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let text = stdout(&first);
    assert!(text.contains("bios         : 256, 0 failed"), "{text}");
    assert!(text.contains("merges=240"), "{text}");
    assert!(text.contains("replay with  : forebay sim job.fio --seed 3"), "{text}");
    assert_eq!(stdout(&sim(&folder, "job.fio --seed 3")), text);
    let flaky = stdout(&sim(&folder, "job.fio --seed 3 --device flaky:fail=100000"));
    assert!(!flaky.contains(" 0 failed"), "{flaky}");
}

#[test]
fn random_scenarios_report_the_checked_rules() {
    let folder = folder();
    let output = sim(&folder, "--random --seeds 3 --seed 1");
    let text = stdout(&output);
    assert!(text.starts_with("3 seeds from 1: no rule is broken\n"), "{text}");
    assert!(stdout(&sim(&folder, "--random")).starts_with("seed "));
}

#[test]
fn nbd_sessions_report_their_checks_and_repeat_exactly() {
    let folder = folder();
    let output = sim(&folder, "--nbd --seeds 3 --seed 1");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("3 seeds from 1: no rule is broken\n"), "{text}");
    assert!(text.contains("replay with  : forebay sim --nbd --seed 1 --seeds 3"), "{text}");
    assert_eq!(stdout(&sim(&folder, "--nbd --seeds 3 --seed 1")), text);
}

#[track_caller]
fn check_refused(args: &str, code: i32, message: &str) {
    let folder = folder();
    std::fs::write(folder.path().join("wrong.fio"), "[a]\niodpth=4\n").expect("a file");
    let output = sim(&folder, args);
    assert_eq!(output.status.code(), Some(code), "{args}");
    assert_eq!(stderr(&output), format!("forebay: {message}\n"), "{args}");
}

#[test]
fn job_that_cannot_be_simulated_is_refused() {
    let unknown = "wrong.fio:2:1: unknown option iodpth; did you mean iodepth?\n  \
                     2 | iodpth=4\n    | ^^^^^^";
    check_refused("wrong.fio", 2, unknown);
    check_refused(
        "none.fio",
        1,
        "none.fio: cannot read the file: No such file or directory (os error 2)",
    );
    let wake = "--wake=lifo: expected fair, batch, stash, single or stash-v1";
    check_refused("--random --wake lifo", 2, wake);
    check_refused(
        "",
        2,
        "nothing to simulate: give a fio job file, a scenario, --trace, --random or --nbd",
    );
}

#[test]
fn blocks_of_several_sizes_are_simulated_and_a_pace_is_not() {
    let folder = folder();
    let write = |options: &str| {
        let text = format!("[a]\nrw=randrw\nsize=4m\niodepth=8\n{options}\n");
        std::fs::write(folder.path().join("job.fio"), text).expect("a file");
    };
    write("bssplit=4k/50:512/20:64k/30\nrandom_distribution=zipf:1.2");
    let output = sim(&folder, "job.fio --seed 3");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for (options, message) in [
        ("rate_iops=100", "job.fio:5:1: rate_iops=100: not simulated; leave it out"),
        ("loops=2", "job.fio:5:1: loops=2: not simulated; leave it out"),
        ("bsrange=4k-5000", "a: bs=5000: the simulated disk takes multiples of 512 up to 8388608"),
    ] {
        write(options);
        let output = sim(&folder, "job.fio --seed 3");
        assert_ne!(output.status.code(), Some(0), "{options}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[test]
fn keys_and_devices_that_are_not_simulated_are_refused_by_name() {
    let folder = folder();
    let text = "[a]\nfilename=disk.img\nsize=1m\nplug=per-level\nkick=per-request\n";
    std::fs::write(folder.path().join("job.fio"), text).expect("a file");
    let output = sim(&folder, "job.fio");
    let lines: Vec<_> = stderr(&output)
        .lines()
        .filter_map(|line| line.split(": not").next().map(str::to_owned))
        .filter(|line| line.starts_with("forebay: "))
        .collect();
    let expected =
        ["forebay: job.fio:2:1: filename=disk.img", "forebay: job.fio:5:1: kick=per-request"];
    assert_eq!((lines, output.status.code()), (expected.map(str::to_owned).into(), Some(2)));
    assert_eq!(stdout(&output), "");
}

#[test]
fn settings_that_are_simulated_have_their_effect() {
    let folder = folder();
    let write = |options: &str| {
        let text = format!("[a]\nrw=randread\nsize=1m\niodepth=8\n{options}\n");
        std::fs::write(folder.path().join("job.fio"), text).expect("a file");
    };
    write("queue_depth=2\nwake=batch");
    let in_file = stdout(&sim(&folder, "job.fio --seed 3"));
    assert!(!in_file.contains("tag waits    : 0,"), "{in_file}");
    let again = stdout(&sim(&folder, "job.fio --seed 3 --queue-depth 2 --wake batch"));
    assert_eq!(again.replace(" --wake batch --queue-depth 2", ""), in_file);
    // The command line overrides the job file.
    let deep = stdout(&sim(&folder, "job.fio --seed 3 --queue-depth 8"));
    assert!(deep.contains("tag waits    : 0,"), "{deep}");
    let same = stdout(&sim(&folder, "job.fio --seed 3 --set queue_depth=8"));
    assert_eq!(same.replace("--set queue_depth=8", "--queue-depth 8"), deep);
}

#[test]
fn modelled_devices_run_jobs_with_the_times_of_the_device() {
    let folder = folder();
    let text = "[a]\nrw=randrw\nsize=64m\nio_size=1m\niodepth=8\nfsync=16\n";
    std::fs::write(folder.path().join("job.fio"), text).expect("a file");
    let iops = |device: &str| {
        let output = sim(&folder, &format!("job.fio --seed 3 --device {device}"));
        assert_eq!(output.status.code(), Some(0), "{device}: {}", stderr(&output));
        let text = stdout(&output);
        let line = text.lines().find(|line| line.contains(" IOPS, ")).expect(&text).to_owned();
        let number = line.split_whitespace().nth(2).and_then(|word| word.parse::<f64>().ok());
        number.unwrap_or_else(|| panic!("{line}"))
    };
    let [hdd, sata, flash] = ["hdd", "sata", "nvme"].map(iops);
    assert!(hdd < 2000.0 && sata < 2000.0, "{hdd} {sata}");
    assert!(flash > 20_000.0, "{flash}");
    assert!(iops("nvme:latency_ns=1000000") < flash / 2.0);
    let in_file = format!("{text}filename=model:nvme\n");
    std::fs::write(folder.path().join("job.fio"), in_file).expect("a file");
    let text = stdout(&sim(&folder, "job.fio --seed 3"));
    assert!(text.contains(&format!(": {flash:.0} IOPS, ")), "{text}");
}

#[test]
fn variants_are_run_side_by_side() {
    let folder = folder();
    std::fs::write(folder.path().join("job.fio"), JOB).expect("a file");
    let text = stdout(&sim(&folder, "job.fio --seed 3 --compare plug=none --compare device=hdd"));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let names: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["setting", "(base)", "plug=none", "device=hdd", "replay"], "{text}");
    // The columns are requests and merges.
    assert_eq!((rows[1][6], rows[1][7]), ("16", "240"), "{text}");
    assert_eq!((rows[2][6], rows[2][7]), ("256", "0"), "{text}");
    let text = stdout(&sim(&folder, "job.fio --seed 3 --sweep queue_depth=1,2,3"));
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.ends_with("forebay sim job.fio --sweep queue_depth=1,2,3 --seed 3\n"), "{text}");
    for (args, message) in [
        ("--set wake", "--set=wake: expected KEY=VALUE, such as wake=batch"),
        ("--set kick=loop-end", "--set=kick=loop-end: not simulated: committing a batch takes no"),
        ("--set wake=batch --set wake=fair", "--set=wake=fair: wake is given twice"),
        ("--device nvme --set device=hdd", "--set=device=hdd: device is given twice"),
        (
            "--set max_sectors_kb=1",
            "job.fio: max_sectors_kb=1: expected at least 4 KiB, the logical block of this disk",
        ),
        (
            "--device fixed:latency_ns=99999999999999999",
            "expected a number from 0 to 1000000000000",
        ),
        ("--device nvme:size=1p", "expected a whole number"),
        ("--device nvme:size=17t", "expected a positive multiple of 4096, at most 16t"),
        ("--device flaky:busy=1000000", "busy=1000000: expected a number from 0 to 900000"),
        ("--device nvme:latency_ns=1,latency_ns=2", "latency_ns is given twice"),
        (
            "--sweep queue_depth=1,0",
            "--sweep=queue_depth=1,0: queue_depth=0: expected a number from 1 to 10240",
        ),
        ("--device floppy", "--device=floppy: unknown device; expected one of hdd,"),
        ("--compare nr_requests=999", "nr_requests=999: expected a number from 1 to queue_depth"),
    ] {
        let output = sim(&folder, &format!("job.fio {args}"));
        assert_eq!(output.status.code(), Some(2), "{args}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[test]
fn speed_is_shown_only_where_the_model_has_times() {
    let folder = folder();
    std::fs::write(folder.path().join("job.fio"), JOB).expect("a file");
    let fixed = stdout(&sim(&folder, "job.fio --seed 3"));
    assert!(fixed.contains(" IOPS, ") && fixed.contains("latency (us) : avg="), "{fixed}");
    let flaky = stdout(&sim(&folder, "job.fio --seed 3 --device flaky"));
    assert!(!flaky.contains("IOPS") && !flaky.contains("latency"), "{flaky}");
    assert!(flaky.contains("speed        : not shown: "), "{flaky}");
}

/// Runs the example of the documentation: more threads than tags.
fn wait_for_tags(policy: &str) -> Output {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/stash.fio");
    sim(&folder(), &format!("{path} --queue-depth 16 --seed 1 --wake {policy}"))
}

#[test]
fn the_first_form_of_stash_and_wake_hangs_and_the_rule_is_named() {
    let output = wait_for_tags("stash-v1");
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("\nbroken rule: T1: "), "{text}");
    assert!(text.contains("context 0: 16 tags are free, and task "), "{text}");
    assert!(text.contains(" --wake stash-v1 --queue-depth 16 --seed 1\n"), "{text}");
}

#[test]
fn the_policies_that_a_disk_may_have_do_not_hang() {
    for policy in ["fair", "batch", "stash", "single"] {
        let output = wait_for_tags(policy);
        assert_eq!(output.status.code(), Some(0), "{policy}: {}", stderr(&output));
        assert!(stdout(&output).contains("bios         : 48, 0 failed"), "{policy}");
    }
    let output = sim(&folder(), "--random --seeds 20 --seed 1 --wake single --queue-depth 4");
    let text = stdout(&output);
    let again = "forebay sim --random --wake single --queue-depth 4 --seed 1 --seeds 20\n";
    assert!(text.ends_with(again), "{text}");
}
