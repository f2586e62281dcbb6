//! The `nbd` driver: what a server says becomes what a disk is; whatever a server does, each I/O
//! ends, and no caller waits for ever.

// It waits for a descriptor by a system call.
#![allow(unsafe_code)]

use crate::common::{feature, open, submit};
use crate::nbd_server::{NbdServer, export};
use forebay::{BlockStatus, Buf, Disk, Extent, ExtentKind, FeatureState, Io, IoError};
use forebay_nbd::export::{Abilities, BlockSizes};
use forebay_nbd::server::{Command, NbdError, Request, Transmission};
use forebay_nbd::wire::numbers::{OPT_EXTENDED_HEADERS, OPT_GO, OPT_STRUCTURED_REPLY};
use std::io::{BufReader, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

const LEN: u64 = 1 << 20;

type Reader<'a> = BufReader<&'a UnixStream>;

/// The next request, without its payload.
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
fn what_the_server_says_becomes_the_disks_limits() {
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
    assert_eq!(refused, Err(IoError::Refused(forebay::Refusal::ReadOnly)));

    // A server that knows little.
    told.can = Abilities::default();
    told.block_size.min = 1;
    let old = NbdServer::new(told, &[OPT_STRUCTURED_REPLY, OPT_EXTENDED_HEADERS, OPT_GO]);
    let disk = open(&old.uri());
    let limits = disk.limits();
    assert_eq!((limits.logical_block_size, limits.capacity_bytes), (1, Some(LEN + 100)));
    assert_eq!((limits.max_discard_sectors, limits.max_write_zeroes_sectors), (0, 0));
    assert!(!limits.volatile_cache && !limits.fua);
    let refused = disk.discard(0, 1024);
    assert!(matches!(refused, Err(IoError::Refused(forebay::Refusal::NotSupported(_)))));
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
                // Nobody leaves its connection to another.
                all_there.wait();
            });
        }
    });
    assert!(server.nr_connections() <= 2 + 4, "at most those that asked at once");
}

#[test]
fn an_event_loop_without_io_is_left_alone_whatever_the_server_does() {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let server = NbdServer::scripted(export(LEN), &[], move |_, _| {
        let _ = gone.lock().expect("no panic").recv();
        Ok(())
    });
    let disk = open(&format!("{}&nr_hw_queues=1", server.uri()));
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    queue.poll_fd().expect("a descriptor");
    // It may say once that there is something, before there is anything.
    queue.reap(0, 1, &mut done);
    assert!(!is_readable(queue.poll_fd().expect("a descriptor")));
    // It hangs up. With nothing under way there is nothing to be done about that.
    drop(go);
    for _ in 0..1000 {
        assert!(!is_readable(queue.poll_fd().expect("a descriptor")));
        std::thread::yield_now();
    }
    submit(&mut queue, Io::read(Buf::new(512), 0));
    wait_readable(queue.poll_fd().expect("a descriptor"));
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Err(BlockStatus::Offline));
}

#[test]
fn what_cannot_be_had_is_refused_by_name() {
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
            "the server has no TLS, and nbds:// insists",
        ),
        (format!("nbd:unix:{socket}:exportname=no"), "the server has no export `no`"),
        (String::from("nbd+unix:///disk"), "`socket` is missing: ?socket=PATH"),
        (String::from("nbd+vsock://1/x"), "sockets of virtual machines"),
        (String::from("nbd://127.0.0.1:1/x"), "nobody listens there"),
        (
            format!("nbd+unix:///?socket=/{}", "x".repeat(200)),
            "a socket's path has at most 107 bytes",
        ),
        (format!("{}&tls-verify=no", server.uri()), "`tls-verify` is no key of an NBD URI"),
        (format!("{}&queue_dept=1", server.uri()), "did you mean `queue_depth`?"),
        (
            format!("{}&exclusive=on", server.uri()),
            "who else uses an export is the server's to say",
        ),
        (format!("{}&elide=on", server.uri()), "others may write to it"),
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
fn extents_are_those_of_the_bytes_whatever_else_is_under_way() {
    for declined in [&[][..], &[OPT_EXTENDED_HEADERS], &[OPT_STRUCTURED_REPLY]] {
        let server = NbdServer::new(export(LEN), declined);
        let disk = open(&format!("{}&nr_hw_queues=1", server.uri()));
        let tells = !declined.contains(&OPT_STRUCTURED_REPLY);
        // Every other 64 KiB of the first half.
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
                        // From the middle of a block to the middle of a block.
                        disk.block_status(100, LEN - 200, 100, &mut extents).expect("it tells");
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
                        disk.block_status(0, LEN, 2, &mut extents).expect("it tells");
                        assert!(extents.len() <= 2);
                    }
                });
            }
        });
    }
}

