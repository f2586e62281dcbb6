//! The `nbd` driver: the server's export becomes the disk's properties. Each I/O ends and no caller
//! waits forever, for any behaviour of the server.

mod durable;
mod flags;
mod hostile;
mod sending;

use crate::common::{feature, open, submit};
use crate::nbd_server::{NbdServer, export};
use forebay::{Buf, Disk, Extent, ExtentKind, FeatureState, Io, IoError};
use forebay_nbd::export::Abilities;
use forebay_nbd::server::{Request, Transmission};
use forebay_nbd::wire::BlockSizes;
use forebay_nbd::wire::numbers::{OPT_EXTENDED_HEADERS, OPT_GO, OPT_STRUCTURED_REPLY};
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;

const LEN: u64 = 1 << 20;

type Reader<'a> = BufReader<&'a UnixStream>;

/// Reads the next request, without its payload.
fn request(reader: &mut Reader<'_>, transmission: &Transmission) -> std::io::Result<Request> {
    let mut header = vec![0; transmission.header_len()];
    reader.read_exact(&mut header)?;
    Ok(transmission.parse(&header).expect("a good client"))
}

fn skip(reader: &mut Reader<'_>, rq: &Request) -> std::io::Result<()> {
    reader.read_exact(&mut vec![0; rq.payload_len as usize])
}

fn write(reader: &Reader<'_>, bytes: &[u8]) -> std::io::Result<()> {
    let mut stream: &UnixStream = reader.get_ref();
    stream.write_all(bytes)
}

#[test]
fn limits_of_the_server_become_the_disks_limits() {
    let mut told = export(LEN + 100);
    told.can.rotational = true;
    told.can.fua = false;
    told.can.multi_conn = false;
    told.block_size = BlockSizes { min: 1024, preferred: 8192, max: 64 << 10 };
    told.description = String::from("a tail that is out of reach");
    let server = NbdServer::new(told.clone(), &[]);
    let disk = open(&server.uri());
    let limits = disk.limits();
    assert_eq!(limits.capacity_bytes, Some(LEN), "whole blocks");
    assert_eq!((limits.logical_block_size, limits.physical_block_size), (1024, 8192));
    assert_eq!((limits.io_min, limits.max_hw_sectors, limits.max_sectors), (8192, 128, 128));
    assert!(limits.rotational && limits.volatile_cache && !limits.fua && !limits.read_only);
    assert_eq!(disk.info().policy.nr_hw_queues, 1, "one connection, one context");
    let FeatureState::Present(how) = feature(disk.info(), "nbd") else { panic!("it is there") };
    assert_eq!(how, "extended headers; it says: a tail that is out of reach");
    let refused = disk.read_at(&mut [0; 512], 0);
    assert!(matches!(refused, Err(IoError::Refused(_))), "half a block");

    told.can = Abilities { read_only: true, ..Abilities::default() };
    let server = NbdServer::new(told.clone(), &[]);
    let disk = open(&server.uri());
    assert!(disk.limits().read_only && !disk.limits().volatile_cache);
    assert_eq!(disk.read_at(&mut [0; 1024], 0), Ok(1024));
    let refused = disk.write_at(&[0; 1024], 0);
    assert_eq!(refused, Err(IoError::Refused(forebay::SubmitErrorKind::ReadOnly)));

    // A server with few features.
    told.can = Abilities::default();
    told.block_size.min = 1;
    let old = NbdServer::new(told, &[OPT_STRUCTURED_REPLY, OPT_EXTENDED_HEADERS, OPT_GO]);
    let disk = open(&old.uri());
    let limits = disk.limits();
    assert_eq!((limits.logical_block_size, limits.capacity_bytes), (1, Some(LEN + 100)));
    assert_eq!((limits.max_discard_sectors, limits.max_write_zeroes_sectors), (0, 0));
    assert!(!limits.volatile_cache && !limits.fua);
    let refused = disk.discard(0, 1024);
    assert!(matches!(refused, Err(IoError::Refused(forebay::SubmitErrorKind::NotSupported(_)))));
    disk.flush().expect("it ends at once");
    disk.write_at(&[7; 3], LEN + 97).expect("the last bytes");
}

#[test]
fn each_context_has_a_connection_where_the_server_allows_several() {
    for multi_conn in [true, false] {
        let mut told = export(LEN);
        told.can.multi_conn = multi_conn;
        let server = NbdServer::new(told, &[]);
        let disk =
            open(&format!("{}{}", server.uri(), if multi_conn { "&nr_hw_queues=3" } else { "" }));
        assert_eq!(server.nr_connections(), 1);
        std::thread::scope(|scope| {
            for nth in 0..4u64 {
                let disk = &disk;
                scope.spawn(move || {
                    let mut queue = disk.queue();
                    for round in 0..50 {
                        let mut buf = Buf::new(4096);
                        buf.fill(nth as u8 ^ round);
                        submit(&mut queue, Io::write(buf, nth * 4096));
                        submit(&mut queue, Io::flush());
                        let mut done = Vec::new();
                        queue.reap(2, 2, &mut done);
                        submit(&mut queue, Io::read(Buf::new(4096), nth * 4096));
                        queue.reap(1, 1, &mut done);
                        let read = done.pop().and_then(|done| done.buf).expect("a buffer");
                        assert!(read.iter().all(|&byte| byte == nth as u8 ^ round));
                    }
                });
            }
        });
        let nr = server.nr_connections();
        assert!(if multi_conn { (2..=5).contains(&nr) } else { nr == 1 }, "{multi_conn} {nr}");
    }
}

