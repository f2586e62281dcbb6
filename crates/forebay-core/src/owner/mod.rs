//! Owners of I/O: the limits that bound them, and the weights by which they share a device.
//!
//! An owner is a submitter: a connection, a ring, a job. The number in a bio's origin names it
//! ([`Origin::owner`](crate::Origin::owner)). Limits are token buckets that all hardware contexts
//! share ([`bucket`]); [`limits`] lists them. Owners form a tree ([`tree`]), and I/O counts against
//! all owners above its own. Weights decide the order of I/O of different owners ([`fair`]), by its
//! cost ([`cost`]). A latency goal of one owner limits the depth of its siblings ([`latency_goal`],
//! [`peers`]). An observer may have the latency of their I/O counted ([`activity`]).
//!
//! Counterparts in Linux: `blk-throttle.c` for limits; `bfq-wf2q.c` and `blk-iocost.c` for
//! weights; `blk-iolatency.c` for latency goals.
//!
//! The rules of limits:
//!
//! - OL1 An I/O may start when no bucket that it counts against is negative. Then its whole cost is
//!   charged, and a debt remains until the rate has paid it.
//! - OL2 In any time `t`, the units that start are at most `burst + rate * t`, plus the largest
//!   I/O and one unit.
//! - OL3 While I/O waits for a bucket, the units that start in a time `t` are at least `rate * t`,
//!   less the largest I/O, one unit, and what the bucket gets from the time when a waiting I/O may
//!   start until it is tried. The burst must be at least as large as the latter.
//!
//! OL4 and OL5 are those of the tree, FQ1 to FQ4 those of weights, LG1 to LG4 those of latency
//! goals. A unit is a byte, or a 4096th of an I/O.

mod activity;
mod bucket;
mod counters;
mod fair;
mod latency_goal;
mod limits;
mod list;
mod peers;
mod tree;

pub use activity::OwnerActivity;
pub use bucket::{Bucket, ChangeInProgress, Charged, RetryAt};
pub use counters::{OWNER_COUNTERS, OwnerCounter, OwnerStats};
pub use fair::{FairId, FairQueue};
pub use limits::{BadLimit, LIMIT_KEYS, LimitKey, Limits, Rate, Rates};
pub use list::{OwnerError, Owners};
pub(crate) use peers::{OwnerGoal, Peers};
pub use tree::{
    OWNER_LEVELS_MAX, Owner, OwnerCharge, OwnerId, WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN,
};
