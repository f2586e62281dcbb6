//! One client that asks for much, and another.

use crate::child::{Served, is_child, with_server};
use crate::client::{BLOCK_STATUS, Client, FLUSH, READ, WRITE, request};
use forebay_serve::Limits;
use rustix::process::{Resource, Rlimit, prlimit};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NR_REQUESTS: u64 = 9_000;
/// Every other one is a hole.
const NR_EXTENTS: u64 = 512;
const EXTENT: u64 = 64 << 10;

fn one_thread(folder: &Path) -> Served {
    let limits = Limits { threads: 1, ..Limits::default() };
    Served { specs: vec![folder.join("disk.img").display().to_string()], limits }
}

#[test]
fn whoever_asks_thousands_of_questions_at_once_keeps_nobody_waiting_for_the_last() {
    let name =
        "fairness::whoever_asks_thousands_of_questions_at_once_keeps_nobody_waiting_for_the_last";
    let folder = tempfile::tempdir().unwrap();
    if !is_child() {
        let file = std::fs::File::create(folder.path().join("disk.img")).unwrap();
        file.set_len(NR_EXTENTS * EXTENT).unwrap();
        (0..NR_EXTENTS / 2).for_each(|nr| file.write_all_at(b"data", nr * 2 * EXTENT).unwrap());
    }
    with_server(name, folder.path(), one_thread, |server| {
        let mut other = Client::new(&server.socket, "0", true);
        let mut greedy = Client::new(&server.socket, "0", true);
        let len = (NR_EXTENTS * EXTENT) as u32;
        let requests = (0..NR_REQUESTS).flat_map(|nr| request(BLOCK_STATUS, 0, nr, 0, len));
        let requests: Vec<u8> = requests.collect();
        let mut socket = greedy.socket.try_clone().unwrap();
        let sender = std::thread::spawn(move || socket.write_all(&requests).unwrap());
        let reply_len = 20 + greedy.reply(|_| 0).payload.len() as u64;
        let left = Arc::new(AtomicU64::new((NR_REQUESTS - 1) * reply_len));
        let taker_left = Arc::clone(&left);
        let taker = std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 20];
            while taker_left.load(Ordering::Relaxed) > 0 {
                let len = greedy.socket.read(&mut bytes).unwrap() as u64;
                assert!(len > 0, "the server has closed it");
                taker_left.fetch_sub(len, Ordering::Relaxed);
            }
        });
        assert_eq!(other.ask(FLUSH, 0, 0), 0);
        let nr_left = left.load(Ordering::Relaxed) / reply_len;
        assert!(nr_left > NR_REQUESTS / 2, "the other had to wait until {nr_left} were left");
        sender.join().unwrap();
        taker.join().unwrap();
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
