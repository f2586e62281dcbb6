//! SIGHUP: a server at a terminal drains, flushes and exits; others reload their certificates.

use super::client::{Client, command};
use super::server::Server;
use super::tls::{certificates, free_port};
use super::tools::{is_there, try_run};
use crate::common::folder;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::os::fd::OwnedFd;
use std::path::Path;
use tempfile::TempDir;

/// Returns a pseudoterminal: the emulator's end, and the terminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let emulator = openpt(flags).expect("a pseudoterminal");
    grantpt(&emulator).expect("its owner is this user");
    unlockpt(&emulator).expect("it can be unlocked");
    let terminal = ioctl_tiocgptpeer(&emulator, flags).expect("its other end");
    (emulator, terminal)
}

/// Starts a server at a terminal, on a disk with writes that take half a second.
fn start_slow(folder: &TempDir) -> (Server, OwnedFd) {
    std::fs::write(folder.path().join("disk.img"), vec![0; 1 << 20]).expect("a file");
    let (emulator, terminal) = terminal();
    let spec = "fault:disk.img?rule=write:delay=500ms";
    (Server::start_at_terminal(folder, terminal, &[], spec), emulator)
}

/// Hangs up a server that has eight writes in flight, and checks that it shuts down cleanly.
#[track_caller]
fn drains_and_ends(folder: &TempDir, mut server: Server, hang_up: impl FnOnce(&Server)) {
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    let write = |nth: u64| {
        client.send((command::WRITE, 0), nth * 8192, 4096, &[nth as u8 + 1; 4096]).expect("sent")
    };
    let mut cookies: Vec<u64> = (0..8).map(write).collect();
    let read = client.send((command::READ, 0), 1 << 19, 4096, &[]).expect("it is sent");
    let mut data = [0; 4096];
    // A read overtakes the writes, so this reply proves that the server has received all of them.
    assert_eq!(client.whole(read, 0, &mut data).ok(), Some(0));
    hang_up(&server);
    while !cookies.is_empty() {
        let reply = client.reply().expect("each write is answered");
        assert_eq!(reply.error, 0);
        cookies.retain(|cookie| *cookie != reply.cookie);
    }
    assert!(client.is_closed(), "the server ends");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    assert!(!server.socket().exists(), "the socket was left behind");
    let image = std::fs::read(folder.path().join("disk.img")).expect("the image");
    for nth in 0..8 {
        let block = &image[nth * 8192..][..4096];
        assert!(block.iter().all(|byte| *byte == nth as u8 + 1), "write {nth}");
    }
}

#[test]
fn sighup_at_a_terminal_drains_flushes_and_ends_with_0() {
    let folder = folder();
    let (server, _emulator) = start_slow(&folder);
    drains_and_ends(&folder, server, |server| server.signal("HUP"));
}

/// Simulates the end of an ssh session: the kernel sends the signal.
#[test]
fn a_terminal_that_is_closed_ends_the_server_in_order() {
    let folder = folder();
    let (server, emulator) = start_slow(&folder);
    drains_and_ends(&folder, server, |_| drop(emulator));
}

/// Without the drain the delayed writes would be lost, so the tests above detect a server that
/// dies. This server must not exit at all.
#[test]
fn under_nohup_a_closed_terminal_ends_nothing() {
    let folder = folder();
    let (emulator, terminal) = terminal();
    let server = Server::start_at_terminal(&folder, terminal, &["nohup"], "ram:1m");
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    drop(emulator);
    server.signal("HUP");
    server.await_lines("no export has changed its size", 1);
    assert_eq!(client.read(0, 4096).map(|data| data.len()).ok(), Some(4096));
    assert!(server.terminate().success());
}

/// Returns a server with the certificates in `pki`, and its TCP port. Clients use that port because
/// libnbd does not check certificates on a unix socket.
fn start_with_tls(folder: &TempDir) -> (Server, u16) {
    let port = free_port();
    let args = format!("ram:1m --tls=on --tls-certificates=pki --nbd=tcp:127.0.0.1:{port}");
    (Server::start_without_terminal(folder, &args), port)
}

