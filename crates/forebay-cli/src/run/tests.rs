//! Settings, the list of libraries, refused programs and the report.

use super::*;
use forebay_run::area::{Counter, FileRow, Process, Stage, Times};
use std::os::unix::fs::PermissionsExt;

#[test]
fn settings_without_an_effect_are_refused_by_name() {
    let settings = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let good = policy_of(&settings(&["plug=none", "nomerges=2"])).expect("both have an effect");
    assert_eq!(good, "plug=none&nomerges=2");
    let refused = |text: &str| policy_of(&settings(&[text])).expect_err(text).to_string();
    assert_eq!(
        refused("queue_depth=4"),
        "run: --policy queue_depth=4: expected one of the settings plug, nomerges, hold, \
         hold_outstanding, hold_bios, hold_groups, hold_us, join_syncs"
    );
    assert_eq!(
        refused("plug=never"),
        "run: --policy plug=never: expected outermost, per-level or none"
    );
}

#[test]
fn program_without_dashes_is_an_error_that_shows_them() {
    let failure = |line: &str| {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        missing_dashes(&args).map(|failure| failure.to_string())
    };
    let expected = "run: put -- before the program: forebay run -- fio ...";
    assert_eq!(failure("forebay run fio --name=a").as_deref(), Some(expected));
    assert_eq!(failure("forebay run --policy hold=off fio -v").as_deref(), Some(expected));
    assert_eq!(failure("forebay run --policy hold=off"), None);
    assert_eq!(failure("forebay run --polcy -- fio"), None);
    assert_eq!(failure("forebay run --help"), None);
    assert_eq!(failure("forebay info fio"), None);
}

#[test]
fn library_is_before_those_that_were_preloaded() {
    let list = |given: Option<&str>| preload(OsStr::new("/l.so"), given.map(OsStr::new));
    assert_eq!(list(None), "/l.so");
    assert_eq!(list(Some("")), "/l.so");
    assert_eq!(list(Some("/a.so:/b.so")), "/l.so:/a.so:/b.so");
}

#[test]
fn missing_library_is_an_error_with_both_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("bin/forebay");
    let error = library::find_beside(&program).expect_err("no library");
    let bin = folder.path().join("bin");
    let expected = format!("run: libforebay_aio.so is neither in {} nor in ", bin.display());
    assert!(error.starts_with(&expected), "{error}");
    let lib = folder.path().join("lib");
    std::fs::create_dir_all(&lib).expect("a folder");
    std::fs::create_dir_all(&bin).expect("a folder");
    std::fs::write(lib.join("libforebay_aio.so"), "").expect("a file");
    library::find_beside(&program).expect("in lib");
}

