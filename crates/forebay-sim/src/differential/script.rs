//! Scripts of the differential test: the steps of a few threads on a disk.
//!
//! Two programs compile this file: the simulator, and the library's tests, which run the same
//! scripts by threads under shuttle. Each prints the outcomes that it finds. `cargo xtask
//! differential` compares the two sets of each script.

use forebay_core::{BioFlags, BlockStatus, Gate, Op, QueueLimits, WakePolicy};
use forebay_model::Random;
use std::fmt::Write;

/// The length of a sector, in bytes: the logical block.
pub const SECTOR: u64 = 512;

/// The number of sectors of the disk.
pub const NR_SECTORS: u64 = 6;

/// The number of random scripts.
pub const NR_RANDOM: u64 = 60;

/// The largest number of sectors that the bios of a random script read and write in all. A script
/// with more has so many outcomes that some come up once in a million runs.
const NR_MOVED_MAX: u64 = 4;

/// A script: a disk, and the steps of each thread.
#[derive(Clone, Debug)]
pub struct Script {
    /// The name, without spaces.
    pub name: String,
    /// The disk.
    pub disk: ScriptDisk,
    /// The steps of each thread.
    pub threads: Vec<Vec<Step>>,
}

/// The disk of a script.
#[derive(Clone, Debug)]
pub struct ScriptDisk {
    /// The number of tags.
    pub queue_depth: u32,
    /// Whether bios or threads wait for tags.
    pub wake: WakePolicy,
    /// The largest request.
    pub max_sectors: u32,
    /// Writes are lost until a flush.
    pub volatile_cache: bool,
    /// The device takes a flush beside other commands.
    pub flush_queueable: bool,
    /// The failures of the device.
    pub failures: Vec<Failure>,
}

/// A failure of the device: commands that match end with the status.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The operation.
    pub op: Op,
    /// The command has this sector; `None` for any.
    pub sector: Option<u64>,
    /// The command is the one with this number among those that match, from 0; `None` for all.
    pub nth: Option<u32>,
    /// The result.
    pub status: BlockStatus,
}

/// A step of a thread.
#[derive(Clone, Debug)]
pub enum Step {
    /// Submits a bio.
    Submit(ScriptBio),
    /// Submits bios in one plug. Only one thread of a script may have plugs.
    Plugged(Vec<ScriptBio>),
    /// Waits until this many of its bios have ended since the last wait, or all of them.
    Reap(usize),
    /// Closes a gate, waits until that is in force, and opens it. No bio of the thread is under
    /// way.
    Hold(Gate),
    /// Acknowledges the loss of a failed flush.
    Acknowledge,
    /// Drops its queue with the bios that it has not reaped. This is its last step.
    Close,
}

/// A bio of a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptBio {
    /// The operation.
    pub op: Op,
    /// The flags.
    pub flags: BioFlags,
    /// The first sector.
    pub sector: u64,
    /// The number of sectors; 0 for a flush.
    pub nr: u64,
}

/// A bio that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The result: bytes, or a status. `None` if the thread has closed its queue before.
    pub result: Option<Result<u64, BlockStatus>>,
    /// The contents of the sectors, for a read.
    pub values: Vec<u64>,
}

/// The result of a run: each bio of each thread in the order of submission, and the disk.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The bios of each thread.
    pub threads: Vec<Vec<Ended>>,
    /// The contents of the disk.
    pub sectors: Vec<u64>,
    /// Whether there is a loss that is not acknowledged.
    pub is_lost: bool,
}

impl Outcome {
    /// Returns the outcome as one line.
    pub fn line(&self, script: &Script) -> String {
        let mut line = String::new();
        for (thread, ended) in self.threads.iter().enumerate() {
            let bios: Vec<_> = script.bios(thread).collect();
            assert_eq!(bios.len(), ended.len(), "{}: each bio ends once", script.name);
            for (bio, Ended { result, values }) in bios.into_iter().zip(ended) {
                let _ = write!(line, "{thread}:{}=", bio.op.name());
                match result {
                    None => line.push('?'),
                    Some(Err(status)) => line.push_str(&format!("{status:?}")),
                    Some(Ok(len)) if bio.op == Op::Read => {
                        let nr = (len / SECTOR) as usize;
                        let values = values.iter().take(nr).map(|&value| name(value));
                        line.push_str(&values.collect::<Vec<_>>().join("+"));
                    }
                    Some(Ok(len)) => line.push_str(&format!("{}", len / SECTOR)),
                }
                line.push(' ');
            }
        }
        let sectors = self.sectors.iter().map(|&value| name(value));
        let lost = if self.is_lost { " lost" } else { "" };
        let _ = write!(line, "disk={}{lost}", sectors.collect::<Vec<_>>().join("+"));
        line
    }
}

