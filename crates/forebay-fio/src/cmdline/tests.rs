//! Unit tests of `cmdline`.

use super::*;
use crate::job::{Engine, OutputFormat};
use std::time::Duration;

fn parse_all(args: &str) -> Result<Parsed, CommandErrors> {
    parse(args.split_whitespace().map(OsString::from))
}

#[track_caller]
fn run(args: &str) -> JobList {
    match parse_all(args) {
        Ok(Parsed::Run(command)) => *command,
        other => panic!("{args}: {other:?}"),
    }
}

#[track_caller]
fn check_error(args: &str, message: &str) {
    assert_eq!(parse_all(args).expect_err(args).to_string(), message);
}

#[test]
fn a_published_command_is_understood() {
    let command =
        run("--rw=read --bs=4k --iodepth=128 --iodepth_batch=16 --iodepth_batch_complete=16 \
         --runtime=100s --direct=1 --filename=disk.img --name=job1 --ioengine=libaio \
         --thread --group_reporting --time_based --output-format=json");
    let job = &command.jobs[0];
    assert_eq!((job.name.as_str(), job.rw.word(), job.bs), ("job1", "read", 4096));
    assert_eq!((job.iodepth, job.iodepth_batch), (128, 16));
    assert_eq!((job.iodepth_batch_complete_min, job.iodepth_batch_complete_max), (16, 16));
    assert_eq!(job.runtime, Some(Duration::from_secs(100)));
    assert_eq!(job.direct, Some(true));
    assert!(job.time_based && job.group_reporting);
    assert_eq!(job.filename.as_deref(), Some("disk.img"));
    assert_eq!(job.ioengine, Some(Engine::Libaio));
    assert_eq!(command.run.format, OutputFormat::JSON);
}

#[test]
fn options_before_the_first_name_are_defaults() {
    let command = run("--bs=8k --name=a --rw=write --name=b --bs=16k");
    let [a, b] = &command.jobs[..] else { panic!("{command:?}") };
    assert_eq!((a.bs, a.rw.word()), (8192, "write"));
    assert_eq!((b.bs, b.rw.word()), (16_384, "read"));
    assert_eq!(command.global_options, [("bs", "8k".to_owned())]);
    assert_eq!(a.options, [("name", "a".to_owned()), ("rw", "write".to_owned())]);
    assert_eq!(b.options, [("name", "b".to_owned()), ("bs", "16k".to_owned())]);
}

#[test]
fn global_after_a_job_concerns_later_jobs_only() {
    let command = run("--name=a --name=global --bs=8k --name=b");
    assert_eq!((command.jobs[0].bs, command.jobs[1].bs), (4096, 8192));
}

#[test]
fn a_value_may_be_the_next_argument_but_not_of_a_flag() {
    let command = run("--name a --bs 8k --thread --time_based=0 --iodepth 4");
    let job = &command.jobs[0];
    assert_eq!((job.bs, job.iodepth, job.time_based), (8192, 4, false));
    check_error("--name=a --direct", "--direct needs a value (accepted: 0 or 1)");
    // As in fio, the second one is a job file.
    check_error("--name=a --thread 1", "1: cannot read the file: there are no files here");
}

#[test]
fn a_repeated_option_is_remembered_once() {
    let job = &run("--name=a --rw=read --bs=8k --rw=write").jobs[0];
    assert_eq!(job.rw.word(), "write");
    let options: Vec<_> = job.options.iter().map(|(name, text)| (*name, &**text)).collect();
    assert_eq!(options, [("name", "a"), ("rw", "write"), ("bs", "8k")]);
}

#[test]
fn a_bare_flag_is_not_among_the_options_of_the_report() {
    let job = &run("--name=a --thread --norandommap=1 --output=x").jobs[0];
    let options: Vec<_> = job.options.iter().map(|(name, text)| (*name, &**text)).collect();
    assert_eq!(options, [("name", "a"), ("norandommap", "1")]);
}

#[test]
fn without_a_job_there_are_bare_defaults() {
    let command = run("");
    let job = &command.jobs[0];
    assert_eq!((job.name.as_str(), job.rw.word(), job.bs), ("bench", "randread", 4096));
    assert_eq!((job.iodepth, job.time_based), (32, true));
    assert_eq!(job.runtime, Some(Duration::from_secs(5)));
    assert_eq!(job.filename.as_deref(), Some("ram:1G"));

    let job = &run("--rw=write --iodepth=1 --filename=x --time_based=0").jobs[0];
    assert_eq!((job.rw.word(), job.iodepth, job.time_based), ("write", 1, false));
    assert_eq!(job.filename.as_deref(), Some("x"));

    assert_eq!(run("--ioengine=null").jobs[0].filename, None);
    assert!(!run("--runtime=0").jobs[0].time_based);
}

