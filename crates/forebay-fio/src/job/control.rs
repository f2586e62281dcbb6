//! The order and the ends of jobs, and their places on the machine.
//!
//! Source: fio's HOWTO and fio 3.33, the options `wait_for`, `exitall`, `exit_what`, `flow`,
//! `rate_min`, `cpus_allowed`, `numa_cpu_nodes`, `numa_mem_policy`, `nice`.

use std::fmt;
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
    /// `numa_mem_policy`: the nodes of the job's memory.
    pub memory: MemoryPolicy,
    /// `nice`: the difference to the nice value of the program.
    pub nice: i32,
}

/// The policy by which the kernel chooses the NUMA nodes of a job's memory: `numa_mem_policy`.
///
/// Counterparts in Linux: the modes of `set_mempolicy(2)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// The policy of the program.
    #[default]
    Default,
    /// The node of the processor that touches the page.
    Local,
    /// This node, and others if it is full.
    Prefer(u32),
    /// These nodes alone.
    Bind(Vec<u32>),
    /// These nodes in turn.
    Interleave(Vec<u32>),
}

impl MemoryPolicy {
    /// Returns the nodes that the policy names.
    pub fn nodes(&self) -> &[u32] {
        match self {
            Self::Default | Self::Local => &[],
            Self::Prefer(node) => std::slice::from_ref(node),
            Self::Bind(nodes) | Self::Interleave(nodes) => nodes,
        }
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Local => "local",
            Self::Prefer(_) => "prefer",
            Self::Bind(_) => "bind",
            Self::Interleave(_) => "interleave",
        })?;
        for (at, node) in self.nodes().iter().enumerate() {
            write!(f, "{}{node}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
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

/// Parses `numa_mem_policy`.
pub(crate) fn memory_policy(text: &str) -> Result<MemoryPolicy, String> {
    let (mode, nodes) = text.split_once(':').unwrap_or((text, ""));
    match (mode, nodes) {
        ("default", "") => Ok(MemoryPolicy::Default),
        ("local", "") => Ok(MemoryPolicy::Local),
        ("default" | "local", _) => Err(format!("{mode} has no nodes")),
        ("prefer" | "bind" | "interleave", "") => {
            Err(format!("{mode} needs nodes, as in {mode}:0"))
        }
        ("prefer", node) => match numbers(node)?[..] {
            [node] => Ok(MemoryPolicy::Prefer(node)),
            _ => Err("prefer has one node".to_owned()),
        },
        ("bind", nodes) => numbers(nodes).map(MemoryPolicy::Bind),
        ("interleave", nodes) => numbers(nodes).map(MemoryPolicy::Interleave),
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
        use MemoryPolicy::{Bind, Default, Interleave, Local, Prefer};

        for (text, policy) in [
            ("default", Default),
            ("local", Local),
            ("prefer:1", Prefer(1)),
            ("bind:0,1", Bind(vec![0, 1])),
            ("interleave:0,3", Interleave(vec![0, 3])),
        ] {
            assert_eq!(policy.to_string(), text);
            assert_eq!(memory_policy(text), Ok(policy));
        }
        assert_eq!(memory_policy("bind:0-1"), Ok(Bind(vec![0, 1])));
        for wrong in ["bind", "local:1", "prefer:0-1", "prefer:x", "near:0", "prefer:9000"] {
            assert!(memory_policy(wrong).is_err(), "{wrong}");
        }
    }
}
