//! Unsolicited descriptors from a client: the server must not keep them.
//!
//! After CVE-2019-14818 and CVE-2022-0669, where a peer could fill the table of descriptors.

use super::Target;
use crate::common::folder;
use crate::serve::client::{Client, command, request};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

fn send_with_fds(client: &Client, bytes: &[u8], nr_fds: usize) {
    let file = std::fs::File::open("/dev/null").expect("a file");
    let fds = vec![file.as_fd(); nr_fds];
    let mut space = [MaybeUninit::uninit(); 256];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(&client.stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::empty());
    assert_eq!(sent.ok(), Some(bytes.len()));
}

#[test]
fn descriptors_that_come_along_are_dropped() {
    let folder = folder();
    let mut target = Target::start(&folder, "ram:1m");
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = Client::greeted(target.server.socket()).expect("a connection");
        send_with_fds(&client, &3u32.to_be_bytes(), 8);
        client.go("").expect("the default export");
        for cookie in 0..200 {
            let read = request((command::READ, 0), cookie, 0, 512);
            send_with_fds(&client, &read, 1 + cookie as usize % 8);
            let reply = client.reply().expect("a reply");
            assert_eq!((reply.cookie, reply.error), (cookie, 0));
            let _: [u8; 512] = client.take().expect("data");
        }
        clients.push(client);
    }
    let nr = target.server.nr_fds();
    assert!(nr <= target.nr_fds + 2 * clients.len(), "{nr} descriptors");
    target.is_alive("descriptors");
    drop(clients);
    target.end();
}
