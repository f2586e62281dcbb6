//! C programs that use libaio, on the system's library and on this one: they must print the same.

#[path = "../../forebay/tests/support/skip.rs"]
mod skip;

#[path = "support/faults.rs"]
mod faults;
#[path = "support/slow.rs"]
mod slow;
#[path = "support/soak.rs"]
mod soak;

use forebay_run::POLICY_VARIABLE;
use forebay_run::area::{self, AREA_BYTES, Counter, FileRow, Process, processes};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The system's library, whose functions a program without this one gets.
const SYSTEM: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/libaio.so.1",
    "/usr/lib/aarch64-linux-gnu/libaio.so.1",
    "/usr/lib64/libaio.so.1",
];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command, which must succeed. Returns its output.
fn output_of(command: &mut Command) -> String {
    try_output(command).unwrap_or_else(|error| panic!("{error}"))
}

/// Does the same, and returns how the command has failed.
fn try_output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (status, stdout, stderr) = (output.status, text(&output.stdout), text(&output.stderr));
    match status.success() {
        true => Ok(stdout),
        false => Err(format!("{command:?}: {status}\n{stdout}{stderr}")),
    }
}

/// The variable with the path of another library to test, such as a replacement of the system's.
const OTHER: &str = "FOREBAY_LIBAIO";

/// Builds the library. A test cannot depend on a library that is not for Rust, so cargo does not
/// build it by itself.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(other) = std::env::var_os(OTHER) {
            return other.into();
        }
        let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = temporary.parent().expect("it is in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", "forebay-aio", "--target-dir"]);
        output_of(cargo.arg(target).current_dir(here()));
        target.join("debug/libforebay_aio.so")
    })
}

/// Compiles a program against the system's library.
fn compile(name: &str, folder: &Path) -> Option<PathBuf> {
    let Some(system) = SYSTEM.iter().find(|path| Path::new(path).exists()) else {
        skip::skip(name, "libaio.so.1 is not installed (package libaio1)");
        return None;
    };
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]);
    cc.arg(here().join(format!("tests/c/{name}.c"))).arg(system).arg("-o").arg(&program);
    output_of(&mut cc);
    Some(program)
}

/// The counters of a run.
struct Counted {
    processes: Vec<Process>,
    files: Vec<FileRow>,
}

/// Runs a program on a file. `preload` is the library to test, or empty. Returns the output, and
/// the counters. Threads always share syncs, also where that is slower.
fn play(
    program: &Path,
    file: &Path,
    more: &[&str],
    preload: &Path,
) -> Result<(String, Counted), String> {
    let path = program.with_extension("area");
    let area = File::create(&path).expect("a file");
    area.set_len(AREA_BYTES as u64).expect("a file in a folder of the build");
    area::set_detailed(&area).expect("a file");
    let variable = area::variable(&area, &path).expect("metadata");
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).arg(file).args(more);
    command.env("LD_PRELOAD", preload).env(area::VARIABLE, variable);
    let output = try_output(command.env(POLICY_VARIABLE, "join_syncs=on"))?;
    let area = std::fs::read(&path).expect("the area");
    Ok((output, Counted { processes: processes(&area), files: area::files(&area) }))
}

/// Returns the outputs of a program on both libraries, on files that support direct I/O. Checks
/// that the layer has merged iocbs, and counted each for a file.
fn both(program: &Path, folder: &Path, more: &[&str]) -> [String; 2] {
    both_with_files(program, folder, more).0
}

/// Does the same, and returns the files too.
fn both_with_files(program: &Path, folder: &Path, more: &[&str]) -> ([String; 2], Vec<FileRow>) {
    let run = |preload: &Path| {
        let played = play(program, &folder.join("file"), more, preload);
        played.unwrap_or_else(|error| panic!("{error}"))
    };
    let ((system, _), (own, counted)) = (run(Path::new("")), run(library()));
    let Counted { processes, files } = counted;
    let name = program.file_name().expect("a name");
    assert!(processes.iter().all(|process| *process.name == *name), "{processes:?}");
    let [iocbs, requests, merges, _, syncs, joined, ..] = processes[0].counters;
    assert!(merges > 0 && requests < iocbs, "{processes:?}");
    assert!(syncs > 0 || *name != *"calls", "{processes:?}");
    assert!(joined > 0 && syncs > joined || *name != *"syncs", "{processes:?}");
    // Each iocb, request and sync is one of a file too.
    for counter in Counter::ALL {
        let by_process: u64 = processes.iter().map(|it| it.counters[counter as usize]).sum();
        let by_file: u64 = files.iter().map(|it| it.counters[counter as usize]).sum();
        // A handler of `syncs` that does not return may come between both counts.
        let difference = by_process.abs_diff(by_file);
        let is_right = difference == 0 || *name == *"syncs" && difference < 100;
        assert!(is_right, "{counter:?}: {by_process} by process, {by_file} by file: {files:?}");
    }
    ([system, own], files)
}