/// Returns whether a client that trusts only the authority in `folder/dir` is served over TLS.
fn is_trusted(folder: &TempDir, port: u16, dir: &str) -> bool {
    let certificates = folder.path().join(dir);
    let uri = format!("nbds://localhost:{port}/?tls-certificates={}", certificates.display());
    let output = try_run(folder, "nbdinfo", &["--size", &uri]);
    output.status.success() && output.stdout.starts_with(b"1048576")
}

/// Replaces the server's certificate and key by ones of the other authority.
fn renew(folder: &TempDir) {
    let script = "certtool --generate-privkey --bits=2048 --outfile new-key.pem
        certtool --generate-certificate --load-ca-certificate other/ca-cert.pem \
            --load-ca-privkey other-key.pem --load-privkey new-key.pem \
            --template server.info --outfile new-cert.pem
        mv new-key.pem pki/server-key.pem
        mv new-cert.pem pki/server-cert.pem";
    assert!(try_run(folder, "sh", &["-ec", script]).status.success());
}

#[test]
fn sighup_without_a_terminal_reloads_the_certificates_for_new_connections() {
    let test = "sighup_without_a_terminal_reloads_the_certificates_for_new_connections";
    if !is_there("nbdinfo", test) || !is_there("certtool", test) {
        return;
    }
    let folder = folder();
    certificates(&folder);
    let (server, port) = start_with_tls(&folder);
    let mut before = Client::connect(server.socket(), "").expect("a connection");
    let trusted = |dir| is_trusted(&folder, port, dir);
    assert!(trusted("plain") && !trusted("other"));
    renew(&folder);
    assert!(trusted("plain") && !trusted("other"), "nothing has changed before the signal");
    server.signal("HUP");
    server.await_lines("reloaded the TLS certificates in pki", 1);
    assert!(!trusted("plain") && trusted("other"), "{}", server.log());

    // The key does not belong to the certificate, so the previous pair stays in use.
    std::fs::copy(folder.path().join("pki-key.pem"), folder.path().join("pki/server-key.pem"))
        .expect("a copy");
    server.signal("HUP");
    server.await_lines("reload failed, new connections use the previous TLS certificates", 1);
    server.await_lines("pki/server-cert.pem", 1);
    assert!(!trusted("plain") && trusted("other"), "{}", server.log());

    assert_eq!(before.read(0, 4096).map(|data| data.len()).ok(), Some(4096), "it was not cut off");
    assert!(server.terminate().success());
}

/// Moves the certificate and its key to `archive`, and replaces them by links, as certbot does.
fn archive(folder: &TempDir, nth: u32) {
    for name in ["server-cert", "server-key"] {
        let link = folder.path().join(format!("pki/{name}.pem"));
        let target = format!("archive/{name}{nth}.pem");
        std::fs::rename(&link, folder.path().join(&target)).expect("it is moved");
        std::os::unix::fs::symlink(Path::new("..").join(target), link).expect("a link");
    }
}

#[test]
fn certificates_behind_links_are_reloaded_by_a_confined_server() {
    let test = "certificates_behind_links_are_reloaded_by_a_confined_server";
    if !is_there("nbdinfo", test) || !is_there("certtool", test) {
        return;
    }
    let folder = folder();
    std::fs::create_dir(folder.path().join("archive")).expect("a directory");
    certificates(&folder);
    archive(&folder, 1);
    let (server, port) = start_with_tls(&folder);
    renew(&folder);
    archive(&folder, 2);
    server.signal("HUP");
    server.await_lines("reloaded the TLS certificates in pki", 1);
    assert!(is_trusted(&folder, port, "other"), "{}", server.log());
    assert!(server.terminate().success());
}
