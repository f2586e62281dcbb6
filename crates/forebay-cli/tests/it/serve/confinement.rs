//! Restrictions of a running server, as the kernel enforces them: Landlock, and restricted rings.
// These tests make system calls that no crate here wraps.
#![allow(unsafe_code)]

use super::client::{Client, command};
use super::front_end::{FrontEnd, WRITE};
use super::server::Server;
use crate::ceph;
use crate::common::{data_file, folder, skip, skip_unless_required};
use crate::storage_daemon::StorageDaemon;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::{AsRawFd, OwnedFd};

/// The newest version of Landlock that the program supports.
const KNOWN: i64 = 8;

/// Returns the Landlock version of this kernel, from a direct system call; 0 without Landlock.
fn landlock_version() -> i64 {
    const LANDLOCK_CREATE_RULESET: i64 = 444;
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no memory, and returns a number.
    let version = unsafe {
        libc::syscall(
            LANDLOCK_CREATE_RULESET,
            std::ptr::null::<u8>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    version.max(0)
}

/// Returns whether this kernel has any version of Landlock: each restricts access to files. If not,
/// the test is skipped by name, also under `FOREBAY_REQUIRE_TOOLS=1`.
pub(super) fn has_landlock(test: &str) -> bool {
    let is_there = landlock_version() > 0;
    if !is_there {
        skip(test, "this kernel has no Landlock (Linux 5.13 has it)");
    }
    is_there
}

#[test]
fn a_server_is_confined_by_the_landlock_of_the_kernel() {
    if !has_landlock("a_server_is_confined_by_the_landlock_of_the_kernel") {
        return;
    }
    let folder = folder();
    let server = Server::start(&folder, "ram:1m");
    drop(Client::connect(server.socket(), "").expect("a connection"));
    let log = server.log();
    let mut lines =
        log.lines().filter_map(|line| Some(line.split_once("Z confined by Landlock ")?.1));
    let (version, rest) = lines.next().and_then(|line| line.split_once(':')).expect(&log);
    let (version, kernel): (i64, _) = (version.parse().expect("a version"), landlock_version());
    assert!((kernel.min(KNOWN)..=kernel).contains(&version), "the kernel has {kernel}: {log}");
    assert!(rest.starts_with(" no access to other files"), "{log}");
}

/// Memory is a file without a path, and Landlock has no rule for it.
#[test]
fn server_that_inherits_memory_is_confined() {
    if !has_landlock("server_that_inherits_memory_is_confined") {
        return;
    }
    let memory = rustix::fs::memfd_create("inherited", rustix::fs::MemfdFlags::empty());
    let memory = memory.expect("memory");
    let folder = folder();
    let server = Server::start(&folder, "ram:1m");
    drop(memory);
    drop(Client::connect(server.socket(), "").expect("a connection"));
    assert!(server.log().contains("Z confined by Landlock "), "{}", server.log());
}

/// Landlock has no rule for some kinds of open files. One of these would end the confinement.
#[test]
fn server_of_a_vhost_user_disk_is_confined() {
    let test = "server_of_a_vhost_user_disk_is_confined";
    if !has_landlock(test) {
        return;
    }
    let folder = folder();
    let path = data_file(&folder, "disk.img", 1 << 20);
    let daemon = match StorageDaemon::new(&path) {
        Ok(daemon) => daemon,
        Err(why) => return skip_unless_required(test, &why),
    };
    let server = Server::start(&folder, &daemon.spec());
    drop(Client::connect(server.socket(), "").expect("a connection"));
    let log = server.log();
    assert!(log.lines().any(|line| line.contains("Z confined by Landlock ")), "{log}");
}

/// The cluster's client connects again when an OSD has been restarted.
#[test]
fn server_of_a_ceph_image_is_confined_and_connects_again() {
    let test = "server_of_a_ceph_image_is_confined_and_connects_again";
    let cluster = match ceph::cluster_alone() {
        Ok(cluster) => cluster,
        Err(why) => return skip_unless_required(test, &why),
    };
    let folder = folder();
    let spec = cluster.spec(&cluster.create(16 << 20, "layering,exclusive-lock"));
    let server = Server::start(&folder, &format!("{spec}&exclusive=on --vhost-user-blk=unix:v"));
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    let write = |client: &mut Client, offset| {
        let answer = client.ask((command::WRITE, command::FUA), offset, 4096, &[7; 4096]);
        assert_eq!(answer.ok(), Some(0));
    };
    write(&mut client, 0);
    cluster.kill_osd();
    cluster.start_osd();
    write(&mut client, 4096);
    assert_eq!(client.read(0, 8192).expect("a read"), vec![7; 8192]);
    drop(client);
    let mut machine = FrontEnd::new(1);
    machine.connect(&folder.path().join("v"));
    let mut driver = machine.driver(0);
    driver.submit(0, WRITE, 0, 512);
    assert_eq!(driver.answer(), 0);
    let log = server.log();
    let is_confined = log.lines().any(|line| line.contains("Z confined by Landlock "));
    assert!(is_confined || landlock_version() == 0, "{log}");
}

/// The memory of a machine, its eventfds and its in-flight region reach a server that is confined
/// already.
#[test]
fn server_of_a_virtual_machine_is_confined() {
    if !has_landlock("server_of_a_virtual_machine_is_confined") {
        return;
    }
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let server = Server::start(&folder, "disk.img --vhost-user-blk=unix:v --num-queues=1");
    let mut machine = FrontEnd::new(1);
    machine.connect(&folder.path().join("v"));
    let mut driver = machine.driver(0);
    driver.submit(0, WRITE, 0, 512);
    assert_eq!(driver.answer(), 0);
    let log = server.log();
    assert!(log.lines().any(|line| line.contains("Z confined by Landlock ")), "{log}");
}

/// Tests the confinement itself, not the server's report of it. The server tries to open a file
/// that it must not open: the target of a key link that was changed after the start.
#[test]
fn a_confined_server_opens_no_other_file() {
    if !has_landlock("a_confined_server_opens_no_other_file") {
        return;
    }
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    for name in ["pki", "elsewhere"] {
        std::fs::create_dir(path(name)).expect("a directory");
    }
    // A key and its certificate, in one file.
    let pem = include_str!("../../../../forebay-serve/src/tls/tests/keys/rsa-2048.pem");
    for file in ["pki/server-cert.pem", "pki/server-key.pem", "elsewhere/key.pem"] {
        std::fs::write(path(file), pem).expect("a file");
    }
    let args = "ram:1m --tls=on --tls-certificates=pki";
    let server = Server::start_without_terminal(&folder, args);
    server.signal("HUP");
    server.await_lines("reload", 1);
    assert!(server.log().contains("reloaded the TLS certificates in pki"), "{}", server.log());

    std::fs::remove_file(path("pki/server-key.pem")).expect("it is removed");
    std::os::unix::fs::symlink(path("elsewhere/key.pem"), path("pki/server-key.pem"))
        .expect("a link");
    server.signal("HUP");
    server.await_lines("reload", 2);
    let log = server.log();
    // The line of a connection that has ended may come late.
    let last = log.lines().rfind(|line| line.contains("reload")).expect("a line");
    assert!(last.contains("reload failed"), "{log}");
    assert!(last.contains("pki/server-key.pem: Permission denied"), "{log}");
}

/// Registers a probe for supported operations with a ring, which is harmless, and which the rings
/// of a disk must refuse. Returns the errno, or 0 if the ring accepts it.
fn probe(ring: &OwnedFd) -> i32 {
    const IORING_REGISTER_PROBE: i32 = 8;
    let mut answer = [0_u8; 16];
    // SAFETY: the kernel reads and writes one empty `struct io_uring_probe`, which has 16 bytes.
    let result = unsafe {
        let answer = answer.as_mut_ptr();
        let ring = ring.as_raw_fd();
        libc::syscall(libc::SYS_io_uring_register, ring, IORING_REGISTER_PROBE, answer, 0)
    };
    if result == 0 {
        return 0;
    }
    std::io::Error::last_os_error().raw_os_error().expect("an error of the system")
}

/// (The restrictions of single-thread rings are visible only inside the process: the library has a
/// test for them.)
#[test]
fn rings_of_a_served_disk_refuse_operations_without_use() {
    let test = "rings_of_a_served_disk_refuse_operations_without_use";
    let folder = folder();
    std::fs::write(folder.path().join("disk.img"), vec![1; 1 << 20]).expect("a file");
    let server = Server::start(&folder, "disk.img --threads=1");
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    client.read(0, 4096).expect("it is served");
    let process = Pid::from_raw(server.pid() as i32).expect("a process");
    let process = pidfd_open(process, PidfdFlags::empty()).expect("it runs");
    let numbers = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let is_ring = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        target.as_os_str() == "anon_inode:[io_uring]"
    };
    let rings: Vec<_> = numbers.flatten().filter(is_ring).collect();
    if rings.is_empty() {
        return skip_unless_required(test, "the disk has no ring: the kernel has no io_uring");
    }
    let mut nr_refusals = 0;
    for ring in rings {
        let number = ring.file_name().to_string_lossy().parse().expect("a number");
        let copy = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).expect("a copy");
        match probe(&copy) {
            libc::EACCES => nr_refusals += 1,
            // The ring belongs to another thread, and the kernel checks that first.
            libc::EEXIST => {}
            error => panic!("descriptor {number}: a ring answers {error}"),
        }
    }
    assert!(nr_refusals > 0, "no ring of the shared context: {}", server.log());
}
