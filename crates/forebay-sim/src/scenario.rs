//! The scenario of a run, and the swarm: every seed draws its own scenario.
//!
//! A draw switches features on and off, so that each seed uses a few of them heavily rather than
//! all of them moderately.

pub(crate) mod owners;

use crate::Options;
use crate::changes;
use crate::cpu_costs::CpuCosts;
use crate::engine::Engine;
use crate::file::FileSettings;
use crate::runtime::run_queue::WorkerSettings;
use crate::scheduler::{PREEMPT_OF, ThreadTimes};
use crate::task::random::Load;
use crate::wake::Wake;
use forebay_core::{
    BlockStatus, Emulation, FlushPolicy, KyberParams, MergePolicy, MqDeadlineParams, Op,
    PlugPolicy, Policy, Priority, QUEUE_DEPTH_MAX, QueueLimits, SECTOR_SHIFT, SchedulerPolicy,
    TagNeed, WakePolicy,
};
use forebay_model::{FaultRule, Faults, Fixed, Flaky, Random, machines};
use owners::OwnerSettings;

/// A device, the layer's settings, and how tasks are interleaved.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) limits: QueueLimits,
    pub(crate) policy: Policy,
    /// Whether the wake policy stands for the first version of `stash`, which can hang.
    pub(crate) is_stash_v1: bool,
    /// Tasks make the I/O of some of their requests themselves.
    pub(crate) makes_own_calls: bool,
    /// A wait beside the driver begins requests, as with `io_uring`: a task that waits tries to
    /// lead before its turn.
    pub(crate) begins_in_wait: bool,
    /// The stages of requests are recorded.
    pub(crate) is_traced: bool,
    pub(crate) engine: Engine,
    pub(crate) nr_tasks: usize,
    pub(crate) preempt: u32,
    /// How often a task naps between two steps, with the same denominator.
    pub(crate) nap: u32,
    pub(crate) step_ns: u64,
    /// The times of wake-ups, if the scenario is a measurement.
    pub(crate) times: ThreadTimes,
    /// The costs of the layer's actions, if the scenario measures.
    pub(crate) cpu: CpuCosts,
    /// The time that a processor takes to complete a command, one at a time, ns; 0: none.
    pub(crate) command_ns: u64,
    /// The worker that runs the shared context. `None`: the one of `run_queue=always`, or none.
    pub(crate) worker: Option<WorkerSettings>,
    /// The tag set for which tasks wait, if there is one.
    pub(crate) budget: Option<BudgetSettings>,
    /// How many bios may overtake another one.
    pub(crate) bound: u64,
    /// How the device behaves if it is a file.
    pub(crate) file: Option<FileSettings>,
    /// Further faults of the device, by rules.
    pub(crate) faults: Vec<FaultRule>,
    /// The owners of the disk, if it has any.
    pub(crate) owners: Option<OwnerSettings>,
}

impl Scenario {
    /// Replaces settings of the scenario by those of the options.
    pub(crate) fn choose(&mut self, options: &Options) {
        if let Some(queue_depth) = options.queue_depth {
            self.policy.queue_depth = queue_depth;
            self.policy.nr_requests = None;
        }
        if let Some(wake) = options.wake {
            self.policy.emulation = self.policy.emulation.wake(wake.policy());
            self.is_stash_v1 = wake == Wake::StashV1;
            if let Some(budget) = &mut self.budget {
                (budget.wake, budget.is_stash_v1) = (wake.policy(), self.is_stash_v1);
            }
        }
    }
}

/// A tag set that all tasks share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetSettings {
    pub(crate) depth: u32,
    /// The minimum of the limit of tags in use, while the limit changes.
    pub(crate) limit_min: u32,
    pub(crate) wake: WakePolicy,
    pub(crate) is_stash_v1: bool,
}

/// How many bios may overtake another one if the device fails: a retry holds bios back (A1).
pub(crate) const OVERTAKEN_MAX_WITH_FAULTS: u64 = 1 << 12;

