//! Disks served as vhost-user-blk. The front end is the library's own driver, in the process of the
//! test or in `forebay bench`; a guest under QEMU is in `guest.rs`.

use super::client::Client;
use super::front_end::{self, FrontEnd};
use super::masking::{CONFIG_WCE, FLUSH, Proxy};
use super::server::Server;
use crate::common::{bench_at_work, data_file, folder, forebay, stderr, stdout};
use forebay::{Disk, IoError};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Name of the log line of a connection that has ended well.
const CLOSED: &str = "closed by the front end";

/// Status of a virtio-blk request that has failed, and the error of NBD for the same.
const IO_ERROR: u8 = 1;
const EIO: u32 = 5;

/// Opens the disk at a socket in this folder.
#[track_caller]
fn open(folder: &TempDir, socket: &str) -> Disk {
    let spec = format!("vhost-user:{}", folder.path().join(socket).display());
    Disk::open(&spec).unwrap_or_else(|error| panic!("{error}"))
}

/// Serves a file of 1 MiB of zeroes at `v`, and over NBD.
fn serve(folder: &TempDir, args: &str) -> Server {
    data_file(folder, "disk.img", 1 << 20);
    Server::start(folder, &format!("disk.img --vhost-user-blk=unix:v {args}"))
}

#[test]
fn disk_keeps_what_a_front_end_writes() {
    let folder = folder();
    let server = serve(&folder, "--num-queues=2");
    let disk = open(&folder, "v");
    assert_eq!(disk.capacity_bytes(), Some(1 << 20));
    assert!(disk.limits().volatile_cache && !disk.limits().read_only);
    let data: Vec<u8> = (0..65536_u32).map(|nth| ((nth * 7) >> 3) as u8).collect();
    disk.write_at(&data, 4096).expect("a write");
    disk.flush().expect("a flush");
    let mut read = vec![0; 65536];
    disk.read_at(&mut read, 4096).expect("a read");
    assert!(read == data);
    disk.discard(4096, 8192).expect("a discard");
    disk.write_zeroes(16384, 4096).expect("zeroes");
    drop(disk);
    server.await_lines(CLOSED, 1);
    // NBD clients, and programs that read the file, see the same bytes.
    let mut expected = data;
    expected[12288..16384].fill(0);
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    let mut seen = client.read(4096, 65536).expect("a read");
    seen[..8192].copy_from_slice(&expected[..8192]);
    assert!(seen == expected, "the discarded range may have any contents");
    let file = std::fs::File::open(folder.path().join("disk.img")).expect("it is there");
    let mut read = vec![1; 4096];
    file.read_exact_at(&mut read, 16384).expect("a read");
    assert!(read.iter().all(|byte| *byte == 0));
    let socket = folder.path().join("v");
    assert!(socket.exists() && server.terminate().success() && !socket.exists());
}

#[test]
fn nbd_clients_and_front_ends_see_the_writes_of_each_other() {
    let folder = folder();
    let server = serve(&folder, "");
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    let disk = open(&folder, "v");
    for round in 1..20_u8 {
        disk.write_at(&[round; 512], 512).expect("a write");
        assert_eq!(client.read(512, 512).expect("a read"), [round; 512]);
        let written = client.ask((super::client::command::WRITE, 0), 1024, 512, &[round; 512]);
        assert_eq!(written.ok(), Some(0));
        let mut read = [0; 512];
        disk.read_at(&mut read, 1024).expect("a read");
        assert_eq!(read, [round; 512]);
    }
}

#[test]
fn read_only_disk_refuses_writes() {
    let folder = folder();
    let server = serve(&folder, "--read-only");
    let disk = open(&folder, "v");
    assert!(disk.limits().read_only && disk.limits().max_discard_sectors == 0);
    assert!(matches!(disk.write_at(&[1; 512], 0), Err(IoError::Refused(_))));
    disk.read_at(&mut [0; 512], 0).expect("a read");
    drop(disk);
    assert!(server.terminate().success());
}

