//! The message that reads the size, against a server that the test plays.

use super::*;
use crate::driver::vhost_user::link::Link;
use crate::sys::event::Event;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

fn link() -> (Link, UnixStream) {
    let (link, server, _) = link_with_error();
    (link, server)
}

fn link_with_error() -> (Link, UnixStream, Arc<Event>) {
    let (ours, server) = UnixStream::pair().expect("a pair");
    let error = Arc::new(Event::new().expect("an eventfd"));
    (Link::new(ours, Arc::clone(&error)).expect("a link"), server, error)
}

/// Returns a reply with this capacity.
fn reply(sectors: u64) -> Vec<u8> {
    let words = [GET_CONFIG, VERSION | REPLY, (FIELDS + LEN) as u32, 0, LEN as u32, 0];
    let mut reply = words.map(u32::to_ne_bytes).concat();
    reply.extend(sectors.to_le_bytes());
    reply.resize(HEADER + FIELDS + LEN, 0);
    reply
}

fn read_message(server: &mut UnixStream) {
    let mut message = [0; HEADER + FIELDS + LEN];
    server.read_exact(&mut message).expect("a message");
    assert_eq!(words(&message), [GET_CONFIG, VERSION, (FIELDS + LEN) as u32]);
}

#[test]
fn capacity_is_read_again_while_other_threads_watch_the_stream() {
    let (link, mut server) = link();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sectors in [2048, 4096] {
                read_message(&mut server);
                for byte in reply(sectors) {
                    server.write_all(&[byte]).expect("it reads");
                }
            }
        });
        let watch = scope.spawn(|| {
            for _ in 0..10_000 {
                link.look();
            }
        });
        assert_eq!(link.reread_capacity(LONG).expect("a reply"), 1 << 20);
        assert_eq!(link.reread_capacity(LONG).expect("a reply"), 2 << 20);
        watch.join().expect("no panic");
    });
    assert_eq!(link.failure(), None);
    server.write_all(&[0]).expect("it is open");
    link.look();
    let why = link.failure().expect("a message that was not asked for");
    assert!(why.contains("an unexpected message"), "{why}");
}

#[test]
fn late_reply_is_not_taken_for_that_to_the_next_message() {
    let (link, mut server) = link();
    let why = link.reread_capacity(SHORT).expect_err("no reply").to_string();
    assert!(why.contains("no answer to GET_CONFIG within 20ms"), "{why}");
    read_message(&mut server);
    let late = reply(8);
    server.write_all(&late[..30]).expect("it reads");
    link.look();
    assert!(link.reread_capacity(SHORT).is_err(), "the reply is incomplete");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.write_all(&late[30..]).expect("it reads");
            read_message(&mut server);
            server.write_all(&reply(16)).expect("it reads");
        });
        assert_eq!(link.reread_capacity(LONG).expect("a reply"), 16 * 512);
    });
    assert_eq!(link.failure(), None);
}

/// A queue whose edge-triggered wait has ended meanwhile leaves the stream to the thread that asks.
#[test]
fn end_of_the_connection_is_found_by_the_thread_that_asks() {
    let (link, server) = link();
    drop(server);
    link.reread_capacity(LONG).expect_err("the server has gone");
    assert_eq!(link.failure().as_deref(), Some("the server has closed the connection"));
}

/// The edges of both are over when a queue has looked.
#[test]
fn look_that_finds_a_late_reply_finds_the_error_of_a_ring_too() {
    let (link, mut server, error) = link_with_error();
    link.reread_capacity(SHORT).expect_err("no reply");
    server.write_all(&reply(8)).expect("it reads");
    error.signal();
    link.look();
    let why = link.failure().expect("an error");
    assert!(why.contains("an error of a ring"), "{why}");
}

#[test]
fn malformed_reply_fails_the_device_and_a_refusal_does_not() {
    let outcome = |answer: &[u8]| {
        let (link, mut server) = link();
        server.write_all(answer).expect("it reads");
        // The reply was sent before the message, which no thread has noticed yet.
        let outcome = link.reread_capacity(LONG).map_err(|error| error.to_string());
        (outcome, link.failure())
    };
    assert_eq!(outcome(&reply(1)), (Ok(512), None));
    let refusal = [GET_CONFIG, VERSION | REPLY, 0].map(u32::to_ne_bytes).concat();
    let (refused, failure) = outcome(&refusal);
    assert!(refused.expect_err("an empty reply").contains("refuses GET_CONFIG"));
    assert_eq!(failure, None);
    let (refused, failure) = outcome(&reply(u64::MAX));
    assert!(refused.expect_err("too many").contains("18446744073709551615 sectors"));
    assert_eq!(failure, None);
    for words in [[25, 5, 0], [GET_CONFIG, 1, 0], [GET_CONFIG, 5, 8], [GET_CONFIG, 5, u32::MAX]] {
        let (refused, failure) = outcome(&words.map(u32::to_ne_bytes).concat());
        let why = refused.expect_err("malformed");
        assert!(why.contains("its reply to GET_CONFIG is malformed"), "{why}");
        assert_eq!(failure.as_deref(), Some(&*why));
    }
}
