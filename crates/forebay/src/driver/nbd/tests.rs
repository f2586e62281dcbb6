//! Tests of a connection, from the driver's side.

use super::connect;
use super::link::{Failure, Link};
use super::stream::Stream;
use crate::buf::Buf;
use crate::driver::deadline::Deadline;
use crate::driver::nbd_server::{NbdServer, export};
use crate::driver::socket::Socket;
use crate::driver::testing::{DEPTH, data, device, issue, queue, reap};
use crate::driver::{DriverQueue, Mode};
use forebay_core::{Bio, BlockStatus, Op, Segment, Tag};
use forebay_nbd::client::{Command, Negotiated, Request};
use forebay_nbd::uri::Uri;
use forebay_nbd::wire::numbers::{REPLY_ERROR, REPLY_FLAG_DONE};
use forebay_nbd::wire::{ChunkHeader, ErrorChunk, Framing, RequestHeader};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Returns the result of a handshake with a server that sends this and nothing more, and does not
/// hang up.
fn greeted_with(says: &[u8]) -> String {
    let (mut server, client) = UnixStream::pair().expect("two sockets");
    server.write_all(says).expect("room for it");
    let uri = Uri::parse("nbd://host/disk").expect("a URI");
    let deadline = Deadline::after(Some(Duration::from_millis(20)));
    let shaken = connect::handshake(&uri, None, Socket::of(client.into()), deadline);
    shaken.expect_err("no export").to_string()
}

#[test]
fn a_server_that_says_nothing_more_is_given_up() {
    let silent = "no answer within 10 s: check that it is an NBD server, and not busy with others";
    assert_eq!(greeted_with(b""), silent);
    assert_eq!(greeted_with(b"NBDMAGICIHAVE"), silent);
    assert_eq!(greeted_with(b"NBDMAGICIHAVEOPT\0\x03"), silent);
    assert_eq!(greeted_with(b"220 ready\r\n"), "the peer is not an NBD server");
}

#[test]
fn server_that_hangs_up_is_distinguished_from_a_slow_one() {
    let (mut server, client) = UnixStream::pair().expect("two sockets");
    server.write_all(b"NBDMAGICIHAVEOPT\0\x03").expect("room for it");
    drop(server);
    let uri = Uri::parse("nbd://host/disk").expect("a URI");
    let deadline = Deadline::after(Some(Duration::from_secs(100)));
    let shaken = connect::handshake(&uri, None, Socket::of(client.into()), deadline);
    let why = shaken.expect_err("no export").to_string();
    // The timing decides which call notices it.
    assert!(why.contains("during the handshake"), "{why}");
}

#[test]
fn a_queue_of_its_own_has_a_connection_of_its_own() {
    let server = NbdServer::new(export(1 << 20), &[]);
    let device = device(&server.uri());
    assert_eq!(server.nr_connections(), 1);
    let first = device.open_queue(DEPTH, Mode::Shared).expect("a queue");
    assert_eq!(server.nr_connections(), 1, "the one by which it was opened");
    let second = device.open_queue(DEPTH, Mode::Owned).expect("a queue");
    assert_eq!(server.nr_connections(), 2);
    drop((first, second));
}

#[test]
fn a_server_that_wants_no_more_connections_is_not_asked_again() {
    let server = NbdServer::limited(export(1 << 20), 2);
    let device = device(&server.uri());
    let _queues =
        [Mode::Shared, Mode::Owned].map(|mode| device.open_queue(DEPTH, mode).expect("a queue"));
    for _ in 0..5 {
        assert!(device.open_queue(DEPTH, Mode::Owned).is_err(), "its thread has the shared one");
        assert_eq!(server.nr_connections(), 3);
    }
}

