//! A disk of another server's is a disk as good as any, by whatever words it is named.

use super::client::Client;
use super::server::Server;
use crate::common::folder;

/// The port of the TCP socket whose URI a server has printed.
fn port(server: &Server) -> u16 {
    let log = server.log();
    let uri = log.lines().find_map(|line| line.strip_prefix("nbd://127.0.0.1:"));
    let port = uri.and_then(|rest| rest.split('/').next()).expect("a URI of TCP");
    port.parse().expect("a port")
}

/// A confined server may still connect: each thread to a connection of its own.
#[test]
fn each_thread_has_a_connection_to_the_server_below_however_that_is_named() {
    for older in [false, true] {
        let (below, above) = (folder(), folder());
        let first = Server::start(&below, "ram:1M --name x --nbd tcp:127.0.0.1:0");
        let port = port(&first);
        let spec = match older {
            false => format!("nbd://127.0.0.1:{port}/x"),
            true => format!("nbd:127.0.0.1:{port}:exportname=x"),
        };
        let second = Server::start(&above, &format!("{spec} --threads 2"));
        // Each goes to the thread that has the fewest.
        let connect = || Client::connect(second.socket(), "").expect("a connection");
        for client in &mut [connect(), connect()] {
            assert_eq!(client.read(0, 512).expect("a read"), [0; 512]);
        }
        assert!(second.terminate().success());
        let log = first.log();
        let is_opened = |line: &&str| line.contains(" from 127.0.0.1:") && line.contains("export");
        let nr = log.lines().filter(is_opened).count();
        // That of the shared context, and one for each thread.
        assert_eq!(nr, 3, "{spec}: {log}");
        assert!(first.terminate().success());
    }
}
