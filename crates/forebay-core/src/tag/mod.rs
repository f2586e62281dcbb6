//! Tags: the slots of the request table, given out one by one.
//!
//! Counterpart in Linux: `struct blk_mq_tags`. A tag is an index into a table that is allocated
//! once, so a request costs no allocation. The rules:
//!
//! - T1 nobody sleeps while the tags that it needs are free and none will be put;
//! - T2 who waits announces it and tries again; who puts tags looks for those who wait;
//! - T3 what is counted only grows, may wrap, and is compared by its difference;
//! - T4 a wake that finds nobody asleep is passed on;
//! - T5 a wake that is not used is given back, and wakes another;
//! - T6 what a wake takes is made smaller before the depth is;
//! - T7 a tag that is free is found: it is in one word, always;
//! - T8 who was woken in vain keeps its turn, by the policies that say so;
//! - T9 whoever waits for tags has begun what has tags (the part of its caller);
//! - T10 nobody needs more at once than half of the depth, rounded up;
//! - T11 an asynchronous submit never waits: what lacks a tag stays in the context;
//! - T12 nobody waits within a turn;
//! - T13 who waits with less than its share goes before those who have theirs (`shared.rs`).
//!
//! # Who waits
//!
//! The policy and the line of those who wait are one value, [`TagWaits`], which knows neither
//! threads nor locks. What stands in that line, and what the line is kept under, is not the same
//! everywhere:
//!
//! - A bio, with `wake=fair`: in the backlog of its context, in order, under the token. It has no
//!   [`TagWaits`]: nobody is woken for a tag.
//! - A bio that may not have every tag: with those of its class, under the token (`classes.rs`).
//! - A thread, with any other `wake=`: in a [`TagWaits`] of its context, under the token
//!   (`lines.rs`).
//! - A context, where disks share a set: in a [`TagWaits`] of the set, with [`TagShares`], under a
//!   lock (`runtime/tag_pool.rs` of the library).
//! - A task of the simulator, before it submits: in a [`TagWaits`] of all tasks, under a lock
//!   (`runtime/budget.rs` there).
//!
//! Under the token no tag comes free between a vain try and the joining of the line, so T2 holds by
//! itself. Under a lock tags are got and put outside of it, and T2 takes the steps of `wait.rs` and
//! a [`WaiterCount`].

mod bitmap;
mod cache;
mod count;
mod shared;
mod wait;
mod wake;

pub use bitmap::TagSet;
pub(crate) use cache::TagCache;
pub use count::WaiterCount;
pub use shared::TagShares;
pub use wait::{TagWaits, Wait, WaitId};
pub use wake::WakePolicy;

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
    pub fn from_index(index: usize) -> Tag {
        assert!(index <= u16::MAX as usize);
        Tag(index as u16)
    }
}
