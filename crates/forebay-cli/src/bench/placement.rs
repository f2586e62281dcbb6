//! Processors, memory nodes and nice values of clones: `cpus_allowed`, `cpus_allowed_policy`,
//! `numa_cpu_nodes`, `numa_mem_policy`, `nice`.
//!
//! Source: fio's HOWTO and fio 3.33, and `/sys/devices/system` in Linux. As in fio, a policy for
//! memory is that of the clone's thread, so it covers the pages that this thread touches first: its
//! buffers, unless they are registered (`fixedbufs`). The main thread registers their memory, and
//! so allocates it, before the clones start; `notes::registered` has a note. Other memory of the
//! layer that another thread has touched before stays where it is too.

use std::collections::BTreeSet;
use std::fs;

use forebay_fio::job::{Job, MemoryPolicy, Placement};
use forebay_fio::report::JobError;
use rustix::process::nice;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::thread_calls::set_memory_policy;
use crate::failure::Failure;

/// The processors and nodes of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Topology {
    cpus: BTreeSet<u32>,
    /// The processors of each node. A machine that reports no nodes is node 0.
    nodes: Vec<(u32, BTreeSet<u32>)>,
}

impl Topology {
    /// Returns that of this machine.
    fn of_this_machine() -> Self {
        let read = |path: &str| fs::read_to_string(format!("/sys/devices/system/{path}"));
        let cpus = read("cpu/online").map(|text| list(&text)).unwrap_or_default();
        let node = |number: u32| {
            let text = read(&format!("node/node{number}/cpulist")).ok()?;
            Some((number, list(&text)))
        };
        let online = read("node/online").map(|text| list(&text)).unwrap_or_default();
        let mut nodes: Vec<_> = online.into_iter().filter_map(node).collect();
        if nodes.is_empty() {
            nodes.push((0, cpus.clone()));
        }
        Self { cpus, nodes }
    }

    /// Returns why a placement is impossible on the machine.
    fn refuses(&self, placement: &Placement) -> Option<String> {
        let shown = |set: &BTreeSet<u32>| {
            let numbers: Vec<_> = set.iter().map(u32::to_string).collect();
            numbers.join(", ")
        };
        let missing = |asked: &[u32], set: &BTreeSet<u32>| {
            asked.iter().find(|number| !set.contains(number)).copied()
        };
        let nodes = self.nodes.iter().map(|&(number, _)| number).collect();
        let cpus = placement.cpus.as_deref().unwrap_or_default();
        if let Some(cpu) = missing(cpus, &self.cpus).filter(|_| !self.cpus.is_empty()) {
            let has = shown(&self.cpus);
            return Some(format!("--cpus_allowed: no processor {cpu}: the machine has {has}"));
        }
        let of_nodes = [
            ("numa_cpu_nodes", placement.nodes.as_deref().unwrap_or_default()),
            ("numa_mem_policy", placement.memory.nodes()),
        ];
        for (option, asked) in of_nodes {
            if let Some(node) = missing(asked, &nodes) {
                let has = shown(&nodes);
                return Some(format!("--{option}: no NUMA node {node}: the machine has {has}"));
            }
        }
        None
    }

    /// Returns the processors of a clone; `None` for all.
    fn cpus_of(&self, placement: &Placement, stream: u64) -> Option<BTreeSet<u32>> {
        let of_nodes = placement.nodes.as_ref().map(|nodes| {
            let wanted = self.nodes.iter().filter(|(number, _)| nodes.contains(number));
            wanted.flat_map(|(_, cpus)| cpus.iter().copied()).collect::<BTreeSet<_>>()
        });
        let cpus = placement.cpus.as_ref().map(|cpus| cpus.iter().copied().collect());
        let all: BTreeSet<u32> = cpus.or(of_nodes)?;
        match placement.split {
            true => {
                all.iter().nth((stream % all.len().max(1) as u64) as usize).map(|&cpu| [cpu].into())
            }
            false => Some(all),
        }
    }
}

