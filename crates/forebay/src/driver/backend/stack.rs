//! Stack of boxes, linked through the boxes themselves: nothing is allocated or moved.

use super::body::Body;

/// Boxes of one queue, the newest first.
#[derive(Default)]
pub(super) struct Stack(Option<Box<Body>>);

impl Stack {
    pub(super) const EMPTY: Stack = Stack(None);

    #[inline]
    pub(super) fn push(&mut self, mut body: Box<Body>) {
        // A box that is outside of a stack has no next one.
        let none = std::mem::replace(&mut body.next, self.0.take());
        debug_assert!(none.is_none());
        std::mem::forget(none);
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

    /// Removes all boxes, and returns them with the oldest first.
    #[inline]
    pub(super) fn take_oldest_first(&mut self) -> Stack {
        let mut all = Stack(self.0.take());
        if all.0.as_ref().is_some_and(|newest| newest.next.is_some()) {
            all = all.reversed();
        }
        all
    }

    #[inline(never)]
    fn reversed(mut self) -> Stack {
        let mut reversed = Stack::EMPTY;
        while let Some(body) = self.pop() {
            reversed.push(body);
        }
        reversed
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
