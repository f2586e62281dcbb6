//! Drivers that break a rule that the layer checks: the process aborts with one line.
// Drivers are unsafe, and these deserve it.
#![allow(unsafe_code)]

use crate::common::run_again;
use forebay::driver::{
    Answer, Completions, Driver, Facts, IssuedRequest, Mode, Queue, Reap, Tag, Wait,
};
use forebay::{BlockStatus, Buf, Disk, Extents, Io, Op, Policy, QueueLimits};
use std::io;
use std::os::unix::process::ExitStatusExt;

/// A rule that a driver breaks when it gets a write. Reads complete as they should.
#[derive(Clone, Copy, Debug)]
enum Breaks {
    CompletesTwice,
    CompletesAnUnknownTag,
    CompletesTooManyBytes,
    Panics,
    PanicsInHasReady,
    PanicsInNrSyscalls,
    PanicsInDrop,
    LeavesARequestAtOnce,
    IsBusyAtOnce,
}

struct Bad(Breaks);

struct BadQueue {
    breaks: Breaks,
    done: Completions,
    /// It got a write.
    is_written: bool,
}

impl BadQueue {
    /// Panics after a write if that is the broken rule.
    fn panic_if(&self, in_what: fn(Breaks) -> bool) {
        assert!(!(self.is_written && in_what(self.breaks)), "a driver panics");
    }
}

impl Drop for BadQueue {
    fn drop(&mut self) {
        self.panic_if(|breaks| matches!(breaks, Breaks::PanicsInDrop));
    }
}

// SAFETY: none. The library's checks are tested, and no memory is used.
unsafe impl Driver for Bad {
    type Queue = BadQueue;

    fn facts(&self) -> Facts {
        Facts::new("bad", QueueLimits::default().capacity_bytes(Some(1 << 20)))
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(BadQueue, Wait)> {
        let done = Completions::new(depth);
        Ok((BadQueue { breaks: self.0, done, is_written: false }, Wait::AtOnce))
    }

    fn block_status(&self, _: u64, _: &mut Extents<'_>) -> Result<(), BlockStatus> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

// SAFETY: none, as above.
unsafe impl Queue for BadQueue {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        if rq.op == Op::Write {
            self.is_written = true;
            match self.breaks {
                Breaks::CompletesTwice => self.done.push(rq.tag, Ok(rq.len)),
                Breaks::CompletesAnUnknownTag => self.done.push(Tag::from_index(5000), Ok(0)),
                Breaks::CompletesTooManyBytes => {
                    self.done.push(rq.tag, Ok(rq.len + 1));
                    return Answer::Queued;
                }
                Breaks::Panics => panic!("a driver panics"),
                Breaks::LeavesARequestAtOnce => return Answer::Queued,
                Breaks::IsBusyAtOnce => return Answer::Busy,
                Breaks::PanicsInHasReady | Breaks::PanicsInNrSyscalls | Breaks::PanicsInDrop => {}
            }
        }
        self.done.push(rq.tag, Ok(rq.len));
        Answer::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        done.append(&mut self.done);
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    fn has_ready(&self) -> bool {
        self.panic_if(|breaks| matches!(breaks, Breaks::PanicsInHasReady));
        !self.done.is_empty()
    }

    fn nr_syscalls(&self) -> Option<u64> {
        self.panic_if(|breaks| matches!(breaks, Breaks::PanicsInNrSyscalls));
        Some(0)
    }
}

/// Checks that the process ends with this line when a driver breaks this rule.
fn check(test: &str, breaks: Breaks, line: &str) {
    let name = format!("drivers::misbehaving::{test}");
    let Some(output) = run_again(&name, &[]) else {
        let policy = Policy::default().nr_hw_queues(1);
        let disk = Disk::with_driver(Bad(breaks), policy).expect("a disk");
        disk.read_at(&mut [0; 512], 0).expect("reads complete");
        let mut queue = disk.queue();
        let _ = queue.submit(Io::write(Buf::new(512), 0));
        queue.reap(1, 1, &mut Vec::new());
        disk.stats();
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{breaks:?}: {text}");
    assert!(text.contains(line), "{breaks:?}: {text}");
}

#[test]
fn request_that_completes_twice_ends_the_process() {
    let line = "forebay: driver:bad has completed tag";
    let test = "request_that_completes_twice_ends_the_process";
    check(test, Breaks::CompletesTwice, line);
    check(test, Breaks::CompletesTwice, "which is not in flight");
}

#[test]
fn completion_of_an_unknown_tag_ends_the_process() {
    let test = "completion_of_an_unknown_tag_ends_the_process";
    check(test, Breaks::CompletesAnUnknownTag, "tag 5000, which its queue does not have (K5)");
}

#[test]
fn completion_of_too_many_bytes_ends_the_process() {
    let test = "completion_of_too_many_bytes_ends_the_process";
    check(test, Breaks::CompletesTooManyBytes, "more than the 512 bytes of its request (K6)");
}

/// The line for a panic, with the name of the driver.
const PANICKED: &str = "forebay: driver:bad has panicked in a method of a queue";

#[test]
fn panic_of_a_queue_ends_the_process() {
    let test = "panic_of_a_queue_ends_the_process";
    check(test, Breaks::Panics, PANICKED);
}

#[test]
fn panic_in_has_ready_ends_the_process() {
    let test = "panic_in_has_ready_ends_the_process";
    check(test, Breaks::PanicsInHasReady, PANICKED);
}

#[test]
fn panic_in_nr_syscalls_ends_the_process() {
    let test = "panic_in_nr_syscalls_ends_the_process";
    check(test, Breaks::PanicsInNrSyscalls, PANICKED);
}

#[test]
fn panic_in_the_destructor_of_a_queue_ends_the_process() {
    let test = "panic_in_the_destructor_of_a_queue_ends_the_process";
    check(test, Breaks::PanicsInDrop, PANICKED);
}

#[test]
fn request_that_is_left_by_a_driver_without_a_wait_ends_the_process() {
    let test = "request_that_is_left_by_a_driver_without_a_wait_ends_the_process";
    check(test, Breaks::LeavesARequestAtOnce, "has not completed a request");
}

#[test]
fn busy_driver_without_a_wait_ends_the_process() {
    let test = "busy_driver_without_a_wait_ends_the_process";
    check(test, Breaks::IsBusyAtOnce, "is busy, although its Wait is AtOnce");
}