/// Every fourth write completes and its write-back fails. Only a sync finds that out.
#[test]
fn write_of_a_driver_without_flush_is_durable_when_it_ends() {
    let args = "fault:disk.img?rule=write:writeback=io:nth=4 --vhost-user-blk=unix:v";
    for hidden in [0, FLUSH, FLUSH | CONFIG_WCE] {
        let folder = folder();
        data_file(&folder, "disk.img", 1 << 20);
        let server = Server::start(&folder, args);
        let proxied = folder.path().join(format!("without-{hidden}"));
        let proxy = Proxy::start(&proxied, &folder.path().join("v"), hidden);
        let disk = open(&folder, proxied.to_str().expect("a name"));
        assert_eq!(disk.limits().volatile_cache, hidden == 0);
        let mut write = |nth: u64| disk.write_at(&[nth as u8; 512], 512 * nth).is_ok();
        let written: Vec<_> = (1..=4).map(&mut write).collect();
        if hidden == 0 {
            assert_eq!(written, [true; 4], "the cache holds them");
            assert!(disk.flush().is_err(), "the flush must report the lost write");
        } else {
            assert_eq!(written, [true, true, true, false], "without {hidden:#x}");
        }
        drop((disk, proxy));
        server.kill();
    }
}

/// The device fails the second flush only. The data that it should have made durable stay lost.
#[test]
fn each_flush_after_a_failed_one_fails_for_machines_and_nbd_clients() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let args = "fault:disk.img?rule=flush:io:nth=2 --vhost-user-blk=unix:v --num-queues=1";
    let server = Server::start(&folder, args);
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    let mut machine = FrontEnd::new(1);
    machine.connect(&folder.path().join("v"));
    let mut driver = machine.driver(0);
    let mut ask = |kind, len| {
        driver.submit(0, kind, 0, len);
        driver.answer()
    };
    assert_eq!((ask(front_end::WRITE, 512), ask(front_end::FLUSH, 0)), (0, 0));
    assert_eq!((ask(front_end::WRITE, 512), ask(front_end::FLUSH, 0)), (0, IO_ERROR));
    assert_eq!([(); 2].map(|()| ask(front_end::FLUSH, 0)), [IO_ERROR; 2], "the loss remains");
    let flush = (super::client::command::FLUSH, 0);
    assert_eq!(client.ask(flush, 0, 0, &[]).ok(), Some(EIO));
    assert_eq!(ask(front_end::READ, 512), 0, "the ring goes on");
    server.kill();
}

#[test]
fn each_disk_has_its_socket() {
    let folder = folder();
    for (name, byte) in [("a.img", b'a'), ("b.img", b'b')] {
        std::fs::write(folder.path().join(name), vec![byte; 1 << 20]).expect("a file");
    }
    let args = "a.img b.img --vhost-user-blk=unix:va --vhost-user-blk=unix:vb --block-size=4096";
    let server = Server::start(&folder, args);
    for line in ["/va\n", "/vb\n"] {
        assert!(server.log().contains(line), "{}", server.log());
    }
    let [a, b] = ["va", "vb"].map(|socket| open(&folder, socket));
    assert_eq!(a.limits().logical_block_size, 4096);
    for (disk, byte) in [(&a, b'a'), (&b, b'b')] {
        let mut read = vec![0; 4096];
        disk.read_at(&mut read, 8192).expect("a read");
        assert!(read == [byte; 4096]);
    }
    // The end of one front end does not concern the other.
    drop(a);
    server.await_lines(CLOSED, 1);
    b.write_at(&[1; 4096], 0).expect("a write");
    let mut read = vec![0; 4096];
    open(&folder, "va").read_at(&mut read, 0).expect("a read");
    assert!(read == [b'a'; 4096]);
}

