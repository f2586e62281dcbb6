//! Four connections to one export: each sector is a register (P3), a flush covers the writes of all
//! connections (P2), and a killed server has lost no acknowledged write.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::load::{
    NR_SECTORS, NrWrites, SECTOR, Shared, for_ms, nr_acknowledged_writes, run, run_counted,
    values_of,
};
use super::server::Server;
use super::tools::is_there;
use crate::common::folder;
use forebay_sim::sectors::{Crash, Op, Sectors, Tally};
use tempfile::TempDir;

/// Number of times that a server is killed.
const NR_KILLS: usize = 5;
/// Number of acknowledged writes before a server ends. With fewer, its end would test nothing.
const NR_WRITES: usize = 32;

fn image(folder: &TempDir) -> File {
    let path = folder.path().join("disk.img");
    let file = File::options().create(true).truncate(false).read(true).write(true).open(path);
    let file = file.expect("a file");
    file.set_len(NR_SECTORS * SECTOR as u64).expect("it grows");
    file
}

#[track_caller]
fn check(spec: &str, sectors: &Sectors, ops: &[Op]) -> Tally {
    let tally = sectors.check(ops).unwrap_or_else(|anomaly| panic!("{spec}: {anomaly:?}"));
    // Otherwise the run tested nothing.
    assert!(tally.racing_reads > 50, "{spec}: {tally:?}");
    tally
}

/// Lets the clients work for at least `ms`, until [`NR_WRITES`] are acknowledged.
fn load_for_ms(nr_writes: &NrWrites, ms: u64) {
    for_ms(ms)();
    nr_writes.await_at_least(NR_WRITES);
}

/// Checks that the server had acknowledged enough writes when it ended.
#[track_caller]
fn assert_loaded(run: &str, ops: &[Op]) {
    let nr = nr_acknowledged_writes(ops);
    assert!(nr >= NR_WRITES, "{run}: {nr} acknowledged writes, so its end shows nothing");
}

#[test]
fn sectors_are_registers_for_four_connections() {
    for (spec, reads_may_tear) in [
        ("ram:48k", false),
        ("disk.img", true),
        ("disk.img?direct=on", false),
        ("disk.img?engine=psync&direct=on", false),
        ("fault:ram:48k?rule=any:short=1k:rate=0.3", false),
    ] {
        let folder = folder();
        drop(image(&folder));
        let server = Server::start(&folder, spec);
        let shared =
            Shared { start: Instant::now(), reads_may_tear, may_fail: false, has_ranges: true };
        let ops = run(server.socket(), shared, 0, for_ms(700));
        check(spec, &Sectors::new(NR_SECTORS), &ops);
        assert!(server.terminate().success());
    }
}

/// The disk of another server, through the built-in client, works like any other disk.
#[test]
fn sectors_are_registers_through_a_chain_of_servers() {
    let (below, above) = (folder(), folder());
    drop(image(&below));
    let first = Server::start(&below, "disk.img?direct=on");
    let second = Server::start(&above, &first.uri(""));
    let shared =
        Shared { start: Instant::now(), reads_may_tear: false, may_fail: false, has_ranges: true };
    let ops = run(second.socket(), shared, 0, for_ms(700));
    check("a chain", &Sectors::new(NR_SECTORS), &ops);
    assert!(second.terminate().success());
    assert!(first.terminate().success());
}

#[test]
fn a_server_that_is_killed_has_lost_nothing_that_it_acknowledged() {
    for (spec, reads_may_tear) in [("disk.img", true), ("disk.img?direct=on", false)] {
        let folder = folder();
        let file = image(&folder);
        let mut sectors = Sectors::new(NR_SECTORS);
        let start = Instant::now();
        for nth in 0..NR_KILLS {
            let server = Server::start(&folder, spec);
            let shared = Shared { start, reads_may_tear, may_fail: false, has_ranges: true };
            let socket = server.socket().to_owned();
            let kill = |nr_writes: &NrWrites| {
                load_for_ms(nr_writes, 150 + 30 * nth as u64);
                server.kill();
            };
            let ops = run_counted(&socket, shared, nth as u64 * 1_000_000, kill);
            assert_loaded(&format!("{spec}, kill {nth}"), &ops);
            // The sync waits for I/O that the kernel still had to complete for the killed process.
            file.sync_all().expect("a sync");
            let found = values_of(&std::fs::read(folder.path().join("disk.img")).expect("it"));
            sectors
                .crash(&ops, Crash::Server, &found)
                .unwrap_or_else(|anomaly| panic!("{spec}, kill {nth}: {anomaly:?}"));
        }
        // The next server works on the same image.
        let server = Server::start(&folder, spec);
        let shared = Shared { start, reads_may_tear, may_fail: false, has_ranges: true };
        let ops = run(server.socket(), shared, 100_000_000, for_ms(150));
        check(spec, &sectors, &ops);
    }
}

