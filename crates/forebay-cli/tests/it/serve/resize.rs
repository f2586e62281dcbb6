//! SIGHUP after the file of an export has changed its size. A guest that sees the growth is in
//! `guest/resize.rs`.

use super::client::{Client, command, option};
use super::server::Server;
use crate::common::{data_file, folder};
use forebay::Disk;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// Errors of NBD.
const IO: u32 = 5;
const NO_SPACE: u32 = 28;

fn set_len(folder: &TempDir, name: &str, len: u64) {
    let path = folder.path().join(name);
    let file = std::fs::File::options().write(true).open(path).expect("it is there");
    file.set_len(len).expect("room for it");
}

/// Writes 4 KiB, and returns the error of the reply.
#[track_caller]
fn write(client: &mut Client, offset: u64, byte: u8) -> u32 {
    client.ask((command::WRITE, 0), offset, 4096, &[byte; 4096]).expect("a reply")
}

#[track_caller]
fn connect(server: &Server, name: &str) -> Client {
    Client::connect(server.socket(), name).expect("a connection")
}

#[test]
fn file_that_has_grown_reaches_new_clients_and_those_that_are_connected() {
    let folder = folder();
    data_file(&folder, "disk.img", MIB as usize);
    let args = "disk.img --vhost-user-blk=unix:v --num-queues=2 --threads=2";
    let server = Server::start_without_terminal(&folder, args);
    let mut clients = [(); 3].map(|()| connect(&server, ""));
    for client in &mut clients {
        assert_eq!(client.size_bytes, MIB);
        assert_eq!(write(client, MIB, 1), NO_SPACE);
    }
    let spec = format!("vhost-user:{}", folder.path().join("v").display());
    let disk = Disk::open(&spec).expect("it opens");
    set_len(&folder, "disk.img", 2 * MIB);
    assert_eq!(write(&mut clients[0], MIB, 1), NO_SPACE, "only SIGHUP reads the size");
    assert_eq!(connect(&server, "").size_bytes, MIB);
    server.signal("HUP");
    server.await_lines("export \"\": grown from 1048576 to 2097152 bytes", 1);
    // The library's driver has no channel for the message. It reads the size only on request.
    server.await_lines("cannot notify the front end of the size 2097152", 1);
    assert_eq!(disk.capacity_bytes(), Some(MIB));
    disk.write_at(&[9; 4096], MIB - 4096).expect("its part of the disk is as before");
    disk.write_at(&[9; 4096], MIB).expect_err("behind its end");
    assert_eq!(disk.reread_size().expect("a reply"), Some(2 * MIB));
    disk.grow(2 * MIB).expect("the server has the new size");
    assert_eq!(disk.capacity_bytes(), Some(2 * MIB));
    disk.write_at(&[9; 4096], MIB).expect("the new part");
    drop(disk);
    let mut new = connect(&server, "");
    assert_eq!(new.size_bytes, 2 * MIB);
    for (nth, client) in clients.iter_mut().chain([&mut new]).enumerate() {
        let (offset, byte) = (2 * MIB - (nth as u64 + 1) * 4096, nth as u8 + 1);
        assert_eq!(write(client, offset, byte), 0);
        assert_eq!(client.read(offset, 4096).expect("a read"), [byte; 4096]);
        assert_eq!(write(client, 2 * MIB, byte), NO_SPACE);
    }
    let disk = Disk::open(&spec).expect("it opens");
    assert_eq!(disk.capacity_bytes(), Some(2 * MIB));
    disk.write_at(&[8; 4096], MIB).expect("a write");
    let mut read = [0; 4096];
    disk.read_at(&mut read, 2 * MIB - 4096).expect("a read");
    assert_eq!(read, [1; 4096]);
    assert_eq!(new.read(MIB, 4096).expect("a read"), [8; 4096]);
    // A reload without a change is none.
    server.signal("HUP");
    server.await_lines("no export has changed its size", 1);
    assert!(server.terminate().success());
    assert_eq!(folder.path().join("disk.img").metadata().expect("it is there").len(), 2 * MIB);
}

#[test]
fn client_in_the_handshake_gets_the_new_size_with_its_choice() {
    let folder = folder();
    data_file(&folder, "disk.img", MIB as usize);
    let server = Server::start_without_terminal(&folder, "disk.img");
    let mut client = Client::haggling(server.socket()).expect("a connection");
    client.option(option::INFO, &[0; 6]).expect("an option");
    let info = client.answer().expect("an answer");
    assert_eq!(info.data[2..10], MIB.to_be_bytes());
    set_len(&folder, "disk.img", 2 * MIB);
    server.signal("HUP");
    server.await_lines("grown from", 1);
    while client.answer().expect("an answer").kind != super::client::answer::ACK {}
    client.go("").expect("the export");
    assert_eq!(client.size_bytes, 2 * MIB);
    assert!(server.terminate().success());
}

#[test]
fn smaller_file_is_refused_by_name_and_stays_safe() {
    let folder = folder();
    for name in ["a.img", "b.img"] {
        data_file(&folder, name, MIB as usize);
    }
    let server = Server::start_without_terminal(&folder, "a.img b.img --name=a --name=b");
    let mut client = connect(&server, "a");
    assert_eq!(write(&mut client, MIB - 4096, 7), 0);
    set_len(&folder, "a.img", MIB / 2);
    set_len(&folder, "b.img", 2 * MIB);
    server.signal("HUP");
    server.await_lines("export \"b\": grown from 1048576 to 2097152 bytes", 1);
    server.await_lines(
        "export \"a\": a.img: refused to shrink from 1048576 to 524288 bytes: clients may use the \
         bytes behind the new end: restore the former size, or restart the server",
        1,
    );
    assert_eq!(connect(&server, "b").size_bytes, 2 * MIB);
    // The size stays. Behind the end of the file, reads fail and writes make it longer.
    assert_eq!(connect(&server, "a").size_bytes, MIB);
    assert_eq!(client.ask((command::READ, 0), MIB - 4096, 4096, &[]).expect("a reply"), IO);
    assert_eq!(client.read(0, 4096).expect("a read").len(), 4096);
    assert_eq!(write(&mut client, MIB - 4096, 6), 0);
    assert_eq!(client.read(MIB - 4096, 4096).expect("a read"), [6; 4096]);
    server.signal("HUP");
    server.await_lines("no export has changed its size", 1);
    // It may still grow.
    set_len(&folder, "a.img", 3 * MIB);
    server.signal("HUP");
    server.await_lines("export \"a\": grown from 1048576 to 3145728 bytes", 1);
    assert!(server.terminate().success());
}

#[test]
fn size_that_is_not_whole_blocks_is_refused() {
    let folder = folder();
    data_file(&folder, "disk.img", MIB as usize);
    let args = "disk.img --vhost-user-blk=unix:v --block-size=4096";
    let server = Server::start_without_terminal(&folder, args);
    set_len(&folder, "disk.img", MIB + 512);
    server.signal("HUP");
    server.await_lines(
        "export \"\": disk.img: refused to grow from 1048576 to 1049088 bytes: the new size is not \
         a multiple of the block size 4096",
        1,
    );
    assert_eq!(connect(&server, "").size_bytes, MIB);
    set_len(&folder, "disk.img", MIB + 4096);
    server.signal("HUP");
    server.await_lines("grown from 1048576 to 1052672 bytes", 1);
    assert!(server.terminate().success());
}
