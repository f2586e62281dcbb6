//! `forebay run`: programs that use libaio, on the layer.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Once;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{folder, forebay, skip_without};

/// Builds the library beside the program. A test cannot depend on a library that is not for Rust,
/// so cargo does not build it by itself.
fn build_library() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_forebay"));
        let target = program.ancestors().nth(2).expect("it is in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", "forebay-aio", "--target-dir"]);
        assert!(cargo.arg(target).status().expect("cargo").success());
    });
}

/// Returns `forebay run` with these arguments, separated by spaces.
pub(crate) fn run(folder: &TempDir, args: &str) -> Command {
    build_library();
    let mut command = forebay(folder);
    command.arg("run").args(args.split_whitespace());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the counters of each process with this name: iocbs, requests and merges.
pub(crate) fn counters_of_all(report: &str, name: &str) -> Vec<[u64; 3]> {
    let fields = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, found, iocbs, requests, merges, ..] = words[..] else { return None };
        let number = |word: &str| word.parse().ok();
        (found == name).then_some([number(iocbs)?, number(requests)?, number(merges)?])
    };
    report.lines().filter_map(fields).collect()
}

/// Returns the counters of the first process with this name.
fn counters(report: &str, name: &str) -> [u64; 3] {
    let all = counters_of_all(report, name);
    *all.first().unwrap_or_else(|| panic!("no line of {name}: {report}"))
}

/// fio's options for batches of neighbours on `file`.
const FIO: &str = "fio --name=a --filename=file --size=8m --ioengine=libaio --direct=1 --bs=4k \
                   --iodepth=16 --iodepth_batch=16 --iodepth_batch_complete_min=16 --thread";

#[test]
fn fio_verifies_what_it_has_written_and_its_neighbours_merge() {
    let folder = folder();
    for rw in ["write", "randwrite", "rw", "randrw"] {
        let args = format!("--stats report -- {FIO} --rw={rw} --verify=crc32c --verify_fatal=1");
        let output = run(&folder, &args).output();
        let Ok(output) = output else { panic!("{output:?}") };
        if stderr(&output).contains("fio: no such program") {
            return skip_without("fio", "fio_verifies_what_it_has_written");
        }
        assert!(output.status.success(), "{rw}: {}", stderr(&output));
        let report = fs::read_to_string(folder.path().join("report")).expect("a report");
        let [iocbs, requests, merges] = counters(&report, "fio");
        assert!(iocbs >= 2048, "{rw}: {report}");
        if rw == "write" {
            assert!(requests < iocbs / 4 && merges == iocbs - requests, "{report}");
        }
    }
}

/// Returns the rows of a table of a report, by words, after the line that begins with these words.
fn rows_after<'a>(report: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let words = report.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is_other = |words: &Vec<&str>| !words.join(" ").starts_with(heading);
    words.skip_while(is_other).skip(1).take_while(|words| !words.is_empty()).collect()
}

/// Returns the numbers in some columns of a row.
fn numbers<const NR: usize>(row: &[&str], columns: [usize; NR]) -> [u64; NR] {
    columns.map(|at| row[at].parse().unwrap_or_else(|_| panic!("{at}: {row:?}")))
}

