//! More data than a socket buffer holds, early replies, and event loops.
// These tests poll a descriptor with a system call.
#![allow(unsafe_code)]

use super::{LEN, Reader, request, skip, write};
use crate::common::{open, submit};
use crate::nbd_server::{NbdServer, export};
use forebay::{BlockStatus, Buf, Io};
use forebay_nbd::server::{Command, NbdError, Request, Transmission};
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

/// A server that reads nothing until `go` receives a message, and then runs the second argument for
/// each write.
fn stubborn(
    go: Receiver<()>,
    mut with_write: impl FnMut(&mut Reader<'_>, &Transmission, &Request) -> std::io::Result<()>
    + Send
    + 'static,
) -> NbdServer {
    let mut with_write = move |reader: &mut Reader<'_>, transmission: &Transmission| {
        let _ = go.recv();
        loop {
            let rq = request(reader, transmission)?;
            if rq.command == Ok(Command::Disconnect) {
                return Ok(());
            }
            with_write(reader, transmission, &rq)?;
        }
    };
    let with_write = Mutex::new(move |reader: &mut Reader<'_>, transmission: &Transmission| {
        with_write(reader, transmission)
    });
    let mut told = export(64 << 20);
    told.can.multi_conn = false;
    NbdServer::scripted(told, &[], move |reader, transmission| {
        (with_write.lock().expect("no panic"))(reader, transmission)
    })
}

#[test]
fn more_than_a_socket_holds_is_submitted_without_waiting_and_sent_later() {
    const NR: u64 = 64;
    let (go, gone) = channel();
    let sums = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sums);
    let server = stubborn(gone, move |reader, transmission, rq| {
        let mut payload = vec![0; rq.payload_len as usize];
        reader.read_exact(&mut payload)?;
        let is_right = payload.iter().all(|&byte| byte == (rq.offset >> 20) as u8 + 1);
        seen.lock().expect("no panic").push(is_right);
        write(reader, transmission.done(rq).as_slice())
    });
    let disk = open(&format!("{}&nomerges=2", server.uri()));
    let mut queue = disk.queue();
    for nth in 0..NR {
        let mut buf = Buf::new(512 << 10);
        buf.fill(nth as u8 + 1);
        submit(&mut queue, Io::write(buf, nth << 20));
    }
    // 32 MiB are queued, and the server has not read a byte.
    let mut done = Vec::new();
    assert_eq!(queue.reap(0, 100, &mut done), 0);
    go.send(()).expect("a server");
    queue.reap(NR as usize, NR as usize, &mut done);
    assert!(done.iter().all(|one| one.result == Ok(512 << 10)));
    assert_eq!(*sums.lock().expect("no panic"), [true; NR as usize]);
}

#[test]
fn event_loop_is_signalled_when_there_is_room_to_send() {
    const NR: u64 = 16;
    let (go, gone) = channel();
    let server = stubborn(gone, move |reader, transmission, rq| {
        skip(reader, rq)?;
        write(reader, transmission.done(rq).as_slice())
    });
    let disk = open(&format!("{}&nomerges=2", server.uri()));
    let mut queue = disk.queue();
    queue.poll_fd().expect("a descriptor");
    for nth in 0..NR {
        submit(&mut queue, Io::write(Buf::new(512 << 10), nth << 20));
    }
    go.send(()).expect("a server");
    let mut done = Vec::new();
    while done.len() < NR as usize {
        wait_readable(queue.poll_fd().expect("a descriptor"));
        queue.reap(0, 100, &mut done);
    }
    assert!(done.iter().all(|one| one.result == Ok(512 << 10)));
}

#[test]
fn a_reply_before_all_was_sent_ends_nothing_before_that() {
    let (go, gone) = channel();
    let (ask, asked) = channel();
    let server = stubborn(gone, move |reader, transmission, rq| {
        // The server sends the error at once, and reads the payload when the test lets it.
        let mut out = Vec::new();
        transmission.error(rq, NbdError::NoSpc, "", &mut out);
        write(reader, &out)?;
        let _ = asked.recv();
        skip(reader, rq)
    });
    let disk = open(&format!("{}&max_sectors_kb=8192", server.uri()));
    let mut queue = disk.queue();
    submit(&mut queue, Io::write(Buf::new(8 << 20), 0));
    go.send(()).expect("a server");
    let mut done = Vec::new();
    for _ in 0..200 {
        // The kernel may still read the write's memory.
        assert_eq!(queue.reap(0, 1, &mut done), 0);
        std::thread::yield_now();
    }
    ask.send(()).expect("a server");
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Err(BlockStatus::NoSpace));
}

#[test]
fn an_event_loop_without_io_is_left_alone_whatever_the_server_does() {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let server = NbdServer::scripted(export(LEN), &[], move |_, _| {
        let _ = gone.lock().expect("no panic").recv();
        Ok(())
    });
    let disk = open(&format!("{}&nr_hw_queues=1", server.uri()));
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    queue.poll_fd().expect("a descriptor");
    // The descriptor may be readable once before any completion exists.
    queue.reap(0, 1, &mut done);
    assert!(!is_readable(queue.poll_fd().expect("a descriptor")));
    // The server hangs up. Without I/O in flight, the driver does nothing about that.
    drop(go);
    for _ in 0..1000 {
        assert!(!is_readable(queue.poll_fd().expect("a descriptor")));
        std::thread::yield_now();
    }
    submit(&mut queue, Io::read(Buf::new(512), 0));
    wait_readable(queue.poll_fd().expect("a descriptor"));
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Err(BlockStatus::Offline));
}

/// Waits until a descriptor is readable: a plain `poll(2)` with `POLLIN` only.
fn wait_readable(fd: BorrowedFd<'_>) {
    assert!(poll(fd, 60_000), "the descriptor is signalled");
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(fd, 0)
}

fn poll(fd: BorrowedFd<'_>, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one structure, and the kernel writes to it only.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}
