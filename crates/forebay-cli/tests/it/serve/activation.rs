//! Socket activation as systemd, libnbd and QEMU do it: descriptors from 3 on, announced by
//! environment variables. A shell moves the socket to descriptor 3.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use super::client::Client;
use crate::common::folder;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Starts `forebay serve ram:1m` with `socket` as descriptor 3, and with these variables. The
/// server is stopped after a minute in any case.
pub(super) fn start(folder: &TempDir, socket: OwnedFd, variables: &str, args: &str) -> Child {
    let script = format!("exec 3<&0 </dev/null; LISTEN_PID=$$ {variables} exec \"$0\" \"$@\"");
    Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_forebay"), "serve"])
        .args(args.split_whitespace())
        .current_dir(folder.path())
        .stdin(Stdio::from(socket))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run")
}

/// Returns the next line of output: a URI, printed once the server listens.
fn uri(child: &mut Child) -> String {
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.as_mut().expect("it is piped"));
    output.read_line(&mut line).expect("a line");
    line
}

fn terminate(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert!(child.wait().expect("its end").success());
}

#[test]
fn a_unix_socket_without_a_name_is_taken_over_and_stays() {
    let folder = folder();
    let path = folder.path().join("s");
    let socket = UnixListener::bind(&path).expect("a socket");
    let copy = socket.try_clone().expect("a copy");
    let mut server = start(&folder, copy.into(), "LISTEN_FDS=1", "ram:1m");
    let uri = uri(&mut server);
    assert_eq!(uri, format!("nbd+unix:///?socket={}\n", path.display()));
    let mut client = Client::connect(&path, "").expect("a connection");
    assert_eq!(client.read(0, 512).map(|data| data.len()).ok(), Some(512));
    assert!(!folder.path().join("forebay.sock").exists(), "it is the only one");
    terminate(server);
    // The server neither shuts the socket down nor unlinks it, so the next server may take it over.
    let _next = UnixStream::connect(&path).expect("it listens");
    socket.accept().expect("it is there");
}

#[test]
fn named_tcp_and_unix_sockets_are_distinguished() {
    let folder = folder();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("its address").port();
    let variables = "LISTEN_FDS=1 LISTEN_FDNAMES=nbd";
    let mut server = start(&folder, socket.into(), variables, "ram:1m --name=x");
    assert_eq!(uri(&mut server), format!("nbd://127.0.0.1:{port}/x\n"));
    terminate(server);
}

#[test]
fn descriptor_that_does_not_listen_is_refused_by_number() {
    let folder = folder();
    let file = std::fs::File::open("/dev/null").expect("a file");
    let (connected, _other) = UnixStream::pair().expect("a pair");
    for descriptor in [OwnedFd::from(file), OwnedFd::from(connected)] {
        let variables = "LISTEN_FDS=1 LISTEN_FDNAMES=odd";
        let mut server = start(&folder, descriptor, variables, "ram:1m");
        assert_eq!(server.wait().expect("its end").code(), Some(1));
        let mut told = String::new();
        server.stderr.take().expect("it is piped").read_to_string(&mut told).expect("text");
        let message = "forebay: cannot use descriptor 3 (`odd`) of LISTEN_FDS: ";
        assert!(told.starts_with(message), "{told}");
    }
}

#[test]
fn variables_that_are_meant_for_another_process_are_passed_over() {
    let folder = folder();
    let file = std::fs::File::open("/dev/null").expect("a file");
    let mut server = start(&folder, file.into(), "LISTEN_FDS=1 LISTEN_PID=1", "ram:1m");
    let uri = uri(&mut server);
    assert!(uri.ends_with("/forebay.sock\n"), "{uri}");
    terminate(server);
}
