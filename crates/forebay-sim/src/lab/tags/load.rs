//! The load of jobs that need more tags than exist.

use crate::lab::costs::Costs;
use forebay_core::{TagNeed, WakePolicy};
use forebay_model::machines::Preset;

/// Jobs that need more tags than exist.
#[derive(Clone, Copy, Debug)]
pub struct TagLoad {
    /// The device.
    pub device: &'static Preset,
    /// Constants of the device that differ from its defaults, by name.
    pub constants: &'static [(&'static str, u64)],
    /// The number of jobs.
    pub nr_jobs: u32,
    /// The number of I/Os that all jobs together keep in flight. Each job has an equal share, at
    /// least one.
    pub depth: u32,
    /// The size of each I/O, bytes: random reads, aligned to the size. I/Os above the device's
    /// largest request are split.
    pub block_bytes: u64,
    /// The number of tags.
    pub nr_tags: u32,
    /// The tag wait policy: bios or threads wait for a tag, and which waiter a freed tag wakes.
    pub wake: WakePolicy,
    /// How many tags a split bio waits for, if bios and not threads wait.
    pub tag_need: TagNeed,
    /// Every second job reads 4 KiB at a time, whatever `block_bytes` is.
    pub is_mixed: bool,
    /// The costs of the threads' work.
    pub costs: Costs,
    /// The work that is left to a worker, under the policies where threads wait.
    pub worker: Worker,
    /// The warm-up time, ns, which is not measured.
    pub warm_up_ns: u64,
    /// The measured time after that, ns.
    pub run_ns: u64,
    /// The seed: the same seed draws the same places and times.
    pub seed: u64,
}

/// The size of the reads of every second job in a mixed load.
pub(super) const SMALL_BYTES: u64 = 4096;

impl TagLoad {
    /// Returns whether threads wait for tags. Such a thread takes tags one by one, with some time
    /// in between, so that other threads can take tags too: it submits an I/O request by request.
    /// If the bios wait, the layer splits them.
    pub(super) fn is_thread_waiting(&self) -> bool {
        self.wake != WakePolicy::Fair
    }

    /// Returns the end of the measurement, ns.
    pub(super) fn end_ns(&self) -> u64 {
        self.warm_up_ns + self.run_ns
    }

    /// Returns whether a job reads 4 KiB at a time in a mixed load.
    pub(super) fn is_small(&self, job: usize) -> bool {
        self.is_mixed && !job.is_multiple_of(2)
    }
}

/// When a device's queue leaves work to a worker thread.
///
/// Forebay has no such thread: the holder of the token makes the turn. The runs are counted for the
/// wake policies of Linux, because the published switches include them. Two events leave work to
/// the worker: a thread goes to sleep with requests in its plug (they may not be issued from within
/// the scheduler), or a request completes while others wait in the elevator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// No worker: requests go from the thread to the device (no elevator).
    Absent,
    /// Requests pass an elevator, in front of a device of this depth.
    Behind {
        /// The depth of the device.
        device_depth: u32,
    },
}
