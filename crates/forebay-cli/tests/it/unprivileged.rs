//! A copy of the program that an unprivileged user runs.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::skip_unless_required;

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

/// Sets the permissions of a file.
pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our own file");
}

/// Returns whether the user of this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a folder that all users may enter, with a copy of the program. The build may be in a
/// folder that other users cannot enter.
pub(crate) fn folder_with_program() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    set_mode(folder.path(), 0o755);
    let program = folder.path().join("forebay");
    // By another process: a file that this one writes may still be open in the child of another
    // test, and then it cannot be executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_forebay")).arg(&program).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp to {}", program.display());
    set_mode(&program, 0o755);
    folder
}

/// Runs the copy in its folder: as `nobody` if this process is root's, else as its own user. Skips
/// the test, and returns `None`, if that user cannot run it.
#[track_caller]
pub(crate) fn run(test: &str, folder: &TempDir, args: &[&str]) -> Option<Output> {
    let program = folder.path().join("forebay");
    let mut command = Command::new(&program);
    command.current_dir(folder.path()).args(args);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let why = format!("{} cannot be run as another user: {error}", program.display());
            skip_unless_required(test, &why);
            None
        }
    }
}