#[test]
fn disk_without_nbd_needs_no_nbd_socket() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let log = std::fs::File::create(folder.path().join("log")).expect("a file");
    // QEMU's conventions.
    let mut server = forebay(&folder)
        .args(["serve", "--socket-path=v", "--blk-file=disk.img", "--num-queues=1"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("it can be run");
    let start = Instant::now();
    while UnixStream::connect(folder.path().join("v")).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    open(&folder, "v").write_at(&[1; 512], 0).expect("a write");
    assert!(!folder.path().join("forebay.sock").exists());
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(server.wait().expect("a child").success());
    assert!(!folder.path().join("v").exists());
}

/// A service manager passes the socket, and the option takes it from those for NBD.
#[test]
fn socket_that_listens_already_is_taken_over_and_stays() {
    let folder = folder();
    let path = folder.path().join("v");
    let socket = UnixListener::bind(&path).expect("a socket");
    let copy = socket.try_clone().expect("a copy");
    let args = "ram:1m --fd=3 --num-queues=1";
    let mut server = super::activation::start(&folder, copy.into(), "LISTEN_FDS=1", args);
    open(&folder, "v").write_at(&[1; 512], 0).expect("a write");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(server.wait().expect("a child").success());
    let _next = UnixStream::connect(&path).expect("it listens");
    socket.accept().expect("it is there");
}

/// A front end connects to a path.
#[test]
fn socket_of_another_family_is_refused_with_its_descriptor() {
    let folder = folder();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let args = "ram:1m --fd=3 --num-queues=1";
    let server = super::activation::start(&folder, socket.into(), "LISTEN_FDS=1", args);
    let refused = server.wait_with_output().expect("a child");
    assert!(!refused.status.success());
    let why = "cannot use descriptor 3 (--fd): a virtual machine needs a unix socket";
    assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
}

/// A server that waits for requests uses no processor, although it polls while there are some.
#[test]
fn server_of_an_idle_machine_uses_no_processor() {
    let folder = folder();
    let server = Server::start(&folder, "ram:1m --vhost-user-blk=unix:v --num-queues=4");
    let mut machine = FrontEnd::new(4);
    machine.connect(&folder.path().join("v"));
    for nr in 0..4 {
        let mut driver = machine.driver(nr);
        for _ in 0..100 {
            driver.submit(0, front_end::READ, 0, 512);
            assert_eq!(driver.answer(), 0);
        }
    }
    // Then all threads sleep: they poll for less than a millisecond.
    std::thread::sleep(Duration::from_millis(100));
    let before = server.cpu_time();
    std::thread::sleep(Duration::from_secs(2));
    let used = server.cpu_time() - before;
    assert!(used < Duration::from_millis(20), "{used:?} in 2 s, which is 1 % of a processor");
    assert!(server.terminate().success());
}

#[test]
fn capabilities_are_printed_in_the_form_of_qemu() {
    let folder = folder();
    let output = forebay(&folder).args(["serve", "--print-capabilities", "--fd=99"]).output();
    let output = output.expect("it can be run");
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(json["type"], "block");
    assert_eq!(json["features"], serde_json::json!(["read-only", "blk-file"]));
}

#[test]
fn next_front_end_waits_for_the_end_of_the_previous_one() {
    let folder = folder();
    let server = serve(&folder, "--num-queues=1");
    let first = open(&folder, "v");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| open(&folder, "v"));
        server.await_lines("waits: another front end uses the device", 1);
        first.write_at(&[7; 512], 0).expect("it is not disturbed");
        drop(first);
        let mut read = [0; 512];
        second.join().expect("it is served then").read_at(&mut read, 0).expect("a read");
        assert_eq!(read, [7; 512]);
    });
    assert!(server.terminate().success());
}

#[test]
fn killed_front_end_leaves_the_device_for_the_next_one() {
    let folder = folder();
    let server = serve(&folder, "--num-queues=2");
    let spec = format!("vhost-user:{}", folder.path().join("v").display());
    for round in 1..=3 {
        let job =
            "--name=a --rw=randwrite --bs=4k --iodepth=16 --size=1m --time_based --runtime=600";
        let mut bench = bench_at_work(&folder, &format!("{job} --filename={spec}"));
        bench.kill().expect("it runs");
        bench.wait().expect("a child");
        // Each run reads the capacity first, over a connection of its own.
        server.await_lines(CLOSED, 3 * round - 1);
        let disk = open(&folder, "v");
        disk.write_at(&[round as u8; 512], 0).expect("a write");
        let mut read = [0; 512];
        disk.read_at(&mut read, 0).expect("a read");
        assert_eq!(read, [round as u8; 512]);
        drop(disk);
        server.await_lines(CLOSED, 3 * round);
    }
    assert!(server.terminate().success());
}

#[test]
fn server_that_ends_completes_the_requests_in_flight() {
    let folder = folder();
    let server = serve(&folder, "--num-queues=2");
    let spec = format!("vhost-user:{}", folder.path().join("v").display());
    let job = "--name=a --rw=randwrite --bs=4k --iodepth=16 --size=1m --time_based --runtime=600";
    let bench = bench_at_work(&folder, &format!("{job} --filename={spec}"));
    let log = folder.path().join("server.log");
    assert!(server.terminate().success());
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains("the server shuts down"), "{log}");
    // Its disk is gone, so it ends with an error.
    let output = bench.wait_with_output().expect("a child");
    assert!(!output.status.success(), "{}", stdout(&output));
}