/// Draws the scenario of a seed.
pub(crate) fn swarm(random: &mut Random, options: &Options) -> (Scenario, Load) {
    let mut limits = limits(random);
    let is_merging = random.chance(2, 5);
    if is_merging {
        limits = with_room_for_merges(limits);
    }
    let has_faults = random.chance(2, 3);
    let faults = if has_faults { faults(random) } else { Faults::default() };
    let nr_tasks = random.pick(&[1, 2, 2, 3, 4, 6, 8]);
    let mut scenario = Scenario {
        policy: policy(random, nr_tasks, is_merging),
        is_stash_v1: false,
        makes_own_calls: false,
        begins_in_wait: false,
        is_traced: false,
        engine: engine(random, &limits, faults, has_faults),
        nr_tasks,
        preempt: random.pick(&[PREEMPT_OF / 50, PREEMPT_OF / 8, PREEMPT_OF / 2, PREEMPT_OF]),
        nap: random.pick(&[0, 0, 2, 20]),
        step_ns: random.pick(&[1, 50, 500]),
        times: ThreadTimes::default(),
        cpu: CpuCosts::default(),
        command_ns: 0,
        worker: None,
        budget: random.chance(1, 3).then(|| budget(random)),
        bound: if has_faults { OVERTAKEN_MAX_WITH_FAULTS } else { 0 },
        file: None,
        faults: Vec::new(),
        owners: None,
        limits,
    };
    scenario.choose(options);
    let mut load = load(random, &scenario, options.nr_bios, is_merging);
    scenario.file = file(random, &mut scenario.limits);
    if scenario.file.is_some() {
        load.reopens = random.pick(&[0, 5, 20]);
    }
    scenario.policy.tag_need = random.pick(&[TagNeed::Auto, TagNeed::One, TagNeed::Parts]);
    scenario.limits.rotational = random.chance(1, 2);
    let threads_wait = scenario.policy.emulation.threads_wait_for_tags();
    scenario.makes_own_calls = random.chance(1, 2) && !threads_wait;
    scenario.begins_in_wait = random.chance(1, 2);
    if random.chance(1, 3) {
        scenario.policy = scheduled(random, scenario.policy);
    }
    (scenario, load)
}

fn budget(random: &mut Random) -> BudgetSettings {
    let depth: u32 = random.pick(&[1, 2, 4, 16]);
    let limit_min = random.pick(&[depth, depth, depth.div_ceil(2), 1]);
    BudgetSettings { depth, limit_min, wake: wake(random), is_stash_v1: false }
}

fn wake(random: &mut Random) -> WakePolicy {
    match random.chance(1, 2) {
        true => WakePolicy::Fair,
        false => random.pick(&[WakePolicy::Batch, WakePolicy::Stash, WakePolicy::Single]),
    }
}

fn limits(random: &mut Random) -> QueueLimits {
    let block: u32 = random.pick(&[512, 4096]);
    let sectors = |blocks: u64| ((blocks * u64::from(block)) >> SECTOR_SHIFT) as u32;
    let max_sectors = sectors(random.pick(&[1, 3, 8, 32, 256, 256]));
    let has_discard = random.chance(2, 3);
    let granularity = block * random.pick(&[1, 1, 4]);
    let discard_blocks = u64::from(granularity / block) * random.pick(&[1, 2, 16]);
    let nr_blocks = random.pick(&[8, 64, 512]);
    let volatile_cache = random.chance(1, 2);
    QueueLimits::default()
        .capacity_bytes(Some(nr_blocks * u64::from(block)))
        .logical_block_size(block)
        .physical_block_size(block * random.pick(&[1, 1, 8]))
        .max_hw_sectors(max_sectors)
        .max_sectors(max_sectors)
        .max_segments(random.pick(&[2, 4, 64, 128]))
        .max_segment_size(random.pick(&[block, block * 2, u32::MAX, u32::MAX]))
        .seg_boundary_mask(random.pick(&[u64::MAX, u64::MAX, 4095, 65_535]))
        .virt_boundary_mask(random.pick(&[0, 0, 0, 4095]))
        .chunk_sectors(sectors(random.pick(&[0, 0, 4, 7])))
        .discard_granularity(if has_discard { granularity } else { 0 })
        .max_discard_sectors(if has_discard { sectors(discard_blocks) } else { 0 })
        .max_discard_segments(random.pick(&[1, 4, 256]))
        .max_write_zeroes_sectors(sectors(random.pick(&[0, 1, 3, 64])))
        .volatile_cache(volatile_cache)
        .fua(volatile_cache && random.chance(1, 2))
        .flush_queueable(random.chance(1, 2))
}

