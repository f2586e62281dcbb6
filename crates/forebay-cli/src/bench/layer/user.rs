//! The jobs that used a disk, in the layer's report: one clone, or a group of clones.

use forebay_fio::report::number::time_unit;
use forebay_fio::stats::Usage;
use forebay_fio::stats::moments::Moments;
use serde_json::{Map, Value};

use super::time;
use crate::bench::outcome::Outcome;
use crate::bench::replay::Lateness;

/// A clone that used a disk, or a group of clones.
#[derive(Debug)]
pub(super) struct User {
    /// The name of the job, or of a group's first job.
    name: String,
    /// The number of the clone; `None` for a group.
    clone: Option<u32>,
    /// The number of the group; `None` for a clone.
    group: Option<u32>,
    nr_clones: u32,
    /// Waits for tags, ns; `None` if the waits of any clone are unknown.
    tag_waits: Option<Moments>,
    usage: Usage,
    /// How late the I/Os of replays were.
    lateness: Option<Lateness>,
}

impl User {
    pub(super) fn new(outcome: &Outcome, group: Option<u32>) -> Self {
        Self {
            name: outcome.report.name.clone(),
            clone: group.is_none().then_some(outcome.clone),
            group,
            nr_clones: 1,
            tag_waits: outcome.tag_waits,
            usage: outcome.report.stats.usage,
            lateness: outcome.lateness.as_deref().cloned(),
        }
    }

    /// Adds a clone to the group.
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.nr_clones += 1;
        self.tag_waits = match (self.tag_waits, &outcome.tag_waits) {
            (Some(mut sum), Some(more)) => {
                sum += more;
                Some(sum)
            }
            _ => None,
        };
        self.usage += &outcome.report.stats.usage;
        if let Some(more) = &outcome.lateness {
            self.lateness.get_or_insert_default().merge(more);
        }
    }

    pub(super) fn group(&self) -> Option<u32> {
        self.group
    }

    /// Returns the object in the list `jobs` of a disk.
    pub(super) fn json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("jobname", self.name.as_str().into());
        match self.clone {
            Some(clone) => put("clone", clone.into()),
            None => put("clones", self.nr_clones.into()),
        }
        put("tag_waits", self.tag_waits.map(|waits| waits.count()).into());
        let times = self.tag_waits.map(|waits| {
            let values = [waits.sum(), waits.mean() as u64, waits.max()].map(Value::from);
            let keys = ["sum", "mean", "max"].map(str::to_owned);
            Value::Object(keys.into_iter().zip(values).collect())
        });
        put("tag_wait_ns", times.unwrap_or_default());
        put("voluntary_switches", self.usage.voluntary_switches.into());
        put("involuntary_switches", self.usage.involuntary_switches.into());
        if let Some(lateness) = &self.lateness {
            put("replay", lateness.json());
        }
        Value::Object(object)
    }

    /// Returns the line about a replay, if the job is one.
    pub(super) fn replay_line(&self) -> Option<String> {
        Some(format!("  {:<13}: {}", "replay", self.lateness.as_ref()?.text()))
    }

    /// Returns the line of the report.
    pub(super) fn line(&self) -> String {
        let name = match self.clone {
            Some(clone) => format!("{}.{clone}", self.name),
            None => format!("{} ({} jobs)", self.name, self.nr_clones),
        };
        let waits = match &self.tag_waits {
            // The layer does not report them for blocking calls.
            None => "unknown".to_owned(),
            Some(waits) if waits.count() == 0 => "0".to_owned(),
            Some(waits) => {
                let (mean, max) = (waits.mean() as u64, waits.max());
                let (unit, scale) = time_unit(mean, max);
                let nr = waits.count();
                format!("{nr} ({unit}: avg={}, max={})", time(mean, scale), time(max, scale))
            }
        };
        format!(
            "  {name:<13}: tag waits={waits}, switches: voluntary={}, involuntary={}",
            self.usage.voluntary_switches, self.usage.involuntary_switches
        )
    }
}
