//! Disks that do not answer within `io_timeout_ms`: the server answers its clients and logs the
//! requests.

use super::client::{Client, command};
use super::server::Server;
use crate::common::folder;

const ETIMEDOUT_OR_EIO: [u32; 2] = [5, 110];

#[test]
fn requests_over_their_time_limit_are_answered_and_logged() {
    let folder = folder();
    let spec = "fault:model:sata?size=1m&rule=read:delay=20s:range=8192+4096&rule=write:hang\
                &rule=flush:hang&io_timeout_ms=20&io_timeout_grace_ms=500";
    let mut server = Server::start(&folder, spec);
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    let written = client.ask((command::WRITE, 0), 4096, 512, &[1; 512]).expect("a reply");
    assert!(ETIMEDOUT_OR_EIO.contains(&written), "{written}");
    let line = "write of 512 bytes at 4096 exceeded the time limit of 20 ms: cancelling it";
    server.await_lines(&format!("export \"\": {line}"), 1);
    let flushed = client.ask((command::FLUSH, 0), 0, 0, &[]).expect("a reply");
    assert!(ETIMEDOUT_OR_EIO.contains(&flushed), "{flushed}");
    let line = "flush exceeded the time limit of 20 ms: cancelling it";
    server.await_lines(&format!("export \"\": {line}"), 1);
    let read = client.read(8192, 4096).expect_err("the disk does not answer");
    assert!(!read.to_string().is_empty());
    let line = "read of 4096 bytes at 8192 exceeded the time limit of 20 ms: waiting, because the \
                disk cannot cancel it";
    server.await_lines(&format!("export \"\": {line}"), 1);
    let line = "read of 4096 bytes at 8192 did not complete within 500 ms after its time limit: \
                the disk counts as gone and fails all requests; check it and restart the server";
    server.await_lines(&format!("export \"\": {line}"), 1);
    // The server ends although the read is still at the disk.
    drop(client);
    server.signal("TERM");
    server.wait();
    assert_eq!(server.log().matches("exceeded the time limit").count(), 3, "{}", server.log());
}
