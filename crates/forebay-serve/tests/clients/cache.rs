//! CACHE, of a server at work.

use crate::client::{CACHE, Client, READ, request};
use crate::counters::figure;
use crate::server::Running;
use forebay_serve::Limits;
use std::io::Write;

const LEN: u32 = 8 << 20;

#[test]
fn cache_is_read_in_pieces_of_64_kib_where_there_is_a_cache() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, vec![1; LEN as usize]).unwrap();
    for (keys, nr_expected) in [("", 128), ("?engine=psync", 128), ("?direct=on", 0)] {
        let spec = format!("{}{keys}", disk.display());
        let server = Running::start(folder.path(), &[spec], Limits::default());
        let mut client = Client::new(&server.socket, "0", false);
        assert_eq!(client.ask(CACHE, 0, LEN), 0, "{keys}");
        assert_eq!(figure(&server, "forebay_disk_reads_completed_total"), nr_expected, "{keys}");
    }
}

/// As large as a disk can be: read to its end, neither test would end.
#[test]
fn cache_of_a_huge_disk_ends_with_its_client_and_with_the_server() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::File::create(&disk).unwrap().set_len(8 << 40).unwrap();
    let limits = Limits { threads: 1, ..Limits::default() };
    let mut server = Running::start(folder.path(), &[disk.display().to_string()], limits);
    let cache = |client: &mut Client| {
        let requests = (0..8).flat_map(|nr| request(CACHE, 0, nr, nr << 31, 1 << 31));
        client.socket.write_all(&requests.collect::<Vec<u8>>()).unwrap();
    };
    let mut leaving = Client::new(&server.socket, "0", false);
    cache(&mut leaving);
    let mut staying = Client::new(&server.socket, "0", false);
    assert_eq!(staying.ask(READ, 0, 4096), 0);
    drop(leaving);
    let start = std::time::Instant::now();
    while !server.log().contains("; 8 requests") {
        assert!(start.elapsed().as_secs() < 60, "it is read on without its client");
        assert_eq!(staying.ask(READ, 0, 4096), 0);
    }
    cache(&mut staying);
    server.stop().unwrap();
    for _ in 0..8 {
        assert_eq!(staying.reply(|_| 0).error, 0, "it is answered");
    }
}
