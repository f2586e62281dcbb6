//! The settings of a queue: what a user may choose, and what each choice is called.

use crate::tag::WakePolicy;

/// The deepest queue there can be, as in Linux (`BLK_MQ_MAX_DEPTH`).
pub const QUEUE_DEPTH_MAX: u32 = 10_240;

/// When the bios in a plug are unplugged.
///
/// Source: "blk-plug: don't flush nested plug lists", linux-kernel, April 2015.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PlugPolicy {
    /// Only the end of the outermost plug unplugs them, so that neighbours find each other.
    #[default]
    Outermost,
    /// The end of each plug unplugs what was queued on its level: the state *before* that
    /// patch as its text describes it, kept so that the gain can be measured.
    PerLevel,
    /// Plugs are ignored; each bio is issued at once.
    None,
}

/// When the driver is told to begin what it was handed: its kick, one system call or doorbell.
///
/// Source: "block: add blk_io_plug_call() API", qemu-devel, 2023.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KickPolicy {
    /// At the end of the thread's outermost section: a deferred call ([`Defer`](crate::Defer)),
    /// once for each hardware context. A plug is a section.
    #[default]
    Deferred,
    /// As `Deferred`, with the cost of the state *before*, in which sections were the device's: in
    /// each turn within a section, and when it ends, a thread takes a lock that is the device's.
    /// (What is kicked, and when, is the same.) Kept so that the two can be compared.
    PerDevice,
    /// After each request: the lower end of that comparison.
    PerRequest,
    /// When the thread next reaps: at the end of an event loop's iteration, as QEMU 10.2 does.
    LoopEnd,
}

/// Which merges are tried. Counterpart in Linux: `/sys/block/X/queue/nomerges`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MergePolicy {
    /// 0: all of them. There is only the one-shot kind so far.
    #[default]
    All,
    /// 1: only the cheap one, with the newest request of the plug.
    OneShot,
    /// 2: none.
    Never,
}

/// When a hardware context is run again for what completions have freed.
///
/// Source: "blk-mq: avoid repeatedly scheduling the same work to run hardware queue", linux-block,
/// 2019.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RunQueuePolicy {
    /// A run that is asked for while the context runs, or is queued to, is skipped: whoever holds
    /// its token does it.
    #[default]
    Dedupe,
    /// The same, with the cost of the state *before*: each completion queues a run anew, under a
    /// lock and queued or not, and a worker of the disk makes it. Results are the same. Kept so
    /// that the two can be compared.
    Always,
}

/// What goes first where a device takes a flush only by itself (`flush_queueable` is false).
///
/// Source: "block: hold queue if flush is running for non-queueable flush drive", linux-kernel,
/// 2011.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FlushPolicy {
    /// A flush goes before what waits, and the queue is held while one runs: so the next finds a
    /// clean cache.
    #[default]
    Hold,
    /// A flush goes before what waits. While one runs the next request is tried, found to be too
    /// much for the device, and queued again. Kept so that the policies can be compared.
    Requeue,
    /// As `Requeue`, but a flush goes behind what was queued again: the state *before*.
    Tail,
}

impl FlushPolicy {
    /// Every policy.
    pub const ALL: [FlushPolicy; 3] = [FlushPolicy::Hold, FlushPolicy::Requeue, FlushPolicy::Tail];

    /// The name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            FlushPolicy::Hold => "hold",
            FlushPolicy::Requeue => "requeue",
            FlushPolicy::Tail => "tail",
        }
    }
}

