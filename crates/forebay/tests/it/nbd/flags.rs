//! The commands that the driver sends, with their flags, as received by a server.

use super::{LEN, Reader, write};
use crate::common::{open, submit};
use crate::nbd_server::{NbdServer, export};
use forebay::{Buf, Disk, Io};
use forebay_nbd::export::ExportInfo;
use forebay_nbd::server::{Command, Transmission};
use forebay_nbd::wire::numbers::{OPT_EXTENDED_HEADERS, OPT_STRUCTURED_REPLY};
use std::io::Read;
use std::sync::{Arc, Mutex};

// The protocol's constants, repeated here so that the expected values do not depend on the wire
// code.
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const PAYLOAD_LEN: u16 = 1 << 5;

/// Requests that a server has received: command and flags of each.
type Record = Arc<Mutex<Vec<(u16, u16)>>>;

/// Serves every request and records it.
fn record(
    record: &Record,
    reader: &mut Reader<'_>,
    transmission: &Transmission,
) -> std::io::Result<()> {
    loop {
        let mut header = vec![0; transmission.header_len()];
        reader.read_exact(&mut header)?;
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let rq = transmission.parse(&header).expect("a good client");
        if rq.command == Ok(Command::Disconnect) {
            return Ok(());
        }
        record.lock().expect("no panic").push((number(6), number(4)));
        reader.read_exact(&mut vec![0; rq.payload_len as usize])?;
        if matches!(rq.command, Ok(Command::Read { .. })) {
            let head = transmission.data(&rq, rq.offset, rq.len as u32, true, true);
            write(reader, &[head.as_slice(), &vec![0; rq.len as usize]].concat())?;
        } else {
            assert!(rq.command.is_ok(), "{rq:?}");
            write(reader, transmission.done(&rq).as_slice())?;
        }
    }
}

/// Returns a recording server without these options, and a disk on it.
fn recorded(export: ExportInfo, declined: &[u32], keys: &str) -> (NbdServer, Disk, Record) {
    let seen = Record::default();
    let by_server = Arc::clone(&seen);
    let server = NbdServer::scripted(export, declined, move |reader, transmission| {
        record(&by_server, reader, transmission)
    });
    let disk = open(&format!("{}{keys}", server.uri()));
    (server, disk, seen)
}

/// Submits an I/O and waits until it ends.
#[track_caller]
fn run(disk: &Disk, io: Io) {
    let mut queue = disk.queue();
    submit(&mut queue, io);
    let mut done = Vec::new();
    queue.reap(1, 1, &mut done);
    assert!(done[0].result.is_ok(), "{done:?}");
}

/// Returns an export that offers every feature, including fast zeroes.
fn able() -> ExportInfo {
    let mut export = export(LEN);
    export.can.fast_zero = true;
    export
}

#[test]
fn each_command_has_its_flags_and_no_others() {
    for declined in [&[][..], &[OPT_EXTENDED_HEADERS], &[OPT_STRUCTURED_REPLY]] {
        let (_server, disk, seen) = recorded(able(), declined, "");
        let is_extended = declined.is_empty();
        let write = if is_extended { PAYLOAD_LEN } else { 0 };
        let check = |io: Io, expected: &[(u16, u16)]| {
            seen.lock().expect("no panic").clear();
            let shown = format!("{io:?}");
            run(&disk, io);
            assert_eq!(*seen.lock().expect("no panic"), expected, "{shown} {declined:?}");
        };
        check(Io::read(Buf::new(4096), 0), &[(READ, 0)]);
        check(Io::write(Buf::new(4096), 0), &[(WRITE, write)]);
        check(Io::write(Buf::new(4096), 0).fua(), &[(WRITE, write | FUA)]);
        check(Io::flush(), &[(FLUSH, 0)]);
        // The driver sets neither NO_HOLE nor FAST_ZERO: the server may zero a range in any way.
        check(Io::write_zeroes(0, 4096), &[(WRITE_ZEROES, 0)]);
        check(Io::discard(0, 4096), &[(TRIM, 0)]);
        // The layer passes FUA on with writes only; for other commands it issues a flush
        // afterwards.
        check(Io::write_zeroes(0, 4096).fua(), &[(WRITE_ZEROES, 0), (FLUSH, 0)]);
        check(Io::discard(0, 4096).fua(), &[(TRIM, 0), (FLUSH, 0)]);
    }
}

#[test]
fn a_durable_write_has_the_flag_and_no_flush() {
    let (_server, disk, seen) = recorded(able(), &[], "");
    disk.write_durable_at(&[1; 4096], 0).expect("a write");
    assert_eq!(*seen.lock().expect("no panic"), [(WRITE, PAYLOAD_LEN | FUA)]);
}

#[test]
fn without_fua_a_flush_follows_instead() {
    let mut without = able();
    without.can.fua = false;
    for (export, keys) in [(without, ""), (able(), "&fua=off")] {
        let (_server, disk, seen) = recorded(export, &[], keys);
        for io in [Io::write(Buf::new(4096), 0).fua(), Io::write_zeroes(0, 4096).fua()] {
            seen.lock().expect("no panic").clear();
            run(&disk, io);
            let seen = seen.lock().expect("no panic").clone();
            assert_eq!(seen.len(), 2, "{seen:?}");
            assert_eq!(seen[0].1 & FUA, 0, "{seen:?}");
            assert_eq!(seen[1], (FLUSH, 0));
        }
    }
}

#[test]
fn fua_is_refused_if_the_server_has_none() {
    let mut without = able();
    without.can.fua = false;
    let server = NbdServer::new(without, &[]);
    let refused = Disk::open(&format!("{}&fua=on", server.uri()));
    let text = refused.expect_err("the server has no FUA").to_string();
    assert!(text.starts_with("fua=on: expected off: this device has no FUA"), "{text}");
}
