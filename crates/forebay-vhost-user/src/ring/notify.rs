//! Notifications between the device and the driver of a split virtqueue: the device's side.
//!
//! - Z1 Before the device sleeps, it stores its wish to be notified, and then, after a fence, loads
//!   the available index again. The driver stores that index, and loads the wish after a fence.
//! - Z2 The device stores the used index, and then, after a fence, loads the driver's wish. The
//!   driver stores its wish, and loads the index after a fence.
//!
//! The fences are sequentially consistent. So in each direction one side sees the other's store:
//! either the side that waits finds the new index, or the other side notifies it. `models` runs
//! these functions against a driver in every interleaving. The driver of the library has rules of
//! its own for the other side (U1, U2); neither side trusts the other.

use std::sync::atomic::Ordering;

/// A word of a ring in the memory of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Index behind the last available entry, by the driver.
    AvailableIndex,
    /// Flags of the driver: whether it wants notifications. With event indices it has none.
    AvailableFlags,
    /// Index of the used entry for which the driver wants a notification.
    UsedEvent,
    /// Index behind the last used entry, by the device.
    UsedIndex,
    /// Flags of the device: whether it wants notifications. With event indices it has none.
    UsedFlags,
    /// Index of the available entry for which the device wants a notification.
    AvailableEvent,
}

/// The words of a ring.
pub(super) trait Words {
    fn load(&self, word: Word, ordering: Ordering) -> u16;

    fn store(&self, word: Word, value: u16, ordering: Ordering);

    /// A sequentially consistent fence.
    fn fence(&self);

    /// Returns whether event indices were negotiated.
    fn has_event_idx(&self) -> bool;
}

/// Flag of either side: it wants no notifications.
pub(super) const NO_NOTIFICATIONS: u16 = 1;

/// Returns the index behind the last available entry. The entries are visible afterwards.
#[inline]
pub(super) fn available<W: Words>(words: &W) -> u16 {
    // Acquire pairs with the driver's release of the index, after the entries and descriptors.
    words.load(Word::AvailableIndex, Ordering::Acquire)
}

/// Asks the driver not to notify the device. With event indices it notifies once at most.
#[inline]
pub(super) fn disable<W: Words>(words: &W) {
    if !words.has_event_idx() {
        // Relaxed: a notification too many is harmless.
        words.store(Word::UsedFlags, NO_NOTIFICATIONS, Ordering::Relaxed);
    }
}

/// Asks the driver to notify the device of the entry at index `next` (Z1). Returns whether it is
/// available already, so that the device must not sleep.
#[inline]
pub(super) fn enable<W: Words>(words: &W, next: u16) -> bool {
    let (word, wish) =
        if words.has_event_idx() { (Word::AvailableEvent, next) } else { (Word::UsedFlags, 0) };
    words.store(word, wish, Ordering::Relaxed);
    words.fence();
    words.load(Word::AvailableIndex, Ordering::Relaxed) != next
}

/// Publishes the used entries before an index.
#[inline]
pub(super) fn publish<W: Words>(words: &W, index: u16) {
    // Release pairs with the driver's acquire of the index: the entries, the status bytes and the
    // data are visible before it.
    words.store(Word::UsedIndex, index, Ordering::Release);
}

/// Returns whether the driver wants a notification of the used entries from `former` to `next`,
/// which were published (Z2).
#[inline]
pub(super) fn is_wanted<W: Words>(words: &W, former: u16, next: u16) -> bool {
    words.fence();
    if !words.has_event_idx() {
        return words.load(Word::AvailableFlags, Ordering::Relaxed) & NO_NOTIFICATIONS == 0;
    }
    // It wants one if its index is among the new entries, modulo 65536.
    let event = words.load(Word::UsedEvent, Ordering::Relaxed);
    next.wrapping_sub(event).wrapping_sub(1) < next.wrapping_sub(former)
}
