//! Server shutdown while clients connect, work and disconnect: it exits cleanly and soon, whatever
//! the clients do.
//!
//! After CVE-2024-7409 (a client that connected while the server stopped), CVE-2017-10664 (a broken
//! pipe) and CVE-2015-0847 (a signal handler).

use crate::common::folder;
use crate::serve::client::{Client, command};
use crate::serve::load::for_ms;
use crate::serve::server::Server;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_server_shuts_down_cleanly_beside_any_clients() {
    for nth in 0..8u64 {
        let folder = folder();
        let mut server = Server::start(&folder, "fault:ram:1m?rule=any:delay=500us");
        let socket = server.socket().to_owned();
        // Before the server has served a client, a signal may end it at once.
        drop(Client::connect(&socket, "").expect("it serves"));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for kind in 0..6 {
                let (socket, stop) = (&socket, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        // The server may be gone at any step.
                        let _ = pester(socket, kind);
                    }
                });
            }
            for_ms(20 + nth * 7)();
            server.signal(if nth % 2 == 0 { "TERM" } else { "INT" });
            let is_hurried = nth % 4 == 3;
            if is_hurried {
                // The second signal requests an immediate exit.
                for_ms(1)();
                server.signal("TERM");
            }
            let status = server.wait();
            stop.store(true, Ordering::Relaxed);
            // The second signal may end the process; of two pending signals, either may come first.
            let is_killed = std::os::unix::process::ExitStatusExt::signal(&status).is_some();
            let is_good = status.success() || (is_hurried && is_killed);
            assert!(is_good, "{nth}: {status}: {}", server.log());
        });
        assert!(UnixStream::connect(&socket).is_err(), "nobody listens");
    }
}

fn pester(socket: &std::path::Path, kind: u32) -> std::io::Result<()> {
    match kind {
        // Connects and disconnects.
        0 => drop(UnixStream::connect(socket)?),
        // Sends a part of the client flags.
        1 => UnixStream::connect(socket)?.write_all(&[0, 0, 0])?,
        // Sends requests and disconnects.
        2 | 3 => {
            let mut client = Client::connect(socket, "")?;
            for nth in 0..16 {
                client.send((command::WRITE, 0), nth * 4096, 4096, &[1; 4096])?;
                client.send((command::READ, 0), nth * 4096, 65_536, &[])?;
            }
        }
        // Sends requests and waits for the replies.
        _ => {
            let mut client = Client::connect(socket, "")?;
            for nth in 0..16 {
                client.ask((command::WRITE, command::FUA), nth * 4096, 4096, &[1; 4096])?;
                client.ask((command::FLUSH, 0), 0, 0, &[])?;
            }
        }
    }
    Ok(())
}
