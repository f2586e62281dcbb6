//! Clients that disconnect with requests in flight: the server drains these requests, frees their
//! tags and descriptors, and other clients are unaffected.

use std::io::Write;
use std::time::{Duration, Instant};

use super::client::{Client, command, request};
use super::server::Server;
use crate::common::folder;

const NR_RUDE: usize = 1200;
const READ: (u16, u16) = (command::READ, 0);
const WRITE: (u16, u16) = (command::WRITE, 0);

/// Waits until the server has no more descriptors than before. It detects a disconnect a moment
/// later.
#[track_caller]
pub(super) fn await_fds(server: &Server, before: usize) {
    let start = Instant::now();
    while server.nr_fds() > before {
        let nr = server.nr_fds();
        assert!(start.elapsed() < Duration::from_secs(30), "{before} descriptors became {nr}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns how many descriptors the server has without clients, once each of its threads has served
/// some.
pub(super) fn warmed_up(server: &Server) -> usize {
    let connect = |_| {
        let mut client = Client::connect(server.socket(), "").expect("a connection");
        client.read(0, 4096).expect("it is served");
        client
    };
    let clients: Vec<_> = (0..8).map(connect).collect();
    let nr_fds = server.nr_fds() - clients.len();
    drop(clients);
    await_fds(server, nr_fds);
    nr_fds
}

#[test]
fn clients_that_leave_with_io_in_flight_leak_nothing() {
    let folder = folder();
    // Few tags and a slow device: a client that disconnects has requests both in the device and
    // queued.
    let spec = "fault:ram:1m?queue_depth=8&rule=any:delay=1ms";
    let server = Server::start(&folder, &format!("{spec} --max-connections=200"));
    let nr_fds = warmed_up(&server) + 1;
    let mut witness = Client::connect(server.socket(), "").expect("a connection");
    for nth in 0..NR_RUDE {
        let mut rude = Client::connect(server.socket(), "").expect("a connection");
        for request in 0..4 + nth as u64 % 8 {
            let offset = request * 4096;
            rude.send(READ, offset, 16_384, &[]).expect("it is sent");
            rude.send(WRITE, offset, 16_384, &[7; 16_384]).expect("it is sent");
        }
        // Half a payload, half a header, or nothing.
        let head = request(WRITE, 99, 0, 65536);
        match nth % 3 {
            0 => rude.stream.write_all(&[&head[..], &[8; 5000]].concat()).expect("it is sent"),
            1 => rude.stream.write_all(&head[..13]).expect("it is sent"),
            _ => {}
        }
        if nth % 100 == 99 {
            assert_eq!(witness.read(8192, 4096).map(|data| data.len()).ok(), Some(4096));
        }
    }
    await_fds(&server, nr_fds);
    // The server's cache of buffers is bounded; the clients had requested twice as much in total.
    let most = server.memory_kib("VmHWM");
    assert!(most < 128 << 10, "it had {most} KiB");
    // Uses all tags at once, repeatedly, to detect a lost tag.
    for _ in 0..8 {
        let cookies: Vec<_> = (0..64u64)
            .map(|nth| witness.send(WRITE, nth * 4096, 4096, &[1; 4096]).expect("it is sent"))
            .collect();
        let mut ended: Vec<_> = cookies
            .iter()
            .map(|_| witness.reply().expect("a reply"))
            .map(|reply| (reply.error == 0).then_some(reply.cookie).expect("it is done"))
            .collect();
        ended.sort_unstable();
        assert_eq!(ended, cookies);
    }
    assert!(server.terminate().success());
}

/// The replies fill the client's socket, and the client receives none.
#[test]
fn client_that_reads_no_replies_delays_no_other() {
    let folder = folder();
    let server = Server::start(&folder, "ram:16m?queue_depth=16");
    let slow: Vec<_> = (0..4)
        .map(|_| {
            let mut slow = Client::connect(server.socket(), "").expect("a connection");
            slow.stream.set_nonblocking(true).expect("it can be");
            // As many requests as the socket takes, or enough for 4 GiB of replies.
            for nth in 0..4096u64 {
                if slow.send(READ, (nth % 16) << 20, 1 << 20, &[]).is_err() {
                    break;
                }
            }
            slow
        })
        .collect();
    let mut witness = Client::connect(server.socket(), "").expect("a connection");
    for nth in 0..200 {
        assert_eq!(witness.ask(WRITE, nth * 4096, 4096, &[5; 4096]).ok(), Some(0));
        assert_eq!(witness.read(nth * 4096, 4096).ok(), Some(vec![5; 4096]));
    }
    let most = server.memory_kib("VmHWM");
    assert!(most < 160 << 10, "it had {most} KiB");
    drop(slow);
    assert_eq!(witness.read(0, 4096).ok(), Some(vec![5; 4096]));
    assert!(server.terminate().success());
}

/// Half of a payload, and then nothing: the payload has its own memory, and holds no tag.
#[test]
fn clients_that_stop_in_the_middle_of_a_write_delay_no_others() {
    let folder = folder();
    let server = Server::start(&folder, "ram:16m?queue_depth=4");
    let slow: Vec<_> = (0..64)
        .map(|nth| {
            let mut slow = Client::connect(server.socket(), "").expect("a connection");
            let head = request(WRITE, 1, nth << 18, 1 << 20);
            slow.stream.write_all(&head).expect("it is sent");
            slow.stream.write_all(&[6; 150_000]).expect("it is sent");
            slow
        })
        .collect();
    let mut witness = Client::connect(server.socket(), "").expect("a connection");
    for nth in 0..200 {
        assert_eq!(witness.ask(WRITE, nth * 4096, 4096, &[5; 4096]).ok(), Some(0));
        assert_eq!(witness.read(nth * 4096, 4096).ok(), Some(vec![5; 4096]));
    }
    let most = server.memory_kib("VmHWM");
    assert!(most < 128 << 10, "it had {most} KiB");
    drop(slow);
    assert!(server.terminate().success());
}

/// The server has the smallest memory that its number of connections allows.
#[test]
fn hundreds_of_stalled_payloads_leave_another_client_its_memory() {
    let folder = folder();
    let args = "ram:16m --memory-mib=4 --max-connections=500 --threads=1";
    let server = Server::start(&folder, args);
    let stalled: Vec<_> = (0..400)
        .map(|_| {
            let mut client = Client::connect(server.socket(), "").expect("a connection");
            let begin = [&request(WRITE, 1, 0, 64 << 10)[..], &[6]].concat();
            client.stream.write_all(&begin).expect("it is sent");
            client
        })
        .collect();
    let mut witness = Client::connect(server.socket(), "").expect("a connection");
    for nth in 0..20 {
        assert_eq!(witness.ask(WRITE, nth << 16, 64 << 10, &[5; 64 << 10]).ok(), Some(0));
        assert_eq!(witness.read(nth << 16, 64 << 10).ok(), Some(vec![5; 64 << 10]));
    }
    drop(stalled);
    assert!(server.terminate().success());
}

#[test]
fn requests_before_a_disconnect_are_performed() {
    let folder = folder();
    std::fs::write(folder.path().join("disk.img"), vec![0; 1 << 20]).expect("a file");
    let server = Server::start(&folder, "disk.img");
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    for nth in 0..100u64 {
        client.send(WRITE, nth * 4096, 4096, &[nth as u8 + 1; 4096]).expect("it is sent");
    }
    client.send((command::DISCONNECT, 0), 0, 0, &[]).expect("it is sent");
    assert!(client.is_closed(), "the server hangs up");
    let image = std::fs::read(folder.path().join("disk.img")).expect("the image");
    for (nth, block) in image.chunks(4096).take(100).enumerate() {
        assert!(block.iter().all(|byte| *byte == nth as u8 + 1), "block {nth}");
    }
}
