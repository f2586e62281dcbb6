//! Memory of a guest that the disk has registered, or that it does not accept as it is.

#[path = "rings/guest.rs"]
mod guest;

use forebay_serve::{Address, Options, Server};
use guest::{BASE, DATA, Guest, LEN, options, serve, serve_with};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
use vm_memory::{Bytes, GuestAddress};

/// Memory that the process has pinned concerns all tests.
static PINNED: Mutex<()> = Mutex::new(());

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder")
}

/// Returns a disk of 16 MiB on a file, with direct I/O and these keys.
fn disk(folder: &TempDir, keys: &str) -> String {
    let path = folder.path().join("disk.img");
    File::create(&path).and_then(|file| file.set_len(16 << 20)).expect("a scratch file");
    format!("{}?direct=on{keys}", path.display())
}

/// Returns options of a server that registers memory, with metrics.
fn registering(folder: &TempDir, spec: &str) -> Options {
    let metrics = Some(Address::Unix(folder.path().join("metrics")));
    Options { register_memory: true, metrics, ..options(folder.path(), &[spec], None) }
}

/// Returns a counter of the only ring.
fn counter(folder: &Path, name: &str) -> u64 {
    let mut socket = UnixStream::connect(folder.join("metrics")).expect("a server");
    socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("it answers");
    let name = format!("forebay_ring_{name}_total{{");
    let line = text.lines().find(|line| line.starts_with(&name)).expect(&name);
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// Returns how much memory this process has pinned, KiB.
fn pinned_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find(|line| line.starts_with("VmPin:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Waits until this much memory is pinned. A thread of a ring ends registrations after it has
/// answered.
#[track_caller]
fn await_pinned(kib: u64) {
    let begin = Instant::now();
    while pinned_kib() != kib {
        assert!(begin.elapsed() < Duration::from_secs(20), "{} KiB, not {kib}", pinned_kib());
        std::thread::yield_now();
    }
}

/// Writes these bytes to the disk through the memory at `addr`, and reads them again.
fn pass(guest: &mut Guest, value: u8, segments: &[(u64, u32)], put: impl Fn(u8), is: impl Fn(u8)) {
    put(value);
    guest.request_of(0, true, 8, segments.iter().copied());
    guest.kick();
    guest.wait();
    assert_eq!(guest.status(0), 0);
    put(0);
    guest.request_of(0, false, 8, segments.iter().copied());
    guest.kick();
    guest.wait();
    assert_eq!(guest.status(0), 0);
    is(value);
}

/// Makes a pass in the first region.
fn pass_in_base(guest: &mut Guest, value: u8) {
    let memory = guest.memory.clone();
    let segments = [(DATA, 4096), (DATA + 16384, 8192)];
    let fill = |value: u8| {
        for (addr, len) in segments {
            memory.write_slice(&vec![value; len as usize], GuestAddress(addr)).expect("memory");
        }
    };
    let check = |value: u8| {
        for (addr, len) in segments {
            let mut found = vec![0; len as usize];
            memory.read_slice(&mut found, GuestAddress(addr)).expect("memory");
            assert!(found.iter().all(|byte| *byte == value));
        }
    };
    pass(guest, value, &segments[..1], fill, |value| {
        let byte: u8 = memory.read_obj(GuestAddress(DATA + 4095)).expect("memory");
        assert_eq!(byte, value);
    });
    pass(guest, value.wrapping_add(100), &segments, fill, check);
}

/// Address and length of a second region.
const MORE: u64 = BASE + (64 << 20);
const MORE_LEN: u64 = 32 << 20;

fn memfd(len: u64) -> File {
    let memfd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(memfd.expect("memory to share"));
    file.set_len(len).expect("memory");
    file
}

/// Shares these regions, and waits until the rings have them.
fn share(guest: &Guest, regions: &[(u64, u64, &File)]) {
    let region = |&(addr, len, file): &(u64, u64, &File)| VhostUserMemoryRegionInfo {
        guest_phys_addr: addr,
        memory_size: len,
        userspace_addr: addr,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    };
    let regions: Vec<_> = regions.iter().map(region).collect();
    guest.frontend.set_mem_table(&regions).expect("SET_MEM_TABLE");
    // Messages are served in their order.
    guest.frontend.get_features().expect("GET_FEATURES");
}

/// Makes a pass in the second region, which is this file.
fn pass_in_more(guest: &mut Guest, value: u8, file: &File) {
    let fill = |value: u8| {
        file.write_all_at(&vec![value; 16384], 8192).expect("memory");
    };
    let check = |value: u8| {
        let mut found = vec![0; 16384];
        file.read_exact_at(&mut found, 8192).expect("memory");
        assert!(found.iter().all(|byte| *byte == value));
    };
    pass(guest, value, &[(MORE + 8192, 16384)], fill, check);
}

#[test]
fn registered_memory_is_used_and_follows_the_memory_of_the_guest() {
    let _alone = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let spec = disk(&folder, "&engine=io_uring");
    let before = pinned_kib();
    let pinned = |bytes: u64| await_pinned(before + (bytes >> 10));
    serve_with(registering(&folder, &spec), || {
        let registered = || counter(folder.path(), "registered_requests");
        let base = memfd(LEN);
        let mut guest =
            Guest::connect_with(&folder.path().join("0"), base.try_clone().expect("a descriptor"));
        pass_in_base(&mut guest, 1);
        let nr = registered();
        // Requests of several segments need Linux 6.15.
        assert!((2..=4).contains(&nr), "{nr}");
        pinned(LEN);
        let mut expected = nr;
        for value in 2..8 {
            // Another file at the same place of the guest.
            let more = memfd(MORE_LEN);
            share(&guest, &[(BASE, LEN, &base), (MORE, MORE_LEN, &more)]);
            // Those of before are not pinned.
            pinned(LEN + MORE_LEN);
            pass_in_more(&mut guest, value, &more);
            pass_in_base(&mut guest, value);
            expected += nr + 2;
            assert_eq!(registered(), expected);
        }
        share(&guest, &[(BASE, LEN, &base)]);
        pinned(LEN);
        pass_in_base(&mut guest, 9);
        guest.stop();
        pinned(0);
        guest.truncate(0);
        drop(guest);
        let mut guest = Guest::connect(&folder.path().join("0"));
        pass_in_base(&mut guest, 10);
        pinned(LEN);
        assert_eq!(registered(), expected + 2 * nr);
    });
    pinned(0);
}

#[test]
fn removed_memory_stays_registered_until_its_last_request_has_ended() {
    let _alone = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let spec = disk(&folder, "&engine=io_uring&rule=write:delay=2s");
    let before = pinned_kib();
    serve_with(registering(&folder, &format!("fault:{spec}")), || {
        let (base, more) = (memfd(LEN), memfd(MORE_LEN));
        let mut guest =
            Guest::connect_with(&folder.path().join("0"), base.try_clone().expect("a descriptor"));
        share(&guest, &[(BASE, LEN, &base), (MORE, MORE_LEN, &more)]);
        await_pinned(before + ((LEN + MORE_LEN) >> 10));
        more.write_all_at(&[7; 65536], 0).expect("memory");
        let begin = Instant::now();
        guest.request_of(0, true, 0, [(MORE, 65536)]);
        guest.kick();
        while counter(folder.path(), "requests") == 0 {
            std::thread::yield_now();
        }
        share(&guest, &[(BASE, LEN, &base)]);
        // The thread of the ring has time to end registrations.
        std::thread::sleep(Duration::from_millis(100));
        // The new table registers the first region again, because it has a new mapping.
        assert_eq!(pinned_kib() - before, (2 * LEN + MORE_LEN) >> 10);
        assert!(begin.elapsed() < Duration::from_secs(2), "the request is in flight");
        guest.wait();
        assert_eq!((guest.status(0), counter(folder.path(), "registered_requests")), (0, 1));
        await_pinned(before + (LEN >> 10));
        guest.request_of(0, false, 0, [(DATA, 65536)]);
        guest.kick();
        guest.wait();
        let mut found = vec![0; 65536];
        guest.memory.read_slice(&mut found, GuestAddress(DATA)).expect("memory");
        assert!(found.iter().all(|byte| *byte == 7));
    });
}

#[test]
fn memory_that_the_kernel_does_not_register_is_used_without() {
    let _alone = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let spec = disk(&folder, "&engine=io_uring");
    let (log, writer) = std::io::pipe().expect("a pipe");
    let options = Options { log: Some(writer.into()), ..registering(&folder, &spec) };
    serve_with(options, || {
        for value in 1..3 {
            // The kernel writes such pages back, so it does not pin them.
            let file = tempfile::tempfile_in(folder.path()).expect("a file on a disk");
            let mut guest = Guest::connect_with(&folder.path().join("0"), file);
            pass_in_base(&mut guest, value);
            guest.request(0, false, 0, (DATA, 4));
            guest.kick();
            guest.wait();
            assert_eq!(guest.status(0), 0);
            guest.stop();
        }
        assert_eq!(counter(folder.path(), "registered_requests"), 0);
    });
    let lines = BufReader::new(log).lines().map(|line| line.expect("a line"));
    let lines: Vec<_> = lines.filter(|line| line.contains("is not registered")).collect();
    assert_eq!(lines.len(), 2, "one for each connection: {lines:?}");
    assert!(
        lines[0].contains("ring 0: memory of the guest is not registered, and its I/O continues")
    );
    assert!(lines[0].contains("the kernel pins only memory of a memfd"), "{lines:?}");
}

#[test]
fn disk_that_cannot_register_memory_is_refused_at_the_start() {
    let folder = folder();
    let file = |keys: &str| disk(&folder, keys);
    for spec in [
        "ram:1M".to_owned(),
        "null:1M".to_owned(),
        file("&engine=aio"),
        file("&engine=psync"),
        file("&fixed_buffers=64k"),
    ] {
        let error = Server::open(registering(&folder, &spec)).expect_err(&spec).to_string();
        assert!(error.contains("--register-memory"), "{error}");
        assert!(error.contains("with engine=io_uring and without fixed_buffers"), "{error}");
    }
}

#[test]
fn data_in_memory_that_the_disk_does_not_accept_are_copied_and_counted() {
    let folder = folder();
    let spec = disk(&folder, "");
    let metrics = Some(Address::Unix(folder.path().join("metrics")));
    serve_with(Options { metrics, ..options(folder.path(), &[&spec], None) }, || {
        let mut guest = Guest::connect(&folder.path().join("0"));
        let memory = guest.memory.clone();
        let fill = |value: u8| memory.write_slice(&[value; 4096], GuestAddress(DATA + 1)).unwrap();
        let check = |value: u8| {
            let mut found = [0; 4096];
            memory.read_slice(&mut found, GuestAddress(DATA + 1)).expect("memory");
            assert_eq!(found, [value; 4096]);
        };
        pass(&mut guest, 7, &[(DATA + 1, 4096)], fill, check);
        pass_in_base(&mut guest, 8);
        assert_eq!(counter(folder.path(), "bounced_requests"), 2);
        assert_eq!(counter(folder.path(), "bounced_bytes"), 8192);
    });
}

#[test]
fn copy_that_the_disk_keeps_does_not_hold_back_the_next() {
    let folder = folder();
    let keys = "&rule=read:delay=2s&io_timeout_ms=100&io_timeout_grace_ms=100";
    let spec = format!("fault:{}", disk(&folder, keys));
    let begin = Instant::now();
    serve(folder.path(), &[&spec], None, || {
        let mut guest = Guest::connect(&folder.path().join("0"));
        // Copies of 9 MiB each, of which 16 MiB may be in flight.
        for first in [0, 16] {
            guest.request_of(first, false, 0, (0..9).map(|_| (DATA + 1, 1 << 20)));
        }
        guest.kick();
        guest.wait();
        assert!(begin.elapsed() < Duration::from_secs(2), "before the disk frees the copy");
        assert_eq!([0, 16].map(|first| guest.status(first)), [1; 2]);
    });
}

/// The disk keeps the buffer of a long copy whose last part is shorter than the buffer.
#[test]
fn long_copy_that_the_disk_keeps_does_not_hold_back_the_next() {
    let folder = folder();
    let keys = "&rule=read:delay=2s:range=16M+1M&io_timeout_ms=100&io_timeout_grace_ms=100";
    let spec = format!("fault:{}", disk(&folder, keys));
    let image = File::options().write(true).open(folder.path().join("disk.img"));
    image.and_then(|file| file.set_len(64 << 20)).expect("a scratch file");
    serve(folder.path(), &[&spec], None, || {
        let mut guest = Guest::connect(&folder.path().join("0"));
        // The disk is gone after the first one, so the second one fails too.
        for (first, nr_mib) in [(0, 17), (32, 9)] {
            guest.request_of(first, false, 0, (0..nr_mib).map(|_| (DATA + 1, 1 << 20)));
            guest.kick();
            guest.wait();
            assert_eq!(guest.status(first), 1);
        }
    });
}

/// A copy has at most 16 MiB, so a longer request is copied in parts.
#[test]
fn long_request_in_memory_that_the_disk_does_not_accept_is_copied_in_parts() {
    const MIB: u64 = 1 << 20;
    let folder = folder();
    let spec = disk(&folder, "");
    let image = File::options().write(true).read(true).open(folder.path().join("disk.img"));
    let image = image.expect("the disk");
    image.set_len(64 * MIB).expect("a scratch file");
    let mark = |sector: u64| image.write_all_at(&[sector as u8; 512], sector * 512).expect("room");
    (0..40 * 2048).step_by(1000).for_each(mark);
    serve(folder.path(), &[&spec], None, || {
        let mut guest = Guest::connect(&folder.path().join("0"));
        // 35 MiB into the same memory: the last MiB remains.
        guest.request_of(0, false, 2048, (0..35).map(|_| (DATA + 1, MIB as u32)));
        guest.kick();
        guest.wait();
        assert_eq!(guest.status(0), 0);
        let mut found = vec![0; MIB as usize];
        guest.memory.read_slice(&mut found, GuestAddress(DATA + 1)).expect("memory");
        let mut on_disk = vec![0; MIB as usize];
        image.read_exact_at(&mut on_disk, 35 * MIB).expect("the disk");
        assert!(found == on_disk && on_disk.iter().any(|byte| *byte != 0));
        // Written once to each MiB.
        let bytes: Vec<u8> = (0..MIB).map(|at| (at / 512 % 251) as u8).collect();
        guest.write(DATA + 1, &bytes);
        guest.request_of(64, true, 0, (0..33).map(|_| (DATA + 1, MIB as u32)));
        guest.kick();
        guest.wait();
        assert_eq!(guest.status(64), 0);
        for nth in 0..33 {
            image.read_exact_at(&mut on_disk, nth * MIB).expect("the disk");
            assert!(on_disk == bytes, "MiB {nth}");
        }
        image.read_exact_at(&mut on_disk, 33 * MIB).expect("the disk");
        assert!(on_disk != bytes, "not more");
        // The end of the disk: all or nothing.
        guest.request_of(128, true, 64 * 2048 - 1, (0..33).map(|_| (DATA + 1, MIB as u32)));
        guest.kick();
        guest.wait();
        assert_eq!(guest.status(128), 1);
    });
}