/// The server's disk is another server that keeps unflushed data in memory and is killed, as in a
/// power failure.
#[test]
fn flushed_data_survives_the_loss_of_the_cache_below() {
    let test = "flushed_data_survives_the_loss_of_the_cache_below";
    if !is_there("nbdkit", test) {
        return;
    }
    let folder = folder();
    drop(image(&folder));
    let (mut sectors, start) = (Sectors::new(NR_SECTORS), Instant::now());
    let (mut nr_lost, mut nth) = (0, 0);
    // A kill directly after a flush loses nothing, so it proves nothing.
    while nr_lost < 2 && nth < 40 {
        nth += 1;
        let below = folder.path().join("below");
        let _ = std::fs::remove_file(&below);
        let args = ["--foreground", "--filter=cache", "--unix"];
        let mut nbdkit = Command::new("nbdkit")
            .args(args)
            .arg(&below)
            .args(["file", "disk.img", "cache=writeback"])
            .current_dir(folder.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be run");
        await_socket(&below);
        let server = Server::start(&folder, &format!("nbd+unix:///?socket={}", below.display()));
        // nbdkit's cache has lost writes around a range that was zeroed or trimmed and then
        // flushed, with any client.
        let (reads_may_tear, may_fail, has_ranges) = (false, true, false);
        let shared = Shared { start, reads_may_tear, may_fail, has_ranges };
        let kill = |nr_writes: &NrWrites| {
            load_for_ms(nr_writes, 100 + 13 * nth);
            nbdkit.kill().expect("it runs");
            nbdkit.wait().expect("a child");
            for_ms(50)();
        };
        let ops = run_counted(server.socket(), shared, nth * 1_000_000, kill);
        drop(server);
        assert_loaded(&format!("kill {nth}"), &ops);
        let found = values_of(&std::fs::read(folder.path().join("disk.img")).expect("it"));
        let as_server = sectors.clone().crash(&ops, Crash::Server, &found);
        nr_lost += u32::from(as_server.is_err());
        sectors
            .crash(&ops, Crash::Power, &found)
            .unwrap_or_else(|anomaly| panic!("kill {nth}: {anomaly:?}"));
    }
    assert!(nr_lost == 2, "next to nothing was lost, so nothing was shown");
}

fn await_socket(socket: &Path) {
    let start = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(start.elapsed().as_secs() < 30, "no server listens at {}", socket.display());
        for_ms(5)();
    }
}

#[test]
fn a_server_that_is_asked_to_end_drains_flushes_and_exits_with_0() {
    for spec in ["disk.img", "disk.img?direct=on", "disk.img?engine=psync"] {
        let folder = folder();
        drop(image(&folder));
        let mut server = Server::start(&folder, spec);
        let shared = Shared {
            start: Instant::now(),
            reads_may_tear: true,
            may_fail: false,
            has_ranges: true,
        };
        let socket = server.socket().to_owned();
        let terminate = |nr_writes: &NrWrites| {
            load_for_ms(nr_writes, 200);
            server.signal("TERM");
            assert!(server.wait().success(), "{spec}: {}", server.log());
        };
        let ops = run_counted(&socket, shared, 0, terminate);
        assert_loaded(spec, &ops);
        let found = values_of(&std::fs::read(folder.path().join("disk.img")).expect("it"));
        Sectors::new(NR_SECTORS)
            .crash(&ops, Crash::Server, &found)
            .unwrap_or_else(|anomaly| panic!("{spec}: {anomaly:?}"));
        assert!(UnixStream::connect(&socket).is_err(), "nobody listens");
    }
}
