//! What the layer itself says of a disk after a run: its counters, where the time went, who used
//! it, and its settings.

use std::collections::{BTreeMap, HashMap};

use forebay::{
    DiskInfo, Histogram, MergeKind, Op, RunQueuePolicy, RunQueueStats, StageStats, UnplugCause,
    WakePolicy,
};
use forebay_fio::job::Job;
use forebay_fio::report::DiskUtil;
use forebay_fio::report::number::{Base, short};
use serde_json::{Map, Value, json};

use super::outcome::{DiskOutcome, Outcomes};
use super::plan::disk_name;
use super::user::User;
use crate::info;

/// What the layer says of one disk.
#[derive(Debug)]
pub(super) struct Layer<'a> {
    disk: &'a DiskOutcome,
    /// Its spec without keys; with them, if that is the name of several disks.
    name: String,
    users: Vec<User>,
    /// How long each stage with jobs on it took, ns.
    stages: BTreeMap<u32, u64>,
}

impl<'a> Layer<'a> {
    /// Of all disks, in order, each with those who used it.
    pub(super) fn all(outcomes: &'a Outcomes, jobs: &[Job]) -> Vec<Self> {
        let mut nr_of_name: HashMap<String, u32> = HashMap::new();
        for disk in &outcomes.disks {
            *nr_of_name.entry(disk_name(&disk.info.spec)).or_default() += 1;
        }
        let layer = |disk: &'a DiskOutcome| {
            let spec = &disk.info.spec;
            let name = Some(disk_name(spec)).filter(|name| nr_of_name[name] == 1);
            Layer {
                disk,
                name: name.unwrap_or_else(|| spec.clone()),
                users: Vec::new(),
                stages: BTreeMap::new(),
            }
        };
        let mut layers: Vec<_> = outcomes.disks.iter().map(layer).collect();
        for outcome in &outcomes.clones {
            let Layer { users, stages, .. } = &mut layers[outcome.disk];
            let job = &jobs[outcome.job];
            let longest = stages.entry(job.stage).or_default();
            *longest = outcome.elapsed_ns.max(*longest);
            let group = job.group_reporting.then_some(job.group);
            match users.iter_mut().find(|user| group.is_some() && user.group() == group) {
                Some(user) => user.add(outcome),
                None => users.push(User::new(outcome, group)),
            }
        }
        layers
    }

    /// The line of the disk in fio's disk statistics.
    pub(super) fn disk_util(&self) -> DiskUtil {
        let queue = &self.disk.stats.queue;
        let (read, write) = (queue.op(Op::Read), queue.op(Op::Write));
        let all_ticks_ns: u64 = Op::ALL.iter().map(|&op| queue.op(op).ticks_ns).sum();
        let elapsed_ns = self.stages.values().sum::<u64>().max(1);
        DiskUtil {
            name: self.name.clone(),
            read_ios: read.requests,
            write_ios: write.requests,
            read_merges: read.merges,
            write_merges: write.merges,
            read_ticks_ms: read.ticks_ns / 1_000_000,
            write_ticks_ms: write.ticks_ns / 1_000_000,
            in_queue_ms: all_ticks_ns / 1_000_000,
            // Of several hardware contexts the times are added up, though they overlap.
            util_percent: (queue.busy_ns as f64 * 100.0 / elapsed_ns as f64).min(100.0),
        }
    }

    /// The object in the list `forebay`.
    pub(super) fn json(&self) -> Value {
        let DiskOutcome { info, stats } = self.disk;
        let queue = &stats.queue;
        let by_op = |count: fn(&forebay::OpStats) -> u64| {
            let counts = Op::ALL.map(|op| (op.name().to_owned(), count(queue.op(op)).into()));
            Value::Object(counts.into_iter().collect())
        };
        let merges = MergeKind::ALL.map(|kind| (kind.name().to_owned(), queue.merges(kind).into()));
        let unplugs =
            UnplugCause::ALL.map(|cause| (cause.name().to_owned(), queue.unplugs(cause).into()));
        let stages =
            stages(&queue.stages).map(|(name, stage)| (name.to_owned(), stage_value(stage)));
        let users: Vec<_> = self.users.iter().map(User::json).collect();
        json!({
            "spec": info.spec,
            "driver": info.driver,
            "jobs": users,
            "bios": by_op(|op| op.bios),
            "requests": by_op(|op| op.requests),
            "issued": queue.issued,
            "commits": queue.commits,
            "system_calls": stats.nr_syscalls,
            "runs": stats.runs(),
            "skipped_runs": stats.skipped_runs,
            "turns": queue.turns,
            "empty_turns": queue.empty_turns,
            "run_arms": stats.run_queue.arms,
            "run_rearms": stats.run_queue.rearms,
            "worker_runs": stats.run_queue.worker_runs,
            "tag_waits": queue.tag_waits,
            "tag_wait_ns": queue.tag_wait_ns,
            "tag_sleeps": stats.tag_sleeps,
            "tag_wakeups": queue.tag_wakeups,
            "vain_wakeups": queue.vain_wakeups,
            "splits": queue.splits,
            "requeues": queue.requeues,
            "retries": queue.retries,
            "overtaken": queue.overtaken,
            "flushes_asked": queue.flushes_asked,
            "flushes_issued": queue.flushes_issued,
            "flushes_joined": queue.flushes_joined,
            "flushes_elided": queue.flushes_elided,
            "flushes_refused": queue.flushes_refused,
            "merges": Map::from_iter(merges),
            "unplugs": Map::from_iter(unplugs),
            "latency_ns": Map::from_iter(stages),
            "policy": info::policy_of(info),
        })
    }

    /// The same for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let DiskOutcome { info, stats } = self.disk;
        let queue = &stats.queue;
        let bios: u64 = Op::ALL.iter().map(|&op| queue.op(op).bios).sum();
        let requests: u64 = Op::ALL.iter().map(|&op| queue.op(op).requests).sum();
        let merges = MergeKind::ALL.map(|kind| format!("{}={}", kind.name(), queue.merges(kind)));
        let unplugs =
            UnplugCause::ALL.map(|cause| format!("{}={}", cause.name(), queue.unplugs(cause)));
        let mut lines = vec![
            String::new(),
            format!("Layer ({}):", self.name),
            format!(
                "  bios={bios}, requests={requests}, issued={}, commits={}, system calls={}",
                queue.issued, queue.commits, stats.nr_syscalls
            ),
            format!("  merges       : {}", merges.join(", ")),
            format!("  unplugs      : {}", unplugs.join(", ")),
            format!(
                "  runs         : all={}, skipped={}, turns={}, empty turns={}",
                stats.runs(),
                stats.skipped_runs,
                queue.turns,
                queue.empty_turns
            ),
            format!(
                "  setbacks     : tag waits={}, requeues={}, retries={}, overtaken={}",
                queue.tag_waits, queue.requeues, queue.retries, queue.overtaken
            ),
        ];
        if queue.flushes_asked > 0 {
            lines.push(format!(
                "  flushes      : asked={}, issued={}, joined={}, elided={}, refused={}",
                queue.flushes_asked,
                queue.flushes_issued,
                queue.flushes_joined,
                queue.flushes_elided,
                queue.flushes_refused
            ));
        }
        if info.policy.wake != WakePolicy::Fair {
            let (wakeups, vain, sleeps) = (queue.tag_wakeups, queue.vain_wakeups, stats.tag_sleeps);
            lines.push(format!("  tag wake-ups : all={wakeups}, in vain={vain}, sleeps={sleeps}"));
        }
        if info.policy.run_queue == RunQueuePolicy::Always {
            let RunQueueStats { arms, rearms, worker_runs, .. } = stats.run_queue;
            lines.push(format!(
                "  run queue    : arms={arms}, rearms={rearms}, worker runs={worker_runs}"
            ));
        }
        for (name, stage) in stages(&queue.stages) {
            if stage.count() > 0 {
                lines.push(stage_line(name, stage));
            }
        }
        lines.extend(self.users.iter().map(User::line));
        lines.push(format!("  settings     : {}", settings(info)));
        lines
    }
}

fn settings(info: &DiskInfo) -> String {
    let Value::Object(policy) = info::policy_of(info) else { return String::new() };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs: Vec<_> = policy.iter().map(|(key, v)| format!("{key}={}", plain(v))).collect();
    pairs.join(", ")
}

fn stages(stages: &StageStats) -> [(&'static str, &Histogram); 4] {
    [
        ("plug", &stages.plug),
        ("tag", &stages.tag),
        ("queue", &stages.queue),
        ("driver", &stages.driver),
    ]
}

fn stage_value(stage: &Histogram) -> Value {
    json!({
        "n": stage.count(),
        "mean": stage.mean(),
        "p50": stage.percentile(500_000),
        "p99": stage.percentile(990_000),
        "max": stage.max(),
    })
}

fn stage_line(name: &str, stage: &Histogram) -> String {
    let ns = |ns: u64| short(ns, 6, Base::Decimal, "");
    format!(
        "  {name:<6} (nsec): n={}, avg={}, p50={}, p99={}, max={}",
        stage.count(),
        ns(stage.mean()),
        ns(stage.percentile(500_000)),
        ns(stage.percentile(990_000)),
        ns(stage.max())
    )
}
