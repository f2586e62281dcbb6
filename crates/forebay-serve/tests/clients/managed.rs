//! A server whose exports are added, removed and changed over its control socket while clients use
//! it.

use crate::client::{Client, FLUSH, READ, WRITE, request};
use crate::counters::metrics;
use crate::server::Running;
use forebay_serve::{ExportOptions, Limits, Options};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// A client of the control socket.
struct Control {
    socket: BufReader<UnixStream>,
}

impl Control {
    fn connect(path: &Path) -> Control {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Control { socket: BufReader::new(socket) }
    }

    fn send(&mut self, request: &Value) {
        writeln!(self.socket.get_mut(), "{request}").unwrap();
    }

    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.socket.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect(&line)
    }

    fn ask(&mut self, request: Value) -> Value {
        self.send(&request);
        self.reply()
    }

    fn error(&mut self, request: Value) -> String {
        let reply = self.ask(request);
        reply["error"].as_str().unwrap_or_else(|| panic!("no error: {reply}")).to_owned()
    }
}

fn options(folder: &Path, specs: &[(&str, &str)]) -> (Options, PathBuf) {
    let own = folder.join("run");
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o700)).unwrap();
    let export = |(name, spec): &(&str, &str)| {
        let (spec, name) = ((*spec).to_owned(), (*name).to_owned());
        ExportOptions { spec, name, ..ExportOptions::default() }
    };
    let control = own.join("control");
    let limits = Limits { threads: 2, ..Limits::default() };
    let exports = specs.iter().map(export).collect();
    (Options { exports, control: Some(control.clone()), limits, ..Options::default() }, control)
}

fn start(folder: &Path, specs: &[(&str, &str)]) -> (Running, Control) {
    let (options, control) = options(folder, specs);
    let running = Running::with_options(folder, options);
    (running, Control::connect(&control))
}

