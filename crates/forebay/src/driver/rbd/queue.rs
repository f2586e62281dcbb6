//! Queue: commands in flight at librbd, and their completions.
//!
//! The callback of a command runs in a thread of librbd. It pushes the tag and the result to the
//! list of the queue, and does nothing else. It gets the address of the tag's [`Slot`]. A slot
//! lives as long as the queue, and the queue outlives its commands: their completions have been
//! reaped.
// It passes memory of requests to librbd, and the traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::api::{Api, FADVISE_FUA, Handle};
use super::image::Image;
use crate::driver::kit::CompletionList;
use crate::driver::vectors::{self, Vector, Vectors};
use crate::driver::{Answer, BlockingWait, Queue, Wait};
use forebay_core::{BlockStatus, Completions, IssuedRequest, Op, Reap, Tag};
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for commands in flight after a panic. Their memory may be freed next.
const AFTER_PANIC: Duration = Duration::from_secs(120);

/// A completion, as the callback pushes it.
#[derive(Clone, Copy, Debug)]
struct Done {
    tag: Tag,
    /// The number of bytes read, 0, or a negative errno.
    result: i64,
}

/// The argument of the callback of a tag's commands.
struct Slot {
    api: &'static Api,
    list: Arc<CompletionList<Done>>,
    tag: Tag,
}

/// The command of a tag in flight.
#[derive(Clone, Copy, Debug)]
struct Command {
    op: Op,
    len: u64,
}

pub(super) struct RbdQueue {
    image: Arc<Image>,
    list: Arc<CompletionList<Done>>,
    /// For each tag. librbd has the addresses of those in flight.
    slots: Box<[Slot]>,
    /// For each tag. librbd uses the vectors of those in flight.
    vectors: Box<[Vectors]>,
    /// For each tag: the data of a durable write of several segments in flight, otherwise empty.
    /// librbd has its address.
    copies: Box<[Vec<u8>]>,
    /// For each tag; meaningless unless in flight.
    commands: Box<[Command]>,
    nr_in_flight: usize,
    /// Empty between reaps.
    finished: Vec<Done>,
}

impl RbdQueue {
    pub(super) fn new(image: &Arc<Image>, depth: u32, max_segments: u32) -> RbdQueue {
        let list = Arc::new(CompletionList::new(depth));
        let slot =
            |index| Slot { api: image.api, list: Arc::clone(&list), tag: Tag::from_index(index) };
        RbdQueue {
            image: Arc::clone(image),
            slots: (0..depth as usize).map(slot).collect(),
            vectors: (0..depth).map(|_| Vectors::new(max_segments)).collect(),
            copies: (0..depth).map(|_| Vec::new()).collect(),
            commands: vec![Command { op: Op::Flush, len: 0 }; depth as usize].into(),
            nr_in_flight: 0,
            finished: Vec::with_capacity(depth as usize),
            list,
        }
    }

    /// Returns how a thread waits for its completions.
    pub(super) fn wait(&self) -> Wait {
        Wait::Blocking(Arc::clone(&self.list) as Arc<dyn BlockingWait>)
    }

    /// Starts the command of a request. Returns librbd's result: negative if it did not start.
    fn start(&mut self, rq: &IssuedRequest<'_>) -> c_int {
        let api = self.image.api;
        let index = rq.tag.index();
        let slot: *const Slot = &raw const self.slots[index];
        let mut completion = ptr::null_mut();
        // SAFETY: the callback's argument is a slot, which lives until the completion was reaped.
        let created = unsafe {
            (api.rbd_aio_create_completion)(slot.cast_mut().cast(), ended, &raw mut completion)
        };
        if created < 0 {
            return created;
        }
        let vectors = &mut self.vectors[index];
        vectors.fill(rq.segments());
        let durable = match rq.fua {
            true => contiguous(vectors.as_slice(), &mut self.copies[index]),
            false => None,
        };
        let nr_vectors = vectors.as_slice().len() as c_int;
        let vectors = vectors::as_ptr(vectors.as_slice());
        let image = self.image.handle();
        // SAFETY: the image is open. The memory of the request, and the vectors and the copy of its
        // tag, stay valid and are used by nothing else until the completion was reaped (K2). librbd
        // uses none of them after the callback, even if a command has timed out: it copies what it
        // has read before, and ends a write when its messenger has released the data.
        let started = unsafe {
            match rq.op {
                Op::Read => (api.rbd_aio_readv)(image, vectors, nr_vectors, rq.start, completion),
                Op::Write if rq.fua => match durable {
                    Some(data) => (api.rbd_aio_write2)(
                        image,
                        rq.start,
                        data.len(),
                        data.addr().cast_const().cast(),
                        completion,
                        FADVISE_FUA,
                    ),
                    None => -libc::ENOMEM,
                },
                Op::Write => (api.rbd_aio_writev)(image, vectors, nr_vectors, rq.start, completion),
                Op::Flush => (api.rbd_aio_flush)(image, completion),
                Op::Discard => (api.rbd_aio_discard)(image, rq.start, rq.len, completion),
                Op::WriteZeroes => match api.rbd_aio_write_zeroes {
                    Some(zero) => zero(image, rq.start, rq.len as usize, completion, 0, 0),
                    None => -libc::EOPNOTSUPP,
                },
            }
        };
        if started < 0 {
            // SAFETY: the command has not started, so librbd does not use the completion.
            unsafe { (api.rbd_aio_release)(completion) };
            self.copies[index] = Vec::new();
        }
        started
    }

