//! I/O on threads that receive a flood of signals, which interrupt system calls.
// These tests install a signal handler and send signals to threads.
#![allow(unsafe_code)]

use crate::common::{Numbers, Scratch, open, reap_all, submit};
use forebay::{Buf, Disk, Io};
use std::os::unix::thread::JoinHandleExt;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

static NR_HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    // Relaxed: this is only a count. A signal handler may do nothing more.
    NR_HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Installs the handler without SA_RESTART, so that signals interrupt system calls.
fn handle() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeroes is a valid value of this plain structure; the handler accesses one
        // atomic.
        let answer = unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            action.sa_sigaction = count as *const () as usize;
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut())
        };
        assert_eq!(answer, 0);
    });
}

/// Writes and reads through a queue and with blocking calls. Each thread has its own range of
/// pages.
fn work(disk: &Disk, thread: u64) {
    let mut numbers = Numbers(thread);
    let mut queue = disk.queue();
    let at = |page: u64| (thread * 64 + page) * 4096;
    for round in 0..60u8 {
        for page in 0..16 {
            let data = Buf::from(&[round ^ page as u8; 4096][..]);
            submit(&mut queue, Io::write(data, at(page)));
        }
        submit(&mut queue, Io::flush());
        submit(&mut queue, Io::write_zeroes(at(16), 4096));
        assert!(reap_all(&mut queue).iter().all(|done| done.result.is_ok()));
        let page = numbers.below(16);
        let mut back = Buf::new(4096);
        assert_eq!(disk.read_at(&mut back, at(page)), Ok(4096));
        assert!(back.iter().all(|byte| *byte == round ^ page as u8), "round {round}");
        submit(&mut queue, Io::read(back, at(16)));
        let done = reap_all(&mut queue).pop().expect("an end");
        assert!(done.buf.expect("its buffer").iter().all(|byte| *byte == 0));
    }
}

fn check(driver: &str) {
    handle();
    let scratch = Scratch::new(1 << 20);
    for keys in ["direct=on&nr_hw_queues=1", "direct=on&nr_hw_queues=4", "nr_hw_queues=2"] {
        let disk = open(&format!("{driver}:{}", scratch.spec(keys)));
        let before = NR_HANDLED.load(Ordering::Relaxed);
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let disk = disk.clone();
                thread::spawn(move || work(&disk, number))
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            for thread in &threads {
                // SAFETY: the handle of a thread that is not joined yet is valid, even if the
                // thread has ended.
                unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
            }
            thread::sleep(Duration::from_micros(20));
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(NR_HANDLED.load(Ordering::Relaxed) > before, "some came");
    }
}

#[test]
fn signals_disturb_no_io_of_file() {
    check("file");
}

#[test]
fn signals_disturb_no_io_of_aio() {
    check("aio");
}

#[test]
fn signals_disturb_no_io_of_psync() {
    check("psync");
}