fn image(folder: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn write(client: &mut Client, at: u64, byte: u8) -> bool {
    let mut bytes = request(WRITE, 0, 7, at, BLOCK as u32);
    bytes.extend([byte; BLOCK]);
    // The server may end the connection at any time.
    if client.socket.write_all(&bytes).is_err() {
        return false;
    }
    let mut reply = [0; 16];
    client.socket.read_exact(&mut reply).is_ok_and(|()| reply[4..8] == [0; 4])
}

/// Writes and reads blocks of the export `base` until `stop` is set. Returns the number of blocks.
fn exercise(socket: &Path, half: u64, stop: &AtomicBool) -> u64 {
    let mut client = Client::new(socket, "base", false);
    let mut nr = 0;
    // At least once, also on a busy machine.
    while nr == 0 || !stop.load(Ordering::Relaxed) {
        let at = half * MIB / 2 + nr * BLOCK as u64 % (MIB / 2);
        let byte = (nr % 251) as u8;
        assert!(write(&mut client, at, byte), "a write to an export that stays");
        client.socket.write_all(&request(READ, 0, 7, at, BLOCK as u32)).unwrap();
        let reply = client.reply(|_| BLOCK);
        assert_eq!((reply.error, reply.payload), (0, vec![byte; BLOCK]));
        nr += 1;
    }
    nr
}

#[test]
fn exports_come_and_go_and_grow_under_load_and_no_write_is_lost() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = folder.path();
    let base = image(path, "base.img", MIB);
    let (mut server, mut control) = start(path, &[("base", base.to_str().unwrap())]);
    let socket = server.socket.clone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load: Vec<_> = [0, 1]
            .map(|half| {
                scope.spawn({
                    let (socket, stop) = (&socket, &stop);
                    move || exercise(socket, half, stop)
                })
            })
            .into_iter()
            .collect();
        for nth in 0..12u64 {
            let name = format!("x{}", nth % 3);
            let added = image(path, &name, MIB);
            let spec = added.to_str().unwrap();
            let reply = control.ask(json!({"command": "add", "export": name, "spec": spec}));
            assert_eq!((&reply["export"], &reply["size_bytes"]), (&json!(name), &json!(MIB)));
            // Clients write without a flush until the removal ends them.
            let writers: Vec<_> = (0..2u64)
                .map(|nr| {
                    let mut client = Client::new(&socket, &name, false);
                    scope.spawn(move || {
                        let at = move |written: u64| (nr * 128 + written % 128) * BLOCK as u64;
                        let byte = move |written: u64| (1 + written / 128 + nr) as u8;
                        let mut written = 0;
                        while written < 20_000 && write(&mut client, at(written), byte(written)) {
                            written += 1;
                        }
                        (written, at, byte)
                    })
                })
                .collect();
            let size = (nth + 2) * MIB;
            File::options().write(true).open(&base).unwrap().set_len(size).unwrap();
            let resized = control.ask(json!({"command": "resize", "export": "base"}));
            assert_eq!(resized["exports"][0]["size_bytes"], size, "{resized}");
            assert_eq!(Client::new(&socket, "base", false).ask(READ, size - 4096, 4096), 0);
            let reply = control.ask(json!({"command": "remove", "export": name, "force": true}));
            assert_eq!(reply, json!({"removed": name}));
            let file = File::open(&added).unwrap();
            for (written, at, byte) in writers.into_iter().map(|it| it.join().unwrap()) {
                for last in written.saturating_sub(128)..written {
                    let mut block = [0; BLOCK];
                    file.read_exact_at(&mut block, at(last)).unwrap();
                    assert_eq!(block, [byte(last); BLOCK], "{name}: block {last} of {written}");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        let nr: u64 = load.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(nr > 0);
    });
    let all = control.ask(json!({"command": "exports"}));
    assert_eq!(all["exports"].as_array().map(Vec::len), Some(1), "{all}");
    let text = metrics(&server);
    assert!(text.contains("forebay_connections{device=\"base\"}") && !text.contains("\"x0\""));
    server.stop().unwrap();
}

#[test]
fn removal_waits_for_clients_and_a_second_one_ends_them() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut control) = start(folder.path(), &[("a", "ram:1M"), ("b", "ram:1M")]);
    let mut client = Client::new(&server.socket, "a", false);
    control.send(&json!({"command": "remove", "export": "a"}));
    let mut other = Control::connect(&folder.path().join("run/control"));
    let is_withdrawn = |control: &mut Control| {
        control.ask(json!({"command": "exports"}))["exports"][0]["removing"] == true
    };
    while !is_withdrawn(&mut other) {
        std::thread::yield_now();
    }
    assert_eq!(client.ask(READ, 0, 512), 0, "its client goes on");
    assert_eq!(client.ask(FLUSH, 0, 0), 0);
    let again = json!({"command": "add", "export": "a", "spec": "ram:1M"});
    assert!(other.error(again.clone()).contains("is being removed"));
    let name = std::panic::catch_unwind(|| Client::new(&server.socket, "a", false));
    assert!(name.is_err(), "no client finds it");
    let removed = json!({"removed": "a"});
    assert_eq!(other.ask(json!({"command": "remove", "export": "a", "force": true})), removed);
    assert_eq!(control.reply(), removed);
    assert_eq!(client.some(&mut [0; 16]), 0, "the client was disconnected");
    assert_eq!(other.ask(again)["export"], "a");
    assert_eq!(Client::new(&server.socket, "a", false).ask(READ, 0, 512), 0);
    assert_eq!(control.ask(json!({"command": "remove", "export": "b"})), json!({"removed": "b"}));
    let log = server.log();
    assert!(
        log.contains("export \"a\": removed") && log.contains("the export is removed"),
        "{log}"
    );
    server.stop().unwrap();
}

