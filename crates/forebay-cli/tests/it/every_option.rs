//! Every option that fio has too, in a job file of its own, beside the real fio: both programs
//! accept the file, and do the same number of I/Os with as many bytes.
//!
//! The values are the examples of the unit tests. Options that need more than one section, files
//! or a server have a job file here ([`FILES`]). An option without an example fails the test, and
//! so does an exception that is no longer needed.

use std::fs::{create_dir, write};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use forebay_fio::options::{Kind, OPTIONS, OptionSpec};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, folder, forebay, stderr, stdout};
use crate::option_examples::EXAMPLES;
use crate::serve::server::Server;

/// The job to which examples add their lines.
const JOB: &str = "[a] filename=x size=64k";

/// Job files, with a space between two lines, of options whose example is for a unit test only, or
/// shows little in one short job.
#[rustfmt::skip]
const FILES: &[(&str, &str)] = &[
    ("kb_base", "[a] filename=x size=60k bs=1k kb_base=1000"),
    ("filename", "[a] filename=x:y size=64k"),
    ("directory", "[a] directory=full size=64k filename=big"),
    ("opendir", "[a] opendir=full"),
    ("wait_for", "[global] filename=x size=64k [a] [b] wait_for=a"),
    ("stonewall", "[global] filename=x size=64k [a] [b] stonewall"),
    ("new_group", "[global] filename=x size=64k group_reporting [a] [b] new_group"),
    ("exitall", "[global] filename=x size=64k [a] number_ios=3 thinktime=100ms exitall \
        [b] time_based runtime=30 thinktime=5s"),
    ("exit_what", "[global] filename=x size=64k [a] number_ios=3 thinktime=100ms exitall \
        exit_what=all [b] time_based runtime=30 thinktime=5s"),
    ("exitall_on_error", "[global] filename=x size=64k exitall_on_error \
        [a] verify=crc32c verify_fatal=1 startdelay=300ms [b] time_based runtime=30 thinktime=5s"),
    ("flow", "[global] filename=x size=64k [a] flow=3 [b] flow=1"),
    ("flow_id", "[global] filename=x size=64k flow_id=2 [a] flow=3 [b] flow=1"),
    ("flow_sleep", "[global] filename=x size=64k flow_sleep=10 [a] flow=3 [b] flow=1"),
    ("rate_process", "[a] filename=x size=64k rate_iops=200 rate_process=poisson"),
    ("runtime", "[a] filename=x size=64k thinktime=10s runtime=300ms"),
    ("time_based",
        "[a] filename=x size=64k thinktime=10s thinktime_blocks=20 runtime=300ms time_based"),
    ("max_latency", "[a] filename=x size=64k ioengine=libaio iodepth=4 max_latency=30s"),
    ("prioclass", "[a] filename=x size=64k prioclass=2"),
    ("cmdprio_percentage",
        "[a] filename=x size=64k ioengine=libaio cmdprio_class=2 cmdprio_percentage=20,40"),
    ("cmdprio_bssplit",
        "[a] filename=x size=64k ioengine=libaio cmdprio_class=2 cmdprio_bssplit=4k/20:8k/50"),
    ("cmdprio_class",
        "[a] filename=x size=64k ioengine=libaio cmdprio_percentage=50 cmdprio_class=3"),
    ("cmdprio", "[a] filename=x size=64k ioengine=libaio cmdprio_percentage=50 cmdprio_class=2 \
        cmdprio=3"),
    ("fixedbufs", "[a] filename=x size=64k ioengine=io_uring fixedbufs=1"),
    ("sqthread_poll", "[a] filename=x size=64k ioengine=io_uring sqthread_poll=1"),
    ("ignore_zone_limits", "[a] filename=x zonemode=zbd zonesize=16k size=64k read_beyond_wp=1 \
        ignore_zone_limits=1"),
    ("verify_only", "[global] filename=y size=64k rw=write verify=crc32c [a] do_verify=0 \
        [b] stonewall verify_only=1"),
    ("log_max_value", "[a] filename=x size=64k write_lat_log=l log_avg_msec=5 log_max_value=1"),
    ("write_iolog", "[a] filename=x size=64k write_iolog=l"),
    ("read_iolog", "[a] read_iolog=log"),
    ("replay_redirect", "[a] read_iolog=log replay_redirect=y"),
    ("replay_no_stall", "[a] read_iolog=log replay_no_stall=1"),
    ("replay_time_scale", "[a] read_iolog=log replay_time_scale=200"),
    ("replay_align", "[a] read_iolog=log replay_align=4k"),
    ("replay_scale", "[a] read_iolog=log replay_scale=2"),
    ("replay_skip", "[a] read_iolog=log replay_skip=write,sync"),
    ("uri", "[a] ioengine=nbd uri=nbd+unix:///?socket=s size=64k"),
];

