//! Servers that hang up, send wrong data or break the protocol: each I/O ends, and no caller waits
//! forever.

use super::{LEN, Reader, request, skip, write};
use crate::common::{Numbers, open, submit};
use crate::nbd_server::{NbdServer, export, put_hole};
use forebay::{BlockStatus, Buf, Io, IoError};
use forebay_nbd::server::{Command, NbdError, Request, Transmission};
use forebay_nbd::wire::Framing;
use forebay_nbd::wire::numbers::{OPT_EXTENDED_HEADERS, OPT_STRUCTURED_REPLY};
use std::io::Read;
use std::sync::{Arc, Mutex};

/// Runs `script` for the first read that a server receives. Returns the failure that the disk
/// reports.
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
    // All I/O in flight ends, on every thread that waits.
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
            // Without meta contexts the driver answers without a request.
            assert!(told == lost || !tells && told == Ok(()), "{told:?}");
        });
    });
    assert!(disk.is_failed());
    let result = disk.write_at(&[0; 512], 0);
    assert_eq!(result, Err(IoError::Ended(BlockStatus::Offline)), "and it stays so");
    disk.failure().expect("it knows why")
}

#[test]
fn server_that_hangs_up_fails_the_device_and_all_waits() {
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
            // The server keeps the connection open.
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
        "the server breaks the protocol: a reply to the unknown request 0x909090909090909"
    );
    // More bytes than requested, beyond the end of the caller's buffer.
    let why = lost_by(&[], |reader, transmission, rq| {
        let head = transmission.data(rq, rq.offset + 4095, 2, true, true);
        write(reader, head.as_slice())?;
        reader.read_to_end(&mut Vec::new()).map(|_| ())
    });
    assert!(why.ends_with("outside the range of the request"), "{why}");
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
            // For ENOTSUP the server sends EINVAL, because the client did not request fast zeroes.
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

#[test]
fn a_disk_without_io_notices_nothing_and_uses_nothing_when_its_server_goes() {
    let server = NbdServer::scripted(export(LEN), &[], |_, _| Ok(()));
    let disk = open(&format!("{}&service=on", server.uri()));
    // The disk's thread detects the end of the connection once, and does not keep polling.
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

/// Answers a request, with valid replies that tests then corrupt.
fn answer(transmission: &Transmission, rq: &Request, out: &mut Vec<u8>) {
    match rq.command {
        Err(refused) => transmission.error(rq, refused.error, refused.message, out),
        Ok(Command::Read { .. }) => {
            let half = (rq.len / 2) as u32;
            let first = transmission.data(rq, rq.offset, half, true, false);
            out.extend(first.as_slice());
            out.extend(vec![1; half as usize]);
            let at = rq.offset + u64::from(half);
            match transmission.framing() {
                Framing::Simple => {
                    out.extend(transmission.data(rq, at, half, false, true).as_slice());
                    out.extend(vec![0; half as usize]);
                }
                framing => put_hole(framing, rq, at, half, true, out),
            }
        }
        Ok(Command::BlockStatus { .. }) => transmission.extents(rq, &[(rq.len, 3)], out),
        Ok(_) => out.extend(transmission.done(rq).as_slice()),
    }
}

#[test]
fn every_io_ends_and_no_other_memory_changes_for_any_server_answer() {
    for (nth, declined) in
        [&[][..], &[OPT_EXTENDED_HEADERS], &[OPT_STRUCTURED_REPLY]].into_iter().enumerate()
    {
        let seed = Arc::new(Mutex::new(Numbers(nth as u64 + 1)));
        let mut nr_lost = 0;
        for _ in 0..150 {
            let seed = Arc::clone(&seed);
            let server = NbdServer::scripted(export(LEN), declined, move |reader, transmission| {
                let mut nr_left = 2 + seed.lock().expect("no panic").below(20);
                loop {
                    let rq = request(reader, transmission)?;
                    skip(reader, &rq)?;
                    if rq.command == Ok(Command::Disconnect) {
                        return Ok(());
                    }
                    let mut out = Vec::new();
                    answer(transmission, &rq, &mut out);
                    nr_left = nr_left.saturating_sub(1);
                    if nr_left == 0 {
                        // Flips one random bit in the next few headers.
                        let mut numbers = seed.lock().expect("no panic");
                        let at = numbers.below(out.len().min(80) as u64) as usize;
                        out[at] ^= 1 << numbers.below(8);
                        nr_left = 1;
                        // If the flipped bit announces more data than follows, the client waits for
                        // it. So the server hangs up when no further request arrives.
                        let a_while = std::time::Duration::from_millis(20);
                        reader.get_ref().set_read_timeout(Some(a_while))?;
                    }
                    write(reader, &out)?;
                }
            });
            let disk = open(&server.uri());
            std::thread::scope(|scope| {
                for thread in 0..3u64 {
                    let disk = &disk;
                    scope.spawn(move || {
                        for round in 0..30 {
                            let mut buf = [0xEE; 3 * 1024];
                            let at = ((thread * 31 + round) % 64) * 4096;
                            match round % 4 {
                                0 => drop(disk.write_at(&buf[..1024], at)),
                                1 => drop(disk.block_status(at, 4096, 8, &mut Vec::new())),
                                _ => drop(disk.read_at(&mut buf[1024..2048], at)),
                            }
                            let (before, after) = (&buf[..1024], &buf[2048..]);
                            assert!(before.iter().chain(after).all(|&byte| byte == 0xEE));
                        }
                    });
                }
            });
            nr_lost += u32::from(disk.failure().is_some());
        }
        assert!(nr_lost > 50, "{nr_lost}");
    }
}