#[test]
fn file_of_a_descriptor_is_added_without_its_path() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (mut server, mut control) = start(folder.path(), &[("a", "ram:1M")]);
    let path = image(folder.path(), "passed.img", MIB);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    std::fs::rename(&path, folder.path().join("renamed.img")).unwrap();
    // The kernel may deliver the descriptor with the line before.
    let add = json!({"command": "add", "export": "p", "spec": "passed.img", "descriptors": 1})
        .to_string();
    let add = format!("{}\n{add}\n", json!({"command": "log-level"}));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let slices = [IoSlice::new(add.as_bytes())];
    sendmsg(control.socket.get_ref(), &slices, &mut ancillary, SendFlags::empty()).unwrap();
    assert_eq!(control.reply()["log_level"], "info");
    let reply = control.reply();
    assert_eq!(reply["size_bytes"], MIB, "{reply}");
    let mut client = Client::new(&server.socket, "p", false);
    assert!(write(&mut client, 8192, 9));
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, 8192).unwrap();
    assert_eq!(block, [9; BLOCK]);
    drop(client);
    assert_eq!(control.ask(json!({"command": "remove", "export": "p"})), json!({"removed": "p"}));
    server.stop().unwrap();
}

#[test]
fn refused_changes_change_nothing_and_name_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut control) = start(folder.path(), &[("a", "ram:1M")]);
    let add = |spec: &str| json!({"command": "add", "export": "n", "spec": spec});
    for (request, error) in [
        (json!({"command": "add", "export": "a", "spec": "ram:1M"}), "export \"a\" already exists"),
        (add("nowhere.img"), "nowhere.img"),
        (
            json!({"command": "add", "export": "n", "spec": "ram:1M", "descriptors": 1}),
            "descriptors: 1: only 0 arrived: send at most 64",
        ),
        (add("nbd://127.0.0.1/x"), "disks on another server cannot be added"),
        (add("ram:1M?colour=red"), "colour"),
        (
            json!({"command": "add", "export": "n", "spec": "ram:1M", "limits": {"iops": -1}}),
            "iops=-1",
        ),
        (json!({"command": "add", "export": "n", "spec": "ram:1M", "priority": "fast"}), "fast"),
        (json!({"command": "remove", "export": "n"}), "there is no export \"n\"; there are: \"a\""),
        (
            json!({"command": "remove", "export": "a", "force": 1}),
            "force: 1: expected true or false",
        ),
        (
            json!({"command": "policy", "export": "a", "set": {"wake": "fair"}}),
            "fixed when the disk is opened",
        ),
        (
            json!({"command": "policy", "export": "a", "set": {"x": 1}}),
            "expected one of the settings nr_requests, ",
        ),
        (json!({"command": "policy", "export": "a", "set": {"nr_requests": 0}}), "from 1 to "),
        (json!({"command": "reload-certificates"}), "start it with --tls"),
        (json!({"command": "log-level", "level": "loud"}), "expected error, warning or info"),
        (json!({"command": "resize", "export": "z"}), "there is no export \"z\""),
    ] {
        let text = control.error(request.clone());
        assert!(text.contains(error), "{request}: {text}");
    }
    let all = control.ask(json!({"command": "exports"}));
    assert_eq!(all["exports"].as_array().map(Vec::len), Some(1), "{all}");
    server.stop().unwrap();
}

#[test]
fn settings_of_a_disk_change_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut control) =
        start(folder.path(), &[("base", "ram:1M?nr_hw_queues=1&queue_depth=32")]);
    let socket = server.socket.clone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| exercise(&socket, 0, &stop));
        for scheduler in ["mq-deadline", "bfq", "kyber", "none", "mq-deadline"] {
            let set = json!({"scheduler": scheduler, "nr_requests": 8, "weight_by": "bytes"});
            let set = json!({"command": "policy", "export": "base", "set": set});
            let policy = &control.ask(set)["policy"];
            assert_eq!(policy["scheduler"], scheduler, "{policy}");
            assert_eq!(policy["nr_requests"], "8");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(load.join().unwrap() > 0);
    });
    let policy = control.ask(json!({"command": "policy", "export": "base"}));
    assert_eq!(policy["policy"]["scheduler"], "mq-deadline", "{policy}");
    server.stop().unwrap();
}

