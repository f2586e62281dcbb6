//! How `forebay serve` ends when several things go wrong at once.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;

use super::activation;
use super::client::{Client, command};
use crate::common::{folder, stderr};
use rustix::net::{Shutdown, shutdown};

/// The service manager shares the socket and may shut it down. Accepting then fails, and in this
/// test so does the last flush. The exit code and message report the lost writes; the log has the
/// rest.
#[test]
fn a_socket_that_fails_does_not_hide_a_last_flush_that_fails() {
    let folder = folder();
    std::fs::write(folder.path().join("disk.img"), vec![0; 1 << 20]).expect("a file");
    let path = folder.path().join("s");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let args = format!("fault:disk.img?rule=flush:io --nbd=unix:{}", path.display());
    let copy = socket.try_clone().expect("a copy");
    let mut server = activation::start(&folder, copy.into(), "LISTEN_FDS=1", &args);
    // The server prints its URIs once it listens.
    let stdout = BufReader::new(server.stdout.take().expect("it is piped"));
    assert_eq!(stdout.lines().take(2).map_while(Result::ok).count(), 2);
    let mut client = Client::connect(&path, "").expect("a connection");
    assert_eq!(client.ask((command::WRITE, 0), 0, 4096, &[1; 4096]).ok(), Some(0));
    shutdown(&socket, Shutdown::Both).expect("it listens");
    assert!(client.is_closed(), "the server ends");
    let output = server.wait_with_output().expect("its end");
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let last = told.lines().last().unwrap_or_default();
    assert!(last.contains("disk.img?rule=flush:io: the last flush failed"), "{told}");
    assert!(told.contains("Z cannot accept connections: "), "{told}");
}
