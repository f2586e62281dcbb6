//! Settings of a queue: the policies that a user can choose, with their names.

use crate::cost::{CostModel, WeightBy};
use crate::emulation::Emulation;
use crate::scheduling::{BfqParams, KyberParams, MqDeadlineParams, SchedulerPolicy, Scheduling};
use crate::setters::with_setters;
use crate::tag::QUEUE_DEPTH_MAX;

/// When plugged bios are unplugged.
///
/// Source: "blk-plug: don't flush nested plug lists", linux-kernel, April 2015.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PlugPolicy {
    /// Only the end of the outermost plug unplugs, so that neighbours can merge.
    #[default]
    Outermost,
    /// The end of each plug unplugs what was queued at its level. This is the behaviour *before*
    /// that patch, as its text describes it. Kept to measure the gain.
    PerLevel,
    /// Plugs are ignored. Each bio is issued at once.
    None,
}

/// When the driver begins the requests that it received: its kick, one system call or doorbell.
///
/// Source: "block: add blk_io_plug_call() API", qemu-devel, 2023.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KickPolicy {
    /// At the end of the thread's outermost section, by a deferred call ([`Defer`](crate::Defer)),
    /// once per hardware context. A plug is a section.
    #[default]
    Deferred,
    /// After each request, for comparison.
    PerRequest,
    /// When the thread next reaps, at the end of an event loop's iteration, as in QEMU 10.2.
    LoopEnd,
}

/// Which merges are tried. Counterpart in Linux: `/sys/block/X/queue/nomerges`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MergePolicy {
    /// 0: all merges. Only the one-shot kind exists so far.
    #[default]
    All,
    /// 1: only the cheap merge, with the newest request of the plug.
    OneShot,
    /// 2: no merges.
    Never,
}

/// How many free tags a split bio waits for when it is the oldest, under `wake=fair`.
///
/// Source: "blk-mq: provide more tags for woken-up process when tag allocation is busy",
/// linux-block, 2020.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TagNeed {
    /// [`TagNeed::Parts`] on a rotational disk, otherwise [`TagNeed::One`].
    #[default]
    Auto,
    /// One tag: each part is issued as soon as a tag is free.
    One,
    /// One tag for each part that is left, but at most half of the tags. The parts are issued
    /// together. The library refuses it for disks that share a tag set. Has no effect where
    /// classes have tags of their own (`nr_reserved`, `async_depth`).
    Parts,
}

/// Order of flushes on a device that executes a flush only alone (`flush_queueable` is false).
///
/// Source: "block: hold queue if flush is running for non-queueable flush drive", linux-kernel,
/// 2011.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FlushPolicy {
    /// A flush goes before waiting requests, and the queue is held while one runs. So the next
    /// flush finds a clean cache.
    #[default]
    Hold,
    /// A flush goes before waiting requests. While one runs, the next request is issued, refused as
    /// busy, and requeued. Kept for comparison.
    Requeue,
    /// As `Requeue`, but a flush goes after requeued requests. This is the state *before*.
    Tail,
}

impl FlushPolicy {
    /// All policies.
    pub const ALL: [FlushPolicy; 3] = [FlushPolicy::Hold, FlushPolicy::Requeue, FlushPolicy::Tail];

    /// Returns the name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            FlushPolicy::Hold => "hold",
            FlushPolicy::Requeue => "requeue",
            FlushPolicy::Tail => "tail",
        }
    }
}

/// The default of [`Policy::io_timeout_grace_ns`].
pub(crate) const IO_TIMEOUT_GRACE_NS: u64 = 10_000_000_000;

