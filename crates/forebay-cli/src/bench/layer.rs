//! The layer's own report on a disk after a run: counters, latencies of the stages, jobs and
//! settings.

mod user;

use std::collections::{BTreeMap, HashMap};

use forebay::{
    DefaultValue, DiskInfo, DiskStats, Histogram, MergeKind, Op, OpStats, Setting, Spec,
    StageStats, UnplugCause,
};
use forebay_fio::job::Job;
use forebay_fio::report::DiskUtil;
use forebay_fio::report::number::time_unit;
use serde_json::{Map, Value, json};

use self::user::User;
use super::outcome::{DiskOutcome, Outcomes};
use super::plan::disk_name;
use crate::{counters, info};

/// The report on one disk.
#[derive(Debug)]
pub(super) struct Layer<'a> {
    disk: &'a DiskOutcome,
    /// Its spec without keys; with keys, if several disks have the same name.
    name: String,
    users: Vec<User>,
    /// The duration of each stage with jobs on the disk, ns.
    stages: BTreeMap<u32, u64>,
}

impl<'a> Layer<'a> {
    /// Returns the reports on all disks, in order, each with its jobs.
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
            for &disk in &outcome.disks {
                let Layer { users, stages, .. } = &mut layers[disk];
                let job = &jobs[outcome.job];
                let longest = stages.entry(job.stage).or_default();
                *longest = outcome.elapsed_ns.max(*longest);
                let group = job.group_reporting.then_some(job.group);
                match users.iter_mut().find(|user| group.is_some() && user.group() == group) {
                    Some(user) => user.add(outcome),
                    None => users.push(User::new(outcome, group)),
                }
            }
        }
        layers
    }

    /// Returns the line of the disk in fio's disk statistics.
    pub(super) fn disk_util(&self) -> DiskUtil {
        let elapsed_ns = self.stages.values().sum::<u64>();
        counters::disk_util(&self.name, &self.disk.stats.queue, elapsed_ns)
    }

    /// Returns the object in the list `forebay` of the JSON report.
    pub(super) fn json(&self) -> Value {
        let DiskOutcome { info, stats } = self.disk;
        let queue = &stats.queue;
        let stages =
            stages(&queue.stages).map(|(name, stage)| (name.to_owned(), stage_value(stage)));
        let users: Vec<_> = self.users.iter().map(User::json).collect();
        let mut object = Map::new();
        let mut put = |more: Value| {
            if let Value::Object(more) = more {
                object.extend(more);
            }
        };
        put(json!({ "spec": info.spec, "driver": info.driver, "jobs": users }));
        let emulated = |name| queue.emulation.get(name);
        for (key, value) in counters::of_queue(queue) {
            // The counters outside of the queue stand beside those of the same subject.
            let beside = match key.as_str() {
                "commits" => json!({
                    "system_calls": stats.nr_syscalls,
                    "runs": stats.runs(),
                    "skipped_runs": stats.skipped_runs,
                }),
                "empty_turns" => json!({
                    "run_arms": emulated("run_arms"),
                    "run_rearms": emulated("run_rearms"),
                    "worker_runs": emulated("worker_runs"),
                }),
                "tag_wait_ns" => json!({ "tag_sleeps": emulated("tag_sleeps") }),
                _ => Value::Null,
            };
            put(json!({ key: value }));
            put(beside);
        }
        put(json!({ "latency_ns": Map::from_iter(stages), "policy": info::policy_of(info) }));
        Value::Object(object)
    }

    /// Returns the lines of the report. `forebay help report` explains them.
    pub(super) fn lines(&self) -> Vec<String> {
        let DiskOutcome { info, stats } = self.disk;
        let queue = &stats.queue;
        let mut lines = vec![String::new(), format!("Layer ({}):", self.name)];
        lines.extend(requests(stats));
        if queue.flushes_asked > 0 {
            lines.push(line(
                "flushes",
                &format!(
                    "requested={}, sent={}, joined another={}, nothing to flush={}, failed={}",
                    queue.flushes_asked,
                    queue.flushes_issued,
                    queue.flushes_joined,
                    queue.flushes_elided,
                    queue.flushes_refused
                ),
            ));
        }
        let emulated = |name| queue.emulation.get(name).unwrap_or(0);
        if info.policy.emulation.threads_wait_for_tags() {
            let [wakeups, vain, sleeps] =
                ["tag_wakeups", "vain_wakeups", "tag_sleeps"].map(emulated);
            let text = format!("total={wakeups}, found no tag={vain}, sleeps for tags={sleeps}");
            lines.push(line("tag wake-ups", &text));
        }
        if info.policy.emulation.queues_runs() {
            let [arms, rearms, worker_runs] =
                ["run_arms", "run_rearms", "worker_runs"].map(emulated);
            let text = format!("queued={arms}, queued again={rearms}, run by worker={worker_runs}");
            lines.push(line("worker runs", &text));
        }
        let stages = stages(&queue.stages).into_iter().filter(|(_, stage)| stage.count() > 0);
        lines.extend(stages.map(|(name, stage)| stage_line(name, stage)));
        for user in &self.users {
            lines.push(user.line());
            lines.extend(user.replay_line());
        }
        lines.push(line("settings", &settings(info)));
        lines
    }
}

/// Returns a line of the report: a label and its text.
fn line(label: &str, text: &str) -> String {
    format!("  {label:<13}: {text}")
}