#[test]
fn with_a_job_there_are_none() {
    let job = &run("--name=a").jobs[0];
    assert_eq!((job.rw.word(), job.iodepth, job.runtime), ("read", 1, None));
    assert_eq!(job.filename, None);
}

#[test]
fn help_may_stand_anywhere() {
    for args in ["--help", "-h", "--name=a --help --nonsense"] {
        assert_eq!(parse_all(args), Ok(Parsed::Help(None)), "{args}");
    }
    assert_eq!(parse_all("--help=verify"), Ok(Parsed::Help(Some("verify".to_owned()))));
}

#[test]
fn argument_that_is_no_option_is_refused() {
    check_error("bs=4k", "'bs=4k' is not an option; options begin with --");
    check_error("-x=1", "'-x=1' is not an option; options begin with --");
    check_error("--name=a --bogus=1", "unknown option --bogus; see forebay bench --help");
    check_error("--name=a --time_based", "a: --time_based needs --runtime");
    assert!(parse_all("--").is_err());
}

#[test]
fn all_errors_are_reported_at_once() {
    check_error(
        "--name=a --iodpth 4 --rw=raed --name=b --time_based --lockfile=exclusive --name=c --bs=4z \
         --runtime=1s",
        "unknown option --iodpth; did you mean --iodepth?\n\
         --rw=raed: unknown value 'raed'; did you mean 'read'? (accepted: read, write, \
         randread, randwrite, rw, readwrite, randrw, trim, randtrim)\n\
         --lockfile: forebay does not support this fio option; jobs do not lock files\n\
         --bs=4z: unknown unit 'z' (accepted: a size such as 4096, 4k, 1m or 1g, where k = \
         1024 and kib = 1000, or up to three: read,write,trim)",
    );
}

#[test]
fn a_failed_option_hides_its_consequences() {
    // Without the failed option the job would have a runtime.
    check_error(
        "--name=a --time_based --runtim=1s",
        "unknown option --runtim; did you mean --runtime?",
    );
    check_error(
        "--runtime=x --name=a --time_based",
        "--runtime=x: not a whole number \
        (accepted: a time such as 10, 10s, 500ms, 5m or 1h)",
    );
}

#[test]
fn a_list_of_errors_has_an_end() {
    let args = "--name=a ".to_owned() + &"--bogus=1 ".repeat(30);
    let errors = parse_all(&args).expect_err("thirty errors");
    assert!(errors.is_cut() && errors.list().len() == 20);
    assert!(errors.to_string().ends_with("\ntoo many errors: the rest was not checked"));
}

#[test]
fn unsupported_options_are_accepted_with_values_that_switch_them_off() {
    let args = "--name=a --verify_state_save=0 --continue_on_error=none --hipri=0";
    assert!(run(args).warnings.is_empty());
    assert!(parse_all("--name=a --verify_state_save=1").is_err());
    assert_eq!(run("--name=a --hipri --hipri=0").warnings.len(), 1, "a flag that is on");
}

#[test]
fn origins_name_defaults_and_options_of_each_job() {
    let command = run("--bs=8k --name=a --rw=write --name=b --bs=4k --thread");
    let names = |job: usize| {
        let origins = command.origins[job].iter();
        origins.map(|origin| format!("{}={}", origin.name, origin.value)).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(0), names(1)),
        (
            vec!["bs=8k".to_owned(), "rw=write".to_owned()],
            vec!["bs=4k".to_owned(), "thread=1".to_owned()],
        )
    );
    assert_eq!(command.origins[0][0].source, Source::CommandLine);
}

#[cfg(unix)]
#[test]
fn argument_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let error = parse([OsString::from_vec(b"--name=\xff".to_vec())]).expect_err("not UTF-8");
    assert_eq!(error.to_string(), "'--name=\u{fffd}' is not valid UTF-8");
}

#[test]
fn log_without_a_value_has_the_name_of_the_job() {
    let command = run("--write_hist_log --name=a --write_bw_log --write_lat_log x --rw=write");
    let logs = &command.jobs[0].logs;
    let prefixes = [&logs.hist, &logs.bw, &logs.lat].map(Option::as_deref);
    assert_eq!(prefixes, [Some("a"), Some("a"), Some("x")]);
    let logs = &run("--name=b --write_iops_log").jobs[0].logs;
    assert_eq!(logs.iops.as_deref(), Some("b"));
}
