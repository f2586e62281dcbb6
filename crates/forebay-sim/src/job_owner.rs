//! Jobs as owners of I/O: the options `weight` and `throttle_...`, of `bench` and of the simulator.

use forebay_core::{Limits, WEIGHT_MAX, WEIGHT_MIN};
use forebay_fio::job::Job;
use std::fmt;

/// The limits and the weight that a job gives to each of its clones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobOwner {
    /// The limits.
    pub limits: Limits,
    /// The weight, if it has one.
    pub weight: Option<u32>,
}

/// An option of an owner with a bad value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadJobOwner {
    option: String,
    value: String,
    expected: String,
}

impl fmt::Display for BadJobOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadJobOwner { option, value, expected } = self;
        write!(f, "{option}={value}: expected {expected}")
    }
}

impl std::error::Error for BadJobOwner {}

impl JobOwner {
    /// Returns the limits and the weight of a job. `None` if it has neither.
    ///
    /// # Errors
    /// Returns the first option with a bad value.
    pub fn of(job: &Job) -> Result<Option<JobOwner>, BadJobOwner> {
        let mut owner = JobOwner { limits: Limits::default(), weight: None };
        for (option, value) in &job.owner {
            let bad = |expected: String| {
                let (option, value) = ((*option).to_owned(), value.clone());
                BadJobOwner { option, value, expected }
            };
            match option.strip_prefix("throttle_") {
                Some(key) => {
                    owner.limits.set_key(key, value).map_err(|limit| bad(limit.expected))?;
                }
                None => {
                    let is_valid = |weight: &u32| (WEIGHT_MIN..=WEIGHT_MAX).contains(weight);
                    let weight = value.parse().ok().filter(is_valid);
                    let bad = || bad(format!("a number from {WEIGHT_MIN} to {WEIGHT_MAX}"));
                    owner.weight = Some(weight.ok_or_else(bad)?);
                }
            }
        }
        owner.limits.check().map_err(|bad| BadJobOwner {
            option: format!("throttle_{}", bad.key),
            value: bad.value,
            expected: format!("throttle_{}", bad.expected),
        })?;
        Ok((!job.owner.is_empty()).then_some(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fio::cmdline::{Parsed, parse};

    fn owner(args: &str) -> Result<Option<JobOwner>, String> {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        JobOwner::of(&command.jobs[0]).map_err(|error| error.to_string())
    }

    #[test]
    fn job_without_limits_and_weight_is_no_owner() {
        assert_eq!(owner("--name=a --filename=null:"), Ok(None));
    }

    #[test]
    fn options_are_those_of_limits() {
        let args = "--name=a --weight=200 --throttle_iops=100 --throttle_iops_burst=7 \
                    --throttle_write_bps=1m";
        let JobOwner { limits, weight } = owner(args).expect("good options").expect("an owner");
        assert_eq!(weight, Some(200));
        assert_eq!((limits.both.iops.per_s, limits.both.iops.burst), (100, Some(7)));
        assert_eq!(limits.write.bps.per_s, 1 << 20);
    }

    #[test]
    fn bad_limits_are_refused_by_option_and_value() {
        for (option, error) in [
            ("weight=0", "weight=0: expected a number from 1 to 10000"),
            (
                "throttle_iops=fast",
                "throttle_iops=fast: expected a number of I/Os per second from 0 to 268435456; \
                 0: no limit",
            ),
            (
                "throttle_bps_burst=1m",
                "throttle_bps_burst=1048576: expected throttle_bps above 0 beside it: set that \
                 too",
            ),
        ] {
            assert_eq!(owner(&format!("--name=a --{option}")), Err(error.to_owned()));
        }
    }
}