/// All settings of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When bios are unplugged.
    pub plug: PlugPolicy,
    /// Which merges are tried.
    pub nomerges: MergePolicy,
    /// When the driver is kicked.
    pub kick: KickPolicy,
    /// When a hardware context is run for completions.
    pub run_queue: RunQueuePolicy,
    /// How many requests a hardware context may have at the driver at once: 1 to
    /// [`QUEUE_DEPTH_MAX`].
    pub queue_depth: u32,
    /// How many of these tags may be in use at first, if not all: 1 to `queue_depth`. It can be
    /// changed while the disk is in use ([`HardwareContext::set_nr_requests`]).
    ///
    /// [`HardwareContext::set_nr_requests`]: crate::HardwareContext::set_nr_requests
    pub nr_requests: Option<u32>,
    /// How many of those are left to bios that are [`RESERVED`](crate::BioFlags::RESERVED): one
    /// less than may be in use at most.
    pub nr_reserved: u32,
    /// How many bios that are [`BACKGROUND`](crate::BioFlags::BACKGROUND) may have at most: 1 at
    /// least.
    pub async_depth: u32,
    /// Who waits for a tag, and whom a free one wakes.
    pub wake: WakePolicy,
    /// What goes first where a device takes a flush only by itself.
    pub flush: FlushPolicy,
    /// How long flushes wait at most for writes that are at the device and will need one
    /// themselves, ns. It is looked at when the hardware context turns. Linux has 5 s
    /// (`FLUSH_PENDING_TIMEOUT`).
    pub flush_pending_ns: u64,
    /// Whether a flush ends at once if nothing has ended since the last one that it would have to
    /// make durable. It is the maker's promise that nobody else writes to the device.
    pub elide: bool,
    /// How many bios a queue of completions may have in the layer, or ended and not reaped; one
    /// more is refused with `WouldBlock`.
    pub nr_bios: u32,
    /// How many hardware contexts there may be: one that threads share, and others that have one
    /// thread each, the first that come.
    pub nr_hw_queues: u32,
    /// Whether latencies are recorded.
    pub iostats: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            plug: PlugPolicy::default(),
            nomerges: MergePolicy::default(),
            kick: KickPolicy::default(),
            run_queue: RunQueuePolicy::default(),
            queue_depth: 256,
            nr_requests: None,
            nr_reserved: 0,
            async_depth: QUEUE_DEPTH_MAX,
            wake: WakePolicy::default(),
            flush: FlushPolicy::default(),
            flush_pending_ns: 5_000_000_000,
            elide: false,
            nr_bios: 4096,
            nr_hw_queues: 1,
            iostats: true,
        }
    }
}

impl PlugPolicy {
    /// Every policy.
    pub const ALL: [PlugPolicy; 3] =
        [PlugPolicy::Outermost, PlugPolicy::PerLevel, PlugPolicy::None];

    /// The name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            PlugPolicy::Outermost => "outermost",
            PlugPolicy::PerLevel => "per-level",
            PlugPolicy::None => "none",
        }
    }
}

impl KickPolicy {
    /// Every policy.
    pub const ALL: [KickPolicy; 4] =
        [KickPolicy::Deferred, KickPolicy::PerDevice, KickPolicy::PerRequest, KickPolicy::LoopEnd];

    /// The name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            KickPolicy::Deferred => "deferred",
            KickPolicy::PerDevice => "per-device",
            KickPolicy::PerRequest => "per-request",
            KickPolicy::LoopEnd => "loop-end",
        }
    }
}

impl RunQueuePolicy {
    /// Every policy.
    pub const ALL: [RunQueuePolicy; 2] = [RunQueuePolicy::Dedupe, RunQueuePolicy::Always];

    /// The name used in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            RunQueuePolicy::Dedupe => "dedupe",
            RunQueuePolicy::Always => "always",
        }
    }
}

impl MergePolicy {
    /// Every policy, in the order of its number.
    pub const ALL: [MergePolicy; 3] = [MergePolicy::All, MergePolicy::OneShot, MergePolicy::Never];

    /// The number used in specs and reports.
    pub const fn number(self) -> u32 {
        match self {
            MergePolicy::All => 0,
            MergePolicy::OneShot => 1,
            MergePolicy::Never => 2,
        }
    }
}