#[test]
fn counters_of_files_and_stages_add_up_to_those_of_processes() {
    let folder = folder();
    // The first job has batches of neighbours; the second one reads one by one, so that
    // its reads are held.
    let args = "--stats report -- fio --ioengine=libaio --direct=1 --bs=4k --size=4m --iodepth=32 \
                --name=batches --filename=one --rw=write --iodepth_batch=16 \
                --iodepth_batch_complete_min=16 --name=singles --filename=two --rw=read";
    let output = run(&folder, args).output().expect("it can be run");
    if stderr(&output).contains("fio: no such program") {
        return skip_without("fio", "counters_of_files_and_stages_add_up");
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let report = fs::read_to_string(folder.path().join("report")).expect("a report");
    let processes = rows_after(&report, "pid name iocbs");
    let [batches, singles, sum] = &processes[..] else { panic!("{report}") };
    let files = rows_after(&report, "iocbs requests");
    let file = |name: &str| {
        let path = folder.path().join(name).display().to_string();
        let row = files.iter().find(|row| row[10..].join(" ") == path);
        numbers(row.unwrap_or_else(|| panic!("{path}: {report}")), [0, 1, 2, 3, 4])
    };
    let counters = |process: &[&str]| numbers(process, [2, 3, 4, 5, 6]);
    let (one, two) = (file("one"), file("two"));
    // The processes may have come in any order.
    let mut by_process = [counters(batches), counters(singles)];
    by_process.sort_by_key(|counters| counters[3]);
    assert_eq!(by_process, [one, two], "{report}");
    assert_eq!(numbers(sum, [1, 2, 3, 4, 5]), std::array::from_fn(|nth| one[nth] + two[nth]));
    let [iocbs, requests, merges, held, syncs] = one;
    assert!((iocbs, held, syncs) == (1024, 0, 0) && iocbs == requests + merges, "{report}");
    assert!(merges > 512, "{report}");
    let [iocbs, requests, merges, held, syncs] = two;
    assert!((iocbs, syncs) == (1024, 0) && iocbs == requests + merges, "{report}");
    assert!(held > merges && merges > 0, "{report}");

    // Each held read and each request has a time.
    let times = rows_after(&report, "pid name stage");
    let of_sum = |stage: &str| {
        let row = times.iter().find(|row| row[..2] == ["sum", stage]);
        let row = row.unwrap_or_else(|| panic!("{stage}: {report}"));
        let us = [3, 4, 5].map(|at| row[at].parse::<f64>().expect("microseconds"));
        assert!(us[0] > 0.0 && us[0] <= us[1] && us[1] <= us[2], "{report}");
        row[2].parse::<u64>().expect("a number")
    };
    assert_eq!(of_sum("held"), two[3]);
    assert_eq!(of_sum("kernel"), one[1] + two[1]);
}

#[test]
fn json_has_the_counters_of_the_process_and_its_file() {
    let folder = folder();
    let args = format!("--json --stats report -- {FIO} --rw=write");
    let output = run(&folder, &args).output().expect("it can be run");
    if stderr(&output).contains("fio: no such program") {
        return skip_without("fio", "json_has_the_counters_of_the_process_and_its_file");
    }
    let report = fs::read(folder.path().join("report")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let (process, file) = (&report["processes"][0], &report["files"][0]);
    assert_eq!((&process["name"], &process["iocbs"]), (&"fio".into(), &2048.into()));
    assert_eq!(process["times_ns"]["kernel"]["count"], process["requests"]);
    let path = folder.path().join("file").display().to_string();
    assert_eq!((&file["path"], &file["merged"]), (&path.into(), &process["merged"]));
}

#[test]
fn files_and_times_are_reported_only_with_stats() {
    let folder = folder();
    let output = run(&folder, &format!("-- {FIO} --rw=write")).output().expect("it can be run");
    let text = stderr(&output);
    if text.contains("fio: no such program") {
        return skip_without("fio", "files_and_times_are_reported_only_with_stats");
    }
    assert_eq!(counters(&text, "fio")[0], 2048);
    assert!(!text.contains("stage") && !text.contains("inode"), "{text}");
}

#[test]
fn policy_without_merges_passes_each_iocb_on() {
    let folder = folder();
    let args = format!("--policy nomerges=2 --stats - -- {FIO} --rw=write");
    let output = run(&folder, &args).output().expect("it can be run");
    if stderr(&output).contains("fio: no such program") {
        return skip_without("fio", "policy_without_merges_passes_each_iocb_on");
    }
    let [iocbs, requests, merges] = counters(&String::from_utf8_lossy(&output.stdout), "fio");
    assert_eq!((iocbs, requests, merges), (2048, 2048, 0));
}

#[test]
fn exit_code_is_that_of_the_program() {
    let folder = folder();
    let code = |script: &str| {
        let mut command = run(&folder, "-- sh -c");
        command.arg(script).output().expect("it can be run").status.code()
    };
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -KILL $$"), Some(137));
}

#[test]
fn signals_are_forwarded_to_the_program() {
    let folder = folder();
    let mut command = run(&folder, "-- sh -c");
    // The child's own handler shows that it got the signal.
    command.arg("trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child");
    let mut line = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut line).expect("ready");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
}

#[test]
fn signal_that_was_ignored_stays_ignored() {
    let folder = folder();
    let program = run(&folder, "").get_program().to_owned();
    let mut command = Command::new("sh");
    // A hang-up of the whole group, as under `nohup` when the terminal goes away.
    command.arg("-c").arg("trap '' HUP; exec \"$0\" run -- sh -c 'kill -HUP $PPID $$; exit 5'");
    let status = command.arg(program).current_dir(folder.path()).status().expect("it can be run");
    assert_eq!(status.code(), Some(5));
}

#[test]
fn counters_of_a_killed_process_are_reported() {
    let folder = folder();
    let args = format!("-- timeout -s KILL 1 {FIO} --rw=read --time_based --runtime=60");
    let output = run(&folder, &args).output().expect("it can be run");
    if stderr(&output).contains("timeout: failed to run command") {
        return skip_without("fio", "counters_of_a_killed_process_are_reported");
    }
    let [iocbs, _, merges] = counters(&stderr(&output), "fio");
    assert!(iocbs > 0 && merges > 0, "{}", stderr(&output));
}

#[test]
fn mistakes_are_one_line_each() {
    let folder = folder();
    let refused = |args: &str| {
        let output = run(&folder, args).output().expect("it can be run");
        (output.status.code(), stderr(&output))
    };
    let (code, text) = refused("-- no-such-program");
    assert_eq!(
        (code, text.as_str()),
        (Some(1), "forebay: run: no-such-program: no such program in PATH\n")
    );
    let (code, text) = refused("--policy depth=3 -- true");
    assert_eq!(code, Some(2));
    assert!(text.starts_with("forebay: run: --policy depth=3: expected one of"), "{text}");
    let output = run(&folder, "-- true").output().expect("it can be run");
    assert!(stderr(&output).contains("no process submitted an iocb"), "{}", stderr(&output));
}
