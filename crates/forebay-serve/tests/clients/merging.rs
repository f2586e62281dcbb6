//! Requests that a client sends at once become one request of the disk, by the metrics.

use crate::client::{Client, READ, WRITE, request};
use crate::counters::figure;
use crate::server::Running;
use forebay_serve::Limits;
use std::io::Write;

const NR: u64 = 32;
const BLOCK: u32 = 512;

/// The requests fit into one buffer of the socket, so the server receives them at once.
#[test]
fn neighbours_in_one_send_are_one_request() {
    for (command, kind) in [(WRITE, "writes"), (READ, "reads")] {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { threads: 1, ..Limits::default() };
        let server = Running::start(folder.path(), &["ram:1M".to_owned()], limits);
        let mut client = Client::new(&server.socket, "0", false);
        let mut bytes = Vec::new();
        for nr in 0..NR {
            bytes.extend(request(command, 0, nr, nr * u64::from(BLOCK), BLOCK));
            if command == WRITE {
                bytes.extend([nr as u8; BLOCK as usize]);
            }
        }
        assert!(bytes.len() < 32 << 10);
        client.socket.write_all(&bytes).unwrap();
        let len = if command == READ { BLOCK as usize } else { 0 };
        for _ in 0..NR {
            assert_eq!(client.reply(|_| len).error, 0);
        }
        assert_eq!(figure(&server, &format!("forebay_disk_{kind}_completed_total")), 1);
        assert_eq!(figure(&server, &format!("forebay_disk_{kind}_merged_total")), NR - 1);
    }
}