    /// Converts the result of a command.
    fn result(&self, done: Done) -> Result<u64, BlockStatus> {
        let Command { op, len } = self.commands[done.tag.index()];
        match done.result {
            // No more than the request's length, whatever librbd returns.
            nr @ 0.. if op == Op::Read => Ok((nr as u64).min(len)),
            0.. => Ok(len),
            error => Err(self.image.status_of(error, op)),
        }
    }
}

/// Returns the data of a request as one vector: that of its only segment, or a copy. librbd has no
/// vectored write with flags. Returns `None` if there is no memory for the copy.
fn contiguous(vectors: &[Vector], copy: &mut Vec<u8>) -> Option<Vector> {
    if let [one] = vectors {
        return Some(*one);
    }
    let len = vectors.iter().map(Vector::len).sum();
    copy.clear();
    copy.try_reserve_exact(len).ok()?;
    for vector in vectors {
        let nr = copy.len();
        // SAFETY: the segments of a request are valid for reads (K2), and the copy has room for all
        // of them. It is memory of its own.
        unsafe {
            let data = vector.addr().cast_const().cast::<u8>();
            ptr::copy_nonoverlapping(data, copy.as_mut_ptr().add(nr), vector.len());
            copy.set_len(nr + vector.len());
        }
    }
    Some(Vector::of(copy))
}

/// The callback of all commands.
extern "C" fn ended(completion: Handle, slot: *mut c_void) {
    // SAFETY: the argument is the slot of the command's tag. It lives until the completion was
    // reaped, hence until the push below.
    let slot = unsafe { &*slot.cast_const().cast::<Slot>() };
    let tag = slot.tag;
    // SAFETY: librbd has passed its completion, which has a result now, and is used only here.
    let result = unsafe {
        let result = (slot.api.rbd_aio_get_return_value)(completion);
        (slot.api.rbd_aio_release)(completion);
        result
    };
    // With the push the queue may be dropped, so the list must not depend on it.
    let list = Arc::clone(&slot.list);
    list.push(Done { tag, result: result as i64 });
}

// SAFETY: as that of the driver. A command that does not start has no completion.
unsafe impl Queue for RbdQueue {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        if self.image.is_gone() {
            return Answer::Failed(BlockStatus::Offline);
        }
        let started = self.start(rq);
        if started < 0 {
            return Answer::Failed(self.image.status_of(started.into(), rq.op));
        }
        self.commands[rq.tag.index()] = Command { op: rq.op, len: rq.len };
        self.nr_in_flight += 1;
        Answer::Queued
    }

    /// librbd has begun each command already.
    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        if self.nr_in_flight == 0 && !(how == Reap::Full && self.list.is_watched()) {
            return;
        }
        let mut finished = std::mem::take(&mut self.finished);
        self.list.reap(&mut finished);
        self.nr_in_flight -= finished.len();
        for one in finished.drain(..) {
            done.push(one.tag, self.result(one));
            self.copies[one.tag.index()] = Vec::new();
        }
        self.finished = finished;
    }

    /// librbd cannot give up a command.
    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    fn has_ready(&self) -> bool {
        false
    }

    fn nr_syscalls(&self) -> Option<u64> {
        Some(self.list.nr_syscalls())
    }
}

impl Drop for RbdQueue {
    /// The layer drains a queue before it drops it. After a panic, commands may still be in
    /// flight. Then this waits for them, because their memory may be freed next. librbd ends each
    /// after its time limit; if it does not, this aborts the process.
    fn drop(&mut self) {
        assert!(
            self.nr_in_flight == 0 || std::thread::panicking(),
            "a queue is drained before it is dropped"
        );
        if self.nr_in_flight > 0 && !self.list.wait_for_all(self.nr_in_flight, AFTER_PANIC) {
            let _ = writeln!(
                std::io::stderr(),
                "forebay: rbd: after a panic, librbd has not ended its commands within \
                 {AFTER_PANIC:?} and may still use their memory, so the process aborts"
            );
            std::process::abort();
        }
    }
}
