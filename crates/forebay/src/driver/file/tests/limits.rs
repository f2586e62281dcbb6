//! Tests in a process of their own: system limits, signals, and an exit with I/O in flight.
//!
//! Each test runs this program again for itself, because it would disturb the others.
// It makes system calls.
#![allow(unsafe_code)]

use crate::{Buf, Disk, Io, OpenError};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Names the file that a child works on.
const CHILD: &str = "FOREBAY_TEST_CHILD";

/// Runs `test` again in a child, with a file of `len` ascending bytes. In the child, returns the
/// path of that file.
fn in_child(test: &str, len: usize) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(CHILD) {
        return Some(PathBuf::from(path));
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let all = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder.path(), all(0o755)).expect("a scratch folder");
    let path = folder.path().join("disk.img");
    let bytes: Vec<u8> = (0..len).map(|at| (at / 256) as u8).collect();
    std::fs::write(&path, bytes).expect("a scratch file");
    std::fs::set_permissions(&path, all(0o666)).expect("a scratch file");
    let name = format!("driver::file::tests::limits::{test}");
    let output = Command::new(std::env::current_exe().expect("a program"))
        .args([&name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, &path)
        .output()
        .expect("a child");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{}: {}{}", output.status, said[0], said[1]);
    None
}

fn open(path: &Path, keys: &str) -> Result<Disk, OpenError> {
    Disk::open(&format!("{}?{keys}", path.display()))
}

fn set_limit(what: libc::__rlimit_resource_t, limit: u64) {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the kernel reads one structure.
    assert_eq!(unsafe { libc::setrlimit(what, &raw const limit) }, 0);
}

