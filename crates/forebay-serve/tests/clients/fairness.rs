//! One client that asks for much, and another.

use crate::child::{Served, is_child, with_server};
use crate::client::{BLOCK_STATUS, Client, FLUSH, READ, WRITE, request};
use forebay_serve::Limits;
use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const NR_REQUESTS: u64 = 9_000;
const LEN: u32 = 4096;

fn one_thread(folder: &Path) -> Served {
    let limits = Limits { threads: 1, ..Limits::default() };
    Served { specs: vec![folder.join("disk.img").display().to_string()], limits }
}

#[test]
fn whoever_asks_for_thousands_of_blocks_at_once_keeps_nobody_waiting_for_the_last() {
    let name =
        "fairness::whoever_asks_for_thousands_of_blocks_at_once_keeps_nobody_waiting_for_the_last";
    let folder = tempfile::tempdir().unwrap();
    if !is_child() {
        std::fs::write(folder.path().join("disk.img"), vec![1; 1 << 20]).unwrap();
    }
    with_server(name, folder.path(), one_thread, |server| {
        let mut other = Client::new(&server.socket, "0", true);
        let mut greedy = Client::new(&server.socket, "0", true);
        let requests = (0..NR_REQUESTS).flat_map(|nr| request(READ, 0, nr, 0, LEN));
        let requests: Vec<u8> = requests.collect();
        let mut socket = greedy.socket.try_clone().unwrap();
        let sender = std::thread::spawn(move || socket.write_all(&requests).unwrap());
        let reply_len = 20 + greedy.reply(|_| 0).payload.len() as u64;
        let mut left = (NR_REQUESTS - 1) * reply_len;
        other.socket.write_all(&request(READ, 0, 0, 0, LEN)).unwrap();
        other.socket.set_nonblocking(true).unwrap();
        // Takes what comes as fast as it comes: only so the server could go on with it for ever.
        let mut bytes = vec![0; 1 << 20];
        while other.socket.read(&mut [0; 16]).is_err() {
            assert!(left > 0, "the other got no answer before the last");
            left -= greedy.socket.read(&mut bytes).unwrap() as u64;
        }
        let nr_left = left / reply_len;
        assert!(nr_left > NR_REQUESTS / 2, "the other had to wait until {nr_left} were left");
        while left > 0 {
            left -= greedy.socket.read(&mut bytes).unwrap() as u64;
        }
        sender.join().unwrap();
    });
}

#[test]
fn clients_that_take_all_descriptors_end_nobody_elses_requests() {
    let name = "fairness::clients_that_take_all_descriptors_end_nobody_elses_requests";
    let folder = tempfile::tempdir().unwrap();
    if !is_child() {
        std::fs::write(folder.path().join("disk.img"), vec![1; 1 << 20]).unwrap();
    }
    with_server(name, folder.path(), one_thread, |server| {
        let mut client = Client::new(&server.socket, "0", false);
        let fds = format!("/proc/{}/fd", server.child.id());
        let nr_fds = || std::fs::read_dir(&fds).unwrap().count() as u64;
        let max = nr_fds() + 4;
        let limit = Rlimit { current: Some(max), maximum: Some(max) };
        prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
        let greedy = || UnixStream::connect(&server.socket).unwrap();
        let greedy: Vec<UnixStream> = (0..8).map(|_| greedy()).collect();
        while nr_fds() < max {
            std::thread::yield_now();
        }
        // The first request of all: the worker wants to watch the disk's queue.
        let mut write = request(WRITE, 0, 1, 4096, 4096);
        write.extend([2; 4096]);
        client.socket.write_all(&write).unwrap();
        assert_eq!(client.reply(|_| 0).error, 0);
        assert_eq!(client.ask(FLUSH, 0, 0), 0);
        drop(greedy);
        assert_eq!(client.ask(READ, 0, 8192), 0);
        let (status, said) = server.stop();
        assert!(status.success(), "{said}");
    });
}

/// The disks that a file in the folder names.
fn named(folder: &Path) -> Served {
    let specs = std::fs::read_to_string(folder.join("specs")).unwrap();
    let limits = Limits { threads: 1, ..Limits::default() };
    Served { specs: specs.lines().map(str::to_owned).collect(), limits }
}

#[test]
fn a_question_to_a_server_that_does_not_answer_is_not_waited_for() {
    let name = "fairness::a_question_to_a_server_that_does_not_answer_is_not_waited_for";
    let [far, near] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    std::fs::write(far.path().join("specs"), "ram:1M").unwrap();
    let uri = format!("nbd+unix:///0?socket={}", far.path().join("nbd").display());
    std::fs::write(near.path().join("specs"), format!("{uri}\nram:1M")).unwrap();
    with_server(name, far.path(), named, |far| {
        with_server(name, near.path(), named, |near| {
            let mut asks = Client::new(&near.socket, "0", true);
            let mut other = Client::new(&near.socket, "1", false);
            kill_process(far.pid(), Signal::STOP).unwrap();
            // More than are passed on at once: the others wait, and hold nobody up.
            for cookie in 0..20 {
                let request = request(BLOCK_STATUS, 0, cookie, 0, 1 << 20);
                asks.socket.write_all(&request).unwrap();
            }
            for _ in 0..10 {
                assert_eq!(other.ask(READ, 0, 4096), 0);
            }
            kill_process(far.pid(), Signal::CONT).unwrap();
            let cookies: BTreeSet<u64> = (0..20).map(|_| asks.reply(|_| 0).cookie).collect();
            assert_eq!(cookies.len(), 20);
        });
    });
}