/// Parses a list of the kernel, such as `0-3,8`.
fn list(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Refuses jobs with processors or nodes that the machine does not have.
pub(super) fn check(jobs: &[Job]) -> Result<(), Failure> {
    let machine = Topology::of_this_machine();
    for job in jobs {
        if let Some(reason) = machine.refuses(&job.placement) {
            return Err(Failure::Run(format!("{}: {reason}", job.name)));
        }
    }
    Ok(())
}

/// Places this thread, which runs clone number `stream` among all clones.
pub(super) fn place(job: &Job, stream: u64) -> Result<(), JobError> {
    /// The largest set that the call takes.
    const CPUS_MAX: usize = CpuSet::MAX_CPU;
    let placement = &job.placement;
    let failed = |what: String, error: rustix::io::Errno, remedy: &str| JobError {
        errno: error.raw_os_error(),
        message: format!("{what}: {error}; {remedy}"),
    };
    if placement.cpus.is_some() || placement.nodes.is_some() {
        let machine = Topology::of_this_machine();
        if let Some(cpus) = machine.cpus_of(placement, stream) {
            let mut set = CpuSet::new();
            cpus.iter()
                .filter(|&&cpu| (cpu as usize) < CPUS_MAX)
                .for_each(|&cpu| set.set(cpu as usize));
            sched_setaffinity(None, &set).map_err(|error| {
                let what = format!("cannot run on the processors {cpus:?}");
                failed(what, error, "check --cpus_allowed and the cpuset of this process")
            })?;
        }
    }
    let memory = &placement.memory;
    // As in fio, the default leaves the policy of the program.
    if *memory != MemoryPolicy::Default {
        set_memory_policy(memory).map_err(|error| {
            let failure = format!("cannot set --numa_mem_policy={memory}");
            let remedy = match error {
                rustix::io::Errno::NOSYS => "this kernel has no NUMA support: leave the option out",
                rustix::io::Errno::PERM => "a seccomp filter forbids set_mempolicy(2)",
                _ => "the cpuset of this process may lack the nodes, or they have no memory",
            };
            failed(failure, error, remedy)
        })?;
    }
    if placement.nice != 0 {
        nice(placement.nice).map_err(|error| {
            let what = format!("cannot add --nice={} to the nice value", placement.nice);
            failed(what, error, "only a privileged process may lower it")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Topology {
        let nodes = vec![(0, [0, 1].into()), (1, [2, 3].into())];
        Topology { cpus: [0, 1, 2, 3].into(), nodes }
    }

    #[test]
    fn clones_have_the_processors_of_the_list_or_the_nodes() {
        let machine = machine();
        let with = |cpus: Option<&[u32]>, split, nodes: Option<&[u32]>, stream| {
            let (cpus, nodes) = (cpus.map(<[_]>::to_vec), nodes.map(<[_]>::to_vec));
            let placement = Placement { cpus, split, nodes, ..Placement::default() };
            assert_eq!(machine.refuses(&placement), None);
            machine.cpus_of(&placement, stream)
        };
        assert_eq!(with(None, false, None, 0), None);
        assert_eq!(with(Some(&[1, 3]), false, None, 5), Some([1, 3].into()));
        assert_eq!(with(Some(&[1, 3]), true, None, 5), Some([3].into()));
        assert_eq!(with(None, false, Some(&[1]), 0), Some([2, 3].into()));
    }

    #[test]
    fn processors_and_nodes_that_do_not_exist_are_refused() {
        let refused = |placement: Placement| machine().refuses(&placement).expect("a reason");
        let cpus = refused(Placement { cpus: Some(vec![1, 7]), ..Placement::default() });
        assert_eq!(cpus, "--cpus_allowed: no processor 7: the machine has 0, 1, 2, 3");
        let nodes = refused(Placement { nodes: Some(vec![2]), ..Placement::default() });
        assert_eq!(nodes, "--numa_cpu_nodes: no NUMA node 2: the machine has 0, 1");
        let of_memory = |memory| Placement { memory, ..Placement::default() };
        let memory = refused(of_memory(MemoryPolicy::Bind(vec![0, 2])));
        assert_eq!(memory, "--numa_mem_policy: no NUMA node 2: the machine has 0, 1");
        assert_eq!(machine().refuses(&of_memory(MemoryPolicy::Prefer(1))), None);
    }

    #[test]
    fn lists_of_the_kernel_have_ranges() {
        assert_eq!(list("0-2,8\n"), [0, 1, 2, 8].into());
        assert_eq!(list("\n"), BTreeSet::new());
    }
}
