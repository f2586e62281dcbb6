//! NBD commands that carry durability: FUA and flush on the wire.

use super::LEN;
use crate::common::{open, reap_all, submit};
use crate::nbd_server::{NbdServer, export};
use forebay::{Buf, Disk, Io};
use forebay_nbd::server::Command;

const WRITE: Command = Command::Write { fua: false };
const DURABLE_WRITE: Command = Command::Write { fua: true };

/// Runs one I/O on a disk. Returns the commands that the server served for it.
fn commands(server: &NbdServer, disk: &Disk, io: Io) -> Vec<Command> {
    server.take_commands();
    let mut queue = disk.queue();
    submit(&mut queue, io);
    assert!(reap_all(&mut queue)[0].result.is_ok());
    server.take_commands()
}

#[test]
fn a_durable_write_carries_the_flag_and_no_other_does() {
    let server = NbdServer::new(export(LEN), &[]);
    let disk = open(&server.uri());
    let write = || Io::write(Buf::new(4096), 0);
    assert_eq!(commands(&server, &disk, write().fua()), [DURABLE_WRITE]);
    assert_eq!(commands(&server, &disk, write()), [WRITE]);
    server.take_commands();
    assert_eq!(disk.write_durable_at(&[1; 4096], 0), Ok(4096));
    assert_eq!(server.take_commands(), [DURABLE_WRITE]);
    disk.write_at(&[1; 4096], 0).expect("a write");
    disk.flush().expect("a flush");
    assert_eq!(server.take_commands(), [WRITE, Command::Flush]);
}

#[test]
fn without_the_flag_a_flush_follows_a_durable_write() {
    let mut told = export(LEN);
    told.can.fua = false;
    let server = NbdServer::new(told, &[]);
    let disk = open(&server.uri());
    let durable = Io::write(Buf::new(4096), 0).fua();
    assert_eq!(commands(&server, &disk, durable), [WRITE, Command::Flush]);
}