#[test]
fn programs_that_preload_nothing_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p");
    std::fs::copy("/bin/sh", &path).expect("a copy");
    program::check(&path).expect("a dynamic program");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("our file");
    assert!(program::check(&path).expect_err("set-user-id").contains("set-user-id"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("our file");
    // A program without program headers names no dynamic linker.
    let mut elf = std::fs::read(&path).expect("the copy");
    elf[56..58].fill(0);
    std::fs::write(&path, elf).expect("our file");
    assert!(program::check(&path).expect_err("static").contains("it is a static program"));
    let script = folder.path().join("s");
    std::fs::write(&script, format!("#! {} -e\n", path.display())).expect("our file");
    assert!(program::check(&script).expect_err("static").contains("its interpreter"));
    std::fs::write(&script, format!("#!{}\n", script.display())).expect("our file");
    let error = program::check(&script).expect_err("it is its own interpreter");
    assert!(error.ends_with("the interpreters are nested more than 4 deep"), "{error}");
    let missing = program::find(OsStr::new("no-such-program")).expect_err("none");
    assert_eq!(missing, "no such program in PATH");
}

#[test]
fn ignored_signals_are_read_from_the_status_of_a_process() {
    let status = "SigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
    assert_eq!(signals::ignored_of(status), 1 << 12 | 1);
    assert_eq!(signals::ignored_of("Name:\tx\n"), 0);
}

#[test]
fn report_has_a_line_for_each_process_and_their_sum() {
    let lines = lines_of(
        &[
            process(7, "fio", [32, 2, 30, 4, 3, 2, 1, 0], []),
            process(8, "qemu-img", [1, 1, 0, 0, 0, 0, 0, 1], []),
        ],
        &[],
    );
    assert_eq!(lines[1], "pid name iocbs requests merged held syncs joined full repeats");
    assert_eq!(lines[2], "7 fio 32 2 30 4 3 2 1 0");
    assert_eq!(lines[4], "sum 33 3 30 4 3 2 1 1");
    assert_eq!(lines.len(), 5, "no times and no files");
    assert!(report::text_of(&[], &[]).contains("no process"));
}

#[test]
fn report_has_the_times_of_each_stage_and_their_sum() {
    let held = |ns| (Stage::Held, ns);
    let one = process(7, "fio", [1; 8], [held(4_000), held(4_000), (Stage::Kernel, 1_000)]);
    let other = process(8, "fio", [1; 8], [held(900_000)]);
    let lines = lines_of(&[one, other], &[]);
    let lines = &lines[6..];
    assert!(lines[0].starts_with("forebay run: time in each stage"), "{lines:?}");
    let expected = [
        "pid name stage count p50 p99 max",
        "7 fio held 2 4.0 4.0 4.0",
        "7 fio kernel 1 1.0 1.0 1.0",
        "8 fio held 1 884.7 884.7 900.0",
        "sum held 3 4.0 884.7 900.0",
        "sum kernel 1 1.0 1.0 1.0",
    ];
    assert_eq!(lines[1..], expected);
}

#[test]
fn report_has_the_files_with_the_most_iocbs_first() {
    let file = |id, path: &str, iocbs| {
        let counters = [iocbs, 2, 3, 4, 5, 6, 7, 8];
        let mut stages: [Times; 3] = Default::default();
        stages[Stage::Sync as usize].add(1_000);
        FileRow { id, path: path.to_owned(), counters, stages }
    };
    let files = [
        file(Some((0x801, 77)), "/var/tmp/a b\n", 10),
        file(Some((0xfd00, 78)), "/dev/vda", 1000),
        file(None, "other files", 1),
    ];
    let lines = lines_of(&[process(7, "fio", [0; 8], [])], &files);
    let lines = &lines[4..];
    assert!(lines[0].ends_with(" reused descriptor for up to 100 ms"), "{lines:?}");
    let expected = [
        "iocbs requests merged held syncs joined full repeats device inode path",
        "1000 2 3 4 5 6 7 8 253:0 78 /dev/vda",
        "10 2 3 4 5 6 7 8 8:1 77 /var/tmp/a b?",
        "1 2 3 4 5 6 7 8 - - other files",
        "",
        "forebay run: time in each stage of each file, in microseconds",
        "stage count p50 p99 max path",
        "sync 1 1.0 1.0 1.0 /dev/vda",
        "sync 1 1.0 1.0 1.0 /var/tmp/a b?",
        "sync 1 1.0 1.0 1.0 other files",
    ];
    assert_eq!(lines[1..], expected);
}

#[test]
fn json_has_the_counters_times_and_files() {
    let kernel = [(Stage::Kernel, 1_000)];
    let file = |id, path: &str, counters| FileRow {
        id,
        path: path.to_owned(),
        counters,
        stages: Default::default(),
    };
    let one = process(7, "fio", [8, 7, 6, 5, 4, 3, 2, 1], kernel);
    let files = [
        file(Some((0x801, 77)), "/a", [5, 4, 3, 2, 1, 0, 0, 0]),
        file(None, "other files", [1; 8]),
    ];
    let expected = serde_json::json!({
        "processes": [{
            "pid": 7, "name": "fio", "iocbs": 8, "requests": 7, "merged": 6, "held": 5,
            "syncs": 4, "joined": 3, "full": 2, "repeats": 1,
            "times_ns": { "kernel": { "count": 1, "p50": 992, "p99": 992, "max": 1000 } },
        }],
        "files": [
            {
                "path": "/a", "device": "8:1", "inode": 77,
                "iocbs": 5, "requests": 4, "merged": 3, "held": 2, "syncs": 1, "joined": 0,
                "full": 0, "repeats": 0, "times_ns": {},
            },
            {
                "path": "other files", "device": null, "inode": null,
                "iocbs": 1, "requests": 1, "merged": 1, "held": 1, "syncs": 1, "joined": 1,
                "full": 1, "repeats": 1, "times_ns": {},
            },
        ],
    });
    assert_eq!(report::json_of(&[one], &files), expected);
}

/// Returns a process whose I/O was in stages for these times in nanoseconds.
fn process(
    pid: u32,
    name: &str,
    counters: [u64; Counter::ALL.len()],
    times: impl IntoIterator<Item = (Stage, u64)>,
) -> Process {
    let mut stages = Stage::ALL.map(|_| Times::default());
    times.into_iter().for_each(|(stage, ns)| stages[stage as usize].add(ns));
    Process { pid, name: name.to_owned(), counters, stages }
}

/// Returns the lines of a report, with single spaces.
fn lines_of(all: &[Process], files: &[FileRow]) -> Vec<String> {
    let text = report::text_of(all, files);
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}
