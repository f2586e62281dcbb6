//! A task that draws its actions.

use crate::changes::Changes;
use crate::coroutine::Cpu;
use crate::runtime::thread::{Ended, Io, Thread};
use crate::trace::Kind;
use crate::{FIRST_OWNER_STREAM, FIRST_PRIORITY_STREAM};
use forebay_core::{BioFlags, Class, Gate, Op, PRIORITY_LEVELS, Priority, Tag, UnplugCause};
use forebay_model::Random;
use std::rc::Rc;

/// The maximum number of a task's bios in the layer.
const IN_LAYER_MAX: usize = 200;

/// The actions of a task, and how often it performs them; percentages.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) nr_bios: u32,
    /// The logical block size.
    pub(crate) block: u64,
    /// The number of blocks that are used.
    pub(crate) nr_blocks: u64,
    pub(crate) ops: Vec<Op>,
    pub(crate) fua: u32,
    pub(crate) preflush: u32,
    /// How often a flush has a durable point as its limit.
    pub(crate) up_to: u32,
    pub(crate) nomerge: u32,
    pub(crate) nowait: u32,
    pub(crate) reserved: u32,
    pub(crate) background: u32,
    /// How often the task changes the limit of tags in use, whose maximum is `queue_depth`.
    pub(crate) resizes: u32,
    pub(crate) queue_depth: u32,
    /// How often a bio is adjacent to the last one.
    pub(crate) sequential: u32,
    /// How often a bio in a plug is made to merge with the last one: adjacent, with the same
    /// operation and flags, and of at most `joined_max` blocks.
    pub(crate) joined: u32,
    pub(crate) joined_max: u64,
    /// How often the task closes a gate.
    pub(crate) gates: u32,
    /// How often a task leaves the hardware context that it owns, and takes one as a new thread.
    pub(crate) reopens: u32,
    /// How often a plug is left open.
    pub(crate) forget: u32,
    /// How often memory has several segments.
    pub(crate) cut: u32,
    /// Segments may end within a logical block.
    pub(crate) may_cut_anywhere: bool,
    /// The longest bio, blocks.
    pub(crate) nr_max: u64,
    pub(crate) burst_max: u64,
    /// The priority of the first bios.
    pub(crate) priority: Priority,
    /// How often another priority is chosen for the next bios; 0: all have the first one.
    pub(crate) priorities: u32,
    /// The time from one bio to the next, ns; `None`: as fast as the disk allows.
    pub(crate) gap_ns: Option<u64>,
}

/// Runs until all bios of the task have been submitted and have ended.
pub(crate) fn run(cpu: Cpu<'_>, load: Load, mut random: Random, changes: Option<Changes>) {
    let (world, id) = (Rc::clone(&cpu.world), cpu.id);
    cpu.sleep(random.below(20_000));
    world.note(Kind::Start, id as u64, id as u64);
    let mut task = RandomTask {
        thread: Thread::new(cpu),
        left: load.nr_bios,
        due_ns: world.now(),
        last: LastBio { op: Op::Read, flags: BioFlags::NONE, start: 0, end: 0 },
        ended: Vec::with_capacity(load.nr_bios as usize),
        charged: Vec::new(),
        priority: load.priority,
        priority_random: world.stream(FIRST_PRIORITY_STREAM + id as u64),
        owner_random: world.stream(FIRST_OWNER_STREAM + id as u64),
        load,
        random,
        changes,
    };
    while task.left > 0 {
        task.act();
    }
    task.thread.retire(&mut task.ended);
    world.tally.borrow_mut().add(task.thread.id, &mut task.ended);
}

struct RandomTask<'a> {
    thread: Thread<'a>,
    load: Load,
    random: Random,
    /// Changes of the scheduler, if the scenario has some.
    changes: Option<Changes>,
    /// The priority of the next bios, and its source.
    priority: Priority,
    priority_random: Random,
    /// For the choices among owners.
    owner_random: Random,
    /// The number of bios that are still to be submitted.
    left: u32,
    last: LastBio,
    /// When the next bio is due, if the load has a pace.
    due_ns: u64,
    ended: Vec<Ended>,
    /// Tags of the budget for the next bios of a burst; empty between two bursts.
    charged: Vec<Tag>,
}

/// Flags of bios that do not merge.
const NEVER_MERGED: BioFlags = BioFlags::NOMERGE.union(BioFlags::FUA).union(BioFlags::PREFLUSH);

/// The last bio that was submitted.
#[derive(Clone, Copy, Debug)]
struct LastBio {
    op: Op,
    flags: BioFlags,
    /// The first block, and the block after the last one.
    start: u64,
    end: u64,
}

