//! Traces of `bench`, read by blktrace's own programs and by fio.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{bench, folder, forebay, json, skip_without, stderr, stdout};
use crate::trace_btt::Btt;

/// Runs a program of blktrace or fio in a folder. Returns `None`, and skips the test, without it.
pub(crate) fn tool(folder: &Path, test: &str, program: &str, args: &str) -> Option<String> {
    let output = Command::new(program).current_dir(folder).args(args.split_whitespace()).output();
    match output {
        Ok(output) => {
            let text = stdout(&output) + &stderr(&output);
            assert!(output.status.success(), "{program} {args}: {text}");
            Some(text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip_without(program, test);
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

/// Runs a bench with a trace in the folder `t`, and returns its report.
#[track_caller]
pub(crate) fn traced(folder: &TempDir, args: &str) -> Value {
    let output = bench(folder, &format!("--trace=t {args} --output-format=json"));
    assert_eq!(output.status.code(), Some(0), "{args}: {}", stderr(&output));
    let told = stderr(&output);
    assert!(told.contains("forebay: trace: ") && told.contains(" records in t"), "{told}");
    assert!(!told.contains("lost"), "{told}");
    json(&output)
}

/// Returns the report of the trace, of its only disk.
pub(crate) fn report(folder: &TempDir) -> Value {
    let output = run_report(folder, "t --json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    json(&output)["disks"][0].take()
}

fn run_report(folder: &TempDir, args: &str) -> Output {
    let args = args.split_whitespace();
    forebay(folder).args(["trace", "report"]).args(args).output().expect("it can be run")
}

#[test]
fn fio_replays_a_trace() {
    let test = "fio_replays_a_trace";
    let folder = folder();
    traced(&folder, "--name=x --filename=ram:4M --rw=randrw --bs=4k --number_ios=300");
    let args = "-D t -i ram-4M -d merged.bin -q";
    let Some(_) = tool(folder.path(), test, "blkparse", args) else { return };
    std::fs::write(folder.path().join("disk.img"), vec![0; 4 << 20]).expect("a file");
    let args = "--name=replay --read_iolog=merged.bin --replay_redirect=disk.img --ioengine=psync \
                --replay_no_stall=1 --output-format=json";
    let Some(text) = tool(folder.path(), test, "fio", args) else { return };
    let text = &text[text.find('{').expect("JSON")..];
    let replay: Value = text.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
    let job = &replay["jobs"][0];
    let nr = job["read"]["total_ios"].as_u64().zip(job["write"]["total_ios"].as_u64());
    assert_eq!(nr.map(|(reads, writes)| reads + writes), Some(300), "{text}");
    assert_eq!(job["error"], 0);
}

#[test]
fn merged_file_of_blkparse_is_complete_for_replays_and_reports() {
    let test = "merged_file_of_blkparse_is_complete_for_replays_and_reports";
    let folder = folder();
    traced(
        &folder,
        "--name=x --filename=ram:4M --rw=randwrite --bs=4k --number_ios=50 --numjobs=3",
    );
    let args = "-D t -i ram-4M -d merged.bin -q";
    let Some(_) = tool(folder.path(), test, "blkparse", args) else { return };
    let output = run_report(&folder, "merged.bin --json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let ours = json(&output)["disks"][0].take();
    assert_eq!((&ours["queued"], &ours["missing_records"]), (&150.into(), &0.into()), "{ours}");
    assert_eq!(
        (&ours["total_ns"], &ours["disk"]),
        (&report(&folder)["total_ns"], &"merged.bin".into())
    );
    let output = bench(&folder, "--name=x --replay_redirect=ram:4M --read_iolog=merged.bin");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let args = ["sim", "--trace", "merged.bin", "--device", "sata"];
    let output = forebay(&folder).args(args).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("missing"), "{}", stderr(&output));
}

#[test]
fn trace_of_several_disks_is_not_reported_as_one() {
    let test = "trace_of_several_disks_is_not_reported_as_one";
    let folder = folder();
    let disks =
        "--rw=write --bs=4k --number_ios=9 --name=a --filename=ram:1M --name=b --filename=ram:2M";
    traced(&folder, disks);
    let args = "-D t -i ram-1M -i ram-2M -d merged.bin -q";
    let Some(_) = tool(folder.path(), test, "blkparse", args) else { return };
    let output = run_report(&folder, "merged.bin");
    let expected = "forebay: merged.bin: the trace has I/O of several disks, which one report \
                    would mix: give blkparse one of them (-i), or name the directory of the \
                    trace\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), expected));
}

#[test]
fn report_shows_where_the_time_of_the_slowest_went() {
    let folder = folder();
    traced(
        &folder,
        "--name=x --filename=ram:4M?req_ns=200000&queue_depth=1 --rw=randread --bs=4k \
         --iodepth=4 --number_ios=200",
    );
    let output = run_report(&folder, "t --slowest 2");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("ram-4M: 200 I/Os in "), "{text}");
    for expected in [
        "  0 merged (0.0 %), 200 requests issued, 0 flushes issued, 0 split\n",
        "\n  Where the time of the slowest 2 I/Os (1 %, ",
        "\n  The slowest:\n",
        "waited\n",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    let ours = report(&folder);
    // Three of four I/Os wait for the only tag.
    let stage = |name: &str| ours["stages_ns"][name]["mean"].as_f64().expect("a number");
    assert!(stage("tag") > 1.5 * stage("driver"), "{ours}");
    assert_eq!(ours["stages_ns"]["driver"]["n"], 200);
}

#[test]
fn report_reads_more_files_than_the_soft_limit_of_descriptors() {
    let folder = folder();
    traced(&folder, "--name=x --filename=ram:1M --rw=read --number_ios=1");
    let file = |nth: u32| folder.path().join(format!("t/ram-1M.blktrace.{nth}"));
    let first = std::fs::read(file(0)).expect("a file");
    (100..200).for_each(|nth| std::fs::write(file(nth), &first).expect("it is written"));
    let command = format!("ulimit -Sn 64; exec {} trace report t", env!("CARGO_BIN_EXE_forebay"));
    let output = Command::new("sh").current_dir(folder.path()).args(["-c", &command]).output();
    let output = output.expect("it can be run");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let nr_files = std::fs::read_dir(folder.path().join("t")).expect("a directory").count() - 1;
    let text = stdout(&output);
    assert!(text.contains(&format!(", from {nr_files} files\n")), "{text}");
}

#[test]
fn mistakes_are_refused_by_name() {
    let folder = folder();
    let error = |output: Output| {
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        stderr(&output)
    };
    let text = error(run_report(&folder, "nowhere"));
    let expected = "forebay: nowhere: no trace found: give the directory of a trace, DIR/NAME for \
                    one of its disks, or a file of blkparse -d; forebay bench --trace=DIR records \
                    one\n";
    assert_eq!(text, expected);
    let text = error(run_report(&folder, "."));
    assert!(text.starts_with("forebay: .: no trace found in this directory: give the "), "{text}");
    let args = "--trace=t --name=x --filename=ram:1M --rw=read --number_ios=1";
    assert!(bench(&folder, args).status.success());
    let text = error(bench(&folder, args));
    let expected = "forebay: --trace: t: the directory has a trace: remove its files, or choose \
                    another directory\n";
    assert_eq!(text, expected);
    // Before anything else: the file is not created.
    let args = "--trace=t --name=x --filename=new.img --size=1m --rw=write";
    assert_eq!(error(bench(&folder, args)), expected);
    assert!(!folder.path().join("new.img").exists());
    std::fs::write(folder.path().join("t/ram-1M.blktrace.0"), [7; 100]).expect("a file");
    let text = error(run_report(&folder, "t"));
    assert!(
        text.contains("t/ram-1M.blktrace.0: byte 0: a record begins with 0x07070707"),
        "{text}"
    );
}

#[test]
fn simulated_run_has_the_same_trace_each_time_and_every_io_ends() {
    let test = "simulated_run_has_the_same_trace_each_time_and_every_io_ends";
    let folder = folder();
    let job = "[job]\nrw=randrw\nbs=4k\niodepth=32\niodepth_batch=4\nsize=2m\nfsync=40\n";
    std::fs::write(folder.path().join("a.fio"), job).expect("a file");
    let sim = |dir: &str| {
        let args = "sim a.fio --seed 5 --device sata --set scheduler=mq-deadline \
                    --set queue_depth=8 --write-trace";
        let output = forebay(&folder).args(args.split_whitespace()).arg(dir).output();
        let output = output.expect("it can be run");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let mut files: Vec<_> = std::fs::read_dir(folder.path().join(dir))
            .expect("a directory")
            .map(|entry| entry.expect("a file"))
            .map(|entry| (entry.file_name(), std::fs::read(entry.path()).expect("a file")))
            .collect();
        files.sort();
        files
    };
    assert_eq!(sim("t"), sim("again"));
    let ours = report(&folder);
    assert_eq!(ours["queued"], 512, "{ours}");
    assert_eq!((&ours["unfinished"], &ours["errors"]), (&0.into(), &0.into()));
    assert!(ours["flushes"].as_u64() > Some(2) && ours["waits"].as_u64() > Some(100), "{ours}");
    let Some(btt) = Btt::of(&folder, test) else { return };
    assert_eq!(btt.q2c.map(|(_, nr)| nr), ours["total_ns"]["n"].as_u64());
    btt.assert_q2c(&ours);
}