/// Returns the value of a sector of a bio, which is number `nth` of a thread. 0 is an empty sector.
pub fn value(thread: usize, nth: usize, unit: u64) -> u64 {
    (thread as u64 + 1) << 32 | (nth as u64) << 16 | unit
}

/// Returns the name of a value.
fn name(value: u64) -> String {
    match value.checked_sub(1 << 32) {
        None => "-".to_owned(),
        Some(value) => format!("{}.{}.{}", value >> 32, value >> 16 & 0xffff, value & 0xffff),
    }
}

impl Script {
    /// Returns the bios of a thread, in the order of submission.
    pub fn bios(&self, thread: usize) -> impl Iterator<Item = ScriptBio> + '_ {
        self.threads[thread].iter().flat_map(|step| match step {
            Step::Submit(bio) => vec![*bio],
            Step::Plugged(bios) => bios.clone(),
            Step::Reap(_) | Step::Hold(_) | Step::Acknowledge | Step::Close => Vec::new(),
        })
    }

    /// Returns all scripts: those written by hand, and random ones.
    pub fn all() -> Vec<Script> {
        let mut all = by_hand();
        all.extend((0..NR_RANDOM).map(random));
        all
    }
}

impl ScriptDisk {
    /// Returns the limits of the disk.
    pub fn limits(&self) -> QueueLimits {
        QueueLimits::default()
            .capacity_bytes(Some(NR_SECTORS * SECTOR))
            .logical_block_size(SECTOR as u32)
            .physical_block_size(SECTOR as u32)
            .max_hw_sectors(self.max_sectors)
            .max_sectors(self.max_sectors)
            .volatile_cache(self.volatile_cache)
            .flush_queueable(self.flush_queueable)
    }
}

/// The failures of a device that runs.
#[derive(Clone, Debug)]
pub struct Failures {
    rules: Vec<(Failure, u32)>,
}

impl Failures {
    /// Returns the failures of a device that has done nothing.
    pub fn new(disk: &ScriptDisk) -> Failures {
        Failures { rules: disk.failures.iter().map(|failure| (*failure, 0)).collect() }
    }

    /// Returns the result of a command that begins.
    pub fn result(&mut self, op: Op, start: u64, len: u64) -> Result<u64, BlockStatus> {
        let mut result = Ok(len);
        for (failure, nr_matched) in &mut self.rules {
            let has = |sector: u64| (start..start + len).contains(&(sector * SECTOR));
            if failure.op != op || !failure.sector.is_none_or(has) {
                continue;
            }
            if failure.nth.is_none_or(|nth| nth == *nr_matched) {
                result = Err(failure.status);
            }
            *nr_matched += 1;
        }
        result
    }
}

const FLUSH: Step = Step::Submit(bio(Op::Flush, 0, 0));

const fn bio(op: Op, sector: u64, nr: u64) -> ScriptBio {
    ScriptBio { op, flags: BioFlags::NONE, sector, nr }
}

fn read(sector: u64, nr: u64) -> Step {
    Step::Submit(bio(Op::Read, sector, nr))
}

fn write(sector: u64, nr: u64) -> Step {
    Step::Submit(bio(Op::Write, sector, nr))
}

fn with(flags: BioFlags, step: Step) -> Step {
    match step {
        Step::Submit(bio) => Step::Submit(ScriptBio { flags, ..bio }),
        step => step,
    }
}

/// Waits for all bios of the thread.
const WAIT: Step = Step::Reap(usize::MAX);

/// A disk without failures.
const fn disk(volatile_cache: bool) -> ScriptDisk {
    ScriptDisk {
        queue_depth: 4,
        wake: WakePolicy::Fair,
        max_sectors: 4,
        volatile_cache,
        flush_queueable: true,
        failures: Vec::new(),
    }
}

const PLAIN: ScriptDisk = disk(false);

/// A disk with a volatile cache.
const CACHED: ScriptDisk = disk(true);

fn fails(disk: ScriptDisk, failures: Vec<Failure>) -> ScriptDisk {
    ScriptDisk { failures, ..disk }
}

/// The command with this number fails.
fn nth(op: Op, nth: u32) -> Failure {
    Failure { op, sector: None, nth: Some(nth), status: BlockStatus::Io }
}

/// A bad sector.
fn bad(op: Op, sector: u64) -> Failure {
    Failure { op, sector: Some(sector), nth: None, status: BlockStatus::Medium }
}

/// Returns the scripts written by hand.
fn by_hand() -> Vec<Script> {
    [overlaps(), flushes(), gates(), failures(), tags()].into_iter().flatten().collect()
}

