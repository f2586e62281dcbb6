//! Rights that a confined process keeps and loses. Each test confines a thread of its own only.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;

use super::*;
use forebay::Disk;

#[expect(dead_code, reason = "these tests are skipped only for what the kernel lacks")]
#[path = "../../../../forebay/tests/support/skip.rs"]
mod skip;

/// First version of Landlock, which restricts access to files.
const FILES: ABI = ABI::V1;
/// First version that restricts TCP too.
const TCP: ABI = ABI::V4;

/// Returns whether the kernel supports all features of this Landlock version. The code under test
/// uses any subset that the kernel supports.
fn kernel_has(version: ABI) -> bool {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(version));
    let net = AccessNet::from_all(version);
    let rules = match net.is_empty() {
        true => rules,
        false => rules.and_then(|rules| rules.handle_access(net)),
    };
    rules.and_then(Ruleset::create).is_ok()
}

/// Runs `body` in a confined thread. If the kernel does not have the version of Landlock that the
/// test needs, the test is skipped, also under `FOREBAY_REQUIRE_TOOLS=1`.
fn confined(needed: ABI, needs: Needs, body: impl FnOnce() + Send) {
    if !kernel_has(needed) {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let reason = format!("this kernel has no Landlock of version {}", needed as i32);
        return skip::skip_always(&test, &reason);
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match confine(&needs, None).landlock {
            Landlock::Version(version) if version >= needed as i32 => body(),
            other => panic!("the kernel has Landlock, but it is not in force: {other:?}"),
        });
        thread.join().unwrap();
    });
}

fn is_refused<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn files_that_are_open_can_be_opened_again_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["written", "read", "other"] {
        std::fs::write(path(name), name).unwrap();
    }
    let writable = OpenOptions::new().read(true).write(true).open(path("written")).unwrap();
    let readable = File::open(path("read")).unwrap();
    let again = |file: &File, write| {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        OpenOptions::new().read(true).write(write).open(link)
    };
    confined(FILES, Needs::default(), || {
        again(&writable, true).unwrap().write_all(b"x").unwrap();
        again(&readable, false).unwrap();
        assert!(is_refused(again(&readable, true)), "the file was open for reading");
        for name in ["other", "new"] {
            assert!(is_refused(std::fs::write(path(name), "")), "{name}");
        }
        assert!(is_refused(File::open(path("other"))));
        assert!(is_refused(File::open("/etc/passwd")));
        assert!(is_refused(std::fs::read_dir("/")));
        assert!(is_refused(std::fs::remove_file(path("other"))));
        assert!(is_refused(UnixListener::bind(path("socket"))));
    });
}

#[test]
fn a_file_without_a_name_can_be_opened_again() {
    let file = tempfile::tempfile().unwrap();
    confined(FILES, Needs::default(), || {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        OpenOptions::new().write(true).open(link).unwrap();
    });
}

#[test]
fn no_port_can_be_had_and_no_peer_reached_that_was_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let open = TcpStream::connect(address).unwrap();
    confined(TCP, Needs::default(), || {
        listener.accept().unwrap();
        (&open).write_all(b"x").unwrap();
        assert!(is_refused(TcpListener::bind("127.0.0.1:0")));
        assert!(is_refused(TcpListener::bind("127.0.0.1:45671")));
        assert!(is_refused(TcpStream::connect(address)));
    });
    confined(TCP, Needs { connects: true, ..Needs::default() }, || {
        TcpStream::connect(address).unwrap();
        assert!(is_refused(TcpListener::bind("127.0.0.1:45671")));
        assert!(is_refused(File::open("/proc/1/status")));
        std::fs::read("/etc/passwd").unwrap();
        assert!(is_refused(OpenOptions::new().write(true).open("/etc/passwd")));
    });
}

#[test]
fn a_socket_file_can_be_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _listener = UnixListener::bind(&path).unwrap();
    let needs = Needs { socket_files: vec![path.clone()], ..Needs::default() };
    confined(FILES, needs, move || {
        std::fs::remove_file(&path).unwrap();
        assert!(is_refused(File::create(path)), "the file can be removed, but not created");
    });
}

#[test]
fn threads_that_are_started_later_are_confined_as_well() {
    confined(FILES, Needs::default(), || {
        let later = std::thread::spawn(|| is_refused(File::open("/etc/passwd")));
        assert!(later.join().unwrap());
    });
    File::open("/etc/passwd").expect("other threads are not confined");
}

#[test]
fn a_disk_goes_on_and_opens_its_file_anew_for_a_queue_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    for engine in ["file", "aio", "psync"] {
        let disk = Disk::open(&format!("{engine}:{}", path.display())).unwrap();
        confined(FILES, Needs::default(), move || {
            let mut queue = disk.queue();
            queue.submit(forebay::Io::read(disk.buf(4096), 0)).unwrap();
            let mut ended = Vec::new();
            queue.reap(1, 1, &mut ended);
            assert!(ended[0].result.is_ok(), "{ended:?}");
            disk.write_at(&[1; 4096], 4096).unwrap();
            disk.write_zeroes(8192, 4096).unwrap();
            disk.discard(16384, 4096).unwrap();
            disk.flush().unwrap();
        });
    }
}

#[test]
fn the_log_names_the_settings_in_force() {
    let said = |landlock, connects, no_new_privileges, free_threads| {
        Confinement { landlock, connects, no_new_privileges, free_threads }.to_string()
    };
    assert_eq!(
        said(Landlock::Version(7), false, true, 0),
        "confined by Landlock 7: no access to other files, no new TCP ports or connections, no \
         signals to other processes"
    );
    assert_eq!(
        said(Landlock::Version(3), true, true, 2),
        "confined by Landlock 3: no access to other files; TCP is not confined (it needs Linux \
         6.7); 2 threads of disks, which were started before, are not confined"
    );
    assert!(said(Landlock::Missing, false, true, 0).contains("no Landlock"));
    assert!(said(Landlock::Failed("x".into()), false, false, 0).contains("x; the kernel refused"));
}