with_setters! {
    /// The settings of a queue. [`Policy::check`] checks them against each other.
    ///
    /// ```
    /// use forebay_core::{Policy, QUEUE_DEPTH_MAX};
    ///
    /// let policy = Policy::default().queue_depth(64).nr_requests(Some(32));
    /// assert_eq!((policy.queue_depth, policy.async_depth), (64, QUEUE_DEPTH_MAX));
    /// assert!(policy.nr_requests(Some(65)).check().is_err());
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Policy {
        /// When plugged bios are unplugged.
        pub plug: PlugPolicy = PlugPolicy::default(),
        /// Which merges are tried.
        pub nomerges: MergePolicy = MergePolicy::default(),
        /// When the driver is kicked.
        pub kick: KickPolicy = KickPolicy::default(),
        /// The number of tags of a hardware context, the most that a driver gets at once: 1 to
        /// [`QUEUE_DEPTH_MAX`].
        pub queue_depth: u32 = 256,
        /// How many of these tags may be in use initially: 1 to `queue_depth`. `None` means all, or
        /// with a scheduler twice the device depth and at least 64. It can change while the disk is
        /// in use ([`HardwareContext::set_nr_requests`]).
        ///
        /// [`HardwareContext::set_nr_requests`]: crate::HardwareContext::set_nr_requests
        pub nr_requests: Option<u32> = None,
        /// How many of those are kept for [`RESERVED`](crate::BioFlags::RESERVED) bios; at least
        /// one is left for other bios.
        pub nr_reserved: u32 = 0,
        /// How many tags [`BACKGROUND`](crate::BioFlags::BACKGROUND) bios may hold; at least 1.
        /// With a scheduler also how many all requests together may hold that are not reads.
        /// [`QUEUE_DEPTH_MAX`] means all, or three quarters of those that may be in use for the
        /// latter.
        pub async_depth: u32 = QUEUE_DEPTH_MAX,
        /// How many tags a split bio waits for. Has no effect if threads wait for tags
        /// ([`Emulation::threads_wait_for_tags`]).
        pub tag_need: TagNeed = TagNeed::default(),
        /// The I/O scheduler.
        pub scheduler: SchedulerPolicy = SchedulerPolicy::default(),
        /// How many requests a scheduler hands to the device at once: 1 to `queue_depth`. `None`
        /// means 32 on a rotational device, otherwise half of the tags. Without a scheduler it has
        /// no effect.
        pub device_depth: Option<u32> = None,
        /// The parameters of `mq-deadline`.
        pub mq_deadline: MqDeadlineParams = MqDeadlineParams::default(),
        /// The parameters of `kyber`.
        pub kyber: KyberParams = KyberParams::default(),
        /// The parameters of `bfq`.
        pub bfq: BfqParams = BfqParams::default(),
        /// The measure in which the weights of owners divide the device.
        pub weight_by: WeightBy = WeightBy::Cost,
        /// The cost of I/O, if that is the measure.
        pub cost: CostModel = CostModel::default(),
        /// Order of flushes on a device that executes a flush only alone.
        pub flush: FlushPolicy = FlushPolicy::default(),
        /// How long a flush waits at most for writes at the device that will need a flush
        /// themselves, in nanoseconds. Linux uses 5 s (`FLUSH_PENDING_TIMEOUT`).
        pub flush_pending_ns: u64 = 5_000_000_000,
        /// How long a request may be at the driver, in nanoseconds; 0 means without a limit. A
        /// request that takes longer is counted and, where the driver can, cancelled.
        pub io_timeout_ns: u64 = 0,
        /// How much longer it may take after that before the device is marked as gone, in
        /// nanoseconds.
        pub io_timeout_grace_ns: u64 = IO_TIMEOUT_GRACE_NS,
        /// Whether a flush ends at once if no write has ended since the last flush. The creator of
        /// the queue promises that there is no other writer to the device.
        pub elide: bool = false,
        /// How many bios a completion queue may have in the layer, or ended and not reaped. One
        /// more is refused with `WouldBlock`.
        pub nr_bios: u32 = 4096,
        /// The number of hardware contexts: one shared by threads, and others owned by one thread
        /// each, in the order in which threads request one.
        pub nr_hw_queues: u32 = 1,
        /// Whether latencies are recorded.
        pub iostats: bool = true,
        /// The behaviour of earlier systems that the queue emulates.
        pub emulation: Emulation = Emulation::default(),
    }
}

impl Policy {
    /// Returns the scheduler and its settings.
    pub fn scheduling(&self) -> Scheduling {
        let Policy { scheduler, device_depth, mq_deadline, kyber, bfq, .. } = *self;
        Scheduling { scheduler, device_depth, mq_deadline, kyber, bfq }
    }

    /// Sets the scheduler and its settings.
    #[must_use]
    pub fn with_scheduling(self, scheduling: Scheduling) -> Policy {
        let Scheduling { scheduler, device_depth, mq_deadline, kyber, bfq } = scheduling;
        Policy { scheduler, device_depth, mq_deadline, kyber, bfq, ..self }
    }
}

impl PlugPolicy {
    /// All policies.
    pub const ALL: [PlugPolicy; 3] =
        [PlugPolicy::Outermost, PlugPolicy::PerLevel, PlugPolicy::None];

    /// Returns the name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            PlugPolicy::Outermost => "outermost",
            PlugPolicy::PerLevel => "per-level",
            PlugPolicy::None => "none",
        }
    }
}

impl KickPolicy {
    /// All policies.
    pub const ALL: [KickPolicy; 3] =
        [KickPolicy::Deferred, KickPolicy::PerRequest, KickPolicy::LoopEnd];

    /// Returns the name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            KickPolicy::Deferred => "deferred",
            KickPolicy::PerRequest => "per-request",
            KickPolicy::LoopEnd => "loop-end",
        }
    }
}

impl TagNeed {
    /// All policies.
    pub const ALL: [TagNeed; 3] = [TagNeed::Auto, TagNeed::One, TagNeed::Parts];

    /// Returns the name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            TagNeed::Auto => "auto",
            TagNeed::One => "one",
            TagNeed::Parts => "parts",
        }
    }
}

impl MergePolicy {
    /// All policies, ordered by number.
    pub const ALL: [MergePolicy; 3] = [MergePolicy::All, MergePolicy::OneShot, MergePolicy::Never];

    /// Returns the name used in specs and reports: a number.
    pub const fn name(self) -> &'static str {
        match self {
            MergePolicy::All => "0",
            MergePolicy::OneShot => "1",
            MergePolicy::Never => "2",
        }
    }
}
