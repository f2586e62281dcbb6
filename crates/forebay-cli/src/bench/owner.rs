//! Jobs as owners of I/O: the options `weight` and `throttle_...`.
//!
//! Each clone of such a job is an owner of its own on its disk, named after the job and the number
//! of the clone among all clones. fio's `rate` and `rate_iops` delay the submission in the job;
//! these limits delay the I/O in the layer.

use forebay::{Disk, Owner};
use forebay_fio::job::Job;
use forebay_sim::JobOwner;

use crate::failure::Failure;

/// The limits and the weight of a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerPlan(JobOwner);

impl OwnerPlan {
    /// Returns the limits and the weight that a job gives to each of its clones. `None` if it gives
    /// neither.
    pub(super) fn of(job: &Job) -> Result<Option<Self>, Failure> {
        let owner =
            JobOwner::of(job).map_err(|bad| Failure::Usage(format!("{}: --{bad}", job.name)))?;
        Ok(owner.map(OwnerPlan))
    }

    /// Returns whether the clone has a weight.
    pub(super) fn has_weight(self) -> bool {
        self.0.weight.is_some()
    }

    /// Adds the owner to its disk. `at` is the number of the clone among all clones.
    pub(super) fn add_to(self, disk: &Disk, job: &Job, at: usize) -> Result<Owner, Failure> {
        let JobOwner { limits, weight } = self.0;
        let add = || {
            let owner = disk.owner(&format!("{}.{at}", job.name))?;
            if let Some(weight) = weight {
                owner.set_weight(weight)?;
            }
            owner.set_limits(&limits)?;
            Ok(owner)
        };
        add().map_err(|error: forebay::OwnerError| Failure::Run(format!("{}: {error}", job.name)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::*;

    #[test]
    fn bad_limit_is_refused_by_job_option_and_value() {
        let args = ["--name=a", "--weight=0"].map(Into::into);
        let Ok(Parsed::Run(command)) = parse(args) else { panic!("the options exist") };
        let error = OwnerPlan::of(&command.jobs[0]).expect_err("no such weight").to_string();
        assert_eq!(error, "a: --weight=0: expected a number from 1 to 10000");
    }
}
