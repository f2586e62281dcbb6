//! Disks that do not answer within `io_timeout_ms`. The server answers its clients and logs the
//! requests. An NBD disk with a time limit of its own gives up a server whose disk hangs.

use super::client::{Client, command};
use super::server::Server;
use crate::common::folder;
use forebay::{BlockStatus, Buf, Completion, Disk, Io, IoError};
use std::time::{Duration, Instant};

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

const LIMIT: Duration = Duration::from_millis(200);
const GRACE: Duration = Duration::from_millis(100);
/// How long a late request takes.
const SLOW: Duration = Duration::from_secs(2);

/// Calls `act` with NBD disks that have time limits, with a shared and with an owned context, on a
/// server of this disk.
fn on_each_client(served: &str, act: impl Fn(&Disk)) {
    let folder = folder();
    let server = Server::start(&folder, served);
    let limits =
        format!("io_timeout_ms={}&io_timeout_grace_ms={}", LIMIT.as_millis(), GRACE.as_millis());
    for nr in [1, 2] {
        let spec = format!("{}&nr_hw_queues={nr}&{limits}", server.uri(""));
        act(&Disk::open(&spec).expect("the server listens"));
    }
    // A server whose disk hangs does not end by itself.
    server.kill();
}

fn read(disk: &Disk, offset: u64) -> Completion {
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    queue.submit(Io::read(Buf::new(4096), offset)).expect("a good read");
    queue.reap(1, 1, &mut done);
    done.remove(0)
}

/// Reads the block that the served disk does not return, and checks that the disk is given up.
fn read_in_vain(disk: &Disk) {
    let begin = Instant::now();
    let done = read(disk, 0);
    let took = begin.elapsed();
    assert!(LIMIT + GRACE <= took && took < SLOW / 2, "{took:?}");
    assert_eq!((done.result, done.buf.is_none()), (Err(BlockStatus::Timeout), true));
    assert!(disk.is_failed());
    assert_eq!(read(disk, 8192).result, Err(BlockStatus::Offline));
    assert_eq!((disk.stats().queue.timeouts, disk.stats().queue.early_ends), (1, 1));
}

#[test]
fn nbd_disk_gives_up_a_server_whose_disk_is_late_and_can_be_revived() {
    on_each_client("fault:ram:1M?rule=read:delay=2s:range=0+4096", |disk| {
        let begin = Instant::now();
        read_in_vain(disk);
        disk.revive();
        assert_eq!(read(disk, 8192).result, Ok(4096), "beside the late read");
        // The caller keeps this memory, so the call waits for the server.
        assert_eq!(disk.read_at(&mut [0; 4096], 0), Ok(4096));
        assert!(begin.elapsed() >= SLOW);
    });
}

#[test]
fn nbd_disk_closes_while_the_disk_of_its_server_hangs() {
    on_each_client("fault:ram:1M?rule=read:hang:range=0+4096", |disk| {
        // A disk of its own: the caller keeps the other one open.
        let disk = Disk::open(&disk.info().spec).expect("the server listens");
        let begin = Instant::now();
        read_in_vain(&disk);
        drop(disk);
        assert!(begin.elapsed() < SLOW / 2);
    });
}

#[test]
fn nbd_disk_survives_a_time_limit_of_the_served_disk() {
    let served = "fault:ram:1M?rule=read:hang:range=0+4096&io_timeout_ms=10";
    on_each_client(served, |disk| {
        let begin = Instant::now();
        let error = disk.read_at(&mut [0; 4096], 0).expect_err("it hangs");
        let is_known = [BlockStatus::Timeout, BlockStatus::Io].map(IoError::Ended).contains(&error);
        assert!(is_known && begin.elapsed() < SLOW / 2, "{error}");
        assert!(!disk.is_failed());
        assert_eq!(disk.read_at(&mut [0; 4096], 8192), Ok(4096));
    });
}
