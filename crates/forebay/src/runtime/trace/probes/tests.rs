//! Probes of disks, which a test observes in the place of a tracer.

use super::*;
use crate::runtime::trace::switch::SWITCH;
use crate::{Buf, Disk, Io, Trace};
use forebay_core::TraceEvent::{self, Complete, GetTag, Issue, Queue};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps other tests from attaching tracers: the switch is that of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tracer, as the kernel counts it.
struct Tracer;

impl Tracer {
    fn attach() -> Tracer {
        SWITCH.fetch_add(1, Ordering::Relaxed);
        Tracer
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        SWITCH.fetch_sub(1, Ordering::Relaxed);
    }
}

const STAGES: [TraceEvent; 4] = [Queue, GetTag, Issue, Complete];

fn write(disk: &Disk) {
    disk.write_at(&[1; 4096], 0).expect("it is written");
}

#[test]
fn tracer_sees_each_stage_while_it_is_attached() {
    let _alone = alone();
    let spec = "ram:1M?tag_set=probes";
    let disk = Disk::open(spec).expect("it opens");
    write(&disk);
    // Several times: threads and contexts forget their probes, and find them again.
    for _ in 0..3 {
        let tracer = Tracer::attach();
        write(&disk);
        write(&disk);
        assert_eq!(seen::take(spec), [STAGES, STAGES].concat());
        drop(tracer);
        write(&disk);
        assert_eq!(seen::take(spec), []);
    }
}

#[test]
fn contexts_that_forgot_their_probe_find_it_again_although_the_thread_did_not() {
    let _alone = alone();
    let spec = "ram:1M?req_ns=100000000&tag_set=forgotten";
    let disk = Disk::open(spec).expect("it opens");
    let mut queue = disk.queue();
    let tracer = Tracer::attach();
    queue.submit(Io::write(Buf::new(512), 0)).expect("room");
    // Another thread may hold the token, and issue it.
    let mut seen_at_first = Vec::new();
    while !seen_at_first.contains(&Issue) {
        seen_at_first.extend(seen::take(spec));
        std::thread::yield_now();
    }
    assert_eq!(seen_at_first, [Queue, GetTag, Issue]);
    drop(tracer);
    // Only the context has a record meanwhile.
    queue.reap(1, 1, &mut Vec::new());
    assert_eq!(seen::take(spec), []);
    let _tracer = Tracer::attach();
    queue.submit(Io::write(Buf::new(512), 0)).expect("room");
    queue.reap(1, 1, &mut Vec::new());
    assert_eq!(seen::take(spec), STAGES);
}

#[test]
fn trace_and_tracer_see_the_same_and_neither_ends_the_other() {
    let _alone = alone();
    let spec = "ram:1M?tag_set=both";
    let disk = Disk::open(spec).expect("it opens");
    let traced = |work: &dyn Fn()| {
        let dir = tempfile::tempdir().expect("a directory");
        let trace = Trace::create(dir.path()).expect("it is empty");
        trace.add(&disk).expect("it is not traced");
        work();
        trace.finish().expect("the files are written").records
    };
    let nr = traced(&|| {
        write(&disk);
        let tracer = Tracer::attach();
        write(&disk);
        drop(tracer);
        write(&disk);
    });
    assert_eq!((nr, seen::take(spec)), (12, STAGES.to_vec()));
    let _tracer = Tracer::attach();
    write(&disk);
    let nr = traced(&|| write(&disk));
    write(&disk);
    assert_eq!((nr, seen::take(spec)), (4, [STAGES; 3].concat()));
}