#[test]
fn a_reply_that_comes_byte_by_byte_is_put_together() {
    for declined in [vec![], vec![11], vec![8, 11]] {
        let server = NbdServer::scripted(export(1 << 20), &declined, |reader, transmission| {
            let mut header = vec![0; transmission.header_len()];
            loop {
                reader.read_exact(&mut header)?;
                let rq = transmission.parse(&header).expect("a good client");
                let mut reply =
                    transmission.data(&rq, rq.offset, 3000, true, false).as_slice().to_vec();
                reply.extend([1; 3000]);
                reply
                    .extend(transmission.data(&rq, rq.offset + 3000, 1096, false, true).as_slice());
                reply.extend([2; 1096]);
                let mut stream: &UnixStream = reader.get_ref();
                // The headers in pieces of one byte, the data in larger ones.
                for (nth, piece) in reply.chunks(1).enumerate() {
                    stream.write_all(piece)?;
                    if nth % 64 < 50 && nth > 40 {
                        std::thread::yield_now();
                    }
                }
            }
        });
        for mode in [Mode::Owned, Mode::Shared] {
            let DriverQueue { mut driver, waiter } = queue(&server.uri(), mode);
            // Segments that match no piece of the reply.
            for segment in [4096, 700, 512] {
                let mut buf = Buf::new(4096);
                issue(&mut *driver, 3, data(Op::Read, 8192, &mut buf, segment));
                driver.commit_rqs();
                let mut nr = 0;
                while nr == 0 {
                    match mode {
                        Mode::Owned => driver.wait(1, None),
                        Mode::Shared => waiter.wait(None),
                    }
                    let done = reap(&mut *driver);
                    nr = done.len();
                    assert!(done.iter().all(|one| one.result == Ok(4096)));
                }
                assert!(buf[..3000].iter().all(|&byte| byte == 1));
                assert!(buf[3000..].iter().all(|&byte| byte == 2));
            }
        }
    }
}

#[test]
fn a_batch_costs_one_call_to_send_and_one_to_receive() {
    let server = NbdServer::new(export(1 << 20), &[]);
    let mut driver = queue(&server.uri(), Mode::Owned).driver;
    let mut bufs: Vec<Buf> = (0..8).map(|_| Buf::new(512)).collect();
    for (tag, buf) in bufs.iter_mut().enumerate() {
        issue(&mut *driver, tag, data(Op::Write, tag as u64 * 512, buf, 512));
    }
    issue(&mut *driver, 9, Bio::flush());
    let before = driver.nr_syscalls();
    driver.commit_rqs();
    assert_eq!(driver.nr_syscalls() - before, 1, "nine requests");
    let mut nr = 0;
    while nr < 9 {
        driver.wait(9 - nr, None);
        nr += reap(&mut *driver).len() as u32;
    }
    // The server replies to a batch at once, unless it receives it in two parts.
    assert!(driver.nr_syscalls() - before <= 6);
}

/// Returns a link with `base:allocation` negotiated, the server's socket, and the link's failure.
fn link() -> (Link, UnixStream, Failure) {
    let (server, client) = UnixStream::pair().expect("two sockets");
    let export = Negotiated {
        name: String::from("disk"),
        description: String::new(),
        size_bytes: 64 << 20,
        can: export(64 << 20).can,
        block_size: None,
        framing: Framing::Structured,
        allocation: Some(1),
    };
    let failure = Failure::default();
    let stream = Stream::Plain(Socket::of(client.into()));
    (Link::new(stream, &export, 4, Arc::clone(&failure)), server, failure)
}

/// Returns the reply to a failed request.
fn answer(cookie: u64) -> Vec<u8> {
    let mut answer = Vec::new();
    let message = ErrorChunk { error: 22, message: b"", offset: None };
    let (kind, len) = (REPLY_ERROR, message.payload_len());
    let header = ChunkHeader { flags: REPLY_FLAG_DONE, kind, cookie, offset: 0, len };
    header.emit(Framing::Structured, &mut answer);
    message.emit(&mut answer);
    answer
}

#[test]
fn an_answer_that_comes_before_its_question_ends_the_connection() {
    let (mut link, mut server, failure) = self::link();
    link.begin_asking(0, 4096);
    link.send();
    let mut question = [0; RequestHeader::COMPACT_LEN];
    server.read_exact(&mut question).expect("a question");
    let cookie = RequestHeader::parse_compact(&question).expect("a good one").cookie;
    server.write_all(&answer(cookie)).expect("room for it");
    link.receive(true);
    assert_eq!(link.query.result(), Some(Err(BlockStatus::Invalid)));
    assert_eq!(failure.get(), None);
    // The same, while a write that the server does not read precedes the query.
    let buf = Buf::new(8 << 20);
    let (mut link, mut server, failure) = self::link();
    let segment = Segment { addr: buf.as_ptr().expose_provenance(), len: 8 << 20 };
    let write = Request { command: Command::Write { fua: false }, offset: 0, len: 8 << 20 };
    link.begin(Tag::from_index(0), write, [segment].into_iter());
    link.begin_asking(0, 4096);
    link.send();
    assert!(link.holds_back());
    server.write_all(&answer(cookie)).expect("room for it");
    link.receive(true);
    assert_eq!(link.query.result(), Some(Err(BlockStatus::Offline)));
    let why = failure.get().expect("a reason");
    assert_eq!(why, "the server breaks the protocol: an answer before its question");
}