fn script(name: &str, disk: ScriptDisk, threads: Vec<Vec<Step>>) -> Script {
    Script { name: name.to_owned(), disk, threads }
}

/// Returns a step that submits these bios under one plug: operation, first sector, number.
fn plugged(bios: &[(Op, u64, u64)]) -> Step {
    Step::Plugged(bios.iter().map(|&(op, sector, nr)| bio(op, sector, nr)).collect())
}

/// Returns scripts of reads and writes of the same sectors.
fn overlaps() -> Vec<Script> {
    vec![
        script(
            "read-beside-write",
            PLAIN,
            vec![vec![write(0, 2), WAIT, write(1, 1)], vec![read(0, 3)]],
        ),
        script(
            "overlapping-writes",
            PLAIN,
            vec![vec![write(0, 2), read(1, 1)], vec![write(1, 2), WAIT, read(0, 2)]],
        ),
    ]
}

/// Returns scripts of flushes beside writes.
fn flushes() -> Vec<Script> {
    let alone = ScriptDisk { flush_queueable: false, ..CACHED };
    vec![
        script(
            "flush-beside-writes",
            CACHED,
            vec![vec![write(0, 1), FLUSH, WAIT, read(0, 2)], vec![write(1, 1), WAIT, FLUSH]],
        ),
        script(
            "flush-alone-beside-writes",
            alone.clone(),
            vec![vec![write(0, 1), FLUSH], vec![write(0, 2), FLUSH]],
        ),
        script(
            "failed-flush-is-acknowledged",
            fails(CACHED, vec![nth(Op::Flush, 0)]),
            vec![
                vec![write(0, 1), WAIT, FLUSH, WAIT, Step::Acknowledge, FLUSH],
                vec![write(1, 1), WAIT, FLUSH],
            ],
        ),
        script(
            "failed-flush-alone",
            fails(alone, vec![nth(Op::Flush, 0)]),
            vec![vec![write(0, 1), WAIT, FLUSH, WAIT, FLUSH], vec![write(1, 1)]],
        ),
        script(
            "fua-and-preflush",
            fails(CACHED, vec![nth(Op::Flush, 1)]),
            vec![
                vec![with(BioFlags::FUA, write(0, 1)), WAIT, read(0, 1)],
                vec![with(BioFlags::PREFLUSH, write(0, 1))],
            ],
        ),
    ]
}

/// Returns scripts of closed gates, and of a disk that closes.
fn gates() -> Vec<Script> {
    vec![
        script(
            "freeze-beside-submit",
            PLAIN,
            vec![
                vec![Step::Hold(Gate::Frozen)],
                vec![write(0, 1), with(BioFlags::NOWAIT, read(0, 1))],
            ],
        ),
        script(
            "quiesce-beside-flush",
            CACHED,
            vec![
                vec![Step::Hold(Gate::Quiesced)],
                vec![
                    write(0, 1),
                    WAIT,
                    with(BioFlags::NOWAIT, FLUSH),
                    with(BioFlags::NOWAIT, read(0, 1)),
                ],
            ],
        ),
        script(
            "stop-beside-two",
            PLAIN,
            vec![
                vec![Step::Hold(Gate::Stopped)],
                vec![write(0, 1), with(BioFlags::NOWAIT, write(0, 1))],
                vec![read(0, 1)],
            ],
        ),
        script(
            "close-with-bios-in-flight",
            CACHED,
            vec![
                vec![write(0, 1), FLUSH, Step::Close],
                vec![write(1, 1), Step::Close],
                vec![Step::Hold(Gate::Frozen), read(0, 2)],
            ],
        ),
    ]
}

/// Returns scripts of devices that fail.
fn failures() -> Vec<Script> {
    vec![
        script(
            "bad-sector-in-a-merged-write",
            fails(PLAIN, vec![bad(Op::Write, 1)]),
            vec![
                vec![
                    plugged(&[(Op::Write, 0, 1), (Op::Write, 1, 1), (Op::Write, 2, 1)]),
                    WAIT,
                    read(0, 1),
                ],
                vec![Step::Hold(Gate::Quiesced)],
            ],
        ),
        script(
            "bad-sector-in-a-merged-read",
            fails(PLAIN, vec![bad(Op::Read, 1)]),
            vec![
                vec![
                    write(0, 3),
                    WAIT,
                    plugged(&[(Op::Read, 0, 1), (Op::Read, 1, 1), (Op::Read, 2, 1)]),
                ],
                vec![Step::Hold(Gate::Frozen)],
            ],
        ),
        script(
            "write-beside-a-retry",
            fails(PLAIN, vec![bad(Op::Write, 1)]),
            vec![
                vec![plugged(&[(Op::Write, 0, 1), (Op::Write, 1, 1)])],
                vec![read(0, 1), WAIT, write(0, 1)],
            ],
        ),
        script(
            "offline-device",
            fails(
                PLAIN,
                vec![Failure {
                    op: Op::Write,
                    sector: None,
                    nth: Some(1),
                    status: BlockStatus::Offline,
                }],
            ),
            vec![vec![write(0, 1), write(1, 1), WAIT, read(0, 1)], vec![read(1, 1)]],
        ),
    ]
}

