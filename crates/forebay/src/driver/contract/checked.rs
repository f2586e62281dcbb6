//! Check of each completion of a driver from outside the crate.
//!
//! A completion of a tag that is not in flight means that the driver may use the wrong memory. So
//! the process ends before that memory is freed.
// The traits are unsafe.
#![allow(unsafe_code)]

use super::{Answer, Driver, Facts, Queue, Wait};
use crate::driver::Mode;
use crate::extent::Extents;
use forebay_core::{BlockStatus, Completed, Completions, IssuedRequest, Reap, Tag};
use std::fmt;
use std::io::{self, Write};
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;

/// A driver whose completions are checked.
pub(crate) struct Checked<D> {
    driver: D,
    facts: Facts,
}

impl<D: Driver> Checked<D> {
    pub(crate) fn new(driver: D) -> Checked<D> {
        let facts = driver.facts();
        Checked { driver, facts }
    }
}

// SAFETY: it passes on each request and each completion.
unsafe impl<D: Driver> Driver for Checked<D> {
    type Queue = CheckedQueue<D::Queue>;

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<(Self::Queue, Wait)> {
        let (inner, wait) = self.driver.open_queue(depth, mode)?;
        let queue = CheckedQueue {
            inner: ManuallyDrop::new(inner),
            name: self.facts.name.as_str().into(),
            done: Completions::new(depth),
            in_flight: InFlight::new(depth),
            ends_at_once: matches!(wait, Wait::AtOnce),
        };
        Ok((queue, wait))
    }

    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        self.driver.block_status(offset, extents)
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        self.driver.size_bytes()
    }

    fn failure(&self) -> Option<String> {
        self.driver.failure()
    }
}

/// A queue whose completions are checked.
pub(crate) struct CheckedQueue<Q> {
    inner: ManuallyDrop<Q>,
    name: Arc<str>,
    /// Completions that are not checked yet. Empty between reaps.
    done: Completions,
    in_flight: InFlight,
    ends_at_once: bool,
}

/// Runs a method of the inner queue of the driver `name`. Aborts the process if it panics: the
/// layer is in the middle of a turn, and requests are in flight.
#[inline]
fn call<T>(name: &Arc<str>, method: impl FnOnce() -> T) -> T {
    let panicked = Panicked(name);
    let result = method();
    mem::forget(panicked);
    result
}

impl<Q> Drop for CheckedQueue<Q> {
    fn drop(&mut self) {
        // SAFETY: it is dropped once, here, and not used afterwards.
        call(&self.name, || unsafe { ManuallyDrop::drop(&mut self.inner) });
    }
}

// SAFETY: it passes on each request, and each completion that is correct.
unsafe impl<Q: Queue> Queue for CheckedQueue<Q> {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Answer {
        let answer = call(&self.name, || self.inner.queue_rq(rq, last));
        match answer {
            Answer::Queued => self.in_flight.add(rq.tag, rq.len),
            Answer::Busy if self.ends_at_once => {
                end(&self.name, &"is busy, although its Wait is AtOnce")
            }
            Answer::Busy | Answer::Failed(_) => {}
        }
        answer
    }

    #[inline]
    fn commit_rqs(&mut self) {
        call(&self.name, || self.inner.commit_rqs());
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        call(&self.name, || self.inner.reap(&mut self.done, how));
        for completed in self.done.drain() {
            match self.in_flight.remove(&completed) {
                Ok(()) => done.push(completed.tag, completed.result),
                Err(broken) => end(&self.name, &broken),
            }
        }
    }

    fn cancel(&mut self, tag: Tag) -> bool {
        call(&self.name, || self.inner.cancel(tag))
    }

    #[inline]
    fn has_ready(&self) -> bool {
        let has_ready = call(&self.name, || self.inner.has_ready());
        if self.ends_at_once && !has_ready && self.in_flight.nr > 0 {
            end(&self.name, &"has not completed a request, although its Wait is AtOnce");
        }
        has_ready
    }

    fn nr_syscalls(&self) -> Option<u64> {
        call(&self.name, || self.inner.nr_syscalls())
    }
}

/// The requests in flight.
#[derive(Debug)]
struct InFlight {
    /// The length in bytes of the request of each tag in flight, plus 1. 0: it is not in flight.
    lens: Box<[u64]>,
    nr: usize,
}

impl InFlight {
    fn new(depth: u32) -> InFlight {
        InFlight { lens: vec![0; depth as usize].into(), nr: 0 }
    }

    #[inline]
    fn add(&mut self, tag: Tag, len: u64) {
        self.lens[tag.index()] = len + 1;
        self.nr += 1;
    }

    /// Removes a request that has completed.
    ///
    /// # Errors
    /// The rule that the completion breaks.
    #[inline]
    fn remove(&mut self, &Completed { tag, result }: &Completed) -> Result<(), Broken> {
        match self.lens.get_mut(tag.index()).map(mem::take) {
            None => Err(Broken::NoTag(tag)),
            Some(0) => Err(Broken::NotInFlight(tag)),
            Some(len) if result.is_ok_and(|moved| moved >= len) => {
                Err(Broken::TooLong(tag, len - 1))
            }
            Some(_) => {
                self.nr -= 1;
                Ok(())
            }
        }
    }
}

/// A rule that a completion breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    NoTag(Tag),
    NotInFlight(Tag),
    TooLong(Tag, u64),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::NoTag(tag) => {
                write!(f, "has completed tag {}, which its queue does not have (K5)", tag.index())
            }
            Broken::NotInFlight(tag) => write!(
                f,
                "has completed tag {}, which is not in flight: each request completes once (K5)",
                tag.index()
            ),
            Broken::TooLong(tag, len) => write!(
                f,
                "has completed tag {} with more than the {len} bytes of its request (K6)",
                tag.index()
            ),
        }
    }
}

/// Aborts the process when it is dropped: a queue of the driver with this name has panicked. It
/// refers to the `Arc`, so a call that does not panic loads nothing.
struct Panicked<'a>(&'a Arc<str>);

impl Drop for Panicked<'_> {
    fn drop(&mut self) {
        // The panic itself has named the place.
        end(self.0, &"has panicked in a method of a queue");
    }
}

/// Ends the process because a driver has broken its contract.
#[cold]
fn end(name: &str, broken: &dyn fmt::Display) -> ! {
    let _ = writeln!(
        io::stderr(),
        "forebay: driver:{name} {broken}; it may use memory that is freed next, so the process \
         aborts"
    );
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(tag: usize, result: Result<u64, BlockStatus>) -> Completed {
        Completed { tag: Tag::from_index(tag), result }
    }

    #[test]
    fn completion_of_a_tag_that_is_not_in_flight_or_of_too_many_bytes_is_found() {
        let tag = Tag::from_index;
        let mut in_flight = InFlight::new(2);
        in_flight.add(tag(0), 512);
        in_flight.add(tag(1), 0);
        assert_eq!(in_flight.remove(&completed(2, Ok(0))), Err(Broken::NoTag(tag(2))));
        assert_eq!(in_flight.remove(&completed(1, Ok(0))), Ok(()));
        let again = in_flight.remove(&completed(1, Err(BlockStatus::Io)));
        assert_eq!(again, Err(Broken::NotInFlight(tag(1))));
        let too_long = in_flight.remove(&completed(0, Ok(513)));
        assert_eq!(too_long, Err(Broken::TooLong(tag(0), 512)));
        in_flight.add(tag(1), 512);
        assert_eq!(in_flight.remove(&completed(1, Ok(512))), Ok(()));
    }
}
