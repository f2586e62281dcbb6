//! QEMU's programs: its own NBD client, and its drivers that compare two images.

use super::server::Server;
use super::tools::{is_there, run, try_run};
use crate::common::{data_file, folder, stdout};
use std::fs::{File, copy, read};

const MIB: usize = 1 << 20;

#[test]
fn an_image_is_converted_into_an_export_and_compared_with_it() {
    let test = "an_image_is_converted_into_an_export_and_compared_with_it";
    if !is_there("qemu-img", test) {
        return;
    }
    let folder = folder();
    data_file(&folder, "part", 5 * MIB);
    // The source image has holes, and another format.
    run(&folder, "qemu-img", &["create", "-q", "-f", "qcow2", "source.qcow2", "32M"]);
    let write = ["-f", "qcow2", "-c", "write -s part 3M 5M", "source.qcow2"];
    run(&folder, "qemu-io", &write);
    File::create(folder.path().join("disk.img")).expect("a file").set_len(32 << 20).expect("");
    let server = Server::start(&folder, "disk.img");
    let uri = server.uri("");
    let convert = ["convert", "-n", "-m", "16", "-W", "-f", "qcow2", "-O", "raw", "source.qcow2"];
    run(&folder, "qemu-img", &[&convert[..], &[&uri]].concat());
    run(&folder, "qemu-img", &["compare", "-f", "qcow2", "-F", "raw", "source.qcow2", &uri]);
    run(&folder, "qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, "back.img"]);
    let image = read(folder.path().join("disk.img")).expect("the image");
    assert!(image[3 * MIB..8 * MIB] == read(folder.path().join("part")).expect("it"));
    assert!(image == read(folder.path().join("back.img")).expect("it"));
}

#[test]
fn qemu_io_reads_writes_zeroes_discards_and_flushes() {
    let test = "qemu_io_reads_writes_zeroes_discards_and_flushes";
    if !is_there("qemu-io", test) {
        return;
    }
    let folder = folder();
    data_file(&folder, "disk.img", 8 * MIB);
    let server = Server::start(&folder, "disk.img");
    let commands = [
        "write -P 0x11 0 1M",
        "write -f -P 0x22 64k 4k",
        "write -z 128k 64k",
        "write -z -u 192k 64k",
        "write -z -n 256k 64k",
        "aio_write -P 0x33 512k 64k",
        "aio_write -P 0x44 576k 64k",
        "aio_flush",
        "discard 640k 64k",
        "flush",
        "read -P 0x11 0 64k",
        "read -P 0x22 64k 4k",
        "read -P 0x11 68k 60k",
        "read -P 0 128k 128k",
        "read -P 0x33 512k 64k",
        "read -P 0x44 576k 64k",
        "write -P 0x55 1000448 512",
        "read -P 0x55 1000448 512",
    ];
    let mut args = vec!["-f", "raw"];
    for command in &commands {
        args.extend(["-c", command]);
    }
    let uri = server.uri("");
    args.push(&uri);
    let output = try_run(&folder, "qemu-io", &args);
    let said = stdout(&output);
    assert!(output.status.success() && !said.contains("failed"), "{said}");
    assert!(server.terminate().success());
    let image = read(folder.path().join("disk.img")).expect("the image");
    assert!(image[512 << 10..576 << 10].iter().all(|byte| *byte == 0x33));
}

/// `blkverify` sends every write to both images, and compares every read.
#[test]
fn every_read_is_compared_with_a_reference() {
    let test = "every_read_is_compared_with_a_reference";
    if !is_there("qemu-img", test) {
        return;
    }
    let folder = folder();
    data_file(&folder, "disk.img", 8 * MIB);
    copy(folder.path().join("disk.img"), folder.path().join("reference.img")).expect("a copy");
    let server = Server::start(&folder, "disk.img");
    let options = format!(
        "driver=blkverify,test.driver=nbd,test.server.type=unix,test.server.path={},\
         raw.driver=raw,raw.file.driver=file,raw.file.filename=reference.img",
        server.socket().display()
    );
    let mut script = Vec::new();
    for batch in 0..16u64 {
        // Eight requests at a time, some adjacent or overlapping earlier ones. No range is read
        // while it is written: both disks would have to execute such requests in the same order.
        for nth in batch * 8..batch * 8 + 8 {
            let at = nth * 66_560 % (7 << 20);
            script.push(format!("aio_write -P {} {at} {}", 1 + nth % 250, 512 * (130 - nth % 7)));
        }
        script.push("aio_flush".to_owned());
        for nth in batch * 8..batch * 8 + 8 {
            let at = nth * 99_840 % (7 << 20);
            script.push(format!("aio_read {at} {}", 512 * (1 + nth % 200)));
        }
        script.push("aio_flush".to_owned());
    }
    script.push("read 0 8M".to_owned());
    let mut args = vec!["--image-opts"];
    for command in &script {
        args.extend(["-c", command]);
    }
    args.push(&options);
    let output = try_run(&folder, "qemu-io", &args);
    assert!(output.status.success(), "{output:?}");
    assert!(!stdout(&output).contains("failed"), "{output:?}");
    assert!(server.terminate().success());
    let both = ["disk.img", "reference.img"].map(|name| read(folder.path().join(name)).expect(""));
    assert!(both[0] == both[1]);
}

/// The server never guesses a format: a guest that can write an image header could otherwise read
/// files of the host.
#[test]
fn raw_means_raw() {
    let test = "raw_means_raw";
    if !is_there("qemu-img", test) {
        return;
    }
    let folder = folder();
    std::fs::write(folder.path().join("secret"), "not for guests").expect("a file");
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "secret", "disk.img", "1M"];
    run(&folder, "qemu-img", &create);
    let image = read(folder.path().join("disk.img")).expect("the image");
    let server = Server::start(&folder, "disk.img");
    run(&folder, "qemu-img", &["convert", "-f", "raw", "-O", "raw", &server.uri(""), "seen"]);
    let seen = read(folder.path().join("seen")).expect("what was seen");
    assert_eq!(&seen[..4], b"QFI\xfb", "the header is data");
    assert!(seen[..image.len()] == image[..]);
    assert!(seen[image.len()..].iter().all(|byte| *byte == 0));
    // The operator may have intended qcow2.
    let warning = "Z disk.img: this is a qcow2 image, and it is served as raw";
    assert!(server.log().lines().any(|line| line.contains(warning)), "{}", server.log());
}

#[test]
fn qemu_reads_an_export_of_size_0() {
    let test = "qemu_reads_an_export_of_size_0";
    if !is_there("qemu-img", test) {
        return;
    }
    let folder = folder();
    File::create(folder.path().join("disk.img")).expect("a file");
    let server = Server::start(&folder, "disk.img");
    let uri = server.uri("");
    let text = run(&folder, "qemu-img", &["info", "--output=json", "-f", "raw", &uri]);
    let info: serde_json::Value = text.parse().expect("JSON");
    assert_eq!(info["virtual-size"], 0, "{text}");
    run(&folder, "qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, "back.img"]);
    assert_eq!(read(folder.path().join("back.img")).expect("a copy"), Vec::<u8>::new());
    run(&folder, "qemu-img", &["compare", "-f", "raw", "-F", "raw", "disk.img", &uri]);
    assert!(server.terminate().success());
}
