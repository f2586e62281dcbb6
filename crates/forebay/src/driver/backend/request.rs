//! Requests of a back end: owned, and each ends exactly once.
//!
//! A request is the only handle of a body that belongs to its queue. It moves to the back end, and
//! its end consumes it. So the types make sure that it ends at most once. A request that is
//! forgotten never ends. Then the layer keeps the memory that it names (K2).

use super::body::Body;
use super::handle::{Handle, HandleIter};
use forebay_core::{BlockStatus, Op};
use std::fmt;
use std::mem::ManuallyDrop;

/// A request of a disk to its [`Backend`](super::Backend): an operation, a range of the disk, and
/// memory.
///
/// It is owned and `Send`: a back end may keep it, move it to another thread, and end it at any
/// time. Ending it consumes it. Each request ends once:
///
/// - [`complete`](Request::complete) ends it with its result, and
///   [`complete_short`](Request::complete_short) a read or write that moved fewer bytes;
/// - dropping it ends it with an I/O error ([`BlockStatus::Io`]), or with
///   [`BlockStatus::Offline`] if the thread panics: then the disk fails ([`Disk::is_failed`]), also
///   if the back end catches the panic;
/// - forgetting it ([`std::mem::forget`]) never ends it. The layer then keeps its memory forever,
///   and everything that waits for it waits too, unless the disk has a time limit
///   ([`Policy::io_timeout_ns`]).
///
/// The memory is accessible through copies only ([`copy_to`](Request::copy_to),
/// [`copy_from`](Request::copy_from)): it may be shared with a guest or another program, which may
/// change it at any time. If the library owns the memory exclusively, slices of it are available
/// as well ([`slices`](Request::slices), [`slices_mut`](Request::slices_mut)).
///
/// Counterpart in Linux: `struct request`.
///
/// [`Disk::is_failed`]: crate::Disk::is_failed
/// [`Policy::io_timeout_ns`]: crate::Policy::io_timeout_ns
pub struct Request {
    /// `None` once it has ended.
    body: Option<Handle>,
}

impl Request {
    #[inline]
    fn new(body: Handle) -> Request {
        Request { body: Some(body) }
    }

    #[inline]
    pub(super) fn body(&self) -> &Body {
        self.body.as_deref().expect("only its end takes it")
    }

    /// Returns the operation.
    #[inline]
    pub fn op(&self) -> Op {
        self.body().op
    }

    /// Returns the first byte on the disk; 0 for a flush. A discard of several ranges has them in
    /// [`ranges`](Request::ranges).
    #[inline]
    pub fn offset(&self) -> u64 {
        self.body().offset
    }

    /// Returns the number of bytes on the disk; 0 for a flush.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a length of 0 says only that it is a flush")]
    pub fn len(&self) -> u64 {
        self.body().len
    }

    /// Returns whether the write must be durable when it ends. Only if the limits say `fua`.
    #[inline]
    pub fn is_fua(&self) -> bool {
        self.body().is_fua
    }

    /// Returns whether a flush must also make all metadata durable, as `fsync` does.
    #[inline]
    pub fn is_full_sync(&self) -> bool {
        self.body().is_full_sync
    }

    /// Returns whether the library owns the memory of a read or write exclusively. Then slices of
    /// it are available.
    #[inline]
    pub fn has_exclusive_memory(&self) -> bool {
        self.body().has_owned_memory
    }

