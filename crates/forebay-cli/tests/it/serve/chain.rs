//! A chain of servers: a remote disk works like any other, in every notation of its name.

use super::client::{Client, command};
use super::server::Server;
use super::tls::certificates;
use super::tools::is_there;
use crate::common::folder;

/// Returns the port of the TCP socket from the URI that a server has printed.
fn port(server: &Server) -> u16 {
    let log = server.log();
    let uri = log.lines().find_map(|line| line.strip_prefix("nbd://127.0.0.1:"));
    let port = uri.and_then(|rest| rest.split('/').next()).expect("a URI of TCP");
    port.parse().expect("a port")
}

/// Returns how many connections a server with two threads makes to the server below, with export
/// `x`.
fn nr_connections_below(below: Server, spec: &str) -> usize {
    let folder = folder();
    let above = Server::start(&folder, &format!("{spec} --threads 2"));
    // Each client is assigned to the thread with the fewest clients.
    let connect = || Client::connect(above.socket(), "").expect("a connection");
    for client in &mut [connect(), connect()] {
        assert_eq!(client.read(0, 512).expect("a read"), [0; 512]);
    }
    assert!(above.terminate().success());
    let log = below.log();
    assert!(below.terminate().success());
    log.lines().filter(|line| line.contains("export \"x\"")).count()
}

/// A confined server may still connect: once for the shared context, and once for each thread.
#[test]
fn each_thread_has_a_connection_to_the_server_below_however_that_is_named() {
    for older in [false, true] {
        let folder = folder();
        let below = Server::start(&folder, "ram:1M --name x --nbd tcp:127.0.0.1:0");
        let port = port(&below);
        let spec = match older {
            false => format!("nbd://127.0.0.1:{port}/x"),
            true => format!("nbd:127.0.0.1:{port}:exportname=x"),
        };
        assert_eq!(nr_connections_below(below, &spec), 3, "{spec}");
    }
}

/// When the threads connect, the server is confined and can no longer open the certificates.
#[test]
fn a_confined_server_has_a_connection_for_each_thread_under_tls_as_well() {
    let test = "a_confined_server_has_a_connection_for_each_thread_under_tls_as_well";
    if !is_there("certtool", test) {
        return;
    }
    let folder = folder();
    certificates(&folder);
    let args = "ram:1M --name x --tls=require --tls-verify-peer --tls-certificates=pki";
    let below = Server::start(&folder, args);
    let (socket, client) = (below.socket().display(), folder.path().join("client"));
    let spec = format!("nbds+unix:///x?socket={socket}&tls-certificates={}", client.display());
    assert_eq!(nr_connections_below(below, &spec), 3);
}

/// Returns the exit status and the log of a server that ends because its disk is gone.
fn end_without_disk(commands: &[u16]) -> (Option<i32>, String) {
    let (below, above) = (folder(), folder());
    std::fs::write(below.path().join("disk.img"), [0; 4096]).expect("a file");
    let first = Server::start(&below, "disk.img");
    let mut second = Server::start(&above, &first.uri(""));
    let mut client = Client::connect(second.socket(), "").expect("a connection");
    for &command in commands {
        let error = match command {
            command::READ => client.read(0, 512).map(|_| 0),
            command::WRITE => client.ask((command, 0), 0, 512, &[7; 512]),
            _ => client.ask((command, 0), 0, 0, &[]),
        };
        assert_eq!(error.expect("a reply"), 0);
    }
    first.kill();
    second.signal("TERM");
    (second.wait().code(), second.log())
}

#[test]
fn a_server_whose_disk_is_gone_fails_only_if_writes_may_be_lost() {
    use command::{FLUSH, READ, WRITE};
    for (commands, is_lost) in [
        (&[][..], false),
        (&[READ], false),
        (&[WRITE, FLUSH], false),
        (&[WRITE], true),
        (&[WRITE, FLUSH, WRITE], true),
    ] {
        let (code, log) = end_without_disk(commands);
        assert_eq!(code, Some(i32::from(is_lost)), "{commands:?}: {log}");
        assert!(log.contains("the last flush failed"), "{commands:?}: {log}");
        assert_eq!(log.contains("writes may be lost"), is_lost, "{commands:?}: {log}");
        assert_eq!(log.contains("so none is lost"), !is_lost, "{commands:?}: {log}");
    }
}
