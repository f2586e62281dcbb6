//! Every option that fio has too, beside the real fio.
//!
//! - An option of a job is in a job file of its own. Both programs accept the file, and report the
//!   same jobs, with the same errors, bytes, I/Os and short I/Os in each direction, and syncs
//!   ([`counts`]). [`OTHER_COUNTS`] names the fields in which an option differs, and compares all
//!   others. A fixed difference that has gone fails the test. A drawn field is in a range that
//!   shows the effect of the option, and the sum of drawn directions is equal. Other effects of an
//!   option, such as its lines in a report, are not compared here.
//! - An option of the whole run is an argument, and has an effect that can be seen from outside
//!   ([`run_options`]).
//!
//! The values of options of jobs are the examples of the unit tests. Options that need more than
//! one section, files or a server have a job file here ([`FILES`]). An option without an example or
//! a run fails the test.

mod counts;
mod run_options;

use std::fs::{create_dir, write};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use forebay_fio::options::{Kind, OPTIONS, OptionSpec};
use tempfile::TempDir;

use crate::common::{self, folder, forebay, stderr, stdout};
use crate::option_examples::EXAMPLES;
use crate::serve::server::Server;

use self::counts::Counts;
use self::counts::Difference::{self, Drawn, Share, Unaligned, Values};

/// The job to which examples add their lines.
const JOB: &str = "[a] filename=x size=64k";

/// Job files, with a space between two lines, of options whose example is for a unit test only, or
/// shows little in one short job.
#[rustfmt::skip]
const FILES: &[(&str, &str)] = &[
    ("kb_base", "[a] filename=x size=60k bs=1k kb_base=1000"),
    ("rwmixread", "[a] filename=x size=64k bs=512 rw=randrw rwmixread=90"),
    ("rwmixwrite", "[a] filename=x size=64k bs=512 rw=randrw rwmixwrite=90"),
    ("bsrange", "[a] filename=x size=64k bsrange=512-2k"),
    ("bssplit", "[a] filename=x size=64k bssplit=512/50:1k/50"),
    ("bs_unaligned", "[a] filename=x size=64k bsrange=512-2k bs_unaligned=1"),
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

/// Options for which the counts differ: the fields, and the reason.
#[rustfmt::skip]
const OTHER_COUNTS: &[(&str, &[Difference], &str)] = &[
    ("rwmixread", MORE_READS, "the direction of each I/O is drawn, by other random numbers"),
    ("rwmixwrite", MORE_WRITES, "the direction of each I/O is drawn"),
    ("bsrange", &[Drawn("0.read.total_ios", 40..=63)], "the size of each I/O is drawn"),
    ("bssplit", &[Drawn("0.read.total_ios", 75..=96)], "the size of each I/O is drawn"),
    ("bs_unaligned",
        &[Drawn("0.read.total_ios", 40..=63), Unaligned("0.read.io_bytes", 63_489..=65_536)],
        "the size of each I/O is drawn"),
    ("fdatasync",
        &[Values("0.read.short_ios", 5, 0), Values("0.sync.total_ios", 0, 5)],
        "fio 3.33 counts each fdatasync as a short read, and not as a sync"),
    ("replay_skip",
        &[Values("0.write.io_bytes", 4096, 0), Values("0.write.total_ios", 1, 0),
            Values("0.sync.total_ios", 1, 0)],
        "fio 3.33 leaves out I/Os of files of blktrace only"),
    ("verify_only",
        &[Values("1.write.io_bytes", 65_536, 0), Values("1.write.total_ios", 16, 0)],
        "fio 3.33 counts the writes that the job leaves out"),
];

/// Nine of ten I/Os are reads: of 128 drawn I/Os, four standard deviations are 11 percent.
const MORE_READS: &[Difference] = &[
    Share(["0.read.io_bytes", "0.write.io_bytes"], 79..=99),
    Share(["0.read.total_ios", "0.write.total_ios"], 79..=99),
];

/// Nine of ten I/Os are writes.
const MORE_WRITES: &[Difference] = &[
    Share(["0.read.io_bytes", "0.write.io_bytes"], 1..=21),
    Share(["0.read.total_ios", "0.write.total_ios"], 1..=21),
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
        None => {
            let (needs, line) = example(spec);
            let key = |line: &str| line.split('=').next().map(str::to_owned);
            let replaced: Vec<_> = needs.split_whitespace().chain([&*line]).map(key).collect();
            let kept = JOB.split_whitespace().filter(|line| !replaced.contains(&key(line)));
            let lines: Vec<_> = kept.chain(needs.split_whitespace()).chain([&*line]).collect();
            lines.join(" ")
        }
    };
    file_of(&text)
}

