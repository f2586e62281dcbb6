//! Notifications of a split virtqueue, in one direction: from the side that publishes elements to
//! the side that waits for them.
//!
//! The driver publishes available chains, and ends a wait of the device by a kick. The device
//! publishes used chains, and ends a wait of the driver by an interrupt. Both directions follow the
//! same steps, so they are here once, apart from the memory they use. `models` runs these functions
//! in every interleaving.
//!
//! - U1 The publishing side stores its index, then, after a fence, loads the other side's request.
//! - U2 The waiting side stores its request, then, after a fence, loads the index again before it
//!   sleeps.
//!
//! The fences are sequentially consistent. So at least one side sees the other's store: either the
//! waiting side finds the new index and does not sleep, or the publishing side finds the request
//! and notifies.

/// The words that the publishing side uses.
pub(super) trait Publisher {
    /// Stores the index behind the last element. Release: the elements are visible with it.
    fn store_index(&self, index: u16);

    /// A sequentially consistent fence.
    fn fence(&self);

    /// Returns the other side's request, relaxed.
    fn request(&self) -> Request;
}

/// The words that the waiting side uses.
pub(super) trait Waiting {
    /// Returns the index behind the last element. Acquire: the elements are visible afterwards.
    fn index(&self) -> u16;

    /// A sequentially consistent fence.
    fn fence(&self);

    /// Stores a request to be notified once the index passes this element. Relaxed.
    fn ask(&self, element: u16);
}

/// The waiting side's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// With `EVENT_IDX`: a notification when the index passes this element.
    Event(u16),
    /// Without it: a notification for each batch, or none.
    Flag(bool),
}

/// Publishes the elements from `old` to `new` (U1). Returns whether a notification is wanted.
#[inline]
pub(super) fn publish(words: &impl Publisher, old: u16, new: u16) -> bool {
    words.store_index(new);
    words.fence();
    match words.request() {
        Request::Event(element) => has_passed(element, new, old),
        Request::Flag(is_wanted) => is_wanted,
    }
}

/// Asks for a notification once the index passes the element at `taken + nr - 1` (U2). Returns
/// whether it has passed it already, so that the caller must not sleep.
#[inline]
pub(super) fn arm(words: &impl Waiting, taken: u16, nr: u16) -> bool {
    words.ask(taken.wrapping_add(nr).wrapping_sub(1));
    words.fence();
    words.index().wrapping_sub(taken) >= nr
}

/// Returns whether an index that moved from `old` to `new` has passed the element at `event`.
/// `vring_need_event` of the standard, 2.7.10.
#[inline]
fn has_passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
