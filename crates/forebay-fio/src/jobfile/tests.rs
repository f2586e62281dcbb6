//! Sections, defaults, includes, what is filled in, and how errors look.

use std::collections::HashMap;
use std::io::{self, ErrorKind};

use super::*;
use crate::arguments;
use crate::cmdline::{CommandError, Parsed, parse_with};
use crate::job::Job;
use crate::units::Size;

/// Files and variables in memory.
#[derive(Debug, Default)]
struct Memory {
    files: HashMap<PathBuf, Vec<u8>>,
    variables: HashMap<&'static str, &'static str>,
}

impl Host for Memory {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.files.get(path).cloned();
        found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "no such file"))
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|&text| text.to_owned())
    }

    fn page_size_bytes(&self) -> u64 {
        4096
    }

    fn memory_mib(&self) -> u64 {
        2000
    }

    fn nr_cpus(&self) -> u64 {
        6
    }
}

/// Returns the only error of these files.
#[track_caller]
fn error_of(files: &[(&str, &str)]) -> JobFileError {
    let errors = parse_files(files).expect_err(files[0].1);
    match errors.list() {
        [CommandError::JobFile(error)] => (**error).clone(),
        other => panic!("{other:?}"),
    }
}

fn memory(files: &[(&str, &str)]) -> Memory {
    let file = |&(name, text): &(&str, &str)| (PathBuf::from(name), text.as_bytes().to_vec());
    let variables = HashMap::from([("SIZE", "64k"), ("KEY", "iodepth"), ("FOUR", "4")]);
    Memory { files: files.iter().map(file).collect(), variables }
}

fn parse_files(files: &[(&str, &str)]) -> Result<JobList, CommandErrors> {
    parse(Path::new(files[0].0), &mut memory(files))
}

#[track_caller]
fn job_of(lines: &str) -> Job {
    let text = format!("[a]\n{lines}\n");
    parse_files(&[("a.fio", &text)]).expect(lines).jobs.remove(0)
}

#[track_caller]
fn check_files(files: &[(&str, &str)], message: &str) {
    assert_eq!(parse_files(files).expect_err(files[0].1).to_string(), message);
}

#[track_caller]
fn check(text: &str, message: &str) {
    check_files(&[("a.fio", text)], message);
}

#[test]
fn sections_are_jobs_and_global_is_for_those_below() {
    let text = "; a comment\n[global]\nbs=8k\n\n[a]\nrw=randwrite\n# another\n[global]\n\
                iodepth = 4\n[b]\nnorandommap\n";
    let command = parse_files(&[("a.fio", text)]).expect("it is right");
    let [a, b] = &command.jobs[..] else { panic!("{command:?}") };
    assert_eq!((a.name.as_str(), a.bs, a.rw.word(), a.iodepth), ("a", 8192, "randwrite", 1));
    assert_eq!((b.name.as_str(), b.bs, b.iodepth, b.norandommap), ("b", 8192, 4, true));
    assert_eq!(a.options, [("rw", "randwrite".to_owned())]);
    let global = [("bs", "8k".to_owned()), ("iodepth", "4".to_owned())];
    assert_eq!(command.global_options, global);
}

#[test]
fn comments_end_lines_wherever_they_begin() {
    let job = job_of("bs=8k;x\niodepth=4 # four\n  ; all of it\n\trw = write \r");
    assert_eq!((job.bs, job.iodepth, job.rw.word()), (8192, 4, "write"));
}

#[test]
fn variables_are_filled_in_and_unset_ones_are_empty() {
    let job = job_of("size=${SIZE}\n${KEY}=${FOUR}${UNSET}\nfilename=x${");
    assert_eq!(job.size, Some(crate::units::Size::Bytes(65_536)));
    assert_eq!((job.iodepth, job.filename.as_deref()), (4, Some("x${")));
}

#[test]
fn facts_of_the_machine_are_filled_in_and_worked_out() {
    let job = job_of("bs=$pagesize\niodepth=2*$ncpus\nsize=$mb_memory*1m\nfilename=x/$ncpus");
    assert_eq!((job.bs, job.iodepth), (4096, 12));
    assert_eq!(job.size, Some(crate::units::Size::Bytes(2000 << 20)));
    assert_eq!(job.filename.as_deref(), Some("x/6"));
}

