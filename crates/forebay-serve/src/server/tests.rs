//! A server in the process of a test: its effects on the process, and its shutdown.

use super::*;
use crate::config::{DeviceOptions, DeviceSocket, ExportOptions};
use crate::listen::Address;
use forebay::{Disk, Op};
use rustix::net::{Shutdown, shutdown};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn options(folder: &TempDir, name: &str) -> Options {
    Options {
        exports: vec![ExportOptions { spec: "ram:1M".to_owned(), ..ExportOptions::default() }],
        listen: vec![Address::Unix(folder.path().join(name))],
        limits: Limits { threads: 2, ..Limits::default() },
        ..Options::default()
    }
}

/// Signals its channel when the server is ready.
struct Waits(std::sync::mpsc::Sender<()>);

impl Observer for Waits {
    fn ready(&mut self) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_thread_that_panics_ends_the_server_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(options(&folder, "s")).unwrap();
    let threads = Threads::start(&server.shared).unwrap();
    threads.inbox(1).poison();
    // This descriptor never becomes readable.
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let ended = server.serve(threads, None, stopped.as_fd(), &mut ());
    assert!(matches!(ended, Err(ServeError::Panicked)), "{ended:?}");
}

/// Returns options of a server with a device of two queues, and without NBD.
fn device_options(folder: &TempDir) -> Options {
    let socket = DeviceSocket::Path(folder.path().join("v"));
    let (serial, block_size) = (String::new(), None);
    let device =
        DeviceOptions { export: 0, socket, nr_queues: 2, queue_size: 128, block_size, serial };
    Options { listen: Vec::new(), devices: vec![device], ..options(folder, "s") }
}

#[test]
fn thread_of_a_ring_that_panics_ends_the_server_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(device_options(&folder)).unwrap();
    let threads = Threads::start(&server.shared).unwrap();
    // A front end that is connected does not delay the end.
    let _front_end = UnixStream::connect(folder.path().join("v")).unwrap();
    threads.devices().poison_ring(1);
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let ended = server.serve(threads, None, stopped.as_fd(), &mut ());
    assert!(matches!(ended, Err(ServeError::Panicked)), "{ended:?}");
}

/// The thread of the device then blocks in the write of a reply.
#[test]
fn front_end_that_does_not_read_its_replies_does_not_keep_the_server_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(device_options(&folder)).unwrap();
    let threads = Threads::start(&server.shared).unwrap();
    let mut front_end = UnixStream::connect(folder.path().join("v")).unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server.serve(threads, None, stopped.as_fd(), &mut ()));
        // GET_FEATURES, until neither side takes more.
        let message = [1_u32, 1, 0].map(u32::to_le_bytes).concat();
        front_end.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        while front_end.write_all(&message).is_ok() {}
        drop(stop);
        served.join().unwrap().unwrap();
    });
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn export_that_no_client_can_reach_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = device_options(&folder);
    options.exports.push(ExportOptions {
        spec: "ram:1M".to_owned(),
        name: "other".to_owned(),
        ..ExportOptions::default()
    });
    assert!(matches!(Server::open(options), Err(ServeError::Unreachable { .. })));
}

#[test]
fn errors_name_the_disk_as_its_user_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let error = |spec: &str, written: Option<&str>| {
        let mut options = device_options(&folder);
        options.exports[0].spec = spec.to_owned();
        options.exports[0].written = written.map(str::to_owned);
        Server::open(options).expect_err(spec).to_string()
    };
    let refused = error("ram:1M?nr_bios=3", None);
    assert!(refused.starts_with("ram:1M?nr_bios=3: cannot serve"), "{refused}");
    for spec in ["ram:1M?nr_bios=3&wake=single", "ram:1M?capacity=growing", "ram:1M?nix=on"] {
        let refused = error(spec, Some("ram:1M?mine"));
        assert!(refused.starts_with("ram:1M?mine: "), "{refused}");
    }
}

#[test]
fn disk_has_a_hardware_context_for_each_thread_and_a_shared_one() {
    let folder = tempfile::tempdir().unwrap();
    let nr = |options: Options| {
        let server = Server::open(options).unwrap();
        server.disks().next().unwrap().info().policy.nr_hw_queues
    };
    assert_eq!(nr(device_options(&folder)), 3);
    let listen = vec![Address::Unix(folder.path().join("s"))];
    assert_eq!(nr(Options { listen, ..device_options(&folder) }), 5);
    let mut chosen = device_options(&folder);
    chosen.exports[0].spec = "ram:1M?nr_hw_queues=2".to_owned();
    assert_eq!(nr(chosen), 2);
    // Weights order the I/O of one.
    let weighted = |spec: &str| {
        let mut options = device_options(&folder);
        options.exports[0].spec = spec.to_owned();
        options.exports[0].limits.client.weight = Some(100);
        options
    };
    assert_eq!(nr(weighted("ram:1M")), 1);
    let refused = Server::open(weighted("ram:1M?nr_hw_queues=2")).unwrap_err().to_string();
    assert!(refused.ends_with("and the disk has 2; open it with nr_hw_queues=1"), "{refused}");
}

/// A ring waits until its disk has room for all ranges of a discard at once.
#[test]
fn device_whose_queues_are_shorter_than_a_discard_is_refused() {
    let folder = TempDir::new().unwrap();
    let open = |nr_bios: u32| {
        let mut options = device_options(&folder);
        options.exports[0].spec += &format!("?nr_bios={nr_bios}");
        Server::open(options).map(drop)
    };
    let error = open(15).expect_err("15 of 16").to_string();
    assert!(error.contains("nr_bios=15: a discard has up to 16 ranges"), "{error}");
    open(16).expect("16 of 16");
}

