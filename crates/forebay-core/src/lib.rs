//! The core of Forebay: a multi-queue block layer as plain values.
//!
//! A [`Bio`] (one I/O of a caller) is **queued** on the [`SoftwareQueue`] of its thread. It waits
//! there in a **plug**, merges with its neighbours, and becomes part of a [`Request`]. The request
//! moves to a [`HardwareContext`], takes a [`Tag`], and is **issued** to a [`Driver`]. Its bios
//! **end** once each, with their own status and length. One function drives a context:
//! [`HardwareContext::turn`]. A [`RunState`] grants one thread at a time the right to call it.
//!
//! This crate deliberately has no I/O, threads, clocks, random numbers, `unsafe`, or dependencies.
//! Time and capacities are arguments. Memory addresses are opaque numbers that the crate never
//! dereferences. No function blocks. So the same code runs with real threads and in a simulator
//! with virtual time.
//!
//! Names follow the Linux block layer. The documentation of each type names its counterpart.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(clippy::vec_box, reason = "a bio is boxed once, and lists pass the box on")]

extern crate alloc;
#[cfg(any(test, blk_loom, blk_shuttle, forebay_plant))]
extern crate std;

mod bio;
mod cost;
mod ctx;
mod defer;
mod driver;
mod durability;
mod emulation;
mod hctx;
mod hint;
mod hold;
mod knob;
mod limits;
mod list;
mod merge;
mod origin;
mod owner;
#[cfg(not(any(test, forebay_plant)))]
mod plant;
#[cfg(any(test, forebay_plant))]
pub mod plant;
mod plug;
mod policy;
mod primitive;
mod request;
mod retry;
mod run_state;
mod run_timer;
mod sched;
mod scheduling;
mod setters;
mod size;
mod split;
mod stats;
mod status;
mod tag;
mod trace;
pub mod wait;

pub use bio::{Bio, BioFlags, Op, Segment, Segments};
pub use cost::{CostModel, WeightBy};
pub use ctx::SoftwareQueue;
pub use defer::Defer;
pub use driver::{Completed, Completions, Driver, Issue, IssuedRequest, Reap, RequestSegments};
pub use durability::{Durability, LostWrites};
pub use emulation::Emulation;
pub use hctx::{
    Backing, Commit, DeviceFailures, DeviceState, Gates, HardwareContext, LateRequest,
    LateRequests, LateStage, SchedulerChange, Turned,
};
#[doc(hidden)]
pub use hint::cold_path;
pub use hold::{Hold, HoldLimits, HoldStep};
pub use knob::{
    BadKnob, BadSetting, DefaultValue, KNOBS, Knob, SCHEDULER_KEYS, Values, WEIGHT_KEYS,
    parse_switch,
};
pub use limits::submit_error::SubmitErrorKind;
pub use limits::{LimitsError, QueueLimits, SECTOR_SHIFT};
pub use merge::MergeKind;
pub use origin::{BadPriority, Class, OWNER_MAX, Origin, PRIORITY_LEVELS, Priority};
pub use owner::{
    BadLimit, Bucket, ChangeInProgress, Charged, FairId, FairQueue, LIMIT_KEYS, LimitKey, Limits,
    OWNER_COUNTERS, OWNER_LEVELS_MAX, Owner, OwnerActivity, OwnerCharge, OwnerCounter, OwnerError,
    OwnerId, OwnerStats, Owners, Rate, Rates, RetryAt, WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN,
};
pub use plug::{PLUG_FLUSH_BYTES, PLUG_MAX_REQUESTS, UnplugCause};
pub use policy::{FlushPolicy, KickPolicy, MergePolicy, PlugPolicy, Policy, TagNeed};
pub use request::{MemoryHold, NewMemoryHold, QueuedBio, Ranges, Request};
pub use run_state::{Gate, RunState};
pub use run_timer::RunTimer;
pub use scheduling::{BfqParams, KyberParams, MqDeadlineParams, SchedulerPolicy, Scheduling};
pub use size::parse_size;
pub use stats::emulation::EmulationStats;
pub use stats::histogram::Histogram;
pub use stats::{
    COUNTERS, CounterInfo, CounterUnit, OpStats, PlugCounters, QueueStats, RunCounters, StageStats,
};
pub use status::BlockStatus;
pub use tag::steps as tag_steps;
pub use tag::{
    QUEUE_DEPTH_MAX, Tag, TagSet, TagShares, TagWaits, Wait, WaitId, WaiterCount, WakePolicy,
};
pub use trace::{ProbeSwitch, TraceEvent, TraceProbe, TraceReader, TraceRecord, TraceWriter};
