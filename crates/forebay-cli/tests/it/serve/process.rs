//! The process of `forebay serve`: privileges, leftover files, and its behaviour without free
//! descriptors or when another server does not answer.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::client::{Client, Framing, command, option, request};
use super::server::Server;
use crate::common::folder;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

fn pid(server: &Server) -> Pid {
    Pid::from_raw(server.pid() as i32).expect("a process")
}

/// Returns the kernel's status of a thread.
fn status_of(server: &Server, name: &str) -> String {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    // A thread that has ended meanwhile has no status.
    let mut found = threads.filter_map(|thread| {
        std::fs::read_to_string(thread.expect("a thread").path().join("status")).ok()
    });
    let name = format!("Name:\t{name}\n");
    found.find(|status| status.starts_with(&name)).expect("it runs")
}

#[test]
fn no_thread_gains_privileges_and_no_socket_is_left_behind() {
    let folder = folder();
    let metrics = folder.path().join("metrics");
    let args = format!("ram:1m --threads=2 --metrics=unix:{}", metrics.display());
    let server = Server::start(&folder, &args);
    drop(Client::connect(server.socket(), "").expect("a connection"));
    for thread in ["forebay", "worker-0", "worker-1", "metrics"] {
        let status = status_of(&server, thread);
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    }
    let socket = server.socket().to_owned();
    assert!(server.terminate().success());
    for socket in [socket, metrics] {
        assert!(!socket.exists(), "{} was left behind", socket.display());
    }
}

#[test]
fn clients_that_take_all_descriptors_end_no_other_requests() {
    let folder = folder();
    std::fs::write(folder.path().join("disk.img"), vec![1; 1 << 20]).expect("a file");
    // More connections than descriptors. Clients that have not chosen an export have a separate
    // limit.
    let server = Server::start(&folder, "disk.img --threads=1 --max-connections=5000");
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    // The limit applies to descriptor numbers: all open descriptors are below it.
    let numbers = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let numbers = numbers.filter_map(|fd| fd.ok()?.file_name().to_str()?.parse::<u64>().ok());
    let max = numbers.max().expect("some are open") + 4;
    let limit = Rlimit { current: Some(max), maximum: Some(max) };
    prlimit(Some(pid(&server)), Resource::Nofile, limit).expect("less is allowed");
    let mut greedy: Vec<UnixStream> = Vec::new();
    while !server.log().contains("cannot accept") {
        assert!(greedy.len() as u64 <= max, "{max}: {}", server.log());
        greedy.push(UnixStream::connect(server.socket()).expect("it listens"));
        // A greeting admits the client; a closed connection rejects it.
        let _ = greedy.last_mut().expect("just pushed").read(&mut [0; 18]).expect("one of both");
    }
    // A client without a place is disconnected.
    let mut last = greedy.last().expect("a client took the last descriptor");
    assert_eq!(last.read(&mut [0]).ok(), Some(0), "it is closed");
    // This is the first request of all: for it, the worker must start to watch the disk's queue.
    assert_eq!(client.ask((command::WRITE, 0), 4096, 4096, &[2; 4096]).ok(), Some(0));
    assert_eq!(client.ask((command::FLUSH, 0), 0, 0, &[]).ok(), Some(0));
    drop(greedy);
    assert_eq!(client.read(0, 8192).map(|data| data.len()).ok(), Some(8192));
    assert!(server.terminate().success());
}

#[test]
fn a_question_to_a_server_that_does_not_answer_is_not_waited_for() {
    let [far_folder, near_folder] = [folder(), folder()];
    let far = Server::start(&far_folder, "ram:1m");
    let args = format!("{} ram:1m --name=0 --name=1 --threads=1", far.uri(""));
    let near = Server::start(&near_folder, &args);
    let mut asks = Client::haggling(near.socket()).expect("a connection");
    asks.option(option::STRUCTURED_REPLY, &[]).expect("it is sent");
    asks.answer().expect("an answer");
    let query = [&[0, 0, 0, 1, b'0', 0, 0, 0, 1, 0, 0, 0, 15], &b"base:allocation"[..]].concat();
    asks.option(option::SET_META_CONTEXT, &query).expect("it is sent");
    for _ in 0..2 {
        asks.answer().expect("a context, and the end of them");
    }
    asks.framing = Framing::Structured;
    asks.go("0").expect("it is there");
    let mut other = Client::connect(near.socket(), "1").expect("a connection");
    kill_process(pid(&far), Signal::STOP).expect("it runs");
    // More requests than are forwarded at once: the rest wait, and delay no other client.
    for cookie in 0..20 {
        let bytes = request((command::BLOCK_STATUS, 0), cookie, 0, 1 << 20);
        asks.stream.write_all(&bytes).expect("it is sent");
    }
    for _ in 0..10 {
        assert_eq!(other.read(0, 4096).map(|data| data.len()).ok(), Some(4096));
    }
    kill_process(pid(&far), Signal::CONT).expect("it is there");
    let cookies: BTreeSet<u64> = (0..20).map(|_| asks.cookie_of_chunk().expect("it")).collect();
    assert_eq!(cookies.len(), 20);
}
