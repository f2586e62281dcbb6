//! fio's engine `nbd`, which verifies the data that it wrote.

use super::server::Server;
use super::tools::{is_there, run};
use crate::common::folder;
use std::fs::File;

#[track_caller]
fn verify(test: &str, spec: &str, options: &str) {
    if !is_there("fio", test) {
        return;
    }
    let folder = folder();
    File::create(folder.path().join("disk.img")).expect("a file").set_len(32 << 20).expect("");
    let server = Server::start(&folder, spec);
    let args = format!(
        "--name=verify --ioengine=nbd --size=16M --direct=1 --randrepeat=1 --verify_fatal=1 \
         --verify_state_save=0 {options}"
    );
    let uri = format!("--uri={}", server.uri(""));
    let mut args: Vec<_> = args.split_whitespace().collect();
    args.push(&uri);
    run(&folder, "fio", &args);
    assert!(server.terminate().success());
}

#[test]
fn fio_verifies_random_writes_of_two_jobs() {
    let test = "fio_verifies_random_writes_of_two_jobs";
    let options = "--rw=randwrite --bs=4k --iodepth=32 --numjobs=2 --offset_increment=16M \
                   --verify=crc32c";
    verify(test, "disk.img", options);
    verify(test, "ram:32M", options);
}

#[test]
fn fio_verifies_sequential_writes_of_many_sizes() {
    let test = "fio_verifies_sequential_writes_of_many_sizes";
    let options = "--rw=write --bs=4k --iodepth=64 --verify=crc32c";
    verify(test, "disk.img", options);
    let options = "--rw=randrw --bsrange=512-64k --bs_unaligned=0 --iodepth=16 --verify=crc32c \
                   --verify_backlog=256 --serialize_overlap=1 --verify_interval=512";
    verify(test, "disk.img", options);
}
