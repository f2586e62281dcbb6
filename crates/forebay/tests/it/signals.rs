//! I/O goes on while its threads are bombarded with signals, which interrupt system calls.
// It handles signals, and sends them to threads.
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
    // Relaxed: a count. Nothing else may be done in a handler.
    NR_HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Handles the signal, without SA_RESTART: system calls are interrupted.
fn handle() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeroes is a value of this plain structure; the handler touches one atomic.
        let answer = unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            action.sa_sigaction = count as *const () as usize;
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut())
        };
        assert_eq!(answer, 0);
    });
}

/// Reads and writes by a queue and by calls, each page of a thread's own range its own.
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
                // SAFETY: a thread that is not joined yet has its name, even if it has ended.
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
