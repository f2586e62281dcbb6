//! C programs that use libaio: they are compiled, and run on the system's library and on this one.

#[path = "../../../forebay/tests/support/skip.rs"]
pub(crate) mod skip;

use forebay_aio::area::{AREA_BYTES, PATH_VARIABLE, processes};
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

pub(crate) fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Builds the library. A test cannot depend on a library that is not for Rust, so cargo does not
/// build it by itself.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = temporary.parent().expect("it is in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", "forebay-aio", "--target-dir"]);
        output_of(cargo.arg(target).current_dir(here()));
        target.join("debug/libforebay_aio.so")
    })
}

/// Compiles a program against the system's library.
pub(crate) fn compile(name: &str, folder: &Path) -> Option<PathBuf> {
    let Some(system) = SYSTEM.iter().find(|path| Path::new(path).exists()) else {
        skip::skip(name, "libaio.so.1 is not installed (package libaio1)");
        return None;
    };
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g"]);
    cc.arg(here().join(format!("tests/c/{name}.c"))).arg(system).arg("-o").arg(&program);
    output_of(&mut cc);
    Some(program)
}

/// Returns the outputs of a program on both libraries, on files that support direct I/O. Checks
/// that the layer has merged iocbs.
pub(crate) fn both(program: &Path, folder: &Path, more: &[&str]) -> [String; 2] {
    let area = folder.join("area");
    let file = File::create(&area).expect("a file");
    file.set_len(AREA_BYTES as u64).expect("a file in a folder of the build");
    let run = |preload: &str| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).arg(folder.join("file")).args(more);
        output_of(command.env("LD_PRELOAD", preload).env(PATH_VARIABLE, &area))
    };
    let outputs = [run(""), run(&library().display().to_string())];
    let processes = processes(&std::fs::read(&area).expect("the area"));
    let name = program.file_name().expect("a name");
    assert!(processes.iter().all(|process| *process.name == *name), "{processes:?}");
    let [iocbs, requests, merges] = processes[0].counters;
    assert!(merges > 0 && requests < iocbs, "{processes:?}");
    outputs
}