/// Returns the number of descriptors of a process that are this file.
fn nr_opens(server: &Server, file: &str) -> usize {
    let links = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let links = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    links.filter(|link| link.ends_with(file)).count()
}

fn nr_threads(server: &Server, name: &str) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}

/// A hardware context of a file has a descriptor of its own.
#[test]
fn each_ring_has_a_thread_and_a_hardware_context() {
    let one_folder = folder();
    let one = serve(&one_folder, "--num-queues=1 --threads=2");
    // A front end is served only when all threads have their queues.
    drop(open(&one_folder, "v"));
    let nr_with_one = nr_opens(&one, "disk.img");
    assert_eq!((nr_threads(&one, "ring-0-"), nr_threads(&one, "device-")), (1, 1));
    let folder = folder();
    let five = serve(&folder, "--num-queues=5 --threads=2");
    drop(open(&folder, "v"));
    assert_eq!((nr_threads(&five, "ring-0-"), nr_threads(&five, "device-")), (5, 1));
    assert_eq!(nr_opens(&five, "disk.img"), nr_with_one + 4);
    assert!(one.terminate().success() && five.terminate().success());
}

#[test]
fn thousand_connections_leave_nothing_behind() {
    check_connections("--num-queues=2");
}

#[test]
fn thousand_connections_leave_no_memory_registered() {
    check_connections("--num-queues=2 --register-memory");
}

/// Checks that descriptors and memory are the same after a thousand connections as before.
#[track_caller]
fn check_connections(args: &str) {
    let folder = folder();
    let server = serve(&folder, args);
    let connect = |nr: usize| {
        for _ in 0..nr {
            // A driver with short rings shares little memory, which is registered quickly.
            drop(open(&folder, "v?queue_size=4"));
        }
    };
    let settled = |nr| {
        server.await_lines("connection ", nr);
        let start = Instant::now();
        // The next connection is served after the end of the last.
        drop(open(&folder, "v?queue_size=4"));
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(100));
    };
    connect(50);
    settled(50);
    let (fds, memory) = (server.nr_fds(), server.memory_kib("VmRSS"));
    let pinned = server.memory_kib("VmPin");
    connect(1000);
    settled(50);
    assert_eq!((server.nr_fds(), server.memory_kib("VmPin")), (fds, pinned));
    let after = server.memory_kib("VmRSS");
    assert!(after < memory + 4096, "{memory} KiB before, {after} KiB after");
    assert!(server.terminate().success());
}

#[test]
fn options_that_no_device_can_have_are_refused() {
    for (args, expected) in [
        ("disk.img --vhost-user-blk=unix:v --threads=2", "--threads is for NBD, which is off"),
        ("disk.img --vhost-user-blk=unix:v --tls=on", "--tls is for NBD, which is off"),
        ("disk.img --vhost-user-blk=unix:v --max-connections=2", "--max-connections is for NBD"),
        ("disk.img ram:1M --vhost-user-blk=unix:v", "no client can reach this disk"),
        (
            "ram:1M?logical_block_size=4096 --vhost-user-blk=unix:v --block-size=512",
            "the disk has blocks of 4096",
        ),
        ("disk.img --vhost-user-blk=unix:v --serial=123456789012345678901", "at most 20 bytes"),
        ("ram:1M --vhost-user-blk=unix:v --register-memory", "it cannot register memory"),
        (
            "disk.img?engine=psync --vhost-user-blk=unix:v --register-memory",
            "with engine=io_uring and without fixed_buffers",
        ),
        ("disk.img --register-memory", "--register-memory is for virtual machines"),
        ("disk.img --num-queues=2", "--num-queues is for virtual machines"),
        ("disk.img --vhost-user-blk=unix:v --num-queues=65", "from 1 to 64"),
        ("disk.img --fd=99", "cannot use descriptor 99 (--fd)"),
        ("disk.img --vhost-user-blk=unix:nosuch/v", "create the directory of the socket"),
    ] {
        let folder = folder();
        data_file(&folder, "disk.img", 1 << 20);
        // Without a refusal the server would run forever.
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_forebay"), "serve"]).args(args.split(' '));
        let output = command.current_dir(folder.path()).output().expect("it can be run");
        let text = stderr(&output);
        assert!(text.contains(expected), "{args}: {text}");
        assert!(!output.status.success() && output.status.code() != Some(124), "{args}");
    }
}