#[test]
fn control_clients_do_not_delay_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut control) = start(folder.path(), &[("a", "ram:1M")]);
    let path = folder.path().join("run/control");
    // One sends half a line, one reads no replies, and one has gone while its request waits.
    let mut half = Control::connect(&path);
    half.socket.get_mut().write_all(b"{\"command\":\"exp").unwrap();
    let mut deaf = Control::connect(&path);
    deaf.socket.get_mut().set_nonblocking(true).unwrap();
    let requests = "{\"command\":\"exports\"}\n".repeat(100);
    while deaf.socket.get_mut().write(requests.as_bytes()).is_ok() {}
    let client = Client::new(&server.socket, "a", false);
    let mut gone = Control::connect(&path);
    gone.send(&json!({"command": "remove", "export": "a"}));
    let mut beside = Control::connect(&path);
    for control in [&mut control, &mut beside] {
        assert!(control.ask(json!({"command": "exports"}))["exports"].is_array());
    }
    drop(gone);
    drop(client);
    let left =
        |control: &mut Control| control.ask(json!({"command": "exports"}))["exports"].clone();
    while left(&mut control) != json!([]) {
        std::thread::yield_now();
    }
    half.socket.get_mut().write_all(b"orts\"}\n").unwrap();
    assert_eq!(half.reply(), json!({"exports": []}));
    assert_eq!(control.ask(json!({"command": "log-level"})), json!({"log_level": "info"}));
    let quiet = control.ask(json!({"command": "log-level", "level": "error"}));
    assert_eq!(quiet, json!({"log_level": "error"}));
    let before = server.log();
    assert_eq!(
        control.ask(json!({"command": "add", "export": "b", "spec": "ram:1M"}))["export"],
        "b"
    );
    assert_eq!(server.log(), before, "the level leaves the line out");
    server.stop().unwrap();
}

#[test]
fn waiting_removal_does_not_delay_the_end_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut control) = start(folder.path(), &[("a", "ram:1M"), ("b", "ram:1M")]);
    let mut client = Client::new(&server.socket, "a", false);
    assert!(write(&mut client, 0, 1));
    control.send(&json!({"command": "remove", "export": "a"}));
    let mut other = Control::connect(&folder.path().join("run/control"));
    while other.ask(json!({"command": "exports"}))["exports"][0]["removing"] != true {
        std::thread::yield_now();
    }
    server.stop().unwrap();
    // The socket may be closed before the removal has ended.
    let mut text = String::new();
    control.socket.read_line(&mut text).unwrap();
    assert!(text.is_empty() || text.contains("the server is shutting down"), "{text}");
}

#[test]
fn drained_server_serves_its_clients_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut control) = start(folder.path(), &[("a", "ram:1M")]);
    let mut client = Client::new(&server.socket, "a", false);
    assert_eq!(control.ask(json!({"command": "drain"})), json!({"draining": true}));
    assert!(write(&mut client, 0, 1));
    assert_eq!(client.ask(FLUSH, 0, 0), 0);
    drop(client);
    server.wait().unwrap();
    assert!(!server.socket.exists());
}

#[test]
fn forced_drain_ends_the_clients() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut control) = start(folder.path(), &[("a", "ram:1M")]);
    let mut client = Client::new(&server.socket, "a", false);
    assert_eq!(control.ask(json!({"command": "drain", "force": true}))["draining"], true);
    assert_eq!(client.some(&mut [0; 16]), 0);
    server.wait().unwrap();
}

#[test]
fn server_ends_with_its_last_client_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (options, _) = options(folder.path(), &[("a", "ram:1M")]);
    let options = Options { exit_last: true, ..options };
    let mut server = Running::with_options(folder.path(), options);
    // This one has chosen no export.
    drop(UnixStream::connect(&server.socket).unwrap());
    let (first, second) =
        (Client::new(&server.socket, "a", false), Client::new(&server.socket, "a", false));
    drop(first);
    let mut second = second;
    assert_eq!(second.ask(READ, 0, 512), 0);
    drop(second);
    server.wait().unwrap();
}
