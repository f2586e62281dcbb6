//! Scenarios made from recorded loads: each I/O has the time at which it was submitted.
//!
//! A recorded load is *open loop*: an I/O is due at its own time, however long earlier ones take.
//! An I/O that does not fit into the queue of its thread waits, and is late. Latencies count from
//! the time at which an I/O was due, so that they show the wait for an overloaded device.

use crate::coroutine::Task;
use crate::jobs::{self, BS_MAX, JobDisk, JobError};
use crate::plant::Plant;
use crate::summary::Summary;
use crate::task::replay::{self, ReplayTask};
use crate::violation::Violation;
use forebay_fio::iolog::{Act, Step};
use std::fmt;
use std::rc::Rc;

/// The largest number of simulated threads. Further threads of a recording share them.
pub const RECORDED_THREADS_MAX: usize = 64;

/// The smallest unit of offsets and lengths, bytes.
const SECTOR: u64 = 512;

/// The unit of the size of a disk, bytes, where the device has none.
const SIZE_UNIT: u64 = 1 << 20;

/// A thread of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedThread {
    /// Its name.
    pub name: String,
    /// Its I/Os in the order of their times. Offsets are those of the disk.
    pub steps: Vec<Step>,
}

/// A recorded load that can be simulated.
#[derive(Clone, Debug)]
pub struct RecordedLoad {
    /// The name and the steps of each simulated thread.
    threads: Vec<(String, Rc<[Step]>)>,
    nr_recorded: usize,
    iodepth: usize,
    end_bytes: u64,
    block: u32,
}

/// The error of a recorded load that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It has no I/O.
    Empty,
    /// An I/O does not consist of sectors, or is too long.
    Io {
        /// Its thread.
        thread: String,
        /// Its first byte.
        offset: u64,
        /// Its length.
        len: u32,
    },
    /// A step is due too late.
    Time {
        /// The thread.
        thread: String,
        /// Its time after the first one, ns.
        due_ns: u64,
    },
    /// The I/Os do not fit on the device.
    Size {
        /// The end of the last I/O, bytes.
        end_bytes: u64,
        /// The size of the device, bytes.
        capacity_bytes: u64,
    },
    /// The disk cannot be used.
    Disk(JobError),
}

/// The longest time of a recording, ns: a year.
const DUE_NS_MAX: u64 = 366 * 24 * 60 * 60 * 1_000_000_000;

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Empty => f.write_str("the recording has no I/O"),
            LoadError::Io { thread, offset, len } => write!(
                f,
                "{thread}: an I/O of {len} bytes at {offset}: expected multiples of {SECTOR} and \
                 at most {BS_MAX} bytes"
            ),
            LoadError::Time { thread, due_ns } => write!(
                f,
                "{thread}: an I/O {} s after the first one: expected at most {} s, a year; if \
                 the times are right, ignore them with --replay-no-stall",
                due_ns / 1_000_000_000,
                DUE_NS_MAX / 1_000_000_000
            ),
            LoadError::Size { end_bytes, capacity_bytes } => write!(
                f,
                "the recording uses {end_bytes} bytes of its disk, and the device has \
                 {capacity_bytes}: give a larger device, such as size={} after its name",
                end_bytes.next_multiple_of(SIZE_UNIT)
            ),
            LoadError::Disk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

impl RecordedLoad {
    /// Returns the load of these threads, with at most `iodepth` I/Os of a thread in flight. Beyond
    /// [`RECORDED_THREADS_MAX`], several recorded threads share a simulated one.
    ///
    /// # Errors
    /// There is no I/O, or one cannot be simulated.
    pub fn new(recorded: Vec<RecordedThread>, iodepth: u32) -> Result<RecordedLoad, LoadError> {
        let (mut end_bytes, mut bits) = (0, 0);
        for thread in &recorded {
            if let Some(late) = thread.steps.iter().find(|step| step.due_ns > DUE_NS_MAX) {
                let (thread, due_ns) = (thread.name.clone(), late.due_ns);
                return Err(LoadError::Time { thread, due_ns });
            }
            for step in thread.steps.iter().filter(|step| matches!(step.act, Act::Io(_))) {
                let &Step { offset, len, .. } = step;
                let end = offset.checked_add(len.into());
                let is_valid = len > 0
                    && len <= BS_MAX
                    && (offset | u64::from(len)).is_multiple_of(SECTOR)
                    // The device's size must have an end too.
                    && end.is_some_and(|end| end <= i64::MAX as u64);
                if !is_valid {
                    let thread = thread.name.clone();
                    return Err(LoadError::Io { thread, offset, len });
                }
                bits |= offset | u64::from(len);
                end_bytes = end_bytes.max(offset + u64::from(len));
            }
        }
        if end_bytes == 0 {
            return Err(LoadError::Empty);
        }
        let block = if bits.is_multiple_of(4096) { 4096 } else { SECTOR as u32 };
        let nr_recorded = recorded.len();
        let threads =
            shared(recorded).into_iter().map(|thread| (thread.name, thread.steps.into())).collect();
        Ok(RecordedLoad {
            threads,
            nr_recorded,
            iodepth: iodepth.max(1) as usize,
            end_bytes,
            block,
        })
    }