/// Compares the lines that a program prints on both libraries.
fn compare(name: &str) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(program) = compile(name, folder.path()) else { return };
    let [system, own] = both(&program, folder.path(), &[]);
    let differences: Vec<_> =
        system.lines().zip(own.lines()).filter(|(system, own)| system != own).collect();
    assert_eq!(differences, []);
    assert_eq!(system.lines().count(), own.lines().count());
}

#[test]
fn calls_have_the_results_of_the_system_library() {
    compare("calls");
}

#[test]
fn waits_have_the_results_of_the_system_library() {
    compare("waits");
}

#[test]
fn held_reads_have_the_results_of_the_system_library() {
    compare("holds");
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "syscall is replaced on x86-64 only")]
fn calls_by_syscall_have_the_results_of_the_kernel() {
    if std::env::var_os(OTHER).is_some() {
        return skip::skip_always("syscalls", "a replacement of libaio does not replace syscall");
    }
    compare("syscalls");
}

/// Calls the functions of libaio 0.1.
#[test]
fn older_versions_have_the_results_of_the_system_library() {
    if std::env::var_os(OTHER).is_none() {
        return skip::skip_always("older", "run it by `cargo xtask libaio`");
    }
    compare("older");
}

#[test]
fn random_batches_have_the_results_of_the_system_library() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(program) = compile("random", folder.path()) else { return };
    for seed in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        let [system, own] = both(&program, folder.path(), &[seed]);
        assert_eq!(system, own, "seed {seed}");
    }
}

#[test]
fn locks_are_held_during_io_and_released_by_the_close() {
    compare("locks");
}

#[test]
fn forks_exec_and_exits_during_io_lose_nothing() {
    compare("processes");
}

#[test]
fn iocbs_of_many_threads_and_contexts_end_once() {
    compare("threads");
}

#[test]
fn number_of_a_closed_descriptor_is_used_again_during_io() {
    compare("reuse");
}

#[test]
fn syncs_have_the_results_of_libc() {
    if std::env::var_os(OTHER).is_some() {
        return skip::skip_always("syncs", "a replacement of libaio does not replace fsync");
    }
    compare("syncs");
}

#[test]
fn iocbs_count_for_the_current_or_recently_closed_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(program) = compile("files", folder.path()) else { return };
    let ([system, own], files) = both_with_files(&program, folder.path(), &[]);
    assert_eq!(system, own);
    let counters = |name: &str| {
        let path = folder.path().join(format!("file.{name}")).display().to_string();
        let row = files.iter().find(|row| row.path == path);
        row.map_or([0; 8], |row| row.counters)
    };
    let iocbs = ["one", "late", "soon"].map(|name| counters(name)[0]);
    assert_eq!((iocbs[0], iocbs[1] + iocbs[2]), (2, 4), "{files:?}");
    assert!(iocbs[1] >= 2, "{files:?}");
    assert_eq!(counters("batch")[..5], [2, 1, 1, 0, 0], "the layer checks its descriptors");
}

/// Runs a program under valgrind, with these options, on this library.
fn under_valgrind(name: &str, options: &[&str], more: &[&str]) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(program) = compile(name, folder.path()) else { return };
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "100", "valgrind", "--quiet", "--error-exitcode=9"]);
    // Without it, one of several threads may get the processor for most of the time.
    command.arg("--fair-sched=yes").args(options);
    command.arg(&program).arg(folder.path().join("file")).args(more);
    let text = output_of(command.env("LD_PRELOAD", library()));
    assert!(!text.is_empty());
}

#[test]
fn valgrind_finds_no_error() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip::skip("valgrind_finds_no_error", "valgrind is not installed");
    }
    // The child of a fork leaks the contexts of its parent, so only these two are free of leaks.
    let leaks = ["--leak-check=full", "--errors-for-leak-kinds=definite"];
    under_valgrind("threads", &leaks, &["30"]);
    under_valgrind("reuse", &leaks, &[]);
    under_valgrind("locks", &[], &[]);
    under_valgrind("processes", &[], &[]);
    under_valgrind("random", &[], &["1"]);
    let suppressions = format!("--suppressions={}", here().join("tests/c/valgrind.supp").display());
    under_valgrind("calls", &[&suppressions], &[]);
}
