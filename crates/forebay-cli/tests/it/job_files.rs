//! Job files, and stages separated by `stonewall`.

use std::fs::write;
use std::io::Write;
use std::process::Stdio;

use crate::common::{bench, bench_at_work, bench_json, folder, forebay, json, stderr, stdout};

#[test]
fn a_stage_begins_when_the_one_before_has_ended() {
    let folder = folder();
    // If the first job were still writing, the second one could not verify its reads.
    let text = "[global]\nfilename=ram:4M\nbs=4k\nverify=crc32c\n\
                [fill]\nrw=write\ndo_verify=0\n[check]\nrw=read\nstonewall\nnumjobs=2\n";
    write(folder.path().join("a.fio"), text).expect("a file");
    let report = bench_json(&folder, "a.fio");
    let jobs = report["jobs"].as_array().expect("jobs");
    let shown: Vec<_> = jobs
        .iter()
        .map(|job| (job["jobname"].as_str(), job["groupid"].as_u64(), job["error"].as_i64()))
        .collect();
    let check = (Some("check"), Some(1), Some(0));
    assert_eq!(shown, [(Some("fill"), Some(0), Some(0)), check, check]);
    assert_eq!(report["global options"]["bs"], "4k");
    assert_eq!(jobs[1]["job options"]["rw"], "read");

    let text = stdout(&bench(&folder, "a.fio --group_reporting"));
    assert!(text.contains("\ncheck: (g=1): rw=read"), "{text}");
    assert!(text.contains("\ncheck: (groupid=1, jobs=2): err= 0"), "{text}");
    assert!(text.contains("\nRun status group 1 (all jobs):\n   READ: "), "{text}");
    assert!(text.contains("  fill (1 jobs): ") && text.contains("  check (2 jobs): "), "{text}");
}

#[test]
fn clones_join_the_entry_before_them_in_their_group() {
    let folder = folder();
    // fio 3.33 reports the same for this file.
    let text = "[global]\nfilename=null:4k\nioengine=null\nsize=4k\ngroup_reporting\n\
                [a]\n[b]\n[c]\nnumjobs=2\ngroup_reporting=0\n[d]\nnumjobs=2\n[e]\nstonewall\n\
                [f]\nnumjobs=3\n";
    write(folder.path().join("a.fio"), text).expect("a file");
    let report = bench_json(&folder, "a.fio");
    let jobs = report["jobs"].as_array().expect("jobs").iter();
    let shown: Vec<_> = jobs
        .map(|job| (job["jobname"].as_str(), job["groupid"].as_u64(), &job["read"]["io_bytes"]))
        .map(|(name, group, bytes)| (name.unwrap_or(""), group, bytes.as_u64().unwrap_or(0)))
        .collect();
    let expected = [
        ("a", Some(0), 8192),
        ("c", Some(0), 4096),
        ("c", Some(0), 12_288),
        ("e", Some(1), 16_384),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn after_a_signal_no_stage_begins() {
    let folder = folder();
    let text = "[global]\nfilename=ram:4M\ntime_based\nruntime=1h\n[one]\n[two]\nstonewall\n";
    write(folder.path().join("a.fio"), text).expect("a file");
    let child = bench_at_work(&folder, "a.fio");
    let pid = child.id().to_string();
    let told = std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill");
    assert!(told.success());
    let text = stdout(&child.wait_with_output().expect("its end"));
    assert!(text.contains("\none: (groupid=0"), "{text}");
    assert!(!text.contains("\ntwo: (groupid=1"), "{text}");
}

#[test]
fn ignored_options_are_listed_once_before_the_report() {
    let folder = folder();
    let text = "[a]\nfilename=ram:1M\ngtod_cpu=1\n[b]\nfilename=ram:1M\ngtod_cpu=1\nunlink=0\n";
    write(folder.path().join("a.fio"), text).expect("a file");
    let output = bench(&folder, "a.fio");
    let warning = "forebay: warning: a.fio:3: gtod_cpu is ignored: reading the clock takes no \
                   system call\n";
    assert_eq!(stderr(&output), warning);
    assert_eq!(output.status.code(), Some(0));
    let output = bench(&folder, "a.fio --warnings-fatal");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn standard_input_is_a_job_file_and_parsing_alone_runs_nothing() {
    let folder = folder();
    let run = |text: &str| {
        let mut command = forebay(&folder);
        let command = command.args(["bench", "--parse-only", "-"]).stdin(Stdio::piped());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("its end");
        assert_eq!(stdout(&output), "");
        (output.status.code(), stderr(&output))
    };
    assert_eq!(run("[a]\nfilename=data\nsize=1m\nrw=write\n"), (Some(0), String::new()));
    assert!(!folder.path().join("data").exists());
    let message = "forebay: <stdin>:2:4: bs=4z: unknown unit 'z' (accepted: a size such as 4096, \
                   4k, 1m or 1g, where k = 1024 and kib = 1000, or up to three: \
                   read,write,trim)\n  2 | bs=4z\n    |    ^^\n";
    assert_eq!(run("[a]\nbs=4z\n"), (Some(1), message.to_owned()));
}

#[test]
fn variables_and_includes_come_from_this_machine() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("jobs")).expect("a folder");
    let file = |name: &str, text: &str| write(folder.path().join(name), text).expect("a file");
    file("jobs/a.fio", "[a]\ninclude base.inc\nsize=${FOREBAY_TEST_SIZE}\nbs=$pagesize\n");
    file("jobs/base.inc", "filename=ram:1M\n");
    let output = forebay(&folder)
        .args(["bench", "jobs/a.fio", "--output-format=json"])
        .env("FOREBAY_TEST_SIZE", "64k")
        .output()
        .expect("it runs");
    let report = json(&output);
    let page = &report["jobs"][0]["job options"]["bs"];
    assert!(page.as_str().and_then(|page| page.parse().ok()).is_some_and(u32::is_power_of_two));
    assert_eq!(report["jobs"][0]["read"]["io_bytes"], 64 << 10);
}
