//! Stack of boxes, linked through the boxes themselves: nothing is allocated or moved.

use super::body::Body;
use std::mem;

/// Boxes of one queue, the newest first.
#[derive(Default)]
pub(super) struct Stack(Option<Box<Body>>);

impl Stack {
    pub(super) const EMPTY: Stack = Stack(None);

    #[inline]
    pub(super) fn push(&mut self, mut body: Box<Body>) {
        // A box that is outside a stack has no next one.
        let none = mem::replace(&mut body.next, self.0.take());
        debug_assert!(none.is_none());
        mem::forget(none);
        self.0 = Some(body);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Box<Body>> {
        let mut body = self.0.take()?;
        self.0 = body.next.take();
        Some(body)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether there is more than one box.
    #[inline]
    pub(super) fn has_several(&self) -> bool {
        self.0.as_ref().is_some_and(|newest| newest.next.is_some())
    }

    /// Reverses the order of the boxes: the next one that is popped is the oldest.
    #[inline(never)]
    pub(super) fn reverse(&mut self) {
        let mut reversed = Stack::EMPTY;
        while let Some(body) = self.pop() {
            reversed.push(body);
        }
        *self = reversed;
    }

    /// Adds boxes that are newer than all others.
    #[inline]
    pub(super) fn append(&mut self, newer: Stack) {
        match self.is_empty() {
            true => mem::forget(mem::replace(self, newer)),
            false => self.push_each(newer),
        }
    }

    #[cold]
    fn push_each(&mut self, mut newer: Stack) {
        newer.reverse();
        while let Some(body) = newer.pop() {
            self.push(body);
        }
    }

    /// Returns the boxes, newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Body> {
        std::iter::successors(self.0.as_deref(), |body| body.next.as_deref())
    }
}

impl Drop for Stack {
    /// In a loop: the destructor of a long chain of boxes would need a deep stack.
    #[inline]
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
