//! Devices for virtual machines that are added and removed over the control socket while the server
//! runs.

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "rings/guest.rs"]
mod guest;

use forebay_serve::Options;
use guest::{DATA, Guest, options, serve_with};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Runs a server with one device and a control socket while `test` uses it.
fn serve(folder: &Path, test: impl FnOnce(Control)) -> String {
    let control = folder.join("run");
    std::fs::create_dir(&control).expect("a folder");
    std::fs::set_permissions(&control, PermissionsExt::from_mode(0o700)).expect("a private one");
    let control = control.join("control");
    let (mut log, end) = UnixStream::pair().expect("a pair of sockets");
    let options = options(folder, &["ram:1M"], Some(end.into()));
    let options = Options { control: Some(control.clone()), ..options };
    serve_with(options, || test(Control(control)));
    let mut text = String::new();
    log.read_to_string(&mut text).expect("a log");
    text
}

/// A control socket.
struct Control(PathBuf);

impl Control {
    /// Sends a request with descriptors, and returns the connection.
    fn send(&self, request: &Value, descriptors: &[BorrowedFd<'_>]) -> BufReader<UnixStream> {
        let socket = UnixStream::connect(&self.0).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        let line = format!("{request}\n");
        let slices = [IoSlice::new(line.as_bytes())];
        sendmsg(&socket, &slices, &mut ancillary, SendFlags::empty()).expect("a request");
        BufReader::new(socket)
    }

    fn ask(&self, request: &Value, descriptors: &[BorrowedFd<'_>]) -> Value {
        reply(self.send(request, descriptors))
    }

    /// Adds a device at a new socket, and returns the reply.
    fn add(&self, path: &Path, device: &Value, file: Option<&File>) -> Value {
        let listener = UnixListener::bind(path).expect("a socket");
        let spec = if file.is_some() { "disk.img" } else { "ram:2M" };
        let request =
            json!({"command": "add", "export": "vm", "spec": spec, "vhost_user_blk": device});
        let mut descriptors = vec![listener.as_fd()];
        descriptors.extend(file.map(AsFd::as_fd));
        self.ask(&request, &descriptors)
    }
}

fn reply(mut socket: BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    socket.read_line(&mut line).expect("a reply");
    serde_json::from_str(&line).expect(&line)
}

/// Writes a sector of this byte, and waits for it.
fn write(guest: &mut Guest, sector: u64, byte: u8) {
    guest.write(DATA, &[byte; 512]);
    guest.request_of(0, true, sector, [(DATA, 512)]);
    guest.kick();
    guest.wait();
    assert_eq!(guest.status(0), 0);
}

#[test]
fn device_is_added_used_resized_and_removed_while_the_server_runs() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    let path = folder.path().join("disk.img");
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.expect("a file");
    file.set_len(MIB).expect("a size");
    let socket = folder.path().join("vm.sock");
    let log = serve(folder.path(), |control| {
        let added = control.add(&socket, &json!({"num_queues": 1}), Some(&file));
        assert_eq!(added["size_bytes"], MIB, "{added}");
        assert_eq!(added["vhost_user_blk"], json!([socket.to_str()]), "{added}");
        let mut guest = Guest::connect(&socket);
        write(&mut guest, 3, 7);
        let mut sector = [0; 512];
        file.read_exact_at(&mut sector, 3 * 512).expect("data");
        assert_eq!(sector, [7; 512]);
        file.set_len(2 * MIB).expect("a larger size");
        let resized = control.ask(&json!({"command": "resize", "export": "vm"}), &[]);
        assert_eq!(resized["exports"][0]["size_bytes"], 2 * MIB, "{resized}");
        write(&mut guest, 2 * MIB / 512 - 1, 8);

        // It is removed when the guest has gone, and serves it until then.
        let remove = json!({"command": "remove", "export": "vm"});
        let mut removal = control.send(&remove, &[]);
        let timeout = Some(Duration::from_millis(200));
        removal.get_ref().set_read_timeout(timeout).expect("a time limit");
        let mut early = String::new();
        removal.read_line(&mut early).expect_err("the guest uses it");
        write(&mut guest, 4, 9);
        let all = control.ask(&json!({"command": "exports"}), &[]);
        assert_eq!(all["exports"][1]["removing"], true, "{all}");
        drop(guest);
        removal.get_ref().set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        let removed = reply(removal);
        assert_eq!(removed, json!({"removed": "vm", "sockets": [socket.to_str()]}));

        // The index is used again, by a device with more queues.
        std::fs::remove_file(&socket).expect("the socket of the client");
        let added = control.add(&socket, &json!({"num_queues": 2, "block_size": 4096}), None);
        assert_eq!(added["size_bytes"], 2 * MIB, "{added}");
        let mut guest = Guest::connect(&socket);
        write(&mut guest, 8, 1);
        let force = json!({"command": "remove", "export": "vm", "force": true});
        assert_eq!(control.ask(&force, &[])["removed"], "vm");
        drop(guest);
        write(&mut Guest::connect(&folder.path().join("0")), 1, 1);
    });
    for expected in ["export \"vm\": added, ", "the export is removed", "export \"vm\": removed"] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
}

#[test]
fn server_that_ends_does_not_wait_for_a_removal() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vm.sock");
    let mut waiting = None;
    let mut guests = Vec::new();
    serve(folder.path(), |control| {
        control.add(&socket, &json!({}), None);
        let mut guest = Guest::connect(&socket);
        write(&mut guest, 1, 1);
        guests.push(guest);
        waiting = Some(control.send(&json!({"command": "remove", "export": "vm"}), &[]));
        let all = || control.ask(&json!({"command": "exports"}), &[]);
        while all()["exports"][1]["removing"] != true {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let mut text = String::new();
    waiting.expect("a removal").read_to_string(&mut text).expect("the end");
    assert!(text.is_empty() || text.contains("the server is shutting down"), "{text}");
}

#[test]
fn refused_device_changes_nothing_and_the_reason_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    serve(folder.path(), |control| {
        let mut request = json!({"command": "add", "export": "vm", "spec": "ram:1M"});
        let listener = UnixListener::bind(folder.path().join("s")).expect("a socket");
        let (quiet, _end) = UnixStream::pair().expect("a pair of sockets");
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let file = File::open("Cargo.toml").expect("a file");
        let none: &[BorrowedFd<'_>] = &[];
        let one = &[listener.as_fd()][..];
        for (device, descriptors, expected) in [
            (json!({}), none, "expected a descriptor with the request"),
            (json!({}), &[quiet.as_fd()][..], "the socket does not listen"),
            (json!({}), &[tcp.as_fd()][..], "needs a unix socket"),
            (json!({}), &[file.as_fd()][..], "socket"),
            (json!(1), one, "vhost_user_blk: 1: expected an object"),
            (json!({"queues": 1}), one, "vhost_user_blk has no field \"queues\""),
            (json!({"num_queues": -1}), one, "num_queues: -1: expected a number"),
            (json!({"num_queues": 0}), one, "0 queues: expected 1 to 64"),
            (json!({"num_queues": 65536}), one, "num_queues: 65536: too large"),
            (json!({"queue_size": 3}), one, "queue size 3: expected a power of two"),
            (json!({"block_size": 100}), one, "block size 100: expected a power of two"),
            (json!({"serial": "123456789012345678901"}), one, "longer than 20 bytes"),
        ] {
            request["vhost_user_blk"] = device.clone();
            let reply = control.ask(&request, descriptors);
            let text = reply["error"].as_str().unwrap_or_else(|| panic!("{device}: {reply}"));
            assert!(text.contains(expected), "{device}: {text}");
        }
        // Neither NBD nor a device.
        let reply = control.ask(&json!({"command": "add", "export": "x", "spec": "ram:1M"}), &[]);
        let text = reply["error"].as_str().expect("an error");
        assert!(text.contains("no NBD socket") && text.contains("--vhost-user-blk"), "{text}");
        let all = control.ask(&json!({"command": "exports"}), &[]);
        assert_eq!(all["exports"].as_array().map(Vec::len), Some(1), "{all}");
    });
}

#[test]
fn descriptors_of_a_refused_request_reach_no_other_request() {
    let folder = tempfile::tempdir().expect("a folder");
    serve(folder.path(), |control| {
        let listener = UnixListener::bind(folder.path().join("s")).expect("a socket");
        let request = json!({"command": "add", "export": "vm", "speck": "ram:1M"});
        let mut connection = control.send(&request, &[listener.as_fd()]);
        let mut line = String::new();
        connection.read_line(&mut line).expect("a reply");
        assert!(line.contains("the field \\\"spec\\\" is missing"), "{line}");
        assert_eq!(connection.read_line(&mut line).expect("the end"), 0, "it is closed");
    });
}

#[test]
fn client_that_shuts_its_socket_down_ends_neither_the_server_nor_its_guest() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vm.sock");
    let log = serve(folder.path(), |control| {
        let listener = UnixListener::bind(&socket).expect("a socket");
        let request = json!({
            "command": "add", "export": "vm", "spec": "ram:1M", "vhost_user_blk": {},
        });
        assert_eq!(control.ask(&request, &[listener.as_fd()])["export"], "vm");
        let mut guest = Guest::connect(&socket);
        write(&mut guest, 1, 1);
        // The socket blocks now, until the server sets its flag again.
        listener.set_nonblocking(false).expect("a flag");
        write(&mut Guest::connect(&folder.path().join("0")), 1, 1);
        UnixStream::from(std::os::fd::OwnedFd::from(listener))
            .shutdown(Shutdown::Both)
            .expect("it listens");
        // The other device is served by the same loop.
        write(&mut Guest::connect(&folder.path().join("0")), 1, 1);
        write(&mut guest, 2, 2);
        drop(guest);
        let remove = json!({"command": "remove", "export": "vm"});
        assert_eq!(control.ask(&remove, &[])["removed"], "vm");
    });
    assert!(log.contains("no more front ends can connect to vhost-user:"), "{log}");
}