#[test]
fn threads_for_which_the_server_has_no_connection_share_one() {
    let server = NbdServer::limited(export(LEN), 2);
    let disk = open(&format!("{}&nr_hw_queues=5", server.uri()));
    let all_there = std::sync::Barrier::new(5);
    std::thread::scope(|scope| {
        for nth in 0..5u64 {
            let (disk, all_there) = (&disk, &all_there);
            scope.spawn(move || {
                let mut queue = disk.queue();
                let mut done = Vec::new();
                for round in 0..50 {
                    submit(&mut queue, Io::write(Buf::new(512), (nth * 50 + round) * 512));
                    queue.reap(1, 1, &mut done);
                }
                assert!(done.iter().all(|one| one.result == Ok(512)));
                // No thread gives its connection up before all have one.
                all_there.wait();
            });
        }
    });
    assert!(server.nr_connections() <= 2 + 4, "at most those that asked at once");
}

#[test]
fn unavailable_export_or_feature_is_refused_by_name() {
    let server = NbdServer::new(export(LEN), &[]);
    let socket = server.socket.display().to_string();
    let single = {
        let mut told = export(LEN);
        told.can.multi_conn = false;
        NbdServer::new(told, &[])
    };
    let cases = [
        (format!("nbd+unix:///other?socket={socket}"), "the server has no export `other`"),
        (format!("nbd+unix:///disk?socket={socket}.not"), "there is no such socket"),
        (
            format!("nbds+unix:///disk?socket={socket}"),
            match cfg!(feature = "tls") {
                true => "the server does not support TLS, which nbds:// requires",
                false => "build forebay with its feature `tls`",
            },
        ),
        (format!("nbd:unix:{socket}:exportname=no"), "the server has no export `no`"),
        (String::from("nbd+unix:///disk"), "`socket` is missing: ?socket=PATH"),
        (String::from("nbd+vsock://1/x"), "sockets of virtual machines"),
        (String::from("nbd://127.0.0.1:1/x"), "no program listens there"),
        (
            format!("nbd+unix:///?socket=/{}", "x".repeat(200)),
            "a socket's path has at most 107 bytes",
        ),
        (format!("{}&tls-verify=no", server.uri()), "`tls-verify` is not a key of an NBD URI"),
        (format!("{}&queue_dept=1", server.uri()), "did you mean `queue_depth`?"),
        (
            format!("{}&exclusive=on", server.uri()),
            "the server decides which other clients use an export",
        ),
        (format!("{}&elide=on", server.uri()), "other programs may write to it"),
        (format!("{}&nr_hw_queues=2", single.uri()), "a flush on one connection covers all"),
    ];
    for (spec, said) in cases {
        let error = Disk::open(&spec).expect_err(&spec).to_string();
        assert!(error.contains(said), "{spec}: {error}");
    }
    let disk = open(&format!("nbd:unix:{socket}:exportname=disk?queue_depth=4"));
    assert_eq!(disk.info().policy.queue_depth, 4);
}

#[test]
fn reply_received_by_the_waiting_thread_reaches_its_caller() {
    let server = NbdServer::new(export(LEN), &[]);
    let disk = open(&format!("{}&service=on", server.uri()));
    for _ in 0..3000 {
        // No other I/O is in flight, so the disk's thread may also receive the reply.
        disk.block_status(0, LEN, 10, &mut Vec::new()).expect("block status");
    }
}

#[test]
fn extents_match_the_bytes_beside_other_requests() {
    for declined in [&[][..], &[OPT_EXTENDED_HEADERS], &[OPT_STRUCTURED_REPLY]] {
        let server = NbdServer::new(export(LEN), declined);
        let disk = open(&format!("{}&nr_hw_queues=1", server.uri()));
        let tells = !declined.contains(&OPT_STRUCTURED_REPLY);
        // Writes every other 64 KiB of the first half.
        for nth in 0..4 {
            disk.write_at(&[1; 64 << 10], nth << 17).expect("a write");
        }
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut buf = [0; 4096];
                    for _ in 0..300 {
                        assert_eq!(disk.read_at(&mut buf, 1 << 17), Ok(4096));
                        assert_eq!(buf, [1; 4096]);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..100 {
                        let mut extents = Vec::new();
                        // The range begins and ends in the middle of a block.
                        disk.block_status(100, LEN - 200, 100, &mut extents).expect("block status");
                        let sum: u64 = extents.iter().map(|extent| extent.len).sum();
                        assert_eq!(sum, LEN - 200);
                        let part = 64u64 << 10;
                        let (data, hole) = (ExtentKind::Data, ExtentKind::Hole);
                        let all = [
                            (part - 100, data),
                            (part, hole),
                            (part, data),
                            (part, hole),
                            (part, data),
                            (part, hole),
                            (part, data),
                            (9 * part - 100, hole),
                        ];
                        let all = all.map(|(len, kind)| Extent { len, kind });
                        match tells {
                            true => assert_eq!(extents, all),
                            false => assert_eq!(extents, [Extent { len: LEN - 200, kind: data }]),
                        }
                        disk.block_status(0, LEN, 2, &mut extents).expect("block status");
                        assert!(extents.len() <= 2);
                    }
                });
            }
        });
    }
}