/// Returns a job file of lines that are separated by spaces.
fn file_of(lines: &str) -> String {
    lines.replace(' ', "\n") + "\n"
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

/// The runs of both programs with a job file, fio first.
struct Runs {
    folders: [TempDir; 2],
    outputs: [Output; 2],
}

impl Runs {
    /// Runs both programs. A server for the engine `nbd` is optional.
    fn new(text: &str, options: &[&str], has_server: bool) -> Self {
        let folders = [prepared(text), prepared(text)];
        let server = |folder| has_server.then(|| Server::start(folder, "ram:1M"));
        let [theirs, ours] = &folders;
        let their_server = server(theirs);
        let their_output = run_fio(theirs, options);
        drop(their_server);
        let _our_server = server(ours);
        let our_output = forebay(ours).arg("bench").args(options).arg("a.fio").output();
        Self { outputs: [their_output, our_output.expect("it can be run")], folders }
    }

    fn codes(&self) -> [Option<i32>; 2] {
        self.outputs.each_ref().map(|output| output.status.code())
    }
}

/// Runs fio with a job file. On a busy machine fio 3.33 sometimes hangs, so a run that takes too
/// long is killed, and starts again.
fn run_fio(folder: &TempDir, options: &[&str]) -> Output {
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

/// Compares the runs with the job file of an option.
///
/// # Errors
///
/// A description of the difference.
fn compare(spec: &OptionSpec, runs: &Runs) -> Result<(), String> {
    let codes = runs.codes();
    let [theirs, ours] = runs.outputs.each_ref().map(|output| Counts::of(&stdout(output)));
    if let Some(why) = reason(FAILING, spec.name) {
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
    if !theirs.has_io() || !ours.has_io() {
        return Err(format!("a job without I/O: {theirs:?}, {ours:?}"));
    }
    let differences = OTHER_COUNTS.iter().find(|(name, ..)| *name == spec.name);
    counts::compare(&theirs, &ours, differences.map_or(&[], |(_, differences, _)| differences))
}

/// One comparison of both programs.
enum Case {
    /// An option of a job, in a job file.
    Job(&'static OptionSpec),
    /// An option of the whole run, as an argument.
    Run(&'static run_options::Row),
}

impl Case {
    /// Returns all cases. Those of runs are first, because some last for seconds.
    fn all() -> Vec<Self> {
        let jobs = OPTIONS.iter().filter(|spec| is_of_fio(spec) && !spec.is_of_run());
        run_options::ROWS.iter().map(Self::Run).chain(jobs.map(Self::Job)).collect()
    }

    /// Runs both programs, and returns a description of their difference, if there is one.
    fn difference(&self) -> Option<String> {
        let (title, text, runs, result) = match self {
            Self::Job(spec) => {
                let text = job_file(spec);
                let runs = Runs::new(&text, &["--output-format=json"], spec.name == "uri");
                let result = compare(spec, &runs);
                (spec.name.to_owned(), text, runs, result)
            }
            Self::Run(row) => {
                let text = file_of(row.job);
                let options: Vec<_> = row.options.split_whitespace().collect();
                let runs = Runs::new(&text, &options, false);
                let result = row.compare(&runs);
                (format!("{} ({})", row.name, row.options), text, runs, result)
            }
        };
        let [theirs, ours] = runs.outputs.each_ref().map(stderr);
        Some(format!("{title}: {}\n{text}fio: {theirs}\nforebay: {ours}", result.err()?))
    }
}

#[test]
fn every_option_does_what_it_does_in_fio() {
    let test = "every_option_does_what_it_does_in_fio";
    if common::fio(test, &folder(), "--version").is_none() {
        return;
    }
    let cases = Case::all();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Without the lock, so that the cases run concurrently.
                    let difference = case.difference();
                    wrong.lock().expect("no panic").extend(difference);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lists_name_options_of_fio_once_and_files_have_their_option() {
    let shared: Vec<_> = OPTIONS.iter().filter(|spec| is_of_fio(spec)).collect();
    let (of_run, of_job): (Vec<&OptionSpec>, Vec<&OptionSpec>) =
        shared.iter().partition(|spec| spec.is_of_run());
    let others: Vec<_> = OTHER_COUNTS.iter().map(|(name, _, why)| (*name, *why)).collect();
    for list in [FILES, &others, FAILING] {
        for (at, (name, text)) in list.iter().enumerate() {
            assert!(of_job.iter().any(|spec| spec.name == *name), "{name} is no such option");
            assert!(list[..at].iter().all(|(other, _)| other != name), "{name} is listed twice");
            assert!(!text.is_empty(), "{name}: no reason or file");
        }
    }
    for (name, text) in FILES {
        let mut lines = text.split_whitespace();
        assert!(lines.any(|line| line.split('=').next() == Some(name)), "{name}: {text}");
    }
    for spec in of_run {
        assert!(
            run_options::ROWS.iter().any(|row| row.uses(spec.name)),
            "no run of --{}",
            spec.name
        );
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
    fio.args(["--clocksource=clock_gettime", "--parse-only", "a.fio"]).current_dir(folder.path());
    let text = stderr(&fio.output().expect("fio runs"));
    for line in lines {
        assert!(text.contains(&format!("Bad option <{line}>")), "{line}: {text}");
    }
}
