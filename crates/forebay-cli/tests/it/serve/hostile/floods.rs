//! Floods of connections: held, half open, and one after another.

use super::{Target, await_fds};
use crate::common::{folder, skip_unless_required};
use crate::serve::client::{Client, command, option};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Raises the descriptor limit of this process, and of servers that it starts, to `needed`. If the
/// system does not allow that, skips the test by name.
#[track_caller]
fn raise_limit(needed: u64, test: &str) -> bool {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    if most < needed {
        let why =
            format!("a process may have {most} descriptors (ulimit -Hn), and {needed} are needed");
        skip_unless_required(test, &why);
        return false;
    }
    if limit.current.is_some_and(|now| now < needed) {
        limit.current = Some(needed);
        setrlimit(Resource::Nofile, limit).expect("up to the hard limit");
    }
    true
}

#[test]
fn a_thousand_connections_are_held_and_served() {
    if !raise_limit(8192, "a_thousand_connections_are_held_and_served") {
        return;
    }
    let folder = folder();
    let mut target = Target::start(&folder, "ram:16m --max-connections=1010");
    let mut clients: Vec<_> = (0..1000).map(|_| target.connect()).collect();
    let idle = target.server.memory_kib("VmRSS");
    assert!(idle < 64 << 10, "a thousand that are idle take {idle} KiB");
    for round in 0..3u64 {
        let write = |(nth, client): (usize, &mut Client)| {
            let payload = [nth as u8 ^ round as u8; 4096];
            client.send((command::WRITE, 0), nth as u64 * 4096, 4096, &payload).expect("it is sent")
        };
        let cookies: Vec<u64> = clients.iter_mut().enumerate().map(write).collect();
        for (client, cookie) in clients.iter_mut().zip(cookies) {
            assert_eq!(client.whole(cookie, 0, &mut []).ok(), Some(0));
        }
        for (nth, client) in clients.iter_mut().enumerate() {
            let data = client.read(nth as u64 * 4096, 4096).expect("its data");
            assert!(data.iter().all(|byte| *byte == nth as u8 ^ round as u8), "client {nth}");
        }
        target.is_alive("a round of all");
    }
    drop(clients);
    target.end();
}

#[test]
fn a_hundred_idle_connections_take_little_memory() {
    let folder = folder();
    let target = Target::start(&folder, "ram:1m --max-connections=200");
    let clients: Vec<_> = (0..100).map(|_| target.connect()).collect();
    let idle = target.server.memory_kib("VmRSS");
    assert!(idle < 64 << 10, "{idle} KiB");
    drop(clients);
    target.end();
}

#[test]
fn one_connection_too_many_is_refused_and_the_others_are_served() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m --max-connections=8");
    let clients: Vec<_> = (0..7).map(|_| target.connect()).collect();
    let is_served = |socket: &std::path::Path| {
        Client::connect(socket, "").and_then(|mut client| client.read(0, 4096)).is_ok()
    };
    for _ in 0..20 {
        assert!(!is_served(target.server.socket()), "it is one too many");
    }
    target.is_alive("too many");
    drop(clients);
    // Places become free a moment after the clients have disconnected.
    let start = std::time::Instant::now();
    while !is_served(target.server.socket()) {
        assert!(start.elapsed().as_secs() < 30, "there is room");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    target.end();
}

/// The limit is ten seconds, during which this test sleeps.
#[test]
fn client_without_an_export_is_disconnected() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    let mut silent = UnixStream::connect(target.server.socket()).expect("a connection");
    let mut haggling = target.haggling();
    haggling.option(option::LIST, &[]).expect("it is sent");
    silent.set_read_timeout(Some(Duration::from_secs(60))).expect("it can be set");
    let mut greeting = Vec::new();
    let nr_bytes = silent.read_to_end(&mut greeting).expect("a greeting, and the end");
    assert_eq!(nr_bytes, 18);
    assert!(haggling.is_closed());
    target.is_alive("silence");
    target.end();
}

#[test]
fn ten_thousand_half_open_connections_are_survived() {
    if !raise_limit(12_000, "ten_thousand_half_open_connections_are_survived") {
        return;
    }
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    let mut open = Vec::new();
    for nth in 0..10_000 {
        // If the backlog of the socket is full, this waits until the server accepts.
        open.push(UnixStream::connect(target.server.socket()).expect("none is refused"));
        if nth % 1000 == 999 {
            target.is_alive("a thousand more");
        }
    }
    let most = target.server.memory_kib("VmHWM");
    assert!(most < 64 << 10, "it had {most} KiB");
    // The server closes them a moment later, except for a bounded number of half-open connections.
    await_fds(&target.server, target.nr_fds + 400);
    // A normal client can still connect.
    let mut client = target.connect();
    assert!(client.read(0, 4096).is_ok());
    drop(client);
    drop(open);
    target.end();
}
