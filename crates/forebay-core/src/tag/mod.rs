//! Tags: the slots of the request table, given out one by one.
//!
//! Counterpart in Linux: `struct blk_mq_tags`. A tag is an index into a table that is allocated
//! once, so a request costs no allocation. The rules:
//!
//! - T1 no waiter sleeps while the tags that it needs are free and none will be put;
//! - T2 a waiter announces itself and tries again; a thread that puts tags checks for waiters;
//! - T3 counters only grow, may wrap, and are compared by their difference;
//! - T4 a wake-up that finds its thread awake is passed on;
//! - T5 a wake-up that is not used is given back, and wakes another waiter;
//! - T6 the batch of a wake-up shrinks before the depth does;
//! - T7 a free tag is always found: it is in exactly one word at all times;
//! - T8 a waiter that was woken in vain keeps its turn, under the policies that promise it;
//! - T9 a thread that waits for tags has started its requests that have tags (the caller's duty);
//! - T10 no wait needs more than half of the depth at once, rounded up;
//! - T11 an asynchronous submit never waits: a bio without a tag stays in the context;
//! - T12 no thread waits within a turn;
//! - T13 a user that waits with less than its share goes before users that have theirs
//!   (`shared.rs`);
//! - T14 a split bio that gathers takes no tag before as many are free as it still needs
//!   (`hctx/admission/gather.rs`).
//!
//! # Kinds of waiters
//!
//! The policy and the wait queue are one value, [`TagWaits`], which uses neither threads nor locks.
//! The kind of the waiters, and the lock or token that protects the queue, depend on the user:
//!
//! - A bio, with `wake=fair`: in the backlog of its context, in order, under the token. It has no
//!   [`TagWaits`], and no thread is woken for a tag.
//! - A bio that may not have every tag: with those of its class, under the token
//!   (`hctx/admission/classes.rs`).
//! - A thread, with any other `wake=`: in a [`TagWaits`] of its context, under the token
//!   (`hctx/admission/thread_queues.rs`).
//! - A context, where disks share a set: in a [`TagWaits`] of the set, with [`TagShares`], under a
//!   lock (`tag_pool.rs` of the library).
//! - A task of the simulator, before it submits: in a [`TagWaits`] of all tasks, under a lock
//!   (`runtime/budget.rs` of the simulator).
//!
//! Under the token no tag is freed between a failed try and the entry in the queue, so T2 holds
//! without further steps. Under a lock, tags are taken and put outside of the lock, and T2 needs
//! a [`WaiterCount`] and the steps that [`steps`] fixes.

mod bitmap;
mod cache;
mod count;
mod shared;
pub mod steps;
mod wait;
mod wake;

pub use bitmap::TagSet;
pub(crate) use cache::TagCache;
pub use count::WaiterCount;
pub use shared::TagShares;
pub use wait::TagWaits;
pub use wake::WakePolicy;

/// The largest queue depth, as in Linux (`BLK_MQ_MAX_DEPTH`).
pub const QUEUE_DEPTH_MAX: u32 = 10_240;

/// A slot of the request table, and the name of a request between layer and driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(u16);

impl Tag {
    /// Returns the number of the slot, below the queue depth.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the tag of slot `index`, for drivers that carry the index in a device's cookie.
    ///
    /// # Panics
    /// Panics if `index` is greater than 65535, the largest tag.
    #[inline]
    pub const fn from_index(index: usize) -> Tag {
        assert!(index <= u16::MAX as usize);
        Tag(index as u16)
    }
}

/// Identifies a wait. The waiter chooses it. Concurrent waits have different identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitId(pub u64);

/// A wait for `need` tags at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The identifier of the wait.
    pub id: WaitId,
    /// The number of tags: at least 1, and at most half of the depth, rounded up (T10).
    pub need: u32,
}