/// Returns the limits without those that few merges keep. The other seeds have merges at every
/// limit.
fn with_room_for_merges(limits: QueueLimits) -> QueueLimits {
    let max_sectors = limits.max_sectors.max((32 * limits.logical_block_size) >> SECTOR_SHIFT);
    limits
        .max_hw_sectors(max_sectors)
        .max_sectors(max_sectors)
        .max_segments(128)
        .virt_boundary_mask(0)
        .chunk_sectors(0)
}

/// Makes some of the devices with a volatile cache files.
fn file(random: &mut Random, limits: &mut QueueLimits) -> Option<FileSettings> {
    if !limits.volatile_cache || random.chance(1, 3) {
        return None;
    }
    let has_page_cache = random.chance(1, 2);
    (limits.fua_is_sync, limits.fua_queueable) = (true, !has_page_cache);
    Some(FileSettings {
        has_page_cache,
        write_back_error: random.pick(&[2, 20, 100]),
        sync_elsewhere: random.pick(&[0, 50, 1000]),
    })
}

fn policy(random: &mut Random, nr_tasks: usize, is_merging: bool) -> Policy {
    let queue_depth = random.pick(&[1, 2, 3, 8, 32, 70]);
    let plug = [PlugPolicy::Outermost, PlugPolicy::Outermost, PlugPolicy::PerLevel];
    let policy = Policy::default()
        .plug(if random.chance(1, 6) && !is_merging {
            PlugPolicy::None
        } else {
            random.pick(&plug)
        })
        .nomerges(match random.chance(1, 3) && !is_merging {
            true => MergePolicy::Never,
            false => MergePolicy::All,
        })
        .queue_depth(queue_depth)
        .nr_requests(random.chance(1, 4).then(|| random.between(1, queue_depth.into()) as u32))
        .nr_reserved(random.pick(&[0, 0, 0, 1, 4]))
        .async_depth(random.pick(&[QUEUE_DEPTH_MAX, QUEUE_DEPTH_MAX, 1, 4]))
        .emulation(Emulation::default().wake(wake(random)))
        .flush(random.pick(&FlushPolicy::ALL))
        .flush_pending_ns(random.pick(&[0, 10_000, 5_000_000_000]))
        .io_timeout_ns(random.pick(&[0, 0, 0, 5_000, 30_000]))
        .io_timeout_grace_ns(random.pick(&[0, 20_000, 5_000_000_000]))
        .elide(random.chance(1, 2))
        .nr_hw_queues(random.pick(&[1, 1, 2, nr_tasks as u32 + 1]))
        .iostats(random.chance(1, 2));
    let emulation = policy.emulation.run_queue_always(random.pick(&[false, false, true]));
    policy.emulation(emulation)
}

/// Adds a scheduler. Its times are those of the simulated devices, so that deadlines expire.
fn scheduled(random: &mut Random, policy: Policy) -> Policy {
    let expire = [0, 2_000, 100_000, 500_000_000];
    let params = MqDeadlineParams::default()
        .fifo_batch(random.pick(&[1, 2, 16]))
        .writes_starved(random.pick(&[0, 2]))
        .read_expire_ns(random.pick(&expire))
        .write_expire_ns(random.pick(&expire))
        .prio_aging_expire_ns(random.pick(&expire))
        .front_merges(random.chance(1, 2));
    let device_depth = random.pick(&[1, 2, 8]).min(policy.queue_depth);
    let policy = policy
        .scheduler(SchedulerPolicy::MqDeadline)
        .device_depth(random.chance(3, 4).then_some(device_depth))
        .mq_deadline(params);
    match random.pick(&[SchedulerPolicy::MqDeadline, SchedulerPolicy::Bfq, SchedulerPolicy::Kyber])
    {
        SchedulerPolicy::Bfq => policy.scheduler(SchedulerPolicy::Bfq).bfq(changes::bfq(random)),
        SchedulerPolicy::Kyber => with_kyber(random, policy),
        _ => policy,
    }
}

/// Replaces the scheduler. This draws last, so all else of a seed is as with `mq-deadline`.
fn with_kyber(random: &mut Random, policy: Policy) -> Policy {
    let targets = [0, 2_000, 100_000, 10_000_000];
    let params = KyberParams::default()
        .read_lat_ns(random.pick(&targets))
        .write_lat_ns(random.pick(&targets));
    policy.scheduler(SchedulerPolicy::Kyber).kyber(params)
}

