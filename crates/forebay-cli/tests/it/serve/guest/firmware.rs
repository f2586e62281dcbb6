//! The firmware of a virtual machine: it boots from a disk, and writes without ever flushing.

use super::export::{Disk, Export, is_forebay};
use super::machine::{distribution, start_qemu, wait};
use crate::common::folder;
use std::io::Write;

/// A boot sector for a BIOS. It writes itself to sector 1 by INT 13h, and ends the machine with
/// exit code 67, or 69 if the write has failed.
fn boot_sector() -> [u8; 512] {
    let code = [
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xd8, // mov ds, ax
        0xbe, 0x15, 0x7c, // mov si, the packet below
        0xb8, 0x00, 0x43, // mov ax, 4300h: extended write; the BIOS has set DL
        0xcd, 0x13, // int 13h
        0xb0, 0x21, // mov al, 21h
        0x73, 0x02, // jnc over the next
        0xb0, 0x22, // mov al, 22h
        0xe6, 0xf4, // out f4h, al
        0xf4, // hlt
        0x10, 0, 1, 0, // packet of 16 bytes: one sector
        0x00, 0x7c, 0, 0, // from 0000:7c00
        1, 0, 0, 0, 0, 0, 0, 0, // to sector 1
    ];
    let mut sector = [0; 512];
    sector[..code.len()].copy_from_slice(&code);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

#[test]
fn firmware_boots_from_a_disk_and_its_write_is_durable_without_flush() {
    let test = "firmware_boots_from_a_disk_and_its_write_is_durable_without_flush";
    if distribution(test, &[]).is_none() {
        return;
    }
    let sector = boot_sector();
    let disk = Disk { len_bytes: 1 << 20, ..Disk::default() };
    let export = Export::of_file(&disk, |file| file.write_all(&sector).expect("room for it"));
    let exit = "isa-debug-exit,iobase=0xf4,iosize=4";
    let devices = [export.device("a", ",bootindex=0"), vec!["-device".into(), exit.into()]];
    let folder = folder();
    let mut qemu = start_qemu(&folder, &devices.concat(), &[]);
    let status = wait(&mut qemu);
    assert_eq!(status.code(), Some(67), "{status}");
    assert!(export.contents()[512..1024] == sector, "the BIOS has written it");
    if is_forebay() {
        let nr = export.counter("forebay_disk_flushes_asked_total");
        assert!(nr >= 1, "a driver without FLUSH needs durable writes, but the disk had {nr}");
    }
    export.end();
}