/// Options for which the counts differ, and why.
#[rustfmt::skip]
const OTHER_COUNTS: &[(&str, &str)] = &[
    ("rwmixread", "the direction of each I/O is drawn, and the two programs draw other numbers"),
    ("rwmixwrite", "the direction of each I/O is drawn"),
    ("bsrange", "the size of each I/O is drawn"),
    ("bssplit", "the size of each I/O is drawn"),
    ("bs_unaligned", "the size of each I/O is drawn"),
    ("fdatasync", "fio 3.33 counts each fdatasync as a short read, and not as a sync"),
    ("replay_skip", "fio 3.33 leaves out I/Os of files of blktrace only"),
    ("verify_only", "fio 3.33 counts the writes that the job leaves out"),
];

/// Options whose job fails in both programs, and why.
#[rustfmt::skip]
const FAILING: &[(&str, &str)] = &[
    ("exitall_on_error", "it has an effect only if a job fails"),
    ("pool", "the test has no Ceph cluster"),
    ("rbdname", "the test has no Ceph cluster"),
    ("clientname", "the test has no Ceph cluster"),
];

/// Returns whether fio has the option too.
fn is_of_fio(spec: &OptionSpec) -> bool {
    let is_own_kind = matches!(spec.kind, Kind::Policy { .. } | Kind::Owner { .. });
    !is_own_kind && !matches!(spec.name, "trace" | "insight")
}

/// Returns the example of an option: options that it needs, and its own line in a job file.
fn example(spec: &OptionSpec) -> (&'static str, String) {
    let (name, needs, value) = EXAMPLES
        .iter()
        .find(|(name, ..)| *name == spec.name)
        .unwrap_or_else(|| panic!("{} has no example in option_examples.rs", spec.name));
    (needs, if value.is_empty() { (*name).to_owned() } else { format!("{name}={value}") })
}

/// Returns the reason of an exception in one of the lists.
fn reason(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(of, _)| *of == name).map(|(_, text)| *text)
}

/// Returns the job file of an option.
fn job_file(spec: &OptionSpec) -> String {
    let text = match reason(FILES, spec.name) {
        Some(text) => text.to_owned(),
        // The example of output would overwrite x.
        None if spec.is_of_run() => JOB.replace("=x", "=y"),
        None => {
            let (needs, line) = example(spec);
            let key = |line: &str| line.split('=').next().map(str::to_owned);
            let replaced: Vec<_> = needs.split_whitespace().chain([&*line]).map(key).collect();
            let kept = JOB.split_whitespace().filter(|line| !replaced.contains(&key(line)));
            let lines: Vec<_> = kept.chain(needs.split_whitespace()).chain([&*line]).collect();
            lines.join(" ")
        }
    };
    text.replace(' ', "\n") + "\n"
}

/// Returns a folder with the files that the jobs name.
fn prepared(text: &str) -> TempDir {
    let folder = folder();
    create_dir(folder.path().join("full")).expect("a directory");
    for name in ["x", "y", "full/big"] {
        write(folder.path().join(name), vec![7; 65_536]).expect("a file");
    }
    let log = "fio version 2 iolog\nx add\nx open\nx read 0 4096\nx write 8192 4096\n\
               x sync 0 0\nx close\n";
    write(folder.path().join("log"), log).expect("a file");
    write(folder.path().join("a.fio"), text).expect("a file");
    folder
}

/// Returns the error of each job, its bytes and I/Os in each direction, and its syncs; nothing
/// without a report.
fn counts(output: &Output) -> Vec<Vec<u64>> {
    let text = stdout(output);
    // Notes about files may precede the JSON of fio.
    let report: Value = text[text.find("{\n").unwrap_or(0)..].parse().unwrap_or_default();
    let count = |job: &Value, part: &str, key: &str| job[part][key].as_u64().unwrap_or(0);
    let jobs = report["jobs"].as_array().map_or(&[][..], Vec::as_slice).iter();
    jobs.map(|job| {
        let mut counts = vec![job["error"].as_u64().expect("a number")];
        for part in ["read", "write", "trim", "mixed"] {
            counts.extend([count(job, part, "io_bytes"), count(job, part, "total_ios")]);
        }
        counts.push(count(job, "sync", "total_ios"));
        counts
    })
    .collect()
}

/// Runs both programs with the job file of an option, fio first.
fn run(spec: &OptionSpec, text: &str) -> [Output; 2] {
    let folders = [prepared(text), prepared(text)];
    let options = match spec.is_of_run() {
        // fio takes no value where one is optional.
        true if spec.is_flag() => vec![format!("--{}", spec.name)],
        true => vec![format!("--{}", example(spec).1)],
        false => vec!["--output-format=json".to_owned()],
    };
    let server = |folder| (spec.name == "uri").then(|| Server::start(folder, "ram:1M"));
    let [theirs, ours] = &folders;
    let their_server = server(theirs);
    let their_output = run_fio(theirs, &options);
    drop(their_server);
    let _our_server = server(ours);
    let our_output = forebay(ours).arg("bench").args(&options).arg("a.fio").output();
    [their_output, our_output.expect("it can be run")]
}

