//! The table of a policy's settings.

use super::{Knob, NS_PER_MS, NS_PER_US, Value, Values};
use crate::cost::WeightBy;
use crate::limits::QueueLimits;
use crate::policy::{FlushPolicy, KickPolicy, MergePolicy, PlugPolicy, Policy, TagNeed};
use crate::scheduling::SchedulerPolicy;
use crate::tag::{QUEUE_DEPTH_MAX, WakePolicy};

/// The largest number of hardware contexts.
const NR_HW_QUEUES_MAX: u32 = 1024;

/// Returns the words of a policy, in the order of its `ALL`.
macro_rules! words {
    ($policy:ty) => {
        Values::Words(
            &const {
                let mut words = [""; <$policy>::ALL.len()];
                let mut at = 0;
                while at < words.len() {
                    words[at] = <$policy>::ALL[at].name();
                    at += 1;
                }
                words
            },
        )
    };
}

/// A setting that is one of a policy's words. It is set by the index of the word.
macro_rules! choice {
    ($key:literal, $field:ident: $policy:ty, $help:literal) => {
        Knob::new(
            $key,
            words!($policy),
            $help,
            |policy| Value::Word(policy.$field.name()),
            |policy, index| policy.$field = <$policy>::ALL[index as usize],
        )
    };
}

/// A setting that is a number.
macro_rules! number {
    ($key:literal, $($field:ident).+, $min:expr, $max:expr, $help:literal) => {
        Knob::new(
            $key,
            Values::Number { min: $min, max: $max as u64, what: "" },
            $help,
            |policy| Value::Number(policy.$($field).+.into()),
            |policy, number| policy.$($field).+ = number as u32,
        )
    };
}

/// A setting that is a time in milliseconds.
macro_rules! milliseconds {
    ($key:literal, $($field:ident).+, $help:literal) => {
        Knob::new(
            $key,
            Values::Number { min: 0, max: 3_600_000, what: MS },
            $help,
            |policy| Value::Number(policy.$($field).+ / NS_PER_MS),
            |policy, number| policy.$($field).+ = number * NS_PER_MS,
        )
    };
}

/// A setting that is a time in microseconds, stored in nanoseconds.
macro_rules! microseconds {
    ($key:literal, $($field:ident).+, $help:literal) => {
        Knob::new(
            $key,
            Values::Number { min: 0, max: 1_000_000, what: US },
            $help,
            |policy| Value::Number(policy.$($field).+ / NS_PER_US),
            |policy, number| policy.$($field).+ = number * NS_PER_US,
        )
    };
}

/// A setting that is a time in nanoseconds, up to an hour.
macro_rules! nanoseconds {
    ($key:literal, $($field:ident).+, $help:literal) => {
        Knob::new(
            $key,
            Values::Number { min: 0, max: 3_600_000_000_000, what: NS },
            $help,
            |policy| Value::Number(policy.$($field).+),
            |policy, number| policy.$($field).+ = number,
        )
    };
}

/// A constant of the cost of an I/O. The part of each I/O is at least 1, so that all I/O has a
/// cost.
macro_rules! cost {
    ($key:literal, $field:ident, $min:literal, $help:literal) => {
        Knob::new(
            $key,
            Values::Number { min: $min, max: 1_000_000_000, what: "" },
            $help,
            |policy| Value::Number(policy.cost.$field),
            |policy, number| policy.cost.$field = number,
        )
        .when(BY_COST, is_by_cost)
    };
}

/// A setting that is a switch.
macro_rules! switch {
    ($key:literal, $($field:ident).+, $help:literal) => {
        Knob::new(
            $key,
            Values::Switch,
            $help,
            |policy| Value::Word(if policy.$($field).+ { "on" } else { "off" }),
            |policy, number| policy.$($field).+ = number != 0,
        )
    };
}

/// The values of settings that count tags. Other settings narrow their range.
const fn tags(min: u64, what: &'static str) -> Values {
    Values::Number { min, max: QUEUE_DEPTH_MAX as u64, what }
}

const UP_TO_QUEUE_DEPTH: &str = "a number from 1 to queue_depth";
const BELOW_NR_REQUESTS: &str = "a number below nr_requests (default: queue_depth)";
/// The condition of the parameters of `mq-deadline`.
const MQ_DEADLINE: &str = "scheduler=mq-deadline";

fn is_mq_deadline(policy: &Policy, _: &QueueLimits) -> bool {
    policy.scheduler == SchedulerPolicy::MqDeadline
}

/// The condition of the parameters of `kyber`.
const KYBER: &str = "scheduler=kyber";

fn is_kyber(policy: &Policy, _: &QueueLimits) -> bool {
    policy.scheduler == SchedulerPolicy::Kyber
}

/// The condition of the parameters of `bfq`.
const BFQ: &str = "scheduler=bfq";

fn is_bfq(policy: &Policy, _: &QueueLimits) -> bool {
    policy.scheduler == SchedulerPolicy::Bfq
}