/// Returns the lines about bios, requests and turns of the queue.
fn requests(stats: &DiskStats) -> Vec<String> {
    let queue = &stats.queue;
    let sum =
        |count: fn(&OpStats) -> u64| Op::ALL.iter().map(|&op| count(queue.op(op))).sum::<u64>();
    let (bios, requests) = (sum(|op| op.bios), sum(|op| op.requests));
    let merges = |kind| queue.merges(kind);
    let merged: u64 = MergeKind::ALL.into_iter().map(merges).sum();
    let percent = if bios == 0 { 0.0 } else { merged as f64 * 100.0 / bios as f64 };
    let unplugs = |cause| queue.unplugs(cause);
    vec![
        line("requests", &format!("bios={bios}, merged={percent:.1}%, requests={requests}")),
        line(
            "to driver",
            &format!(
                "commands={}, batches={}, system calls={}",
                queue.issued, queue.commits, stats.nr_syscalls
            ),
        ),
        line(
            "merges",
            &format!(
                "at the end={}, at the front={}, discard ranges={}",
                merges(MergeKind::Back),
                merges(MergeKind::Front),
                merges(MergeKind::Discard)
            ),
        ),
        line(
            "unplugged by",
            &format!(
                "end of plug={}, end of inner plug={}, call={}, full plug={}, wait={}",
                unplugs(UnplugCause::Outermost),
                unplugs(UnplugCause::Level),
                unplugs(UnplugCause::Explicit),
                unplugs(UnplugCause::Limit),
                unplugs(UnplugCause::Wait)
            ),
        ),
        line(
            "queue runs",
            &format!(
                "total={}, skipped={}, turns={}, turns without work={}",
                stats.runs(),
                stats.skipped_runs,
                queue.turns,
                queue.empty_turns
            ),
        ),
        line(
            "delays",
            &format!(
                "tag waits={}, device busy={}, retried after an error={}, not retried={}, \
                 over the time limit={}",
                queue.tag_waits, queue.requeues, queue.retries, queue.overtaken, queue.timeouts
            ),
        ),
    ]
}

/// Returns the settings that differ from the defaults. Some defaults depend on the disk: such a
/// setting is listed if the spec gives it.
fn settings(info: &DiskInfo) -> String {
    let Value::Object(policy) = info::policy_of(info) else { return String::new() };
    let spec = Spec::parse(&info.spec).ok();
    let is_given = |key: &str| spec.as_ref().is_some_and(|spec| spec.get(key).is_some());
    let is_shown = |key: &str, value: &str| match Setting::named(key).map(Setting::default_value) {
        Some(DefaultValue::Fixed(default)) => value != default,
        _ => is_given(key),
    };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = policy.iter().map(|(key, value)| (key, plain(value)));
    let pairs: Vec<_> = pairs
        .filter(|(key, value)| is_shown(key, value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if pairs.is_empty() { "defaults".to_owned() } else { pairs.join(", ") }
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

/// Returns the line of a stage, in the unit that fio would choose for these times.
fn stage_line(name: &str, stage: &Histogram) -> String {
    let values = [stage.mean(), stage.percentile(500_000), stage.percentile(990_000), stage.max()];
    let (unit, scale) = time_unit(values[0], values[3]);
    let [mean, p50, p99, max] = values.map(|ns| time(ns, scale));
    let n = stage.count();
    format!("  {name:<6} ({unit}): n={n}, avg={mean}, p50={p50}, p99={p99}, max={max}")
}

/// Returns a time in units of `scale` ns, with a decimal if it is short.
fn time(ns: u64, scale: u64) -> String {
    match (scale, ns / scale) {
        (2.., 0..1000) => format!("{:.1}", ns as f64 / scale as f64),
        (_, whole) => whole.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use forebay::Disk;

    use super::*;

    #[test]
    fn stages_have_the_unit_in_which_they_are_easy_to_read() {
        let line = |times: &[u64]| {
            let mut stage = Histogram::default();
            times.iter().for_each(|&ns| stage.record(ns));
            let line = stage_line("driver", &stage);
            (line[..16].to_owned(), line.split("avg=").nth(1).map(str::to_owned).expect("avg"))
        };
        let unit = |unit: &str| format!("  driver ({unit}):");
        assert_eq!(line(&[500, 700]).0, unit("nsec"));
        let (label, rest) = line(&[12_000, 150_000]);
        assert_eq!(label, unit("usec"));
        assert!(rest.starts_with("81.0, p50=") && rest.ends_with("max=150.0"), "{rest}");
        let (label, rest) = line(&[5_000_000, 2_000_000_000]);
        assert_eq!(label, unit("msec"));
        assert!(rest.starts_with("1002, ") || rest.starts_with("1002.5, "), "{rest}");
    }

    #[test]
    fn only_settings_that_differ_from_the_defaults_are_listed() {
        let settings_of = |spec: &str| settings(Disk::open(spec).expect(spec).info());
        assert_eq!(settings_of("ram:1M"), "defaults");
        assert_eq!(settings_of("ram:1M?plug=outermost&wake=fair&iostats=on"), "defaults");
        let spec = "ram:1M?plug=none&nr_hw_queues=1&queue_depth=8&iostats=off";
        let expected = "plug=none, queue_depth=8, nr_hw_queues=1, iostats=off";
        assert_eq!(settings_of(spec), expected);
    }
}
