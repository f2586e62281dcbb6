//! Bodies of the requests of a queue, and the handle with which a back end holds one.
//!
//! A body belongs to its queue, at the place of its tag. The layer issues a tag again only after
//! its completion was reaped (K1), and only the end of a request makes a completion. So there is at
//! most one handle of a body, and a request that is forgotten keeps its body forever: its tag never
//! comes back.
// Handles are pointers.
#![allow(unsafe_code)]

use super::body::Body;
use super::queue_state::{QueueState, here};
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
    pub(super) fn new(state: &Arc<QueueState>, depth: u32) -> Bodies {
        let body = |nth| NonNull::from(Box::leak(Box::new(Body::new(state, Tag::from_index(nth)))));
        Bodies((0..depth as usize).map(body).collect())
    }

    /// Returns a handle of the body of a tag.
    ///
    /// # Safety
    /// The tag is below the depth. There is no handle of its body: none was made, it was dropped
    /// here, or its [`end`](Handle::end) was reaped.
    #[inline]
    pub(super) unsafe fn lend(&mut self, tag: Tag) -> Handle {
        debug_assert!(tag.index() < self.0.len());
        // SAFETY: there is a body for each tag.
        Handle(unsafe { *self.0.get_unchecked(tag.index()) })
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

/// The only handle of the body of a request, until [`end`](Handle::end) consumes it.
pub(super) struct Handle(NonNull<Body>);

// SAFETY: the only handle gives shared access to its body, which is `Send` and `Sync`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

// A panic leaves nothing half done that a handle could show: a body changes only before its request
// begins, and each list takes a completion at once.
impl UnwindSafe for Handle {}
impl RefUnwindSafe for Handle {}

impl Deref for Handle {
    type Target = Body;

    #[inline]
    fn deref(&self) -> &Body {
        // SAFETY: the queue does not use the body, and does not free it, while there is a handle.
        unsafe { self.0.as_ref() }
    }
}

impl Handle {
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
        if !self.state.push_at_once(here(), self.tag, result) {
            self.end_outside(len, status);
        }
    }

    /// Ends the request that a thread drops while it unwinds, if that thread is inside `submit`.
    /// Otherwise returns the handle.
    pub(super) fn drop_at_once(self) -> Option<Handle> {
        let is_inside = self.state.drop_at_once(here(), self.tag);
        (!is_inside).then_some(self)
    }

    /// Ends the request outside `submit`. A call of its own, so that an end inside stays short.
    #[inline(never)]
    fn end_outside(self, len: u64, status: Option<BlockStatus>) {
        let (state, tag) = (Arc::clone(&self.state), self.tag);
        // From here on, the body may be in use again or be freed. The list outlives the push.
        state.list.push(Completed { tag, result: status.map_or(Ok(len), Err) });
    }
}

/// Handles that the next commit submits. There is a place for each tag.
pub(super) struct HandleList {
    /// The first `nr` are set, and `nr` is at most their number.
    places: Box<[MaybeUninit<Handle>]>,
    nr: usize,
}

impl HandleList {
    pub(super) fn new(depth: u32) -> HandleList {
        HandleList { places: (0..depth).map(|_| MaybeUninit::uninit()).collect(), nr: 0 }
    }

    /// Adds a handle.
    ///
    /// # Safety
    /// There are fewer than places: each is of a tag of its own.
    #[inline]
    pub(super) unsafe fn push(&mut self, handle: Handle) {
        debug_assert!(self.nr < self.places.len());
        // SAFETY: the caller's promise.
        unsafe { self.places.get_unchecked_mut(self.nr) }.write(handle);
        self.nr += 1;
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.nr
    }

    /// Returns the tag of the handle at a place of the list that was taken last.
    ///
    /// # Safety
    /// `nth` is below the number of handles that were taken last, and the bodies of the queue were
    /// not freed.
    pub(super) unsafe fn taken_tag(&self, nth: usize) -> Tag {
        // SAFETY: the place was set, and was not set again since. The handle was moved out, but its
        // bits are still there. The owner of the handle has only shared access to the body.
        unsafe { (*self.places[nth].as_ptr()).0.as_ref() }.tag
    }

    /// Takes all of them. Those that are left in the iterator are forgotten.
    #[inline]
    pub(super) fn take(&mut self) -> HandleIter<'_> {
        let nr = std::mem::take(&mut self.nr);
        debug_assert!(nr <= self.places.len());
        // SAFETY: `push` checks it.
        HandleIter(unsafe { self.places.get_unchecked(..nr) }.iter())
    }
}

/// An iterator over handles, oldest first.
pub(super) struct HandleIter<'a>(std::slice::Iter<'a, MaybeUninit<Handle>>);

impl HandleIter<'_> {
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

impl Iterator for HandleIter<'_> {
    type Item = Handle;

    #[inline]
    fn next(&mut self) -> Option<Handle> {
        // SAFETY: the places are set. Each is read once, because its list is empty since `take`.
        self.0.next().map(|place| unsafe { place.assume_init_read() })
    }
}