    /// Returns the ranges on the disk, as first byte and length. A merged discard has several,
    /// which need not be adjacent; a flush has none.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        let body = self.body();
        let own = (body.op != Op::Discard && body.len > 0).then_some((body.offset, body.len));
        // One of the two is empty.
        let nr = body.ranges.len() * usize::from(body.op == Op::Discard) + own.iter().len();
        (0..nr).map(move |nth| own.unwrap_or_else(|| body.ranges[nth]))
    }

    /// Ends the request. `Ok` means that all of it was done: all bytes were moved, or the flush has
    /// made every write durable that had ended before the back end received it.
    #[inline]
    pub fn complete(mut self, result: Result<(), BlockStatus>) {
        if let Some(body) = self.body.take() {
            let result = match result {
                Ok(()) => Ok(body.len),
                Err(status) => Err(status),
            };
            body.end(result);
        }
    }

    /// Ends a read or write that moved only its first `len` bytes. The layer continues with another
    /// request for the rest. A read of 0 bytes marks the end of the disk.
    ///
    /// Requests are whole logical blocks, and so is the rest. A read counts up to the last whole
    /// block of `len`. A write that ends inside a block ends with an I/O error, because a request
    /// cannot repeat a part of that block.
    ///
    /// # Panics
    /// Panics if `len` exceeds the length of the request, or if it is less and the operation moves
    /// no data. The request then ends as if it were dropped by the panic.
    pub fn complete_short(mut self, len: u64) {
        let body = self.body();
        assert!(len <= body.len, "complete_short({len}): the request has only {} bytes", body.len);
        assert!(
            len == body.len || body.op.moves_data(),
            "complete_short({len}): {:?} moves no data, so its {} bytes end together",
            body.op,
            body.len
        );
        if let Some(body) = self.body.take() {
            let part_of_block = len % body.state.block_size;
            let result = match body.op {
                _ if len == body.len || part_of_block == 0 => Ok(len),
                Op::Read => Ok(len - part_of_block),
                _ => Err(BlockStatus::Io),
            };
            body.end(result);
        }
    }

    /// Ends the request because the disk is gone. The disk then fails.
    fn go_offline(mut self) {
        if let Some(body) = self.body.take() {
            body.end(Err(BlockStatus::Offline));
        }
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            end_dropped(body);
        }
    }
}

/// Ends a request that was dropped. If the thread unwinds inside `submit`, the driver decides
/// afterwards whether the disk fails: the thread may have panicked before, and submit in a
/// destructor.
#[cold]
fn end_dropped(body: Handle) {
    if !std::thread::panicking() {
        return body.end(Err(BlockStatus::Io));
    }
    let Some(body) = body.drop_at_once() else { return };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    body.state.failure.set(format!("thread {name} of the back end panicked with a request"));
    body.end(Err(BlockStatus::Offline));
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.body().fmt(f)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Request");
        shown.field("op", &self.op).field("offset", &self.offset).field("len", &self.len);
        shown.finish_non_exhaustive()
    }
}

/// The requests of one call of [`Backend::submit`](super::Backend::submit), as an iterator.
///
/// Requests that are still in it when `submit` returns end with an I/O error.
pub struct Batch<'a> {
    /// Those that are left, in the order of their issue.
    rest: HandleIter<'a>,
}

impl<'a> Batch<'a> {
    #[inline]
    pub(super) fn new(requests: HandleIter<'a>) -> Batch<'a> {
        Batch { rest: requests }
    }

    /// Ends the remaining requests with an I/O error. Same as a drop, for callers that do not
    /// unwind.
    #[inline]
    pub(super) fn end(self) {
        let mut rest = ManuallyDrop::new(self);
        if rest.rest.len() > 0 {
            rest.end_rest();
        }
    }

    #[cold]
    fn end_rest(&mut self) {
        self.for_each(drop);
    }

    /// Ends all requests that are left because the disk is gone. Returns whether there are any.
    #[cold]
    pub(super) fn go_offline(&mut self) -> bool {
        let is_any = self.len() > 0;
        self.by_ref().for_each(Request::go_offline);
        is_any
    }
}

impl Iterator for Batch<'_> {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        self.rest.next().map(Request::new)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let nr = self.rest.len();
        (nr, Some(nr))
    }
}

impl ExactSizeIterator for Batch<'_> {}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.rest.len() > 0 {
            self.end_rest();
        }
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rest.bodies()).finish()
    }
}