#[test]
fn a_name_in_a_section_is_the_jobs_name() {
    assert_eq!(job_of("name=b").name, "b");
    let command = parse_files(&[("a.fio", "[global]\nname=x\n[a]\n")]).expect("it is right");
    assert_eq!(command.jobs[0].name, "a");
}

#[test]
fn included_options_belong_to_the_section_and_files_are_looked_for_twice() {
    let files = [
        ("jobs/a.fio", "[a]\ninclude b.fio\ninclude=jobs/c.fio # here\nbs=4k\n"),
        ("jobs/b.fio", "bs=8k\niodepth=2\n"),
        ("jobs/c.fio", "include\tb.fio\niodepth=3"),
    ];
    let job = parse_files(&files).expect("it is right").jobs.remove(0);
    assert_eq!((job.bs, job.iodepth), (4096, 3));
}

#[test]
fn error_in_an_included_file_names_the_including_file() {
    let files = [("a.fio", "[a]\n\ninclude b.fio\n"), ("b.fio", "iodpth=4\n")];
    check_files(
        &files,
        "b.fio:1:1: unknown option iodpth; did you mean iodepth?\n  \
           1 | iodpth=4\n    | ^^^^^^\n  included by a.fio:3",
    );
    let files = [("a.fio", "[a]\ninclude b.fio\n"), ("b.fio", "\n[b]\n")];
    check_files(
        &files,
        "b.fio:2:1: section in an included file: its options belong to the section that includes \
         it\n  2 | [b]\n    | ^^^\n  included by a.fio:2",
    );
    check(
        "[a]\ninclude b.fio ; ours\n",
        "a.fio:2:1: cannot read the file: b.fio: no such file\n  \
           2 | include b.fio ; ours\n    | ^^^^^^^^^^^^^",
    );
    check("[a]\ninclude", "a.fio:2:1: include needs a file name\n  2 | include\n    | ^^^^^^^");
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    check_files(
        &[("a.fio", "[a]\ninclude ./a.fio\n")],
        "a.fio:2:1: ./a.fio includes itself: remove this line\n  \
           2 | include ./a.fio\n    | ^^^^^^^^^^^^^^^",
    );
    let files = [("a", "[a]\ninclude b"), ("b", "include c"), ("c", "include b")];
    let error = error_of(&files);
    assert_eq!(error.problem, Problem::Cycle("b".to_owned()));
    assert_eq!(error.included_from, [("b".to_owned(), 1), ("a".to_owned(), 2)]);
}

