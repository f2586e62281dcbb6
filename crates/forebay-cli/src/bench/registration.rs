//! Registered buffers (`fixedbufs`): the size that the jobs of a disk need.
//!
//! The disk allocates and registers their memory when it is opened. Stages run one after another,
//! so they use the same memory.

use forebay_fio::job::Job;

/// Maximum size of the registered memory of a disk, bytes.
pub(super) const REGISTERED_MAX: u64 = 1 << 30;

/// The registered buffers of the jobs of a disk.
#[derive(Debug, Default)]
pub(super) struct Registration {
    /// Whether a job wants its buffers registered.
    is_wanted: bool,
    /// The stage of the last job.
    stage: u32,
    /// Total size of the buffers of the jobs of that stage, except those of jobs that refuse
    /// registration.
    stage_bytes: u64,
    /// The largest total of any stage so far.
    largest_stage_bytes: u64,
}

impl Registration {
    /// Adds a clone of a job. Jobs are in the order of their stages.
    pub(super) fn add(&mut self, job: &Job) {
        self.is_wanted |= job.fixedbufs == Some(true);
        if self.stage != job.stage {
            (self.stage, self.stage_bytes) = (job.stage, 0);
        }
        self.stage_bytes += registrable_bytes(job);
        self.largest_stage_bytes = self.largest_stage_bytes.max(self.stage_bytes);
    }

    /// Returns the size of all buffers that are in use at the same time.
    pub(super) fn needed_bytes(&self) -> u64 {
        self.largest_stage_bytes
    }

    /// Returns the size of the memory to register, if there is any.
    pub(super) fn registered_bytes(&self) -> Option<u64> {
        // Buffers beyond the limit are not registered (`notes::registered`).
        (self.is_wanted && self.largest_stage_bytes > 0)
            .then_some(self.largest_stage_bytes.min(REGISTERED_MAX))
    }
}

/// Returns the size of the buffers of a clone of this job that may be registered.
pub(super) fn registrable_bytes(job: &Job) -> u64 {
    if job.fixedbufs == Some(false) {
        return 0;
    }
    // Each buffer starts at a page.
    let page = forebay::BUF_ALIGN as u64;
    u64::from(job.buffer_bytes()).next_multiple_of(page) * u64::from(job.iodepth)
}
