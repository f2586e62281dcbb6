//! Time limits cost no system call for each I/O, whichever way its caller waits.

use crate::common::{Scratch, open, submit};
use crate::counted_calls::with_counted_calls;
use crate::event_loop::poll_any;
use forebay::{Buf, Completion, Disk, Io};
use std::time::Duration;

/// I/Os that are counted.
const NR: u64 = 200;

/// A way to do `nr` I/Os.
type Act = fn(&Disk, u64);

const ACTS: [(&str, Act); 6] = [
    ("reads", |disk, nr| {
        (0..nr).for_each(|_| assert_eq!(disk.read_at(&mut Buf::new(4096), 0), Ok(4096)));
    }),
    ("writes", |disk, nr| {
        (0..nr).for_each(|_| assert_eq!(disk.write_at(&Buf::new(4096), 0), Ok(4096)));
    }),
    ("flushes", |disk, nr| (0..nr).for_each(|_| assert_eq!(disk.flush(), Ok(())))),
    ("queue", |disk, nr| {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        for _ in 0..nr {
            submit(&mut queue, Io::read(Buf::new(4096), 0));
            queue.reap(1, 1, &mut done);
        }
        check(&done, nr);
    }),
    ("event loop", |disk, nr| {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        for nth in 1..=nr {
            submit(&mut queue, Io::read(Buf::new(4096), 0));
            while done.len() < nth as usize {
                poll_any(&[queue.poll_fd().expect("a descriptor")], Duration::from_secs(20));
                queue.reap(0, 1, &mut done);
            }
        }
        check(&done, nr);
    }),
    ("event loop, writes and flushes", |disk, nr| {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        for nth in 1..=nr {
            let is_flush = nth % 2 == 0;
            submit(&mut queue, if is_flush { Io::flush() } else { Io::write(Buf::new(4096), 0) });
            while done.len() < nth as usize {
                poll_any(&[queue.poll_fd().expect("a descriptor")], Duration::from_secs(20));
                queue.reap(0, 1, &mut done);
            }
        }
        check(&done, nr);
    }),
];

fn check(done: &[Completion], nr: u64) {
    assert!(done.len() as u64 == nr && done.iter().all(|done| done.result.is_ok()));
}

/// Returns the number of system calls for [`NR`] I/Os, in all threads of the disk.
fn nr_calls(spec: &str, act: Act) -> u64 {
    with_counted_calls(|calls| {
        let disk = open(spec);
        act(&disk, 20);
        calls.of(|| act(&disk, NR))
    })
}

/// Returns how many more system calls an I/O may cost with a time limit.
fn nr_more(driver: &str, nr_hctxs: u32, name: &str) -> u64 {
    match (driver, nr_hctxs, name) {
        // A flush that hangs has to end for its caller, who therefore does not make the call. It
        // waits for the kernel (two calls more), or for a thread of the pool, which it wakes.
        ("aio", _, "flushes") => 2,
        ("psync", _, "flushes") => 6,
        // A wait for an eventfd with a timeout is a `ppoll` and a `read`.
        ("aio", 1, "queue") => 1,
        _ => 0,
    }
}

#[test]
fn time_limit_costs_no_system_call_for_each_io() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        // The threads of `psync` wake each other, and the number of these calls varies by more than
        // one per I/O.
        let is_exact =
            |name: &str| driver != "psync" || ["reads", "writes", "flushes"].contains(&name);
        let acts = ACTS.into_iter().filter(|(name, _)| is_exact(name));
        for ((name, act), nr_hctxs) in acts.flat_map(|act| [(act, 1), (act, 2)]) {
            let keys = format!("direct=on&nr_hw_queues={nr_hctxs}");
            let count = |keys: &str| nr_calls(&format!("{driver}:{}", scratch.spec(keys)), act);
            let pair = |_| (count(&keys), count(&format!("{keys}&io_timeout_ms=30000")));
            let more = NR * nr_more(driver, nr_hctxs, name) + NR / 4;
            // On a busy machine an event loop looks in vain now and then, and an I/O may have ended
            // before its thread looks. A cost of each I/O is there in every attempt.
            let mut seen = Vec::new();
            let is_met = (0..5)
                .map(pair)
                .inspect(|pair| seen.push(*pair))
                .any(|(without, with)| with <= without + more);
            let case = format!("{driver}, {nr_hctxs} contexts, {name}");
            assert!(is_met, "{case}: calls without a time limit, and with one: {seen:?}");
        }
    }
}