/// A disk on a server that does this with its first read, and what is said of its end.
fn lost_by(
    declined: &[u32],
    script: impl Fn(&mut Reader<'_>, &Transmission, &Request) -> std::io::Result<()>
    + Send
    + Sync
    + 'static,
) -> String {
    let server = NbdServer::scripted(export(LEN), declined, move |reader, transmission| {
        loop {
            let rq = request(reader, transmission)?;
            if matches!(rq.command, Ok(Command::Read { .. })) {
                return script(reader, transmission, &rq);
            }
        }
    });
    let tells = !declined.contains(&OPT_STRUCTURED_REPLY);
    let disk = open(&server.uri());
    // All that is under way ends, whoever waits for it.
    std::thread::scope(|scope| {
        for nth in 0..4u64 {
            let disk = &disk;
            scope.spawn(move || {
                let result = disk.read_at(&mut [0; 4096], nth * 4096);
                assert_eq!(result, Err(IoError::Ended(BlockStatus::Offline)));
            });
        }
        scope.spawn(|| {
            let mut extents = Vec::new();
            let told = disk.block_status(0, LEN, 10, &mut extents);
            let lost = Err(IoError::Ended(BlockStatus::Offline));
            // Without contexts it need not ask.
            assert!(told == lost || !tells && told == Ok(()), "{told:?}");
        });
    });
    assert!(disk.is_failed());
    let result = disk.write_at(&[0; 512], 0);
    assert_eq!(result, Err(IoError::Ended(BlockStatus::Offline)), "and it stays so");
    disk.failure().expect("it knows why")
}

#[test]
fn a_server_that_hangs_up_fails_the_device_and_nobody_waits() {
    assert_eq!(lost_by(&[], |_, _, _| Ok(())), "the server has closed the connection");
    let half_a_reply = |reader: &mut Reader<'_>, transmission: &Transmission, rq: &Request| {
        let head = transmission.data(rq, rq.offset, 4096, true, true);
        write(reader, head.as_slice())?;
        write(reader, &[1; 1000])
    };
    assert_eq!(lost_by(&[], half_a_reply), "the server has closed the connection");
}

#[test]
fn a_server_that_breaks_the_protocol_fails_the_device_and_it_is_said_how() {
    let says = |declined: &[u32], bytes: &'static [u8]| {
        lost_by(declined, move |reader, _, _| {
            write(reader, bytes)?;
            // It would go on.
            reader.read_to_end(&mut Vec::new()).map(|_| ())
        })
    };
    let why = says(&[], b"HTTP/1.1 400 Bad Request\r\n");
    assert_eq!(why, "the server breaks the protocol: a reply begins with 0x48545450");
    let mut other = 0x6744_6698u32.to_be_bytes().to_vec();
    other.extend([0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
    let why = says(&[OPT_STRUCTURED_REPLY, OPT_EXTENDED_HEADERS], other.leak());
    assert_eq!(
        why,
        "the server breaks the protocol: a reply to 0x909090909090909, which was not asked"
    );
    // More than was asked for, at a place that memory of somebody else may follow.
    let why = lost_by(&[], |reader, transmission, rq| {
        let head = transmission.data(rq, rq.offset + 4095, 2, true, true);
        write(reader, head.as_slice())?;
        reader.read_to_end(&mut Vec::new()).map(|_| ())
    });
    assert!(why.ends_with("beyond what was asked for"), "{why}");
    let why = lost_by(&[], |reader, transmission, rq| {
        write(reader, transmission.done(rq).as_slice())?;
        reader.read_to_end(&mut Vec::new()).map(|_| ())
    });
    assert_eq!(why, "the server breaks the protocol: a reply ends without all data");
}

#[test]
fn each_error_of_the_server_reaches_its_bio_and_no_other() {
    for declined in [&[][..], &[OPT_EXTENDED_HEADERS], &[OPT_STRUCTURED_REPLY]] {
        let server = NbdServer::scripted(export(LEN), declined, |reader, transmission| {
            loop {
                let rq = request(reader, transmission)?;
                skip(reader, &rq)?;
                let error = NbdError::ALL.get((rq.offset >> 12) as usize);
                let mut out = Vec::new();
                match (rq.command, error) {
                    (Ok(Command::Disconnect), _) => return Ok(()),
                    (_, Some(&error)) => transmission.error(&rq, error, "because", &mut out),
                    _ => out.extend(transmission.done(&rq).as_slice()),
                }
                write(reader, &out)?;
            }
        });
        let disk = open(&format!("{}&nomerges=2", server.uri()));
        let mut queue = disk.queue();
        for nth in 0..12u64 {
            let io = Io::write(Buf::new(4096), nth << 12);
            submit(&mut queue, io.user_data(nth));
        }
        let mut done = Vec::new();
        queue.reap(12, 12, &mut done);
        let expected = [
            BlockStatus::ReadOnly,
            BlockStatus::Io,
            BlockStatus::Resource,
            BlockStatus::Invalid,
            BlockStatus::NoSpace,
            BlockStatus::Invalid,
            // It is told as EINVAL to who did not ask for fast zeroes.
            BlockStatus::Invalid,
            BlockStatus::Transport,
        ];
        for one in done {
            let result = expected.get(one.user_data as usize).map_or(Ok(4096), |&why| Err(why));
            assert_eq!(one.result, result, "{} {declined:?}", one.user_data);
        }
        assert!(!disk.is_failed());
    }
}

/// A server that reads nothing until it is told to, and then does as the first argument says with
/// each write.
fn stubborn(
    go: Receiver<()>,
    mut with_write: impl FnMut(&mut Reader<'_>, &Transmission, &Request) -> std::io::Result<()>
    + Send
    + 'static,
) -> NbdServer {
    let mut with_write = move |reader: &mut Reader<'_>, transmission: &Transmission| {
        let _ = go.recv();
        loop {
            let rq = request(reader, transmission)?;
            if rq.command == Ok(Command::Disconnect) {
                return Ok(());
            }
            with_write(reader, transmission, &rq)?;
        }
    };
    let with_write = Mutex::new(move |reader: &mut Reader<'_>, transmission: &Transmission| {
        with_write(reader, transmission)
    });
    let mut told = export(64 << 20);
    told.can.multi_conn = false;
    NbdServer::scripted(told, &[], move |reader, transmission| {
        (with_write.lock().expect("no panic"))(reader, transmission)
    })
}