#[test]
fn an_include_bomb_is_refused() {
    let ten = |next: &str| format!("include {next}\n").repeat(10);
    let texts: Vec<_> = (1..=10).map(|n| (format!("f{n}"), ten(&format!("f{}", n + 1)))).collect();
    let first = format!("[a]\n{}", ten("f1"));
    let mut files = vec![("a", first.as_str())];
    files.extend(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    files.push(("f11", "bs=4k"));
    let error = error_of(&files);
    assert_eq!(error.problem, Problem::TooManyIncludes { max: INCLUDES_MAX });
}

#[test]
fn errors_show_their_place() {
    let no_job = "no job to run; a job begins with --name=job1, or in a job file with a line such \
                  as [job1]";
    check("", no_job);
    check("[global]\nbs=4k\n", no_job);
    check(
        "bs=4k\n",
        "a.fio:1:1: no section before this line: start with a section such as [job1]\n  \
           1 | bs=4k\n    | ^^^^^",
    );
    check(
        "\n[a\n",
        "a.fio:2:1: a section header starts with [ and ends with ], with nothing after it\n  \
           2 | [a\n    | ^^",
    );
    check(
        "[a]\n\t bs = 4z ; hm\n",
        "a.fio:2:8: bs=4z: unknown unit 'z' (accepted: a size such as 4096, 4k, 1m or 1g, where k \
         = 1024 and kib = 1000, or up to three: read,\
         write,trim)\n  2 |   bs = 4z ; hm\n    |        ^^",
    );
    check(
        "[a]\niodepth\n",
        "a.fio:2:1: iodepth needs a value (accepted: a number from 1 to 65536)\n  \
           2 | iodepth\n    | ^^^^^^^",
    );
    check(
        "[a]\nbs 4k\n",
        "a.fio:2:1: missing = between option and value: write bs=4k\n  2 | bs 4k\n    | ^^^^^",
    );
    check(
        "[a]\n--bs=4k\n",
        "a.fio:2:1: unknown option --bs; did you mean bs?\n  2 | --bs=4k\n    | ^^^^",
    );
    check(
        "[a]\noutput=x\n",
        "a.fio:2:1: output applies to the whole run; give --output on the command line\n  \
           2 | output=x\n    | ^^^^^^",
    );
    check(
        "[a]\nbs=4k\n[b]\ntime_based\n",
        "a.fio:3:1: b: --time_based needs --runtime\n  3 | [b]\n    | ^^^",
    );
}

#[test]
fn a_value_that_a_variable_leaves_empty_names_the_variable() {
    check(
        "[a]\nfilename=${SIZE}\nio_size=${UNSET}\n",
        "a.fio:3:9: io_size=: not a whole number; ${UNSET} is not set, so it is empty (accepted: a \
         size such as 4096, 4k, 1m or 1g, 1% to 100%, or zones as in 2z)\n  \
           3 | io_size=${UNSET}\n    |         ^^^^^^^^",
    );
}

#[test]
fn log_without_a_value_has_the_name_of_the_job() {
    let text = "[global]\nwrite_bw_log\n[a]\nwrite_lat_log\n[b]\nwrite_bw_log=x\n";
    let jobs = parse_files(&[("a.fio", text)]).expect("two jobs").jobs;
    let logs = |at: usize| (jobs[at].logs.bw.as_deref(), jobs[at].logs.lat.as_deref());
    assert_eq!(logs(0), (Some("a"), Some("a")));
    assert_eq!(logs(1), (Some("x"), None));
}

#[test]
fn all_errors_of_all_files_are_reported_at_once() {
    let files = [
        (
            "a.fio",
            "bs=4k\niodepth=2\n[a]\niodpth=4\ninclude b.fio\ninclude none.fio\n[b\nrw=x\n[c]\n\
          time_based\n[d]\nruntim=1s\ntime_based\nlockfile=exclusive\n",
        ),
        ("b.fio", "bs 4k\n[x]\nrw=never read\n"),
    ];
    let errors = parse_files(&files).expect_err("many errors");
    let first_lines = |error: &CommandError| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let first_lines: Vec<_> = errors.list().iter().map(first_lines).collect();
    let expected = [
        "a.fio:1:1: no section before this line: start with a section such as [job1]",
        "a.fio:4:1: unknown option iodpth; did you mean iodepth?",
        "b.fio:1:1: missing = between option and value: write bs=4k",
        "b.fio:2:1: section in an included file: its options belong to the section that includes \
        it",
        "a.fio:6:1: cannot read the file: none.fio: no such file",
        "a.fio:7:1: a section header starts with [ and ends with ], with nothing after it",
        "a.fio:9:1: c: --time_based needs --runtime",
        "a.fio:12:1: unknown option runtim; did you mean runtime?",
        "a.fio:14:1: lockfile: forebay does not support this fio option; jobs do not lock files",
    ];
    assert_eq!(first_lines, expected);
}

#[test]
fn options_keep_their_places() {
    let files =
        [("a.fio", "[global]\nbs=8k\n[a]\ninclude b.fio\n"), ("b.fio", "\n iodepth = 4 ; x")];
    let command = parse_files(&files).expect("it is right");
    let shown: Vec<_> = command.origins[0]
        .iter()
        .map(|origin| match &origin.source {
            Source::File(at) => at.refuse("no".to_owned()).to_string(),
            Source::CommandLine => panic!("{origin:?}"),
        })
        .collect();
    let expected = [
        "a.fio:2:1: no\n  2 | bs=8k\n    | ^^^^^",
        "b.fio:2:2: no\n  2 |  iodepth = 4 ; x\n    |  ^^^^^^^^^^^\n  included by a.fio:4",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn an_empty_value_has_a_caret_behind_it() {
    check(
        "[a]\nfilename=\n",
        "a.fio:2:10: filename=: empty value (accepted: any text)\n  2 | filename=\n    |          \
        ^",
    );
}

#[test]
fn a_long_line_is_shown_around_the_caret() {
    let text =
        format!("[a]\nfilename={}\nbs={}4z{}\n", "x".repeat(100), " ".repeat(50), "0".repeat(90));
    let message = parse_files(&[("a.fio", &text)]).expect_err("no unit").to_string();
    let lines: Vec<_> = message.lines().skip(1).collect();
    assert_eq!(lines[0], format!("  3 | ...{}4z{}...", " ".repeat(30), "0".repeat(44)));
    assert_eq!(lines[1], format!("    | {}{}", " ".repeat(33), "^".repeat(46)));
}

#[test]
fn binary_or_oversized_files_are_refused() {
    let mut host = memory(&[]);
    host.files.insert("a".into(), b"[a]\nfilename=\xff\xfe\n".to_vec());
    let error = parse(Path::new("a"), &mut host).expect_err("not UTF-8").to_string();
    assert!(error.starts_with("a:2:10: not valid UTF-8\n"), "{error}");

    let long = format!("[a]\nfilename={}\n", "x".repeat(LINE_BYTES_MAX));
    let message = parse_files(&[("a.fio", &long)]).expect_err("it is long").to_string();
    assert!(message.starts_with("a.fio:2:1: line longer than 8192 bytes\n"), "{message}");
    let filled = format!("[a]\nfilename={}\n", "${SIZE}".repeat(1000));
    assert!(parse_files(&[("a", &filled)]).is_ok());
    let grown = format!("[a]\nfilename={}\n", "$ncpus${SIZE}${SIZE}".repeat(400));
    assert!(parse_files(&[("a", &grown)]).is_ok());
    check(&"#\n".repeat(1 << 20), "a.fio: job files larger than 1 MiB in total");
    check(
        "",
        "no job to run; a job begins with --name=job1, or in a job file with a line such as [job1]",
    );
    check_files(
        &[("b.fio", &"[a]\n".repeat(5000))],
        "b.fio:4097:1: more than 4096 jobs\n  4097 | [a]\n       | ^^^",
    );
}

#[track_caller]
fn run(args: &str, files: &[(&str, &str)]) -> JobList {
    match parse_with(args.split(' ').map(Into::into), &mut memory(files)) {
        Ok(Parsed::Run(command)) => *command,
        other => panic!("{args}: {other:?}"),
    }
}

#[test]
fn options_hold_for_files_and_jobs_of_the_command_line_come_first() {
    let files = [("a.fio", "[global]\nbs=8k\n[a]\n[b]\nbs=16k\n"), ("c.fio", "[c]\n")];
    let command = run("--iodepth=4 a.fio --name=x --rw=write c.fio", &files);
    let shown: Vec<_> = command
        .jobs
        .iter()
        .map(|job| (job.name.as_str(), job.bs, job.iodepth, job.rw.word(), job.group, job.stage))
        .collect();
    let expected = [
        ("x", 4096, 4, "write", 0, 0),
        ("a", 8192, 4, "read", 0, 0),
        ("b", 16_384, 4, "read", 0, 0),
        ("c", 4096, 4, "read", 1, 1),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn sections_are_picked_by_name() {
    let files = [("a.fio", "[global]\nbs=8k\n[a]\nnonsense\n[b]\nbs=16k\n[c]\n")];
    let command = run("a.fio --section=b --section=c --name=x", &files);
    let names: Vec<_> = command.jobs.iter().map(|job| (job.name.as_str(), job.bs)).collect();
    assert_eq!(names, [("b", 16_384), ("c", 8192)]);
    let args = ["a.fio", "--section=z"].map(Into::into);
    let error = parse_with(args, &mut memory(&files)).expect_err("no such section").to_string();
    assert_eq!(error, "--section=z: no job has this name");
}

#[test]
fn base_of_units_holds_for_a_whole_section() {
    let text = "[global]\nbs=1k\n[a]\nsize=10k\nkb_base=1000\nrate=2k,2kib\n[b]\nsize=10k\n\
                include=more\n[c]\nbs=4k\nkb-base = 1000\nkb_base=1024\n";
    let files = [("a.fio", text), ("more", "io_size=8k\nkb_base=1000\n")];
    let command = run("a.fio", &files);
    let [a, b, c] = &command.jobs[..] else { panic!("{:?}", command.jobs) };
    assert_eq!((a.bs, a.size, a.pace.rate), (1024, Some(Size::Bytes(10_000)), [2000, 2048, 2048]));
    let sizes = (b.size, b.io_size);
    assert_eq!(sizes, (Some(Size::Bytes(10_240)), Some(Size::Bytes(8000))));
    assert_eq!(c.bs, 4096, "the last line counts");
    let arguments = crate::arguments::line(&command.jobs[..1]);
    assert!(arguments.ends_with("--rate=2kib,2kb --kb_base=1000"), "{arguments}");
    let files = [("a.fio", "[a]\nbs=4k\nkb_base=10 ; ten\n")];
    let error = parse_with(["a.fio".into()], &mut memory(&files)).expect_err("no base").to_string();
    assert!(error.starts_with("a.fio:3:9: kb_base=10: "), "{error}");
    assert_eq!(error.matches("kb_base=10: ").count(), 1, "{error}");
}

#[test]
fn ignored_options_are_reported_once() {
    let text = "[a]\ndisk_util=0\n[b]\ndisk_util=1\nfallocate=posix\ncreate_fsync=0\n";
    let files = [("a.fio", text)];
    let command = run("--clocksource=cpu a.fio --clocksource=cpu", &files);
    let expected = [
        "--clocksource is ignored: the clock is always CLOCK_MONOTONIC",
        "a.fio:2: disk_util is ignored: the report has one form",
        "a.fio:6: create_fsync is ignored: it is about creating files, which happens before the \
         measurement",
    ];
    assert_eq!(command.warnings, expected);
    let args = ["--warnings-fatal", "a.fio"].map(Into::into);
    let error = parse_with(args, &mut memory(&files)).expect_err("a warning");
    assert!(error.to_string().ends_with("(--warnings-fatal)"), "{error}");
    // A warning that depends on several options of a job.
    let files = [("a.fio", "[a]\nfilename=x\nnrfiles=2\n")];
    let args = ["--warnings-fatal", "a.fio"].map(Into::into);
    let error = parse_with(args, &mut memory(&files)).expect_err("a warning").to_string();
    assert!(error.starts_with("a: --nrfiles") && error.ends_with("(--warnings-fatal)"), "{error}");
}

#[test]
fn a_name_that_begins_with_global_sets_defaults_and_says_so() {
    let command = parse_files(&[("a", "[globals]\nbs=8k\n[a]\n")]).expect("as in fio");
    assert_eq!((command.jobs.len(), command.jobs[0].bs), (1, 8192));
    assert_eq!(
        command.warnings,
        ["'globals' sets defaults, as in fio: its name begins with 'global'"]
    );
}

#[test]
fn jobs_that_write_are_refused_if_only_reading_is_allowed() {
    let args = ["--readonly", "--name=a", "--rw=randrw"].map(Into::into);
    let error = parse_with(args, &mut memory(&[])).expect_err("it writes").to_string();
    assert_eq!(error, "a: --rw=randrw changes the disk, and --readonly was given");
}

#[test]
fn printed_job_file_gives_the_same_jobs() {
    let files = [
        ("a.fio", "[global]\nbs=8k\n[a]\nnorandommap\nplug=none\nbs=4k\n[b]\nname=it's b\n"),
        ("c.fio", "[c]\nsize=(2*1m)\ndisk_util=1\nnew_group=1\n"),
    ];
    let command = run("--showcmd --iodepth=4 a.fio --name=x --rw=write c.fio", &files);
    let expected = "--name=x --rw=write --bs=4096 --iodepth=4 --name=a --rw=read --bs=4096 \
                    --iodepth=4 --norandommap --plug=none '--name=it'\\''s b' --rw=read --bs=8192 \
                    --iodepth=4 --name=c --rw=read --bs=4096 --size=2097152 --iodepth=4 \
                    --stonewall --new_group";
    assert_eq!(arguments::line(&command.jobs), expected);
    let words = command.jobs.iter();
    let words = words.flat_map(|job| [arguments::of(job), arguments::policies(job)].concat());
    let again = parse_with(words.map(Into::into), &mut memory(&[])).expect("the same");
    let Parsed::Run(again) = again else { panic!("{again:?}") };
    let plain = |command: &JobList| {
        let jobs = command.jobs.iter().cloned();
        jobs.map(|job| Job { options: Vec::new(), ..job }).collect::<Vec<_>>()
    };
    assert_eq!(plain(&again), plain(&command));
}