fn engine(random: &mut Random, limits: &QueueLimits, faults: Faults, has_faults: bool) -> Engine {
    let latency_ns = random.pick(&[0, 200, 5_000, 100_000]);
    if has_faults || random.chance(1, 2) {
        let flaky = Flaky::new(limits.logical_block_size, 100, latency_ns, faults);
        return Engine::Model(Box::new(flaky));
    }
    if random.chance(1, 3) {
        let preset = &machines::ALL[random.below(machines::ALL.len() as u64) as usize];
        return Engine::Machine(preset.machine());
    }
    Engine::Model(Box::new(Fixed::new(latency_ns, random.pick(&[1, 4, 64]))))
}

fn faults(random: &mut Random) -> Faults {
    // Only the layer itself returns `Again`, and the checkers rely on that.
    let others = BlockStatus::ALL.into_iter().filter(|status| *status != BlockStatus::Again);
    let statuses: Vec<BlockStatus> = others.filter(|_| random.chance(1, 3)).collect();
    let mut rate = |list: &[u32]| if random.chance(1, 2) { random.pick(list) } else { 0 };
    Faults {
        fail: rate(&[1_000, 20_000, 200_000]),
        statuses: Faults::statuses(&statuses),
        offline: rate(&[0, 0, 1_000, 10_000]),
        refuse: rate(&[1_000, 50_000]),
        busy: rate(&[1_000, 50_000, 500_000]),
        short: rate(&[5_000, 50_000, 500_000]),
        none: rate(&[1_000, 10_000]),
        bad_block: rate(&[1_000, 20_000]),
        straggler: rate(&[1_000, 20_000]),
    }
}

fn load(random: &mut Random, scenario: &Scenario, nr_bios: u32, is_merging: bool) -> Load {
    let limits = &scenario.limits;
    let block = u64::from(limits.logical_block_size);
    let nr_blocks = limits.capacity_bytes.unwrap_or(0) / block;
    let hot = if random.chance(1, 2) { nr_blocks } else { nr_blocks.min(16) };
    let mut ops = vec![Op::Read, Op::Write, Op::Read, Op::Write];
    let others = [Op::Flush, Op::Discard, Op::WriteZeroes].into_iter();
    ops.extend(others.filter(|_| random.chance(1, 2)));
    // Bios of many parts take many steps.
    let blocks_of_part = (u64::from(limits.max_sectors) << SECTOR_SHIFT) / block;
    let parts_max: u64 = random.pick(&[4, 8, 8, 8, 8, 64]);
    let nr_max = random.pick(&[1, 1, 2, 4, 16, 64]).min(hot).min(parts_max * blocks_of_part);
    let (joined, burst_max) = match is_merging {
        true => (random.pick(&[60, 90, 95]), random.pick(&[4, 16, 40])),
        false => (random.pick(&[0, 0, 0, 50]), random.pick(&[1, 4, 16, 40])),
    };
    let mut percent = |list: &[u32]| if random.chance(1, 2) { random.pick(list) } else { 0 };
    Load {
        nr_bios: nr_bios.div_ceil(scenario.nr_tasks as u32),
        block,
        nr_blocks: hot,
        ops,
        fua: percent(&[5, 50]),
        preflush: percent(&[5, 30]),
        up_to: percent(&[20, 80]),
        nomerge: percent(&[5, 50]),
        nowait: percent(&[5, 5, 20, 100]),
        reserved: percent(&[5, 30]),
        background: percent(&[5, 50]),
        resizes: percent(&[1, 5, 30]),
        queue_depth: scenario.policy.queue_depth,
        sequential: percent(&[80, 95, 99]).max(10),
        joined,
        joined_max: (blocks_of_part / 4).clamp(1, nr_max),
        nr_max,
        gates: percent(&[1, 5]),
        reopens: 0,
        forget: percent(&[2, 20]),
        cut: percent(&[20, 100]),
        may_cut_anywhere: limits.virt_boundary_mask == 0 && limits.max_segments > 2,
        burst_max,
        priority: Priority::default(),
        priorities: 0,
        gap_ns: None,
    }
}
