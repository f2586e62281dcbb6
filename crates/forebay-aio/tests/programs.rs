//! Locks, forks, exec, exits, threads and descriptors that are used again, in programs of libaio.
//!
//! The programs must print the same on the system's library and on this one. Valgrind finds no
//! error.

mod support;

use std::process::Command;
use support::{both, compile, here, library, output_of, skip};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Runs a program on both libraries.
fn same_on_both(name: &str) {
    let folder = folder();
    let Some(program) = compile(name, folder.path()) else { return };
    let [system, own] = both(&program, folder.path(), &[]);
    assert_eq!(system, own, "the first is of the system's library");
}

#[test]
fn locks_are_held_during_io_and_released_by_the_close() {
    same_on_both("locks");
}

#[test]
fn forks_exec_and_exits_during_io_lose_nothing() {
    same_on_both("processes");
}

#[test]
fn iocbs_of_many_threads_and_contexts_end_once() {
    same_on_both("threads");
}

#[test]
fn number_of_a_closed_descriptor_is_used_again_during_io() {
    same_on_both("reuse");
}

/// Runs a program under valgrind, with these options, on this library.
fn under_valgrind(name: &str, options: &[&str], more: &[&str]) {
    let folder = folder();
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