#[test]
fn more_than_a_socket_holds_is_submitted_without_waiting_and_sent_later() {
    const NR: u64 = 64;
    let (go, gone) = channel();
    let sums = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sums);
    let server = stubborn(gone, move |reader, transmission, rq| {
        let mut payload = vec![0; rq.payload_len as usize];
        reader.read_exact(&mut payload)?;
        let is_right = payload.iter().all(|&byte| byte == (rq.offset >> 20) as u8 + 1);
        seen.lock().expect("no panic").push(is_right);
        write(reader, transmission.done(rq).as_slice())
    });
    let disk = open(&format!("{}&nomerges=2", server.uri()));
    let mut queue = disk.queue();
    for nth in 0..NR {
        let mut buf = Buf::new(512 << 10);
        buf.fill(nth as u8 + 1);
        submit(&mut queue, Io::write(buf, nth << 20));
    }
    // 32 MiB are there, and nobody has read a byte.
    let mut done = Vec::new();
    assert_eq!(queue.reap(0, 100, &mut done), 0);
    go.send(()).expect("a server");
    queue.reap(NR as usize, NR as usize, &mut done);
    assert!(done.iter().all(|one| one.result == Ok(512 << 10)));
    assert_eq!(*sums.lock().expect("no panic"), [true; NR as usize]);
}

#[test]
fn an_event_loop_is_told_of_room_to_send_as_well() {
    const NR: u64 = 16;
    let (go, gone) = channel();
    let server = stubborn(gone, move |reader, transmission, rq| {
        skip(reader, rq)?;
        write(reader, transmission.done(rq).as_slice())
    });
    let disk = open(&format!("{}&nomerges=2", server.uri()));
    let mut queue = disk.queue();
    queue.poll_fd().expect("a descriptor");
    for nth in 0..NR {
        submit(&mut queue, Io::write(Buf::new(512 << 10), nth << 20));
    }
    go.send(()).expect("a server");
    let mut done = Vec::new();
    while done.len() < NR as usize {
        wait_readable(queue.poll_fd().expect("a descriptor"));
        queue.reap(0, 100, &mut done);
    }
    assert!(done.iter().all(|one| one.result == Ok(512 << 10)));
}

/// Waits until a descriptor is readable, by a wait of the system's for input alone.
fn wait_readable(fd: BorrowedFd<'_>) {
    assert!(poll(fd, 60_000), "it is told");
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(fd, 0)
}

fn poll(fd: BorrowedFd<'_>, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which the kernel writes to.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}

#[test]
fn a_reply_before_all_was_sent_ends_nothing_before_that() {
    let (go, gone) = channel();
    let (ask, asked) = channel();
    let server = stubborn(gone, move |reader, transmission, rq| {
        // The error goes out at once, and the payload is read when the test says so.
        let mut out = Vec::new();
        transmission.error(rq, NbdError::NoSpc, "", &mut out);
        write(reader, &out)?;
        let _ = asked.recv();
        skip(reader, rq)
    });
    let disk = open(&format!("{}&max_sectors_kb=8192", server.uri()));
    let mut queue = disk.queue();
    submit(&mut queue, Io::write(Buf::new(8 << 20), 0));
    go.send(()).expect("a server");
    let mut done = Vec::new();
    for _ in 0..200 {
        // Its memory may still be read by the kernel.
        assert_eq!(queue.reap(0, 1, &mut done), 0);
        std::thread::yield_now();
    }
    ask.send(()).expect("a server");
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Err(BlockStatus::NoSpace));
}

#[test]
fn a_disk_without_io_notices_nothing_and_uses_nothing_when_its_server_goes() {
    let server = NbdServer::scripted(export(LEN), &[], |_, _| Ok(()));
    let disk = open(&format!("{}&service=on", server.uri()));
    // Its thread sees the end once, and does not look again and again.
    while disk.failure().is_none() {
        std::thread::yield_now();
    }
    let before = disk.stats().nr_syscalls;
    for _ in 0..2000 {
        std::thread::yield_now();
    }
    let after = disk.stats().nr_syscalls;
    assert!(after - before < 20, "{}", after - before);
    assert_eq!(disk.flush(), Err(IoError::Ended(BlockStatus::Offline)));
    assert!(disk.is_failed());
}
