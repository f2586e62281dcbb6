//! Jobs that end in a steady state, beside fio.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{bench, bench_json, folder, skip_without, stderr, stdout};

/// A job that would run for a minute.
const JOB: &str = "--name=a --ioengine=null --size=100g --rw=read --rate_iops=500 --time_based \
                   --runtime=60 --output-format=json";

fn start(program: &str, args: &str) -> Option<Child> {
    let mut words = program.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).args(args.split_whitespace());
    command.stdout(Stdio::piped()).spawn().ok()
}

fn report(child: Child) -> Value {
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success());
    let text = stdout(&output);
    text[text.find("{\n").expect("JSON")..].parse().expect("JSON")
}

/// Returns the keys of an object and of those in it, in order, with the types of the values.
fn shape(value: &Value) -> Vec<String> {
    let Some(object) = value.as_object() else { return Vec::new() };
    let mut all = Vec::new();
    for (key, value) in object {
        let kind = match value {
            Value::Number(number) if number.is_f64() => "float",
            Value::Number(_) => "integer",
            Value::String(_) => "text",
            _ => "other",
        };
        all.push(format!("{key}: {kind}"));
        all.extend(shape(value));
    }
    all
}

#[test]
fn job_ends_in_a_steady_state_and_reports_it_as_fio_does() {
    let options = ["--ss=iops:30%", "--ss=bw_slope:1000000", "--ss=iops_slope:20% --ss_ramp=1"];
    let jobs: Vec<_> = options.iter().map(|ss| format!("{JOB} {ss} --ss_dur=2")).collect();
    let ours = concat!(env!("CARGO_BIN_EXE_forebay"), " bench");
    let ours: Vec<_> = jobs.iter().filter_map(|job| start(ours, job)).collect();
    let theirs: Vec<_> = jobs.iter().filter_map(|job| start("fio", job)).collect();
    if theirs.is_empty() {
        skip_without("fio", "job_ends_in_a_steady_state_and_reports_it_as_fio_does");
    }
    let theirs: Vec<_> = theirs.into_iter().map(report).collect();
    let ours: Vec<_> = ours.into_iter().map(report).collect();
    for (at, report) in ours.iter().enumerate() {
        let job = &report["jobs"][0];
        assert!(job["read"]["runtime"].as_u64() < Some(30_000), "{report}");
        let ours = &job["steadystate"];
        assert_eq!((&ours["attained"], &ours["duration"]), (&1.into(), &2.into()), "{ours}");
        assert_eq!(ours["data"]["iops"].as_array().map(Vec::len), Some(2), "{ours}");
        let Some(theirs) = theirs.get(at) else { continue };
        let keys = |report: &Value| -> Vec<String> {
            report.as_object().expect("a job").keys().cloned().collect()
        };
        assert_eq!(keys(job), keys(&theirs["jobs"][0]), "the place of the key");
        let theirs = &theirs["jobs"][0]["steadystate"];
        assert_eq!(shape(ours), shape(theirs), "{ours} {theirs}");
        assert_eq!(ours["ss"], theirs["ss"]);
    }
}

#[test]
fn job_that_ends_before_has_no_steady_state() {
    let args = "--name=a --filename=ram:64k --ss=bw:5% --ss_dur=9";
    let text = stdout(&bench(&folder(), args));
    let line = "\n  steadystate  : attained=no, bw=0B/s (0B/s), iops=0, bw mean dev=0.000%\n";
    assert!(text.contains(line), "{text}");
    let report = bench_json(&folder(), args);
    assert_eq!(report["jobs"][0]["steadystate"]["attained"], 0);
}

#[test]
fn options_without_a_duration_are_noted() {
    for option in ["steadystate=iops:5%", "steadystate_ramp_time=5"] {
        let output = bench(&folder(), &format!("--name=a --filename=ram:64k --{option}"));
        let name = option.split('=').next().expect(option);
        let note = format!("a: --{name} has no effect without --steadystate_duration\n");
        assert!(stderr(&output).contains(&note), "{}", stderr(&output));
    }
}
