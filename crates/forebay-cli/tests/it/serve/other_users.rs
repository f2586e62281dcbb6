//! Sockets for one user, and a client of another one.

use super::server::Server;
use crate::common::{skip_unless_required, stderr, stdout};
use forebay_insight::Insight;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// The user `nobody`.
const OTHER: u32 = 65534;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our own");
}

/// Returns a folder that all users may enter, with the program and the closed directory `run`.
/// `None`, and skips the test: this user may not run a program as another one.
fn folder(test: &str) -> Option<TempDir> {
    if !rustix::process::geteuid().is_root() {
        skip_unless_required(test, "only root may run a program as another user");
        return None;
    }
    // Not in the folder of the build, which may lie inside a closed one.
    let folder = tempfile::tempdir().expect("a folder");
    set_mode(folder.path(), 0o755);
    std::fs::create_dir(folder.path().join("run")).expect("a folder");
    set_mode(&folder.path().join("run"), 0o700);
    let program = folder.path().join("forebay");
    std::fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).expect("a copy");
    set_mode(&program, 0o755);
    match Command::new(&program).arg("--version").uid(OTHER).gid(OTHER).output() {
        Ok(output) if output.status.success() => Some(folder),
        other => {
            let why = format!("user {OTHER} cannot run {}: {other:?}", program.display());
            skip_unless_required(test, &why);
            None
        }
    }
}

/// Runs the program as the other user.
fn run_as_other(folder: &TempDir, args: &str) -> Output {
    let mut command = Command::new(folder.path().join("forebay"));
    let command = command.args(args.split_whitespace()).current_dir(folder.path());
    command.uid(OTHER).gid(OTHER).output().expect("it can be run")
}

/// Checks that these commands fail with status 1, nothing on standard output, and a reason.
#[track_caller]
fn check_refused(folder: &TempDir, commands: &[&str], reason: &str) {
    for args in commands {
        let output = run_as_other(folder, args);
        let text = stderr(&output);
        assert_eq!(
            (output.status.code(), stdout(&output).as_str()),
            (Some(1), ""),
            "{args}: {text}"
        );
        assert!(text.contains(reason), "{args}: {text}");
    }
}

/// Opens the socket and its directory to all users, as an administrator might by mistake. Only the
/// check of the client's user is left.
fn open_to_all(folder: &TempDir, socket: &str) {
    set_mode(&folder.path().join("run"), 0o711);
    set_mode(&folder.path().join(socket), 0o666);
}

#[test]
fn control_socket_refuses_another_user() {
    let Some(folder) = folder("control_socket_refuses_another_user") else { return };
    let server = Server::start(&folder, "ram:1M --name a --control run/control");
    std::fs::create_dir(folder.path().join("open")).expect("a folder");
    set_mode(&folder.path().join("open"), 0o777);
    let commands = [
        "ctl run/control list",
        "ctl run/control add b ram:1M",
        "ctl run/control drain",
        "top run/control --once",
        "trace run/control --output open/t --for 1",
    ];
    check_refused(&folder, &commands, "Permission denied");
    open_to_all(&folder, "run/control");
    check_refused(
        &folder,
        &commands,
        "user 65534 may not access this server: only its own user and root may",
    );
    // The server goes on, and none of the commands had an effect.
    let list = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["ctl", "run/control", "list"])
        .current_dir(folder.path())
        .output()
        .expect("it can be run");
    let text = stdout(&list);
    assert!(list.status.success() && text.starts_with("export \"a\"\n"), "{text}");
    assert!(!text.contains("export \"b\"") && !text.contains("trace"), "{text}");
    assert!(server.terminate().success());
}

#[test]
fn insight_socket_refuses_another_user() {
    let Some(folder) = folder("insight_socket_refuses_another_user") else { return };
    let _insight = Insight::listen(folder.path().join("run/insight")).expect("it listens");
    let commands = ["top run/insight --once", "top run/insight --json"];
    check_refused(&folder, &commands, "Permission denied");
    open_to_all(&folder, "run/insight");
    check_refused(
        &folder,
        &commands,
        "user 65534 may not access this process: only its own user and root may",
    );
}