/// Runs fio with a job file. On a busy machine fio 3.33 sometimes hangs, so a run that takes too
/// long is killed, and starts again.
fn run_fio(folder: &TempDir, options: &[String]) -> Output {
    let mut fio = Command::new("timeout");
    // A clock that needs no calibration; and threads, which end with their process.
    let options_of_all = ["--signal=KILL", "20", "fio", "--clocksource=clock_gettime", "--thread"];
    fio.args(options_of_all).args(options).arg("a.fio").current_dir(folder.path());
    let mut run = || fio.output().expect("fio can be run");
    let mut output = run();
    for _ in 0..2 {
        if output.status.code().is_none() {
            output = run();
        }
    }
    output
}

/// Compares the two runs.
///
/// # Errors
///
/// A description of the difference.
fn compare(spec: &OptionSpec, outputs: &[Output; 2]) -> Result<(), String> {
    let codes = [0, 1].map(|at| outputs[at].status.code());
    if let Some(why) = reason(FAILING, spec.name) {
        let [theirs, ours] = [0, 1].map(|at| counts(&outputs[at]));
        if codes == [Some(0); 2] {
            return Err(format!("it succeeds, but is listed as failing: {why}"));
        }
        let is_same = ours.is_empty() || theirs == ours;
        return match codes == [Some(1); 2] && is_same {
            true => Ok(()),
            false => Err(format!("fails in other ways: {codes:?}, {theirs:?}, {ours:?}")),
        };
    }
    if codes != [Some(0); 2] {
        return Err(format!("exit codes {codes:?}"));
    }
    if spec.is_of_run() {
        let is_silent = [0, 1].map(|at| outputs[at].stdout.is_empty());
        return match is_silent[0] == is_silent[1] {
            true => Ok(()),
            false => Err(format!("whether there is no output: {is_silent:?}")),
        };
    }
    let [theirs, ours] = [0, 1].map(|at| counts(&outputs[at]));
    let are_some = [&theirs, &ours].iter().all(|counts| {
        !counts.is_empty() && counts.iter().all(|job| job[1..9].iter().sum::<u64>() > 0)
    });
    match reason(OTHER_COUNTS, spec.name) {
        _ if !are_some => Err(format!("a job without I/O: {theirs:?}, {ours:?}")),
        None if theirs != ours => Err(format!("fio counts {theirs:?}, and we {ours:?}")),
        Some(why) if theirs == ours => {
            Err(format!("the counts are equal, but listed as different: {why}"))
        }
        _ => Ok(()),
    }
}

#[test]
fn every_option_in_a_job_file_does_what_it_does_in_fio() {
    let test = "every_option_in_a_job_file_does_what_it_does_in_fio";
    if common::fio(test, &folder(), "--version").is_none() {
        return;
    }
    let shared: Vec<_> = OPTIONS.iter().filter(|spec| is_of_fio(spec)).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(spec) = shared.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let text = job_file(spec);
                    let outputs = run(spec, &text);
                    if let Err(error) = compare(spec, &outputs) {
                        let [theirs, ours] = [0, 1].map(|at| stderr(&outputs[at]));
                        wrong.lock().expect("no panic").push(format!(
                            "{}: {error}\n{text}fio: {theirs}\nforebay: {ours}",
                            spec.name
                        ));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lists_name_options_of_fio_once_and_files_have_their_option() {
    let shared: Vec<_> = OPTIONS.iter().filter(|spec| is_of_fio(spec)).map(|it| it.name).collect();
    for list in [FILES, OTHER_COUNTS, FAILING] {
        for (at, (name, text)) in list.iter().enumerate() {
            assert!(shared.contains(name), "{name} is no option of fio and bench");
            assert!(list[..at].iter().all(|(other, _)| other != name), "{name} is listed twice");
            assert!(!text.is_empty(), "{name}: no reason or file");
        }
    }
    for (name, text) in FILES {
        let mut lines = text.split_whitespace();
        assert!(lines.any(|line| line.split('=').next() == Some(name)), "{name}: {text}");
    }
}

/// fio refuses the options that the test above leaves out.
#[test]
fn fio_has_none_of_our_own_options() {
    let test = "fio_has_none_of_our_own_options";
    if common::fio(test, &folder(), "--version").is_none() {
        return;
    }
    let own: Vec<_> = OPTIONS.iter().filter(|spec| !is_of_fio(spec)).collect();
    let lines: Vec<_> = own.iter().map(|spec| example(spec).1).collect();
    let folder = prepared(&format!("[a]\n{}\n", lines.join("\n")));
    let mut fio = Command::new("fio");
    fio.args(["--parse-only", "a.fio"]).current_dir(folder.path());
    let text = stderr(&fio.output().expect("fio runs"));
    for line in lines {
        assert!(text.contains(&format!("Bad option <{line}>")), "{line}: {text}");
    }
}
