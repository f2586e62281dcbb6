//! The library as C programs see it, and C programs that are linked with it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Returns the directory of this crate.
pub(crate) fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns cargo's target directory.
pub(crate) fn target() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().expect("it is in the target directory").to_owned()
}

/// Builds the library, and returns a directory that has it under the names of an installation. A
/// test cannot depend on a library that is not for Rust, so cargo does not build it by itself.
pub(crate) fn installed() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let target = target();
        // With the features of the whole workspace, whose library is built already.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", "forebay-capi"]);
        cargo.args(["--features", "tls,vhost-user", "--target-dir"]).arg(&target);
        run(cargo.current_dir(here()));
        let directory = target.join("tmp").join(env!("CARGO_CRATE_NAME"));
        // An earlier run may have left it.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        for name in ["libforebay.so", "libforebay.so.0"] {
            symlink(target.join("debug/libforebay.so"), directory.join(name)).expect("a link");
        }
        directory
    })
}

/// Compiles and links a program, and returns its path.
pub(crate) fn compile(source: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    let stem = source.file_stem().expect("a file").to_string_lossy();
    let name = format!("{stem}{}", options.concat().replace(['/', '='], "-"));
    let program = installed().join(name);
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g", "-O1"]).args(options).arg(source);
    command.arg("-I").arg(here().join("include")).arg("-L").arg(installed());
    run(command.args(["-pthread", "-lforebay", "-o"]).arg(&program));
    program
}

/// Runs a program with the library, by way of another one if `through` names it. Its argument is a
/// directory for its files.
pub(crate) fn play(program: &Path, through: &[&str]) -> Output {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut words = through.iter().map(PathBuf::from).chain([program.to_owned()]);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).arg(scratch.path()).env("LD_LIBRARY_PATH", installed());
    run(&mut command)
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// Returns the names of the files in a directory that end so, without the ending, in order.
pub(crate) fn names(directory: &Path, ending: &str) -> Vec<String> {
    let files = fs::read_dir(directory).expect("a directory of this crate");
    let name = |file: std::io::Result<fs::DirEntry>| {
        let name = file.expect("an entry").file_name().into_string().expect("UTF-8");
        name.strip_suffix(ending).map(str::to_owned)
    };
    let mut names: Vec<String> = files.filter_map(name).collect();
    names.sort();
    names
}
