//! Bodies of the requests of a queue, and the handle with which a back end holds one.
//!
//! A body belongs to its queue, at the place of its tag. The layer issues a tag again only after
//! its completion was reaped (K1), and only the end of a request makes a completion. So there is at
//! most one handle of a body, and a request that is forgotten keeps its body forever: its tag never
//! comes back.
// Handles are pointers.
#![allow(unsafe_code)]

use super::body::Body;
use super::home::{Home, here};
use forebay_core::{BlockStatus, Completed, Tag};
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;

/// The bodies of a queue, one for each tag. Leaked unless [`Bodies::free`] is called.
pub(super) struct Bodies(Box<[NonNull<Body>]>);

// SAFETY: only the owner of this uses a body without a handle. Bodies are `Send`.
unsafe impl Send for Bodies {}

impl Bodies {
    pub(super) fn new(home: &Arc<Home>, depth: u32) -> Bodies {
        let body = |nth| NonNull::from(Box::leak(Box::new(Body::new(home, Tag::from_index(nth)))));
        Bodies((0..depth as usize).map(body).collect())
    }

    /// Returns a handle of the body of a tag.
    ///
    /// # Safety
    /// The tag is below the depth. There is no handle of its body: none was made, it was dropped
    /// here, or its [`end`](Lent::end) was reaped.
    #[inline]
    pub(super) unsafe fn lend(&mut self, tag: Tag) -> Lent {
        debug_assert!(tag.index() < self.0.len());
        // SAFETY: there is a body for each tag.
        Lent(unsafe { *self.0.get_unchecked(tag.index()) })
    }

    /// Frees the bodies.
    ///
    /// # Safety
    /// There is no handle of any body.
    pub(super) unsafe fn free(&mut self) {
        for body in std::mem::take(&mut self.0) {
            // SAFETY: it was a box, and no handle of it is left.
            drop(unsafe { Box::from_raw(body.as_ptr()) });
        }
    }
}

/// The only handle of the body of a request, until [`end`](Lent::end) consumes it.
pub(super) struct Lent(NonNull<Body>);

// SAFETY: the only handle gives shared access to its body, which is `Send` and `Sync`.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

// A panic leaves nothing half done that a handle could show: a body changes only before its request
// begins, and each list takes a completion at once.
impl UnwindSafe for Lent {}
impl RefUnwindSafe for Lent {}

impl Deref for Lent {
    type Target = Body;

    #[inline]
    fn deref(&self) -> &Body {
        // SAFETY: the queue does not use the body, and does not free it, while there is a handle.
        unsafe { self.0.as_ref() }
    }
}

impl Lent {
    /// Returns the body, to fill it before the request begins.
    #[inline]
    pub(super) fn body(&mut self) -> &mut Body {
        // SAFETY: this is the only handle, and it is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    /// Ends the request: its completion goes to its queue.
    #[inline]
    pub(super) fn end(self, result: Result<u64, BlockStatus>) {
        // Two words in registers.
        match result {
            Ok(len) => self.end_with(len, None),
            Err(status) => self.end_with(0, Some(status)),
        }
    }

    #[inline]
    fn end_with(self, len: u64, status: Option<BlockStatus>) {
        let result = status.map_or(Ok(len), Err);
        if !self.home.push_at_once(here(), self.tag, result) {
            self.end_outside(len, status);
        }
    }

    /// Ends the request outside `submit`. A call of its own, so that an end inside stays short.
    #[inline(never)]
    fn end_outside(self, len: u64, status: Option<BlockStatus>) {
        let (home, tag) = (Arc::clone(&self.home), self.tag);
        // From here on, the body may be in use again or be freed. The list outlives the push.
        home.list.push(Completed { tag, result: status.map_or(Ok(len), Err) });
    }
}

/// Handles that the next commit submits. There is a place for each tag.
pub(super) struct Queued {
    /// The first `nr` are set, and `nr` is at most their number.
    places: Box<[MaybeUninit<Lent>]>,
    nr: usize,
}

impl Queued {
    pub(super) fn new(depth: u32) -> Queued {
        Queued { places: (0..depth).map(|_| MaybeUninit::uninit()).collect(), nr: 0 }
    }

    /// Adds a handle.
    ///
    /// # Safety
    /// There are fewer than places: each is of a tag of its own.
    #[inline]
    pub(super) unsafe fn push(&mut self, lent: Lent) {
        debug_assert!(self.nr < self.places.len());
        // SAFETY: the caller's promise.
        unsafe { self.places.get_unchecked_mut(self.nr) }.write(lent);
        self.nr += 1;
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.nr
    }

    /// Takes all of them. Those that are left in the iterator are forgotten.
    #[inline]
    pub(super) fn take(&mut self) -> Taken<'_> {
        let nr = std::mem::take(&mut self.nr);
        debug_assert!(nr <= self.places.len());
        // SAFETY: `push` checks it.
        Taken(unsafe { self.places.get_unchecked(..nr) }.iter())
    }
}

/// An iterator over handles, oldest first.
pub(super) struct Taken<'a>(std::slice::Iter<'a, MaybeUninit<Lent>>);

impl Taken<'_> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the bodies of those that are left.
    pub(super) fn bodies(&self) -> impl Iterator<Item = &Body> {
        // SAFETY: it is set, and was not moved out yet.
        self.0.as_slice().iter().map(|place| &**unsafe { place.assume_init_ref() })
    }
}

impl Iterator for Taken<'_> {
    type Item = Lent;

    #[inline]
    fn next(&mut self) -> Option<Lent> {
        // SAFETY: the places are set. Each is read once, because its list is empty since `take`.
        self.0.next().map(|place| unsafe { place.assume_init_read() })
    }
}