#[test]
fn a_refusal_to_lock_memory_names_the_limit() {
    let test = "a_refusal_to_lock_memory_names_the_limit";
    let Some(path) = in_child(test, 1 << 20) else { return };
    set_limit(libc::RLIMIT_MEMLOCK, 1 << 20);
    // Root may lock any amount.
    // SAFETY: numbers only.
    unsafe { libc::setuid(65534) };
    let error = open(&path, "fixed_buffers=2M").expect_err("more than the limit");
    let message = error.to_string();
    let begin = "fixed_buffers=2097152: the kernel refuses it: ";
    let end =
        "; the limit of locked memory is 1024 KiB: raise it (ulimit -l), or lower fixed_buffers";
    assert!(message.starts_with(begin) && message.ends_with(end), "{message}");
    let OpenError::RingKey { source, .. } = error else { panic!("{message}") };
    assert_eq!(source.raw_os_error(), Some(libc::ENOMEM));
    // Locked memory is unlocked when the disk is closed. Rings of threads clone it, so it counts
    // once. (The rings themselves count as well, until the kernel has destroyed them.)
    for _ in 0..5 {
        let disk = open(&path, "fixed_buffers=600k&nr_hw_queues=4&queue_depth=8")
            .expect("less than the limit");
        let read = || {
            let mut queue = disk.queue();
            queue.submit(Io::read(disk.buf(4096), 256 * 5)).expect("a good I/O");
            let mut done = Vec::new();
            queue.reap(1, 1, &mut done);
            let buf = done.remove(0).buf.expect("it had one");
            assert!(buf.is_registered() && buf[0] == 5 && buf[4095] == 20);
        };
        thread::scope(|scope| {
            // Joined one by one, because a scope does not wait for a thread's exit handlers.
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }
}

#[test]
fn a_refusal_of_a_ring_carries_its_errno() {
    let Some(path) = in_child("a_refusal_of_a_ring_carries_its_errno", 1 << 20) else { return };
    let file = std::fs::File::open(&path).expect("a scratch file");
    let next = std::os::fd::AsRawFd::as_raw_fd(&file) as u64;
    // Room for the disk's file and its claim's, but for no ring.
    drop(file);
    set_limit(libc::RLIMIT_NOFILE, next + 2);
    for keys in ["", "fixed_buffers=64k", "sqpoll=on"] {
        let error = open(&path, keys).expect_err("there is no room for a ring");
        let source = match &error {
            OpenError::NoUring { source, .. } | OpenError::RingKey { source, .. } => source,
            _ => panic!("{error}"),
        };
        assert_eq!(source.raw_os_error(), Some(libc::EMFILE), "{error}");
    }
}

/// The file size limit cuts a write short, in requests of one bio and of several.
#[test]
fn a_short_write_goes_on_and_each_bio_gets_its_own_result() {
    let test = "a_short_write_goes_on_and_each_bio_gets_its_own_result";
    let Some(path) = in_child(test, 4096) else { return };
    let limit = 4096 * 3 + 1000;
    // SAFETY: numbers only; the signal would end the process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    set_limit(libc::RLIMIT_FSIZE, limit);
    let disk = open(&path, "capacity=growing").expect("a disk");
    for plugged in [true, false] {
        let mut queue = disk.queue();
        let plug = plugged.then(crate::plug);
        for nth in 0..5 {
            let buf = Buf::from(&[nth as u8 + 1; 4096][..]);
            queue.submit(Io::write(buf, nth * 4096).user_data(nth)).expect("a good I/O");
        }
        drop(plug);
        let mut done = Vec::new();
        queue.reap(5, 5, &mut done);
        done.sort_by_key(|done| done.user_data);
        let results: Vec<_> = done.iter().map(|done| done.result.is_ok()).collect();
        assert_eq!(results, [true, true, true, false, false], "{done:?}");
        let written = std::fs::read(&path).expect("the file");
        for (nth, block) in written.chunks(4096).take(3).enumerate() {
            assert!(block.iter().all(|byte| *byte == nth as u8 + 1));
        }
        std::fs::write(&path, [0; 4096]).expect("the file");
    }
}

#[test]
fn a_short_read_gives_each_bio_its_available_bytes() {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    file.as_file().write_all_at(&[7; 5000], 0).expect("a scratch file");
    for keys in
        ["capacity=growing", "capacity=growing&fixed_buffers=64k", "capacity=growing&sqpoll=on"]
    {
        let disk = open(file.path(), keys).expect("a disk");
        for plugged in [true, false] {
            let mut queue = disk.queue();
            let plug = plugged.then(crate::plug);
            for nth in 0..3 {
                let io = Io::read(disk.buf(4096), nth * 4096).user_data(nth);
                queue.submit(io).expect("a good I/O");
            }
            drop(plug);
            let mut done = Vec::new();
            queue.reap(3, 3, &mut done);
            done.sort_by_key(|done| done.user_data);
            let results: Vec<_> = done.iter().map(|done| done.result).collect();
            assert_eq!(results, [Ok(4096), Ok(904), Ok(0)], "{keys}");
            let bytes = |nth: usize| done[nth].buf.as_ref().expect("it had one");
            assert!(bytes(0).iter().chain(&bytes(1)[..904]).all(|byte| *byte == 7));
        }
    }
}

/// The number of signals that arrived.
static NR_SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    NR_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signals_end_waits_early_and_nothing_else() {
    let Some(path) = in_child("signals_end_waits_early_and_nothing_else", 1 << 20) else { return };
    // SAFETY: the structure is plain, and the handler counts only; calls are not restarted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count_signal as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    for keys in ["direct=on&nr_hw_queues=2", "direct=on&nr_hw_queues=1", "sqpoll=on"] {
        let disk = open(&path, keys).expect("a disk");
        let nr_before = NR_SIGNALS.load(Ordering::Relaxed);
        let ids: [AtomicU64; 4] = Default::default();
        let (is_over, nr_over) = (AtomicBool::new(false), AtomicU64::new(0));
        let work = &|seed: u64| {
            // SAFETY: the call takes no arguments.
            ids[seed as usize].store(unsafe { libc::pthread_self() }, Ordering::Release);
            read_blocks(&disk, seed);
            nr_over.fetch_add(1, Ordering::Relaxed);
            // The thread must not end while signals are sent to it.
            while !is_over.load(Ordering::Acquire) {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            (0..4).for_each(|seed| drop(scope.spawn(move || work(seed))));
            while nr_over.load(Ordering::Relaxed) < 4 {
                for id in ids.iter().map(|id| id.load(Ordering::Acquire)).filter(|id| *id != 0) {
                    // SAFETY: the thread waits until the last signal is sent.
                    unsafe { libc::pthread_kill(id, libc::SIGUSR1) };
                }
                thread::yield_now();
            }
            is_over.store(true, Ordering::Release);
        });
        assert!(NR_SIGNALS.load(Ordering::Relaxed) > nr_before, "signals came");
    }
}

/// Reads blocks of 4 KiB in turn: the first thread through a queue, the others with calls.
fn read_blocks(disk: &Disk, seed: u64) {
    let mut queue = (seed == 0).then(|| disk.queue());
    let mut done = Vec::new();
    for nth in 0..1500 {
        let block = (nth * 7 + seed) % 256;
        let mut buf = Buf::new(4096);
        match &mut queue {
            Some(queue) => {
                queue.submit(Io::read(buf, block * 4096)).expect("a good I/O");
                queue.reap(1, 1, &mut done);
                let read = done.remove(0);
                assert_eq!(read.result, Ok(4096));
                buf = read.buf.expect("it had one");
            }
            None => assert_eq!(disk.read_at(&mut buf, block * 4096), Ok(4096)),
        }
        assert_eq!(buf[0], (block * 16) as u8);
    }
}

#[test]
fn a_process_may_exit_with_io_in_flight() {
    let Some(path) = in_child("a_process_may_exit_with_io_in_flight", 1 << 20) else { return };
    for keys in ["direct=on&fixed_buffers=256k", "sqpoll=on", "direct=on&nr_hw_queues=1"] {
        let disk = open(&path, keys).expect("a disk");
        let mut queue = disk.queue();
        for nth in 0..64 {
            queue.submit(Io::read(disk.buf(4096), nth * 4096)).expect("a good I/O");
        }
        // They are not dropped, because the program exits here.
        std::mem::forget((queue, disk));
    }
    std::process::exit(0);
}