impl LastBio {
    /// Returns where `nr` blocks, or fewer, continue the bio before or after its range, on a disk
    /// of `nr_blocks`: the first block and their number. The number is 0 if there is no room.
    fn neighbour(&self, nr: u64, nr_blocks: u64, is_before: bool) -> (u64, u64) {
        let room_after = nr_blocks - self.end;
        if is_before && self.start > 0 || room_after == 0 {
            let nr = nr.min(self.start);
            return (self.start - nr, nr);
        }
        (self.end, nr.min(room_after))
    }
}

impl RandomTask<'_> {
    fn act(&mut self) {
        if let Some(owners) = &self.thread.world.owners
            && self.owner_random.chance(owners.settings.changes, 100)
        {
            self.thread.change_owners(&mut self.owner_random);
        }
        if self.thread.nr_in_layer > IN_LAYER_MAX {
            return self.reap();
        }
        let is_idle = self.thread.nr_in_layer == 0 && !self.thread.is_plugged();
        if is_idle
            && let Some(changes) = &mut self.changes
            && let Some(scheduling) = changes.next()
        {
            return self.thread.set_scheduler(scheduling);
        }
        if is_idle && self.random.chance(self.load.gates, 100) {
            let gate = self.random.pick(&[Gate::Frozen, Gate::Quiesced, Gate::Stopped]);
            let closed_ns = self.random.below(50_000);
            let and_freezes = self.random.chance(1, 4);
            return self.thread.close_and_open(gate, closed_ns, and_freezes);
        }
        if !self.thread.hctx().is_shared && self.random.chance(self.load.reopens, 100) {
            self.thread.retire(&mut self.ended);
            return self.thread.assign();
        }
        if self.random.chance(self.load.resizes, 100) {
            if let Some(budget) = &self.thread.world.budget
                && self.random.chance(1, 2)
            {
                let (min, max) = budget.limits();
                let limit = self.random.between(min.into(), max.into()) as u32;
                return self.thread.resize_budget(limit);
            }
            let nr_requests = self.random.between(1, self.load.queue_depth.into()) as u32;
            return self.thread.set_nr_requests(nr_requests);
        }
        match self.random.below(10) {
            0..6 => self.burst(),
            6..8 => self.reap(),
            8 => self.revive(),
            _ => {
                let time_ns = self.random.exponential(20_000);
                self.thread.cpu.sleep(time_ns);
            }
        }
    }

    fn revive(&self) {
        self.thread.acknowledge();
        if self.thread.world.device_state.is_failed() {
            self.thread.world.device_state.revive();
            self.thread.world.note(Kind::Revive, 0, 0);
        }
    }

    fn reap(&mut self) {
        let nr = self.thread.nr_in_layer as u64;
        let min = self.random.below(nr + 2) as usize;
        let max = min + self.random.below(nr + 1) as usize;
        self.thread.reap(min, max, &mut self.ended);
    }

    /// Submits several bios, within plugs or not.
    fn burst(&mut self) {
        let nr = self.random.between(1, self.load.burst_max).min(self.left.into());
        if let Some(gap_ns) = self.load.gap_ns {
            let left_ns = self.due_ns.saturating_sub(self.thread.world.now());
            self.thread.cpu.sleep(left_ns);
            self.due_ns = self.due_ns.saturating_add(nr * gap_ns);
        }
        // Only bios in a plug merge.
        let nr_plugs = self.random.below(4).max(u64::from(self.load.joined > 0));
        for _ in 0..nr_plugs {
            self.thread.begin_plug();
        }
        self.choose_owner();
        let mut charged = std::mem::take(&mut self.charged);
        for left in (1..=nr).rev() {
            if self.thread.world.budget.is_some() && charged.is_empty() {
                self.charge(left, &mut charged);
            }
            if self.thread.world.owners.is_some() && self.owner_random.chance(1, 8) {
                self.choose_owner();
            }
            self.choose_priority();
            let mut io = self.io();
            io.charge = charged.pop();
            self.thread.submit(io);
            self.left -= 1;
            match self.random.below(20) {
                0 if self.thread.level > 0 => self.thread.end_plug(),
                1 => self.thread.begin_plug(),
                2 => self.thread.unplug(UnplugCause::Explicit, 1),
                _ => {}
            }
        }
        self.charged = charged;
        while self.thread.level > 0 && !self.random.chance(self.load.forget, 100) {
            self.thread.end_plug();
        }
    }

    /// Chooses the owner of the next bios.
    fn choose_owner(&mut self) {
        if let Some(owners) = &self.thread.world.owners {
            self.thread.owner = owners.draw(&mut self.owner_random);
        }
    }

    /// Chooses the priority of the next bios, or keeps that of the last one, so that bios of one
    /// priority can merge.
    fn choose_priority(&mut self) {
        let random = &mut self.priority_random;
        if self.load.priorities > 0 && random.chance(self.load.priorities, 100) {
            let level = random.below(PRIORITY_LEVELS.into()) as u8;
            let priority = Priority::new(random.pick(&Class::ALL), level);
            self.priority = priority.expect("the level exists");
        }
    }

    /// Takes tags of the budget for at most `nr` of the next bios (T10).
    fn charge(&mut self, nr: u64, out: &mut Vec<Tag>) {
        let need_max = self.thread.world.budget.as_ref().map_or(1, |budget| budget.need_max());
        self.thread.charge(nr.min(need_max.into()) as u32, out);
    }

    fn io(&mut self) -> Io {
        let is_plugged = self.thread.is_plugged();
        let (load, random) = (&self.load, &mut self.random);
        if load.joined > 0 && is_plugged && random.chance(load.joined, 100) {
            let nr = random.between(1, load.joined_max);
            let (block, nr) = self.last.neighbour(nr, load.nr_blocks, random.chance(1, 5));
            if nr > 0 && self.last.op != Op::Flush {
                let LastBio { op, flags, .. } = self.last;
                return self.io_at(op, flags.without(NEVER_MERGED), block, nr);
            }
        }
        let mut op = random.pick(&load.ops);
        let nr = random.between(1, load.nr_max);
        let mut block = random.below(load.nr_blocks - nr + 1);
        if random.chance(load.sequential, 100) {
            // Adjacent to the last one, before or after it, and with the same operation.
            let LastBio { start: first, end, .. } = self.last;
            let is_before = random.chance(1, 5) && nr <= first;
            let is_after = end + nr <= load.nr_blocks;
            op = self.last.op;
            block = if is_before { first - nr } else { block };
            block = if is_after && !is_before { end } else { block };
        }
        let flags = flags(load, random, op);
        self.io_at(op, flags, block, nr)
    }

    /// Draws the rest of an I/O.
    fn io_at(&mut self, op: Op, flags: BioFlags, block: u64, nr: u64) -> Io {
        self.last = LastBio { op, flags, start: block, end: block + nr };
        let priority = self.priority;
        let (load, random) = (&self.load, &mut self.random);
        let mut io =
            Io { op, flags, block, nr, cuts: Vec::new(), charge: None, point: 0, priority };
        if io.op.moves_data() && random.chance(load.cut, 100) {
            io.cuts = cuts(load, random, nr * load.block);
        }
        if io.op == Op::Flush {
            (io.block, io.nr) = (0, 0);
            let (is_fsync, is_up_to) = (random.chance(1, 5), random.chance(load.up_to, 100));
            let kind = if is_up_to { BioFlags::UP_TO } else { BioFlags::FSYNC };
            io.flags = if is_fsync || is_up_to { io.flags.union(kind) } else { io.flags };
            io.point = random.between(self.thread.point / 2, self.thread.point);
        }
        io
    }
}

fn flags(load: &Load, random: &mut Random, op: Op) -> BioFlags {
    let mut flags = BioFlags::NONE;
    let mut add = |percent, flag| {
        if random.chance(percent, 100) {
            flags = flags.union(flag);
        }
    };
    add(load.nomerge, BioFlags::NOMERGE);
    add(load.nowait, BioFlags::NOWAIT);
    add(load.reserved, BioFlags::RESERVED);
    add(load.background, BioFlags::BACKGROUND);
    if op.is_write() {
        add(load.fua, BioFlags::FUA);
        add(load.preflush, BioFlags::PREFLUSH);
    }
    flags
}

/// Returns the offsets at which memory of this length is split: at most one in each logical block.
fn cuts(load: &Load, random: &mut Random, len: u64) -> Vec<u64> {
    let within = |random: &mut Random| match load.may_cut_anywhere {
        true => 16 * random.below(load.block / 16),
        false => 0,
    };
    let blocks = (0..len).step_by(load.block as usize);
    let mut cuts = Vec::with_capacity((len / load.block) as usize);
    for start in blocks {
        if random.chance(1, 2) && cuts.len() < 200 {
            cuts.push(start + within(random));
        }
    }
    cuts.retain(|&cut| cut > 0);
    cuts
}
