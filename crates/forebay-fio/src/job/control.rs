//! The order and the ends of jobs, and their places on the machine.
//!
//! Source: fio's HOWTO and fio 3.33, the options `wait_for`, `exitall`, `exit_what`, `flow`,
//! `rate_min`, `cpus_allowed`, `numa_cpu_nodes`, `numa_mem_policy`, `nice`.

use std::time::Duration;

use crate::job::OnError;
use crate::latency_target::TargetOptions;
use crate::pace::Pace;
use crate::steadystate::SteadyOptions;

/// The jobs that the end of a job ends: `exit_what`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExitWhat {
    /// Those of its group.
    #[default]
    Group,
    /// All that run beside it.
    Stonewall,
    /// All, also those that have not started.
    All,
}

/// The options about other jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Control {
    /// `exitall`: whether the first job that ends, of all jobs, ends others.
    pub exitall: bool,
    /// `exitall_on_error`: whether a job that fails does.
    pub exitall_on_error: bool,
    /// `exit_what`.
    pub exit_what: ExitWhat,
    /// `wait_for`: the job that must have ended before this one starts.
    pub wait_for: Option<String>,
    /// `flow`: the weight of the job among those of its `flow_id`.
    pub flow: u32,
    /// `flow_id`.
    pub flow_id: u32,
    /// `flow_sleep`: how long a job sleeps that is ahead of the others.
    pub flow_sleep: Duration,
    /// `rate_min`: bytes per second below which the job fails, by direction; 0 for none.
    pub rate_min: [u64; 3],
    /// `rate_iops_min`: I/Os per second below which the job fails.
    pub rate_iops_min: [u64; 3],
    /// `rate_cycle`: the interval of these checks; `None`: 1 s.
    pub rate_cycle: Option<Duration>,
    /// `continue_on_error`, `ignore_error`, `fill_device`: errors that do not end the job.
    pub on_error: OnError,
    /// `steadystate` and its options.
    pub steady: SteadyOptions,
    /// `latency_target` and its options.
    pub target: TargetOptions,
    /// `io_submit_mode=offload`: whether I/O stays in flight while the job waits for its rate.
    pub offload: bool,
}

impl Control {
    /// Returns whether a lowest rate is above the limit on the rate.
    pub(super) fn has_impossible_rate(&self, pace: &Pace) -> bool {
        let limits = [(self.rate_min, pace.rate), (self.rate_iops_min, pace.rate_iops)];
        let is_above = |(least, limit): (&u64, u64)| limit > 0 && *least > limit;
        limits.iter().any(|(least, limit)| least.iter().zip(*limit).any(is_above))
    }

    /// Returns the interval at which the rate is checked, if there is a lowest one.
    pub fn rate_check(&self) -> Option<Duration> {
        let is_wanted = self.rate_min != [0; 3] || self.rate_iops_min != [0; 3];
        is_wanted.then(|| self.rate_cycle.unwrap_or(Duration::from_secs(1)))
    }
}

/// The options about processors and memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// `cpus_allowed`, `cpumask`: the processors.
    pub cpus: Option<Vec<u32>>,
    /// `cpus_allowed_policy=split`: whether each clone has one of them.
    pub split: bool,
    /// `numa_cpu_nodes`: the nodes on whose processors the job runs.
    pub nodes: Option<Vec<u32>>,
    /// `numa_mem_policy`: the nodes of the job's memory; empty for any.
    pub memory_nodes: Vec<u32>,
    /// `nice`: the difference to the nice value of the program.
    pub nice: i32,
}

/// Parses a list of numbers and ranges, such as `0,4-7`.
pub(crate) fn numbers(text: &str) -> Result<Vec<u32>, String> {
    /// More than any kernel has.
    const MAX: u32 = 8191;
    let number = |text: &str| match text.trim().parse() {
        Ok(number) if number <= MAX => Ok(number),
        Ok(_) => Err(format!("above the maximum, {MAX}")),
        Err(_) => Err(format!("'{text}' is not a whole number")),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("the range {part} ends below its start"));
                }
                all.extend(first..=last);
            }
            None => all.push(number(part)?),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Parses `numa_mem_policy`, and returns its nodes.
pub(crate) fn memory_nodes(text: &str) -> Result<Vec<u32>, String> {
    let (mode, nodes) = text.split_once(':').unwrap_or((text, ""));
    match (mode, nodes) {
        ("default" | "local", "") => Ok(Vec::new()),
        ("default" | "local", _) => Err(format!("{mode} has no nodes")),
        ("prefer" | "bind" | "interleave", "") => {
            Err(format!("{mode} needs nodes, as in {mode}:0"))
        }
        ("prefer", node) if node.parse::<u32>().is_err() => Err("prefer has one node".to_owned()),
        ("prefer" | "bind" | "interleave", nodes) => numbers(nodes),
        _ => Err(format!("unknown mode '{mode}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_ranges() {
        assert_eq!(numbers("0,4-6, 2"), Ok(vec![0, 2, 4, 5, 6]));
        for wrong in ["", "a", "3-1", "9000", "1,,2", "-1"] {
            assert!(numbers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lowest_rate_is_not_above_the_limit() {
        let is_impossible = |rate_min, rate| {
            let control = Control { rate_min: [rate_min; 3], ..Control::default() };
            control.has_impossible_rate(&Pace { rate: [rate; 3], ..Pace::default() })
        };
        assert!(is_impossible(5, 4));
        assert!(!is_impossible(5, 5) && !is_impossible(5, 0) && !is_impossible(0, 5));
    }

    #[test]
    fn memory_policies_have_the_nodes_of_their_mode() {
        assert_eq!(memory_nodes("local"), Ok(Vec::new()));
        assert_eq!(memory_nodes("bind:0-1"), Ok(vec![0, 1]));
        assert_eq!(memory_nodes("prefer:1"), Ok(vec![1]));
        for wrong in ["bind", "local:1", "prefer:0-1", "near:0"] {
            assert!(memory_nodes(wrong).is_err(), "{wrong}");
        }
    }
}
