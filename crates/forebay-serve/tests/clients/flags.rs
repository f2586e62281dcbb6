//! What the flags of a command do at the disk, by the counters of the disk.

use crate::client::{Client, request};
use crate::counters::figure;
use crate::server::Running;
use forebay_serve::Limits;
use std::io::Write;

const WRITE: u16 = 1;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const LEN: u32 = 8 << 20;

/// A server on a file that cannot write durably by itself, so that each FUA asks for a flush that
/// is counted; and its client.
fn serve(folder: &tempfile::TempDir) -> (Running, Client) {
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, vec![1; LEN as usize]).unwrap();
    let spec = format!("{}?fua=off", disk.display());
    let server = Running::start(folder.path(), &[spec], Limits::default());
    let client = Client::new(&server.socket, "0", false);
    (server, client)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Sends a request of this length, with a payload if it is a write, and takes its reply.
#[track_caller]
fn ask(client: &mut Client, (command, flags): (u16, u16), len: u32) {
    let mut bytes = request(command, flags, 1, 0, len);
    if command == WRITE {
        bytes.extend(vec![2; len as usize]);
    }
    client.socket.write_all(&bytes).unwrap();
    assert_eq!(client.reply(|_| 0).error, 0);
}

#[test]
fn fua_of_each_command_is_a_flush_before_the_reply_and_without_it_there_is_none() {
    let folder = folder();
    let (server, mut client) = serve(&folder);
    let flushes = || {
        ["forebay_disk_flushes_asked_total", "forebay_disk_flush_requests_total"]
            .map(|name| figure(&server, name))
    };
    // The larger write goes in four pieces.
    for (command, len) in [(WRITE, 4096), (WRITE, 1 << 20), (TRIM, 65_536), (WRITE_ZEROES, 65_536)]
    {
        let before = flushes();
        ask(&mut client, (command, 0), len);
        assert_eq!(flushes(), before, "command {command} of {len} bytes");
        ask(&mut client, (command, FUA), len);
        let [asked, done] = flushes();
        assert!(asked > before[0], "command {command} of {len} bytes asked for no flush");
        assert!(done > before[1], "command {command} of {len} bytes was not flushed");
    }
    let before = flushes();
    ask(&mut client, (WRITE_ZEROES, FUA | NO_HOLE), 65_536);
    assert_eq!(flushes(), before.map(|nr| nr + 1));
}

#[test]
fn no_hole_keeps_the_space_and_without_it_the_range_is_discarded() {
    let folder = folder();
    let (server, mut client) = serve(&folder);
    let counts = || {
        ["forebay_disk_discards_completed_total", "forebay_disk_write_zeroes_completed_total"]
            .map(|name| figure(&server, name))
    };
    let metadata = || std::fs::metadata(folder.path().join("disk.img")).unwrap();
    let nr_sectors = || std::os::unix::fs::MetadataExt::blocks(&metadata());
    let whole = nr_sectors();
    ask(&mut client, (WRITE_ZEROES, NO_HOLE), LEN / 2);
    assert_eq!(counts(), [0, 1]);
    assert!(nr_sectors() >= whole, "the file has lost space");
    ask(&mut client, (WRITE_ZEROES, 0), LEN / 2);
    assert_eq!(counts(), [1, 1]);
    assert!(nr_sectors() < whole, "the file has all its space");
}
