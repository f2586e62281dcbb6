//! The TLS stream: echoed bytes, both kinds of end, and the flags for an event loop.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::tls::{TlsStream, server_config};
use rustls::version::{TLS12, TLS13};

use super::certificates::Authority;
use super::peers::{Client, client};
use super::start_echo;

/// A client, and the server's end, which the test drives itself. The handshake is over.
struct Pair {
    client: Client,
    stream: TlsStream,
    socket: UnixStream,
}

impl Pair {
    fn new() -> Pair {
        let authority = Authority::new("ours");
        let config = server_config(authority.folder().path(), false).unwrap();
        let (here, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        here.set_nonblocking(true).unwrap();
        let mut client = client(here, &authority, None, &TLS13);
        let mut stream = TlsStream::new(config).unwrap();
        // Once more at the end: the last message of the client is for the server.
        let mut is_handshaking = true;
        while is_handshaking {
            is_handshaking = client.conn.is_handshaking();
            let _ = client.conn.complete_io(&mut client.sock);
            let error = stream.read(&socket, &mut [0; 16]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        }
        client.sock.set_nonblocking(false).unwrap();
        assert!(stream.description().starts_with("TLSv1_3 TLS13_"), "{}", stream.description());
        Pair { client, stream, socket }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).unwrap();
        self.client.flush().unwrap();
    }

    fn read(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let len = self.stream.read(&self.socket, &mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn would_block(&mut self) -> bool {
        self.read(1000).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) >> 3) as u8).collect()
}

#[test]
fn megabytes_come_back_as_they_were_sent() {
    let authority = Authority::new("ours");
    let folder = authority.folder();
    for version in [&TLS12, &TLS13] {
        let config = server_config(folder.path(), false).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        let server = start_echo(there.into(), config);
        let mut client = client(here, &authority, None, version);
        let sent = pattern(3_000_001);
        // Read and write in pieces that fit into the sockets, since neither side does both at once.
        let mut back = vec![0; 50_000];
        for piece in sent.chunks(back.len()) {
            client.write_all(piece).unwrap();
            let back = &mut back[..piece.len()];
            client.read_exact(back).unwrap();
            assert!(back == piece);
        }
        client.conn.send_close_notify();
        client.flush().unwrap();
        let (echoed, end) = server.join().unwrap();
        end.unwrap();
        assert_eq!(echoed, sent.len());
    }
}

#[test]
fn decrypted_bytes_are_reported_while_the_socket_is_empty() {
    let mut pair = Pair::new();
    // More than one record, and more than one call decrypts.
    let sent = pattern(60_000);
    pair.send(&sent);
    let mut received = pair.read(10).unwrap();
    assert_eq!(received.len(), 10);
    while pair.stream.has_plaintext() {
        received.extend(pair.read(7000).unwrap());
    }
    assert!(received == sent);
    assert!(pair.would_block());
}

#[test]
fn half_a_record_is_nothing_to_read() {
    let mut pair = Pair::new();
    pair.client.conn.writer().write_all(b"hello").unwrap();
    let mut record = Vec::new();
    pair.client.conn.write_tls(&mut record).unwrap();
    let (one, two) = record.split_at(9);
    (&pair.client.sock).write_all(one).unwrap();
    assert!(pair.would_block());
    assert!(!pair.stream.has_plaintext());
    (&pair.client.sock).write_all(two).unwrap();
    assert_eq!(pair.read(100).unwrap(), b"hello");
}

#[test]
fn clean_end_is_distinguished_from_a_truncation() {
    let mut pair = Pair::new();
    pair.send(b"bye");
    pair.client.conn.send_close_notify();
    pair.client.flush().unwrap();
    // The socket stays open: the client waits for the server's close_notify.
    assert_eq!(pair.read(100).unwrap(), b"bye");
    assert_eq!(pair.read(100).unwrap(), b"");
    assert_eq!(pair.read(100).unwrap(), b"", "the end is permanent");

    let mut pair = Pair::new();
    pair.send(b"bye");
    pair.client.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(pair.read(100).unwrap(), b"bye");
    for _ in 0..2 {
        assert_eq!(pair.read(100).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn non_tls_bytes_are_refused_with_an_alert() {
    let mut pair = Pair::new();
    (&pair.client.sock).write_all(b"IHAVEOPT in plain text, after the handshake").unwrap();
    for _ in 0..2 {
        assert_eq!(pair.read(100).unwrap_err().kind(), ErrorKind::InvalidData);
    }
    let error = pair.client.read(&mut [0; 10]).unwrap_err();
    assert!(error.to_string().contains("received fatal alert"), "{error}");
}

#[test]
fn a_record_that_was_changed_on_its_way_is_refused() {
    let mut pair = Pair::new();
    pair.client.conn.writer().write_all(b"hello").unwrap();
    let mut record = Vec::new();
    pair.client.conn.write_tls(&mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    (&pair.client.sock).write_all(&record).unwrap();
    let error = pair.read(100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn a_peer_that_does_not_read_gets_a_bounded_buffer_and_later_all_of_it() {
    let mut pair = Pair::new();
    let sent = pattern(50_000_000);
    let mut taken = 0;
    loop {
        let slices = [IoSlice::new(&sent[taken..][..1]), IoSlice::new(&sent[taken + 1..])];
        match pair.stream.write_vectored(&pair.socket, &slices) {
            Ok(len) => taken += len,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                break;
            }
        }
    }
    assert!(taken > 0 && taken < 2_000_000, "{taken} bytes are unsent");
    assert!(pair.stream.wants_write());
    assert_eq!(pair.stream.flush(&pair.socket).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut received = vec![0; taken];
    let reader = {
        let mut client = pair.client;
        std::thread::spawn(move || {
            client.read_exact(&mut received).unwrap();
            received
        })
    };
    while pair.stream.flush(&pair.socket).is_err() {
        std::thread::yield_now();
    }
    assert!(!pair.stream.wants_write());
    assert!(reader.join().unwrap() == sent[..taken]);
}

#[test]
fn nothing_is_written_before_the_handshake_is_over() {
    let config = server_config(Authority::new("ours").folder().path(), false).unwrap();
    let (_here, socket) = UnixStream::pair().unwrap();
    let mut stream = TlsStream::new(config).unwrap();
    let error = stream.write_vectored(&socket, &[IoSlice::new(b"x")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn end_is_sent_to_the_peer() {
    let mut pair = Pair::new();
    let written = pair.stream.write_vectored(&pair.socket, &[IoSlice::new(b"bye")]).unwrap();
    assert_eq!(written, 3);
    pair.stream.close_notify(&pair.socket);
    pair.stream.flush(&pair.socket).unwrap();
    let mut received = String::new();
    pair.client.read_to_string(&mut received).unwrap();
    assert_eq!(received, "bye");
}