/// The condition of the constants of the cost.
const BY_COST: &str = "weight_by=cost";

fn is_by_cost(policy: &Policy, _: &QueueLimits) -> bool {
    policy.weight_by == WeightBy::Cost
}

const MS: &str = "a number of milliseconds from 0 to 3600000";
const US: &str = "a number of microseconds from 0 to 1000000";
const NS: &str = "a number of nanoseconds from 0 to 3600000000000";

/// The value of `kick` that emulates an earlier system.
const PER_DEVICE: &str = "per-device";

/// The values of `kick`.
const KICKS: [&str; 4] = [
    KickPolicy::Deferred.name(),
    PER_DEVICE,
    KickPolicy::PerRequest.name(),
    KickPolicy::LoopEnd.name(),
];

/// The values of `run_queue`: a run that is requested while the context runs, or is about to, is
/// skipped; or the emulation of an earlier system.
const RUNS: [&str; 2] = ["dedupe", "always"];

/// All settings of a policy, in the order of reports.
pub static KNOBS: [Knob; 38] = [
    choice!("plug", plug: PlugPolicy,
        "where bios wait for neighbours: until the outermost plug ends, each plug, or not"),
    choice!("nomerges", nomerges: MergePolicy,
        "0 and 1: merge with the newest request of the plug; 2: no merges"),
    Knob::new(
        "kick",
        Values::Words(&KICKS),
        "when the driver starts: once per batch, or for comparison more often",
        |policy| {
            let is_emulated =
                policy.kick == KickPolicy::Deferred && policy.emulation.locks_device();
            Value::Word(if is_emulated { PER_DEVICE } else { policy.kick.name() })
        },
        |policy, index| {
            let word = KICKS[index as usize];
            let own = KickPolicy::ALL.into_iter().find(|kick| kick.name() == word);
            policy.kick = own.unwrap_or(KickPolicy::Deferred);
            policy.emulation = policy.emulation.kick_per_device(own.is_none());
        },
    ),
    Knob::new(
        "run_queue",
        Values::Words(&RUNS),
        "when completions run the queue; always emulates older Linux, for comparison",
        |policy| Value::Word(RUNS[usize::from(policy.emulation.queues_runs())]),
        |policy, index| policy.emulation = policy.emulation.run_queue_always(index != 0),
    ),
    Knob::new(
        "wake",
        words!(WakePolicy),
        "which waiter gets a freed tag; stash starves most threads, for experiments only",
        |policy| Value::Word(policy.emulation.wake_policy().name()),
        |policy, index| {
            policy.emulation = policy.emulation.wake(WakePolicy::ALL[index as usize]);
        },
    ),
    choice!("tag_need", tag_need: TagNeed,
        "how many tags a split I/O waits for; auto: parts on rotational disks, otherwise one")
    .when("wake=fair without reserved_tags and async_depth", |policy, _| {
        let has_classes = policy.nr_reserved > 0 || policy.async_depth < policy.queue_depth;
        !policy.emulation.threads_wait_for_tags() && !has_classes
    }),
    number!(
        "queue_depth",
        queue_depth,
        1,
        QUEUE_DEPTH_MAX,
        "requests in flight per hardware context"
    )
    .depends("256, or as the modelled device"),
    Knob::new(
        "nr_requests",
        tags(1, UP_TO_QUEUE_DEPTH),
        "number of tags in use at most",
        |policy| Value::Number(policy.nr_requests.unwrap_or(policy.queue_depth).into()),
        |policy, number| policy.nr_requests = Some(number as u32),
    )
    .depends("queue_depth; with a scheduler twice device_depth, at least 64"),
    Knob::new(
        "reserved_tags",
        tags(0, BELOW_NR_REQUESTS),
        "tags kept for reserved I/O",
        |policy| Value::Number(policy.nr_reserved.into()),
        |policy, number| policy.nr_reserved = number as u32,
    ),
    Knob::new(
        "async_depth",
        tags(1, UP_TO_QUEUE_DEPTH),
        "most tags for background I/O, and with a scheduler for all but reads",
        |policy| {
            let nr_requests = policy.nr_requests.unwrap_or(policy.queue_depth);
            Value::Number(policy.async_depth_of(nr_requests).into())
        },
        |policy, number| policy.async_depth = number as u32,
    )
    .depends("nr_requests; with a scheduler three quarters of it for all but reads"),
    number!(
        "nr_hw_queues",
        nr_hw_queues,
        1,
        NR_HW_QUEUES_MAX,
        "hardware contexts: one is shared, each of the others belongs to one thread"
    )
    .depends("processors + 1; 1 with service=on, a scheduler, or run_queue=always"),
    choice!("scheduler", scheduler: SchedulerPolicy,
        "order of the requests that wait for the device; merges them across threads")
    .depends("mq-deadline on rotational models and back ends, else none"),
    Knob::new(
        "device_depth",
        tags(1, UP_TO_QUEUE_DEPTH),
        "most requests that the scheduler hands to the device at once",
        |policy| Value::Number(policy.device_depth_of(&QueueLimits::default()).into()),
        |policy, number| policy.device_depth = Some(number as u32),
    )
    .depends("32 on rotational disks, else half of queue_depth")
    .when("a scheduler", |policy, _| !policy.scheduler.is_none()),
    number!(
        "fifo_batch",
        mq_deadline.fifo_batch,
        1,
        QUEUE_DEPTH_MAX,
        "requests in a row in the order of their addresses"
    )
    .when(MQ_DEADLINE, is_mq_deadline),
    milliseconds!(
        "read_expire",
        mq_deadline.read_expire_ns,
        "time after which a read goes before the order of addresses, ms"
    )
    .when(MQ_DEADLINE, is_mq_deadline),
    milliseconds!(
        "write_expire",
        mq_deadline.write_expire_ns,
        "time after which a write goes before the order of addresses, ms"
    )
    .when(MQ_DEADLINE, is_mq_deadline),
    number!(
        "writes_starved",
        mq_deadline.writes_starved,
        0,
        QUEUE_DEPTH_MAX,
        "batches of reads that may go before waiting writes"
    )
    .when(MQ_DEADLINE, is_mq_deadline),
    switch!(
        "front_merges",
        mq_deadline.front_merges,
        "merge a request also with the one that follows it on the disk"
    )
    .when(MQ_DEADLINE, is_mq_deadline),
    milliseconds!(
        "prio_aging_expire",
        mq_deadline.prio_aging_expire_ns,
        "time after which a request goes before those of a higher class, ms"
    )
    .when(MQ_DEADLINE, is_mq_deadline),
    nanoseconds!(
        "read_lat_nsec",
        kyber.read_lat_ns,
        "target latency of reads at the device, kept by limiting other I/O, ns"
    )
    .when(KYBER, is_kyber),
    nanoseconds!(
        "write_lat_nsec",
        kyber.write_lat_ns,
        "target latency of writes at the device, kept by limiting other I/O, ns"
    )
    .when(KYBER, is_kyber),
    microseconds!(
        "slice_idle_us",
        bfq.slice_idle_ns,
        "longest wait of a rotational disk for the next request of a reader, us; 0: none"
    )
    .when(BFQ, is_bfq),
    number!(
        "max_budget",
        bfq.max_budget,
        0,
        1 << 21,
        "most sectors of 512 bytes that an owner moves in a row; 0: by the speed of the disk"
    )
    .when(BFQ, is_bfq),
    milliseconds!(
        "timeout_sync",
        bfq.timeout_sync_ns,
        "longest time that an owner has the device in a row, ms"
    )
    .when(BFQ, is_bfq),
    milliseconds!(
        "fifo_expire_sync",
        bfq.fifo_expire_sync_ns,
        "time after which a read goes first when its owner has its turn, ms"
    )
    .when(BFQ, is_bfq),
    milliseconds!(
        "fifo_expire_async",
        bfq.fifo_expire_async_ns,
        "time after which other I/O goes first when its owner has its turn, ms"
    )
    .when(BFQ, is_bfq),
    choice!("weight_by", weight_by: WeightBy,
        "measure in which weights of owners divide the device"),
    cost!("cost_read_io_ns", read_io_ns, 1, "cost of each read request, ns"),
    cost!("cost_read_byte_ps", read_byte_ps, 0, "cost of each byte read, ps; 1000 are 1 GB/s"),
    cost!("cost_write_io_ns", write_io_ns, 1, "cost of each other request, ns"),
    cost!("cost_write_byte_ps", write_byte_ps, 0, "cost of each byte written, ps"),
    number!("nr_bios", nr_bios, 1, 1 << 20, "I/Os in a queue of the library"),
    choice!("flush", flush: FlushPolicy,
        "order of writes and a non-queued flush; tail emulates older Linux, for comparison")
    .when("a device that accepts a flush only by itself", |_, limits| !limits.flush_queueable),
    milliseconds!(
        "flush_pending_ms",
        flush_pending_ns,
        "longest time that a flush waits for writes to join it, ms"
    )
    .when("a volatile cache", |_, limits| limits.volatile_cache),
    milliseconds!(
        "io_timeout_ms",
        io_timeout_ns,
        "time limit of a request at the device, ms; 0: none"
    ),
    milliseconds!(
        "io_timeout_grace_ms",
        io_timeout_grace_ns,
        "grace period after which the device counts as gone, ms"
    )
    .when("io_timeout_ms above 0", |policy, _| policy.io_timeout_ns > 0),
    switch!(
        "elide",
        elide,
        "end a flush at once if there is nothing to flush; needs exclusive=on on a file"
    )
    .depends("on for ram and null, else off")
    .when("a volatile cache", |_, limits| limits.volatile_cache),
    switch!("iostats", iostats, "record latencies inside the layer"),
];
