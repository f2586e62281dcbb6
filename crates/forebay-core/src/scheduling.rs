//! Settings of I/O schedulers.

use crate::setters::with_setters;

/// The I/O scheduler, which chooses the order in which requests reach the device.
///
/// A disk with a scheduler has one hardware context, so that the scheduler sees all requests.
/// Counterpart in Linux: `/sys/block/X/queue/scheduler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SchedulerPolicy {
    /// The library chooses when it opens the disk: `mq-deadline` for a rotational device without a
    /// scheduler below, otherwise none. In this crate it means none.
    #[default]
    Auto,
    /// None: requests reach the device in the order of their tags.
    None,
    /// `mq-deadline`: batches in the order of the addresses, with a deadline for each request.
    MqDeadline,
    /// `kyber`: a limit on the requests of each kind at the device, tuned by their latencies.
    Kyber,
    /// `bfq`: one owner at a time has the device, for a share of the bytes by its weight. For
    /// devices that turn.
    Bfq,
}

impl SchedulerPolicy {
    /// All schedulers.
    pub const ALL: [SchedulerPolicy; 5] = [
        SchedulerPolicy::Auto,
        SchedulerPolicy::None,
        SchedulerPolicy::MqDeadline,
        SchedulerPolicy::Kyber,
        SchedulerPolicy::Bfq,
    ];

    /// Returns the name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            SchedulerPolicy::Auto => "auto",
            SchedulerPolicy::None => "none",
            SchedulerPolicy::MqDeadline => "mq-deadline",
            SchedulerPolicy::Kyber => "kyber",
            SchedulerPolicy::Bfq => "bfq",
        }
    }

    /// Returns whether it orders requests by the class of their priority.
    pub const fn orders_by_class(self) -> bool {
        matches!(self, SchedulerPolicy::MqDeadline | SchedulerPolicy::Bfq)
    }

    /// Returns whether requests are not scheduled.
    pub const fn is_none(self) -> bool {
        matches!(self, SchedulerPolicy::Auto | SchedulerPolicy::None)
    }
}

with_setters! {
    /// A scheduler with its settings: the part of a [`Policy`](crate::Policy) that can change while
    /// the disk is in use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Scheduling {
        /// The scheduler.
        pub scheduler: SchedulerPolicy = SchedulerPolicy::Auto,
        /// How many requests it hands to the device at once; `None` means the default of the
        /// device.
        pub device_depth: Option<u32> = None,
        /// The parameters of `mq-deadline`.
        pub mq_deadline: MqDeadlineParams = MqDeadlineParams::default(),
        /// The parameters of `kyber`.
        pub kyber: KyberParams = KyberParams::default(),
        /// The parameters of `bfq`.
        pub bfq: BfqParams = BfqParams::default(),
    }
}

with_setters! {
    /// The parameters of `mq-deadline`, with the names and the defaults of Linux.
    ///
    /// Counterparts in Linux: the files in `/sys/block/X/queue/iosched`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MqDeadlineParams {
        /// The most requests of one direction in a row in the order of their addresses; at least 1.
        pub fifo_batch: u32 = 16,
        /// The time from the insertion of a read to its deadline, in nanoseconds.
        pub read_expire_ns: u64 = 500_000_000,
        /// The time from the insertion of a write to its deadline, in nanoseconds.
        pub write_expire_ns: u64 = 5_000_000_000,
        /// How many batches of reads may go before writes that wait.
        pub writes_starved: u32 = 2,
        /// Whether a request may merge with the one that follows it on the device.
        pub front_merges: bool = true,
        /// How long a request waits at most for those of a higher class, in nanoseconds.
        pub prio_aging_expire_ns: u64 = 10_000_000_000,
    }
}

with_setters! {
    /// The parameters of `kyber`, with the names and the defaults of Linux.
    ///
    /// Counterparts in Linux: the files in `/sys/block/X/queue/iosched`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KyberParams {
        /// The target latency of reads, in nanoseconds.
        pub read_lat_ns: u64 = 2_000_000,
        /// The target latency of writes, in nanoseconds.
        pub write_lat_ns: u64 = 10_000_000,
    }
}

with_setters! {
    /// The parameters of `bfq`, with the names and the defaults of Linux.
    ///
    /// Counterparts in Linux: the files in `/sys/block/X/queue/iosched`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BfqParams {
        /// How long the device may wait for the next request of an owner that reads, in
        /// nanoseconds. 0: never. Without effect on a device that does not turn.
        pub slice_idle_ns: u64 = 8_000_000,
        /// How much one owner may move before another has its turn, in sectors of 512 bytes. 0: as
        /// much as the device moves in three quarters of `timeout_sync_ns`.
        pub max_budget: u32 = 0,
        /// How long one owner may have the device before another has its turn, in nanoseconds.
        pub timeout_sync_ns: u64 = 125_000_000,
        /// The time from the insertion of a read to its deadline, in nanoseconds.
        pub fifo_expire_sync_ns: u64 = 125_000_000,
        /// The time from the insertion of any other request to its deadline, in nanoseconds.
        pub fifo_expire_async_ns: u64 = 250_000_000,
    }
}