/// Returns scripts of scarce tags.
fn tags() -> Vec<Script> {
    let one_tag = ScriptDisk { queue_depth: 1, ..PLAIN };
    let cut = ScriptDisk { max_sectors: 1, queue_depth: 2, ..PLAIN };
    let wakes_threads = ScriptDisk { wake: WakePolicy::Single, ..one_tag.clone() };
    vec![
        script(
            "nowait-without-a-tag",
            one_tag.clone(),
            vec![
                vec![write(0, 1), with(BioFlags::NOWAIT, write(1, 1))],
                vec![with(BioFlags::NOWAIT, read(0, 2))],
            ],
        ),
        script(
            "one-tag-for-three",
            one_tag,
            vec![vec![write(0, 1)], vec![write(0, 1), WAIT], vec![read(0, 1)]],
        ),
        script(
            "split-with-a-bad-part",
            fails(cut.clone(), vec![bad(Op::Write, 1)]),
            vec![vec![write(0, 3), WAIT, read(0, 1)], vec![read(2, 1)]],
        ),
        script(
            "split-beside-split",
            cut,
            vec![vec![write(0, 2)], vec![with(BioFlags::NOWAIT, read(0, 2)), read(0, 2)]],
        ),
        // The writes of a thread that waits for tags are made in order.
        script(
            "threads-wait-for-one-tag",
            wakes_threads,
            vec![
                vec![plugged(&[(Op::Write, 0, 1), (Op::Write, 0, 1), (Op::Write, 0, 1)])],
                vec![read(0, 1), WAIT, read(0, 1)],
            ],
        ),
    ]
}

/// Returns a random script: two threads with two bios each.
fn random(number: u64) -> Script {
    let random = &mut Random::new(number, 0);
    let mut disk = ScriptDisk {
        queue_depth: random.pick(&[1, 2, 4]),
        wake: WakePolicy::Fair,
        max_sectors: random.pick(&[1, 2, 4]),
        volatile_cache: random.chance(1, 2),
        flush_queueable: random.chance(1, 2),
        failures: Vec::new(),
    };
    if random.chance(1, 2) {
        let op = random.pick(&[Op::Write, Op::Read, Op::Flush]);
        let is_bad = op != Op::Flush && random.chance(1, 2);
        let number = random.below(2) as u32;
        disk.failures.push(if is_bad { bad(op, random.below(3)) } else { nth(op, number) });
    }
    let mut nr_left = NR_MOVED_MAX;
    let threads = (0..2).map(|nth| thread(random, &mut nr_left, nth == 0)).collect();
    Script { name: format!("random-{number}"), disk, threads }
}

/// Returns the steps of a thread. Its bios may be plugged if `plugs`.
fn thread(random: &mut Random, nr_left: &mut u64, plugs: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if random.chance(1, 6) {
        steps.push(Step::Hold(random.pick(&[Gate::Frozen, Gate::Quiesced, Gate::Stopped])));
    }
    let mut bios: Vec<_> = (0..2).map(|_| random_bio(random, nr_left)).collect();
    if plugs && random.chance(1, 4) {
        steps.push(Step::Plugged(std::mem::take(&mut bios)));
    }
    for bio in bios {
        if random.chance(1, 2) {
            steps.push(WAIT);
        }
        if random.chance(1, 8) {
            steps.push(Step::Acknowledge);
        }
        steps.push(Step::Submit(bio));
    }
    if random.chance(1, 10) {
        steps.push(Step::Close);
    }
    steps
}

fn random_bio(random: &mut Random, nr_left: &mut u64) -> ScriptBio {
    let (nr, sector) = (random.between(1, 2).min(*nr_left), random.below(2));
    let (op, sector, nr) = match random.below(5) {
        0..2 if nr > 0 => (Op::Write, sector, nr),
        2..4 if nr > 0 => (Op::Read, sector, nr),
        _ => (Op::Flush, 0, 0),
    };
    *nr_left -= nr;
    let flags = match random.below(8) {
        0..2 => BioFlags::NOWAIT,
        2 if op == Op::Write => BioFlags::FUA,
        3 if op == Op::Write => BioFlags::PREFLUSH,
        _ => BioFlags::NONE,
    };
    ScriptBio { op, flags, sector, nr }
}
