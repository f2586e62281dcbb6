//! Tests of the backend channel: the device notifies its front end of a new size.

use super::peer::*;
use crate::{Notified, WriteCache};
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Reads the capacity of the device, sectors.
#[track_caller]
fn capacity(peer: &Peer) -> u64 {
    let Reply::Body(body) = peer.call(GET_CONFIG, &config(0, &[0; 8]), &[]) else {
        panic!("GET_CONFIG")
    };
    u64::from_le_bytes(body[12..20].try_into().expect("eight bytes"))
}

#[test]
fn front_end_is_notified_of_a_new_size_and_reads_it() {
    let (rings, device) = (Fake::default(), device());
    let ended = connection_to(&device, (&rings, &WriteCache::default()), |peer| {
        peer.negotiate();
        assert_eq!(capacity(peer), 1 << 21);
        assert_eq!(device.resize((1 << 30) + 512), Notified::NoChannel);
        // Without a message, the front end reads the new size when it reads at all.
        assert_eq!(capacity(peer), (1 << 21) + 1);
        for size in [(1 << 30) + 1024, 1 << 31] {
            // A channel replaces the one before.
            let (mut front, back) = UnixStream::pair().expect("a pair");
            front.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            peer.accept(SET_BACKEND_REQ_FD, &[], &[back.as_raw_fd()]);
            drop(back);
            assert_eq!(device.resize(size), Notified::Sent);
            let mut message = [0; 12];
            front.read_exact(&mut message).expect("a message");
            assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(capacity(peer), size / 512);
            // Another channel, or the end of the connection, ends this one.
            front.set_nonblocking(true).expect("it is a socket");
            let left = front.read(&mut message).expect_err("no other message");
            assert_eq!(left.kind(), ErrorKind::WouldBlock);
        }
        assert_eq!(device.resize(1 << 31), Notified::Closed);
    });
    assert_eq!(ended, Ok(()));
    assert_eq!(device.resize(1 << 30), Notified::NoFrontEnd);
}

#[test]
fn channel_ends_with_the_connection() {
    let (rings, device) = (Fake::default(), device());
    let (mut front, back) = UnixStream::pair().expect("a pair");
    let ended = connection_to(&device, (&rings, &WriteCache::default()), |peer| {
        peer.negotiate();
        // The reply is optional.
        assert!(peer.send(SET_BACKEND_REQ_FD, 1, &[], &[back.as_raw_fd()]));
        assert_eq!(capacity(peer), 1 << 21);
        drop(back);
    });
    assert_eq!(ended, Ok(()));
    assert_eq!(front.read(&mut [0; 12]).expect("the end"), 0);
    // The next front end has none.
    let ended = connection_to(&device, (&rings, &WriteCache::default()), |peer| {
        peer.negotiate();
        assert_eq!(device.resize(1 << 30), Notified::NoChannel);
    });
    assert_eq!(ended, Ok(()));
}

#[test]
fn message_that_arrives_in_two_parts_is_received() {
    let rings = Fake::default();
    let (mut front, back) = UnixStream::pair().expect("a pair");
    let device = device();
    let ended = connection_to(&device, (&rings, &WriteCache::default()), |peer| {
        peer.negotiate();
        let header = [SET_BACKEND_REQ_FD, 1, 0].map(u32::to_le_bytes).concat();
        peer.stream.send_with_fds(&[&header[..6]], &[back.as_raw_fd()]).expect("it reads");
        std::thread::sleep(Duration::from_millis(20));
        peer.stream.send_with_fds(&[&header[6..]], &[]).expect("it reads");
        assert_eq!(capacity(peer), 1 << 21);
        assert_eq!(device.resize(1 << 30), Notified::Sent);
        front.read_exact(&mut [0; 12]).expect("a message");
    });
    assert_eq!(ended, Ok(()));
}

/// The crate that receives such a message drops its socket.
#[test]
fn message_whose_number_arrives_in_two_parts_is_refused() {
    let (_front, back) = UnixStream::pair().expect("a pair");
    let ended = connection(&Fake::default(), &WriteCache::default(), |peer| {
        peer.negotiate();
        let header = [SET_BACKEND_REQ_FD, 1, 0].map(u32::to_le_bytes).concat();
        peer.stream.send_with_fds(&[&header[..2]], &[back.as_raw_fd()]).expect("it reads");
        std::thread::sleep(Duration::from_millis(20));
        peer.stream.send_with_fds(&[&header[2..]], &[]).expect("it reads");
    });
    let why = "SET_BACKEND_REQ_FD: its socket was lost, because the number of the message \
               arrived in two parts";
    assert_eq!(ended, Err(why.to_owned()));
}

/// Sends the message, and returns how the connection has ended.
#[track_caller]
fn refused(flags: u32, body: &[u8], fds: &[RawFd]) -> String {
    let ended = connection(&Fake::default(), &WriteCache::default(), |peer| {
        peer.negotiate();
        peer.send(SET_BACKEND_REQ_FD, flags, body, fds);
        assert_eq!(peer.call(SET_OWNER, &[], &[]), Reply::Closed);
    });
    ended.expect_err("it is refused")
}

#[test]
fn message_without_one_stream_socket_ends_the_connection() {
    let (one, other) = UnixStream::pair().expect("a pair");
    let datagrams = UnixDatagram::unbound().expect("a socket");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let event = event();
    for (fds, why) in [
        (&[][..], "expected one descriptor"),
        (&[one.as_raw_fd(), other.as_raw_fd()], "expected one descriptor"),
        (&[event.as_raw_fd()], "the descriptor is not a unix stream socket"),
        (&[datagrams.as_raw_fd()], "the descriptor is not a unix stream socket"),
        (&[tcp.as_raw_fd()], "the descriptor is not a unix stream socket"),
    ] {
        assert_eq!(refused(1, &[], fds), format!("SET_BACKEND_REQ_FD: {why}"));
    }
    for (flags, body) in [(1, &[0; 8][..]), (0, &[]), (2, &[]), (5, &[])] {
        let why = refused(flags, body, &[one.as_raw_fd()]);
        assert!(why.ends_with("expected version 1 and no body"), "{why}");
    }
    let ended = connection(&Fake::default(), &WriteCache::default(), |peer| {
        peer.negotiate();
        let reply = peer.call(SET_BACKEND_REQ_FD, &[], &[]);
        assert_eq!(reply, Reply::Body(1_u64.to_le_bytes().to_vec()));
    });
    assert_eq!(ended, Err("SET_BACKEND_REQ_FD: expected one descriptor".to_owned()));
}

#[test]
fn channel_that_was_not_negotiated_is_refused() {
    let ended = connection(&Fake::default(), &WriteCache::default(), |peer| {
        peer.negotiate();
        let without = PROTOCOL & !(1 << 5);
        peer.accept(SET_PROTOCOL_FEATURES, &without.to_le_bytes(), &[]);
        let (_front, back) = UnixStream::pair().expect("a pair");
        let reply = peer.call(SET_BACKEND_REQ_FD, &[], &[back.as_raw_fd()]);
        assert_eq!(reply, Reply::Body(1_u64.to_le_bytes().to_vec()));
    });
    let why = "SET_BACKEND_REQ_FD: BACKEND_REQ was not negotiated";
    assert_eq!(ended, Err(why.to_owned()));
}