    /// Returns the names of the simulated threads.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.threads.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the number of recorded threads.
    pub fn nr_recorded(&self) -> usize {
        self.nr_recorded
    }

    /// Returns the number of I/Os, with syncs.
    pub fn nr_steps(&self) -> usize {
        self.threads.iter().map(|(_, steps)| steps.len()).sum()
    }

    /// Returns the time of the last I/O, ns since the start.
    pub fn last_ns(&self) -> u64 {
        let last = self.threads.iter().filter_map(|(_, steps)| steps.last());
        last.map(|step| step.due_ns).max().unwrap_or(0)
    }

    /// Returns whether its I/Os have times. Otherwise each one is submitted as soon as there is
    /// room for it, and its latency counts from then.
    pub fn is_timed(&self) -> bool {
        self.last_ns() > 0
    }

    /// Returns the size of the disk.
    ///
    /// # Errors
    /// The I/Os do not fit on the device.
    fn capacity_bytes(&self, disk: &JobDisk) -> Result<u64, LoadError> {
        let end_bytes = self.end_bytes;
        match disk.device.capacity_bytes() {
            None => Ok(end_bytes.next_multiple_of(SIZE_UNIT)),
            Some(capacity_bytes) if capacity_bytes < end_bytes => {
                Err(LoadError::Size { end_bytes, capacity_bytes })
            }
            Some(capacity_bytes) => Ok(capacity_bytes),
        }
    }
}

/// Returns the threads; beyond the limit, thread `n` joins thread `n` modulo the limit.
fn shared(mut threads: Vec<RecordedThread>) -> Vec<RecordedThread> {
    let others = threads.split_off(threads.len().min(RECORDED_THREADS_MAX));
    for (nth, other) in others.into_iter().enumerate() {
        let host = &mut threads[nth % RECORDED_THREADS_MAX];
        host.steps.extend(other.steps);
        host.name = format!("{}, {}", host.name, other.name);
    }
    threads.iter_mut().for_each(|thread| thread.steps.sort_by_key(|step| step.due_ns));
    threads
}

/// Runs a recorded load on a disk, one task for each of its threads.
///
/// # Errors
/// Returns `Err` if the load cannot be run on this disk. The inner `Err` is the rule that was
/// broken.
///
/// # Panics
/// Panics if the policy gives out more tags than exist ([`Policy::check`](crate::Policy::check)).
pub fn run_recorded(
    load: &RecordedLoad,
    seed: u64,
    disk: &JobDisk,
    plant: Option<Plant>,
) -> Result<Result<Summary, Box<Violation>>, LoadError> {
    let capacity_bytes = load.capacity_bytes(disk)?;
    let mut scenario = jobs::scenario(load.threads.len(), seed, disk, capacity_bytes, load.block);
    scenario.is_traced = disk.is_traced;
    disk.check_limits(&scenario.limits).map_err(LoadError::Disk)?;
    disk.check_faults(&scenario.limits).map_err(LoadError::Disk)?;
    Ok(crate::run(seed, scenario, plant, |world, id| {
        let steps = Rc::clone(&load.threads[id].1);
        let (iodepth, block, is_timed) = (load.iodepth, load.block.into(), load.is_timed());
        let task = ReplayTask { steps, iodepth, block, is_timed };
        Task::new(world, id, |cpu| replay::run(cpu, task))
    }))
}

#[cfg(test)]
mod tests;
