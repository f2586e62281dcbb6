//! Jobs as owners of I/O: the options `weight` and `throttle_...`.
//!
//! Each clone of such a job is an owner of its own on its disk, named after the job and the number
//! of the clone among all clones. fio's `rate` and `rate_iops` delay the submission in the job;
//! these limits delay the I/O in the layer.

use forebay::{Disk, LimitKey, Limits, Owner};
use forebay_fio::job::Job;

use crate::failure::Failure;

/// The limits and the weight of a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerPlan {
    limits: Limits,
    pub(super) weight: Option<u32>,
}

impl OwnerPlan {
    /// Returns the limits and the weight that a job gives to each of its clones. `None` if it gives
    /// neither.
    pub(super) fn of(job: &Job) -> Result<Option<Self>, Failure> {
        let mut plan = Self { limits: Limits::default(), weight: None };
        for (option, value) in &job.owner {
            let bad = |expected: &str| {
                Failure::Usage(format!("{}: --{option}={value}: expected {expected}", job.name))
            };
            match option.strip_prefix("throttle_").and_then(LimitKey::named) {
                Some(limit) if limit.set(&mut plan.limits, value) => {}
                Some(limit) => return Err(bad(&limit.values.expected())),
                None => {
                    let weight = value.parse().ok().filter(|weight| (1..=10_000).contains(weight));
                    plan.weight = Some(weight.ok_or_else(|| bad("a number from 1 to 10000"))?);
                }
            }
        }
        plan.limits.check().map_err(|bad| {
            let (name, key, value) = (&job.name, bad.key, bad.value);
            let expected = format!("throttle_{}", bad.expected);
            Failure::Usage(format!("{name}: --throttle_{key}={value}: expected {expected}"))
        })?;
        Ok((!job.owner.is_empty()).then_some(plan))
    }

    /// Adds the owner to its disk. `at` is the number of the clone among all clones.
    pub(super) fn add_to(self, disk: &Disk, job: &Job, at: usize) -> Result<Owner, Failure> {
        let add = || {
            let owner = disk.owner(&format!("{}.{at}", job.name))?;
            if let Some(weight) = self.weight {
                owner.set_weight(weight)?;
            }
            owner.set_limits(&self.limits)?;
            Ok(owner)
        };
        add().map_err(|error: forebay::OwnerError| Failure::Run(format!("{}: {error}", job.name)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::*;

    fn plan(args: &str) -> Result<Option<OwnerPlan>, String> {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        OwnerPlan::of(&command.jobs[0]).map_err(|error| error.to_string())
    }

    #[test]
    fn job_without_limits_and_weight_is_no_owner() {
        assert_eq!(plan("--name=a --filename=null:"), Ok(None));
    }

    #[test]
    fn options_are_those_of_limits() {
        let args = "--name=a --weight=200 --throttle_iops=100 --throttle_iops_burst=7 \
                    --throttle_write_bps=1m";
        let OwnerPlan { limits, weight } = plan(args).expect("good options").expect("an owner");
        assert_eq!(weight, Some(200));
        assert_eq!((limits.both.iops.per_s, limits.both.iops.burst), (100, Some(7)));
        assert_eq!(limits.write.bps.per_s, 1 << 20);
    }

    #[test]
    fn bad_limits_are_refused_by_option_and_value() {
        for (option, error) in [
            ("weight=0", "a: --weight=0: expected a number from 1 to 10000"),
            (
                "throttle_iops=fast",
                "a: --throttle_iops=fast: expected a number of I/Os per second from 0 to \
                 268435456; 0: no limit",
            ),
            (
                "throttle_bps_burst=1m",
                "a: --throttle_bps_burst=1048576: expected throttle_bps above 0 beside it: set \
                 that too",
            ),
        ] {
            assert_eq!(plan(&format!("--name=a --{option}")), Err(error.to_owned()));
        }
    }
}
