//! libnbd's programs: they inspect the export, and copy it in both directions.

use super::client::{Client, command};
use super::server::Server;
use super::tools::{is_there, run, try_run};
use crate::common::{data_file, folder, stderr};
use serde_json::Value;
use std::fs::{File, read};

const MIB: usize = 1 << 20;

#[test]
fn nbdinfo_shows_the_export_and_its_features() {
    let test = "nbdinfo_shows_the_export_and_its_features";
    if !is_there("nbdinfo", test) {
        return;
    }
    let folder = folder();
    data_file(&folder, "disk.img", MIB);
    let server = Server::start(&folder, "disk.img");
    let text = run(&folder, "nbdinfo", &["--json", &server.uri("")]);
    let info: Value = text.parse().expect("JSON");
    assert_eq!(info["protocol"], "newstyle-fixed");
    assert_eq!(info["structured"], true);
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], MIB);
    assert_eq!(export["is_read_only"], false);
    for can in ["flush", "fua", "multi_conn", "trim", "zero", "df", "cache"] {
        assert_eq!(export[format!("can_{can}")], true, "{can}: {text}");
    }
    assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]));
    let size = run(&folder, "nbdinfo", &["--size", &server.uri("")]);
    assert_eq!(size.trim(), MIB.to_string());
}

#[test]
fn several_exports_are_listed_and_each_has_its_name() {
    let test = "several_exports_are_listed_and_each_has_its_name";
    if !is_there("nbdinfo", test) {
        return;
    }
    let folder = folder();
    let server = Server::start(&folder, "ram:1M ram:2M --name small --name large");
    let text = run(&folder, "nbdinfo", &["--list", "--json", &server.uri("")]);
    let list: Value = text.parse().expect("JSON");
    let exports = list["exports"].as_array().expect("a list");
    let names: Vec<_> = exports.iter().map(|export| export["export-name"].as_str()).collect();
    assert_eq!(names, [Some("small"), Some("large")], "{text}");
    for (name, size) in [("small", MIB), ("large", 2 * MIB)] {
        let said = run(&folder, "nbdinfo", &["--size", &server.uri(name)]);
        assert_eq!(said.trim(), size.to_string());
    }
    let output = try_run(&folder, "nbdinfo", &["--size", &server.uri("medium")]);
    assert!(!output.status.success(), "no export has that name");
    assert!(stderr(&output).contains("medium") || stderr(&output).contains("export"));
}

#[test]
fn the_map_shows_data_and_holes() {
    let test = "the_map_shows_data_and_holes";
    if !is_there("nbdinfo", test) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("disk.img");
    let file = File::create(&path).expect("a file");
    file.set_len(4 * MIB as u64).expect("it grows");
    let data = [0x5a; MIB];
    std::os::unix::fs::FileExt::write_all_at(&file, &data, MIB as u64).expect("written");
    let server = Server::start(&folder, "disk.img");
    let text = run(&folder, "nbdinfo", &["--map", "--json", &server.uri("")]);
    let map: Value = text.parse().expect("JSON");
    let extents: Vec<_> = map.as_array().expect("a list").iter().collect();
    let row = |nth: usize| {
        ["offset", "length", "type"].map(|key| extents[nth][key].as_u64().expect("a number"))
    };
    let mib = MIB as u64;
    assert_eq!(row(0), [0, mib, 3], "{text}");
    assert_eq!(row(1), [mib, mib, 0], "{text}");
    assert_eq!(row(2), [2 * mib, 2 * mib, 3], "{text}");
    assert_eq!(extents.len(), 3);
}

#[test]
fn copies_into_and_out_of_an_export_match() {
    let test = "copies_into_and_out_of_an_export_match";
    if !is_there("nbdcopy", test) {
        return;
    }
    let folder = folder();
    let len = 8 * MIB;
    let source = data_file(&folder, "source", len);
    for spec in ["disk.img", "disk.img?engine=psync", "ram:8M"] {
        File::create(folder.path().join("disk.img"))
            .expect("a file")
            .set_len(len as u64)
            .expect("");
        let server = Server::start(&folder, spec);
        let uri = server.uri("");
        let many = ["--connections=4", "--requests=64", "--flush"];
        run(&folder, "nbdcopy", &[&many[..], &["source", &uri]].concat());
        run(&folder, "nbdcopy", &[&many[..], &[&uri, "back"]].concat());
        assert!(read(folder.path().join("back")).expect("a copy") == read(&source).expect("it"));
        // Small requests over one connection.
        let small = ["--connections=1", "--request-size=4096", "--requests=64", "--no-extents"];
        run(&folder, "nbdcopy", &[&small[..], &[&uri, "small"]].concat());
        assert!(read(folder.path().join("small")).expect("a copy") == read(&source).expect("it"));
        if spec.starts_with("disk") {
            let image = read(folder.path().join("disk.img")).expect("the image");
            assert!(image == read(&source).expect("it"), "{spec}");
        }
    }
}

#[test]
fn zeroes_are_copied_out_as_holes() {
    let test = "zeroes_are_copied_out_as_holes";
    if !is_there("nbdcopy", test) {
        return;
    }
    let folder = folder();
    let source = folder.path().join("source");
    File::create(&source).expect("a file").set_len(64 * MIB as u64).expect("it grows");
    data_file(&folder, "disk.img", 64 * MIB);
    let server = Server::start(&folder, "disk.img");
    run(&folder, "nbdcopy", &["--flush", "source", &server.uri("")]);
    run(&folder, "nbdcopy", &[&server.uri(""), "back"]);
    assert!(server.terminate().success());
    for name in ["disk.img", "back"] {
        let path = folder.path().join(name);
        assert!(read(&path).expect("it").iter().all(|byte| *byte == 0), "{name}");
    }
    let metadata = folder.path().join("back").metadata().expect("a copy");
    let nr_blocks = std::os::unix::fs::MetadataExt::blocks(&metadata);
    assert!(nr_blocks < 2048, "64 MiB of zeroes have {nr_blocks} sectors");
}

/// As qemu-nbd and nbdkit serve it.
#[test]
fn an_empty_file_is_served_with_size_0() {
    let test = "an_empty_file_is_served_with_size_0";
    if !is_there("nbdinfo", test) || !is_there("nbdcopy", test) {
        return;
    }
    let folder = folder();
    for (nth, args) in ["", "?direct=on", "?engine=psync", " --read-only"].iter().enumerate() {
        File::create(folder.path().join("disk.img")).expect("a file");
        let server = Server::start(&folder, &format!("disk.img{args}"));
        let uri = server.uri("");
        let text = run(&folder, "nbdinfo", &["--json", &uri]);
        let info: Value = text.parse().expect("JSON");
        assert_eq!(info["exports"][0]["export-size"], 0, "{args}: {text}");
        let back = format!("back-{nth}");
        run(&folder, "nbdcopy", &[&uri, &back]);
        assert_eq!(read(folder.path().join(back)).expect("a copy"), Vec::<u8>::new(), "{args}");
        let mut client = Client::connect(server.socket(), "").expect("a connection");
        assert_eq!(client.size_bytes, 0);
        assert_eq!(client.ask((command::FLUSH, 0), 0, 0, &[]).ok(), Some(0), "{args}");
        assert!(client.read(0, 512).is_err(), "{args}: there is nothing to read");
        let written = client.ask((command::WRITE, 0), 0, 512, &[1; 512]).expect("a reply");
        assert_ne!(written, 0, "{args}: there is no room");
        assert!(server.terminate().success());
        assert_eq!(
            read(folder.path().join("disk.img")).expect("the image"),
            Vec::<u8>::new(),
            "{args}"
        );
    }
}
