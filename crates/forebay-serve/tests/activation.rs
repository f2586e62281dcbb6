//! Sockets handed down as systemd, libnbd and QEMU do it: descriptors from 3 on, told by variables.
//! The tests start themselves once more, through a shell that puts the socket at its place.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Output, Stdio};

use forebay_serve::listen::Listener;
use rustix::event::{PollFd, PollFlags, poll};

/// Set for the process that takes over the socket.
const CHILD: &str = "FOREBAY_TEST_ACTIVATED";

/// Runs test `name` in a process that has `socket` as descriptor 3.
fn run_with(socket: OwnedFd, name: &str, variables: &str) -> Output {
    let script = format!("exec 3<&0 </dev/null; LISTEN_PID=$$ {variables} exec \"$0\" \"$@\"");
    let this = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", &script])
        .arg(this)
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::from(socket))
        .output()
        .unwrap()
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Greets the first who comes, as a server would.
fn greet(listener: &Listener) {
    poll(&mut [PollFd::new(listener, PollFlags::IN)], None).unwrap();
    let (connection, _) = listener.accept().unwrap().expect("a connection is waiting");
    UnixStream::from(connection).write_all(b"hello").unwrap();
}

#[test]
fn a_unix_socket_without_a_name_is_taken_over_and_stays() {
    if is_child() {
        let listeners = Listener::inherited().unwrap();
        assert_eq!(listeners.len(), 1);
        println!("uri: {}", listeners[0].uri("", false));
        return greet(&listeners[0]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let socket = UnixListener::bind(&path).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    let name = "a_unix_socket_without_a_name_is_taken_over_and_stays";
    let output = run_with(socket.try_clone().unwrap().into(), name, "LISTEN_FDS=1");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains(&format!("nbd+unix:///?socket={}", path.display())), "{printed}");
    let mut greeting = String::new();
    client.read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "hello");
    // Neither shut down nor unlinked: the next server may take it over.
    let _next = UnixStream::connect(&path).unwrap();
    socket.accept().unwrap();
}

#[test]
fn a_tcp_socket_with_a_name_is_told_from_a_unix_one() {
    if is_child() {
        let listeners = Listener::inherited().unwrap();
        println!("uri: {}", listeners[0].uri("x", true));
        return;
    }
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let name = "a_tcp_socket_with_a_name_is_told_from_a_unix_one";
    let output = run_with(socket.into(), name, "LISTEN_FDS=1 LISTEN_FDNAMES=nbd");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains(&format!("nbds://127.0.0.1:{port}/x")), "{printed}");
}

#[test]
fn what_is_no_listening_socket_is_refused_by_its_number() {
    if is_child() {
        let error = Listener::inherited().unwrap_err().to_string();
        assert!(error.contains("descriptor 3 (`odd`)"), "{error}");
        return;
    }
    let name = "what_is_no_listening_socket_is_refused_by_its_number";
    let variables = "LISTEN_FDS=1 LISTEN_FDNAMES=odd";
    let file = std::fs::File::open("/dev/null").unwrap();
    let (connected, _other) = UnixStream::pair().unwrap();
    for descriptor in [OwnedFd::from(file), OwnedFd::from(connected)] {
        let output = run_with(descriptor, name, variables);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn variables_that_are_meant_for_another_process_are_passed_over() {
    if is_child() {
        assert!(Listener::inherited().unwrap().is_empty());
        return;
    }
    let name = "variables_that_are_meant_for_another_process_are_passed_over";
    let file = std::fs::File::open("/dev/null").unwrap();
    let output = run_with(file.into(), name, "LISTEN_FDS=1 LISTEN_PID=1");
    assert!(output.status.success(), "{output:?}");
    assert!(Listener::inherited().unwrap().is_empty());
}
