//! C programs, one for each behaviour: compiled with the committed header, linked with the shared
//! library, and run alone, under valgrind, and with the address sanitizer.

#[path = "support/library.rs"]
mod library;
#[path = "../../forebay/tests/support/skip.rs"]
mod skip;

use library::{compile, here, installed, names, play, run, target};
use skip::skip;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The programs that also run under valgrind.
const UNDER_VALGRIND: [&str; 17] = [
    "backend",
    "block_status",
    "blocking_calls",
    "changes_in_use",
    "close_in_flight",
    "close_in_use",
    "durable_points",
    "ends_once",
    "group_commit",
    "holds",
    "late_requests",
    "names_of_counters_and_properties",
    "null_arguments",
    "owners",
    "queue",
    "wrong_state",
    "wrong_thread",
];

/// Writes tests that run one program each, and the list of them.
macro_rules! programs {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            let program = compile(&source(stringify!($name)), "cc", &["-std=c11"]);
            play(&program, &[]);
        })+

        const PROGRAMS: &[&str] = &[$(stringify!($name)),+];
    };
}

programs! {
    after_fork
    backend
    block_status
    blocking_calls
    changes_in_use
    close_in_flight
    close_in_use
    durable_points
    ends_once
    event_loop
    group_commit
    holds
    insight
    late_requests
    leaks
    names_of_counters_and_properties
    no_descriptors
    null_arguments
    open_failures
    open_fd
    open_path
    owners
    priorities
    queue
    registered_memory
    wrong_enum
    wrong_size
    wrong_state
    wrong_thread
}

fn source(name: &str) -> PathBuf {
    here().join("tests/c").join(format!("{name}.c"))
}

#[test]
fn every_program_has_a_test() {
    assert_eq!(names(&here().join("tests/c"), ".c"), PROGRAMS);
}

#[test]
fn a_cpp_program_uses_the_header() {
    if Command::new("c++").arg("--version").output().is_err() {
        return skip("a_cpp_program_uses_the_header", "c++ is missing: apt-get install g++");
    }
    play(&compile(&here().join("tests/c/header.cpp"), "c++", &["-std=c++17"]), &[]);
}

#[test]
fn the_port_of_a_libblkio_program_works() {
    play(&compile(&here().join("examples/libblkio.c"), "cc", &["-std=c11"]), &[]);
}

/// Builds the README's program by its own command, with the library of the tests.
#[test]
fn the_program_of_the_readme_builds_and_runs() {
    let readme = fs::read_to_string(here().join("../../README.md")).expect("the README");
    let (_, section) = readme.split_once("### From C").expect("a section");
    let (_, program) = section.split_once("```c\n").expect("a program");
    let (program, rest) = program.split_once("```").expect("its end");
    let command = rest.lines().find(|line| line.starts_with("cc ")).expect("its build");
    let scratch = tempfile::tempdir().expect("a directory");
    fs::write(scratch.path().join("hello.c"), program).expect("a file");
    let library = target().join("debug/libforebay.a").display().to_string();
    let header = here().join("include").display().to_string();
    installed();
    let words = command.split(' ').map(|word| match word {
        "target/release/libforebay.a" => library.as_str(),
        "crates/forebay-capi/include" => header.as_str(),
        word => word,
    });
    let words: Vec<&str> = words.collect();
    run(Command::new(words[0]).args(&words[1..]).arg("-Wall").current_dir(scratch.path()));
    run(&mut Command::new(scratch.path().join("hello")));
}

/// Each manual page has one program, which is compiled and run.
#[test]
fn the_examples_of_the_manual_pages_run() {
    let folder = here().join("man");
    let scratch = tempfile::tempdir().expect("a directory");
    for name in names(&folder, ".3") {
        let page = fs::read_to_string(folder.join(format!("{name}.3"))).expect("a page");
        let (_, section) = page.split_once("\n.SH EXAMPLES\n").expect("a section");
        let (_, program) = section.split_once("\n.EX\n").expect("a program");
        let (program, _) = program.split_once("\n.EE\n").expect("its end");
        let source = scratch.path().join(format!("man_{name}.c"));
        let program = program.replace("\\e", "\\").replace("\\-", "-").replace("\\&", "");
        fs::write(&source, program + "\n").expect("a file");
        play(&compile(&source, "cc", &["-std=gnu11"]), &[]);
    }
}

#[test]
fn valgrind_finds_no_error_and_no_leak() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let reason = "valgrind is missing: apt-get install valgrind";
        return skip("valgrind_finds_no_error_and_no_leak", reason);
    }
    for name in UNDER_VALGRIND {
        let program = compile(&source(name), "cc", &["-std=c11"]);
        // The standard library keeps an inner pointer to each thread, a possible leak.
        let leaks = ["--leak-check=full", "--show-leak-kinds=definite,indirect"];
        let errors = ["--error-exitcode=9", "--errors-for-leak-kinds=definite,indirect"];
        play(&program, &[&["valgrind", "--quiet"], &leaks[..], &errors[..]].concat());
    }
}

#[test]
fn the_address_sanitizer_finds_no_error() {
    for name in [
        "blocking_calls",
        "close_in_flight",
        "close_in_use",
        "ends_once",
        "names_of_counters_and_properties",
        "null_arguments",
        "queue",
    ] {
        play(&compile(&source(name), "cc", &["-std=c11", "-fsanitize=address"]), &[]);
    }
}
