//! Source of the atomics: `core`, or a model checker in its place: loom (`--cfg blk_loom`) or
//! shuttle (`--cfg blk_shuttle`).
//!
//! Shared state of this crate imports its atomics only from here, so that the models run the
//! shipped code. Loom's constructors are not `const`, so ours are not either.

#[cfg(not(any(blk_loom, blk_shuttle)))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(blk_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(blk_shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Loads a word whose value is the first guess for an exchange.
///
/// Under loom this is an exchange that changes nothing, with the same ordering. Loom keeps the last
/// access of each word only, and two loads do not conflict. So if a thread loads the word before it
/// changes it, loom never runs that change before an earlier load by another thread. An exchange
/// conflicts with that load, so loom tries both orders.
///
/// Loom then tries no guess that is older than the last change. So the caller must conclude nothing
/// from the guess; only the exchange decides.
macro_rules! guess {
    ($word:expr, $order:expr) => {{
        #[cfg(not(blk_loom))]
        let now = $word.load($order);
        #[cfg(blk_loom)]
        let now = $word
            .compare_exchange(!0, !0, $crate::primitive::Ordering::Relaxed, $order)
            .unwrap_or_else(|now| now);
        now
    }};
}

pub(crate) use guess;