#[test]
fn device_that_no_driver_could_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut DeviceOptions), expected: &str| {
        let mut options = device_options(&folder);
        change(&mut options.devices[0]);
        let error = Server::open(options).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(|device| device.nr_queues = 0, "0 queues: expected 1 to 64");
    refused(|device| device.nr_queues = 65, "65 queues");
    refused(|device| device.queue_size = 100, "queue size 100: expected");
    refused(|device| device.queue_size = 2048, "queue size 2048: expected");
    refused(|device| device.block_size = Some(256), "block size 256: expected");
    refused(|device| device.serial = "x".repeat(21), "longer than 20 bytes");
}

/// Sends a read of a block of the default export, and ignores the reply.
fn ask_for_a_block(socket: &std::path::Path) -> UnixStream {
    let mut client = UnixStream::connect(socket).unwrap();
    let export_name = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1], &[0; 4]].concat();
    let read = [&[0x25, 0x60, 0x95, 0x13], &[0; 22][..], &[2, 0]].concat();
    client.write_all(&[export_name, read].concat()).unwrap();
    client
}

/// Records the number of reads of the disk when the server begins to stop.
struct AtStop(Disk, Option<u64>);

impl Observer for AtStop {
    fn stopping(&mut self) {
        self.1 = Some(nr_reads(&self.0));
    }
}

fn nr_reads(disk: &Disk) -> u64 {
    disk.stats().queue.op(Op::Read).requests
}

/// The thread ends only after its queues: a disk that hangs must not hide the panic.
#[test]
fn panic_is_reported_before_the_disk_has_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder, "s");
    options.exports[0].spec = "fault:ram:1M?rule=read:delay=2s".to_owned();
    options.limits.threads = 1;
    let server = Server::open(options).unwrap();
    let disk = server.shared.exports.get(0).disk.clone();
    let mut at_stop = AtStop(disk.clone(), None);
    let threads = Threads::start(&server.shared).unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let inbox = Arc::clone(threads.inbox(0));
        let ended = scope.spawn(|| server.serve(threads, None, stopped.as_fd(), &mut at_stop));
        let mut client = ask_for_a_block(&folder.path().join("s"));
        while disk.stats().queue.issued == 0 {
            std::thread::yield_now();
        }
        inbox.poison();
        let ended = ended.join().unwrap();
        assert!(matches!(ended, Err(ServeError::Panicked)), "{ended:?}");
        // The connection is closed before the queues wait for their I/O.
        let _ = client.read_to_end(&mut Vec::new());
    });
    drop(stop);
    assert_eq!((at_stop.1, nr_reads(&disk)), (Some(0), 1));
}

#[test]
fn a_socket_that_another_process_shuts_down_ends_the_server_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixListener::bind(folder.path().join("s")).unwrap();
    let sockets = vec![socket.try_clone().unwrap().into()];
    let options = Options { sockets, listen: Vec::new(), ..options(&folder, "s") };
    let server = Server::open(options).unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let (sender, is_ready) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || server.run(stopped, &mut Waits(sender)));
    is_ready.recv().unwrap();
    shutdown(&socket, Shutdown::Both).unwrap();
    let error = thread.join().unwrap().unwrap_err().to_string();
    assert!(
        error.contains("cannot accept connections: another process has shut the socket down"),
        "{error}"
    );
}

#[test]
fn server_without_exports_or_sockets_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = Options { exports: Vec::new(), ..options(&folder, "s") };
    assert!(matches!(Server::open(nothing), Err(ServeError::NoExport)));
    let nowhere = Options { listen: Vec::new(), ..options(&folder, "s") };
    assert!(matches!(Server::open(nowhere), Err(ServeError::NoSocket)));
}

#[test]
fn its_needs_are_its_socket_files_and_the_servers_of_its_disks() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = Some(Address::Unix(folder.path().join("m")));
    let server = Server::open(Options { metrics, ..options(&folder, "s") }).unwrap();
    let socket_files = ["s", "m"].map(|name| folder.path().join(name)).to_vec();
    assert_eq!(server.needs(), Needs { socket_files, ..Needs::default() });
}

#[test]
fn a_handle_keeps_no_disk_open_and_reloads_nothing_after_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(options(&folder, "s")).unwrap();
    let handle = server.handle();
    handle.reload().unwrap();
    let export = Arc::downgrade(&server.shared.exports.get(0));
    drop(server);
    assert!(export.upgrade().is_none());
    handle.reload().unwrap();
}

#[test]
fn size_that_an_export_refuses_leaves_its_disk_as_it_is() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = folder.path().join("disk.img");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let mut options = device_options(&folder);
    options.exports[0].spec = format!("{}?direct=off", path.display());
    options.devices[0].block_size = Some(4096);
    let server = Server::open(options).unwrap();
    let disk = server.disks().next().unwrap();
    // Whole blocks of the disk, and not of the device.
    file.set_len((1 << 20) + 512).unwrap();
    let refused = server.handle().reload().expect_err("the size is refused").to_string();
    assert!(refused.contains("not a multiple of the block size 4096"), "{refused}");
    assert_eq!(disk.capacity_bytes(), Some(1 << 20));
    disk.write_at(&[1; 512], 1 << 20).expect_err("the range is not served");
}
