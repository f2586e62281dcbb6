//! GnuTLS, the TLS library of nbdkit, QEMU and libnbd, as the client.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::listen::{Address, Listener};
use crate::tls::server_config;
use rustix::event::{PollFd, PollFlags, poll};
use tempfile::TempDir;

use super::certificates::Authority;
use super::{Echoed, start_echo};

#[path = "../../../../forebay/tests/support/skip.rs"]
mod skip;

/// Returns whether the program exists. If not, the test is skipped, or fails under
/// `FOREBAY_REQUIRE_TOOLS=1`.
#[track_caller]
pub(super) fn is_there(test: &str) -> bool {
    let is_there = Command::new("gnutls-cli").arg("--version").output().is_ok();
    if !is_there {
        skip::skip(test, "gnutls-cli is not installed: apt-get install gnutls-bin");
    }
    is_there
}

/// Runs one session with these options of gnutls-cli, between the directories of the server and of
/// the client. Returns whether the greeting came back, the output, and the result at the server.
pub(super) fn session(
    (server, client): (&Path, &Path),
    verify_peer: bool,
    options: &[&str],
) -> (bool, String, Echoed) {
    let config = server_config(server, verify_peer).unwrap();
    let listener = Listener::open(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let Address::Tcp { port, .. } = listener.address() else { panic!("not TCP") };
    let mut child = Command::new("gnutls-cli")
        .args(["-p", &port.to_string(), "--x509cafile", "ca-cert.pem"])
        .args(options)
        .arg("localhost")
        .current_dir(client)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).unwrap();
    let (socket, _) = listener.accept().unwrap().unwrap();
    let server = start_echo(socket, config);

    let mut input = child.stdin.take().unwrap();
    // It may have ended already.
    let _ = input.write_all(b"forebay says hello\n");
    let mut printed = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut came_back = false;
    while !came_back && output.read_line(&mut printed).unwrap() > 0 {
        came_back = printed.ends_with("forebay says hello\n");
    }
    drop(input);
    let status = child.wait_with_output().unwrap();
    printed.push_str(&String::from_utf8_lossy(&status.stderr));
    (came_back && status.status.success(), printed, server.join().unwrap())
}

/// Returns one directory for both sides.
fn one(folder: &TempDir) -> (&Path, &Path) {
    (folder.path(), folder.path())
}

#[test]
fn a_client_of_gnutls_is_served_by_both_versions_and_ends_cleanly() {
    if !is_there("a_client_of_gnutls_is_served_by_both_versions_and_ends_cleanly") {
        return;
    }
    let folder = Authority::new("ours").folder();
    for version in ["NORMAL:-VERS-ALL:+VERS-TLS1.2", "NORMAL:-VERS-ALL:+VERS-TLS1.3"] {
        let (ok, printed, (echoed, end)) = session(one(&folder), false, &["--priority", version]);
        assert!(ok, "{printed}");
        assert!(!printed.contains("properly terminated"), "{printed}");
        end.unwrap();
        assert_eq!(echoed, 19);
    }
}

#[test]
fn old_versions_are_refused() {
    if !is_there("old_versions_are_refused") {
        return;
    }
    let folder = Authority::new("ours").folder();
    let options = ["--priority", "NORMAL:-VERS-ALL:+VERS-TLS1.1"];
    let (ok, printed, (_, end)) = session(one(&folder), false, &options);
    assert!(!ok, "{printed}");
    end.unwrap_err();
}

#[test]
fn a_client_of_gnutls_proves_itself_by_its_certificate_or_is_refused() {
    if !is_there("a_client_of_gnutls_proves_itself_by_its_certificate_or_is_refused") {
        return;
    }
    let folder = Authority::new("ours").folder();
    let own = ["--x509certfile", "client-cert.pem", "--x509keyfile", "client-key.pem"];
    let (ok, printed, (_, end)) = session(one(&folder), true, &own);
    assert!(ok, "{printed}");
    end.unwrap();
    let (ok, printed, (echoed, end)) = session(one(&folder), true, &[]);
    assert!(!ok, "{printed}");
    end.unwrap_err();
    assert_eq!(echoed, 0);
}

#[test]
fn a_client_of_gnutls_leaves_a_server_of_another_authority() {
    if !is_there("a_client_of_gnutls_leaves_a_server_of_another_authority") {
        return;
    }
    let folder = Authority::new("ours").folder();
    let theirs = Authority::new("theirs").certificate.pem();
    super::certificates::write(folder.path(), "ca-cert.pem", &theirs);
    let (ok, printed, (echoed, end)) = session(one(&folder), false, &[]);
    assert!(!ok, "{printed}");
    end.unwrap_err();
    assert_eq!(echoed, 0);
}
