//! Access control of the sockets: clients that run as another user are refused.

use super::server::Server;
use crate::common::{skip_unless_required, stderr, stdout};
use crate::unprivileged::{self, set_mode};
use forebay_insight::Insight;
use std::process::Command;
use tempfile::TempDir;

/// Returns a folder that all users may enter, with the program and the closed directory `run`.
/// `None`, and skips the test: this user may not run a program as another one.
fn folder(test: &str) -> Option<TempDir> {
    if !unprivileged::is_root() {
        skip_unless_required(test, "only root may run a program as another user");
        return None;
    }
    let folder = unprivileged::folder_with_program();
    std::fs::create_dir(folder.path().join("run")).expect("a folder");
    set_mode(&folder.path().join("run"), 0o700);
    unprivileged::run(test, &folder, &["--version"])?;
    Some(folder)
}

/// Checks that these commands of another user fail with status 1 and this reason.
#[track_caller]
fn check_refused(test: &str, folder: &TempDir, commands: &[&str], reason: &str) {
    for args in commands {
        let words: Vec<_> = args.split_whitespace().collect();
        let output = unprivileged::run(test, folder, &words).expect("it ran before");
        let text = stderr(&output);
        let result = (output.status.code(), stdout(&output));
        assert_eq!(result, (Some(1), String::new()), "{args}: {text}");
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
    let test = "control_socket_refuses_another_user";
    let Some(folder) = folder(test) else { return };
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
    check_refused(test, &folder, &commands, "Permission denied");
    open_to_all(&folder, "run/control");
    check_refused(
        test,
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
    let test = "insight_socket_refuses_another_user";
    let Some(folder) = folder(test) else { return };
    let _insight = Insight::listen(folder.path().join("run/insight")).expect("it listens");
    let commands = ["top run/insight --once", "top run/insight --json"];
    check_refused(test, &folder, &commands, "Permission denied");
    open_to_all(&folder, "run/insight");
    check_refused(
        test,
        &folder,
        &commands,
        "user 65534 may not access this process: only its own user and root may",
    );
}
