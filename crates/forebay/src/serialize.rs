//! `serde::Serialize` for information and counters, with the cargo feature `serde`.
//!
//! The names are those of the tables of counters and settings ([`COUNTERS`], [`SETTINGS`]) and of
//! the fields. Names of values in nanoseconds end in `_ns`. New names may be added, so a reader
//! must ignore unknown names.
//!
//! Types of the core have no dependency on serde. [`queue_stats`] and [`histogram`] serialize them,
//! for `#[serde(serialize_with = "forebay::serialize::histogram")]`.
//!
//! ```
//! use forebay::Disk;
//!
//! let disk = Disk::open("ram:1M")?;
//! disk.write_all_at(&[7; 4096], 0)?;
//! let json = serde_json::to_value(disk.stats())?;
//! assert_eq!(json["ops"]["write"]["bytes"], 4096);
//! assert_eq!(serde_json::to_value(disk.info())?["limits"]["capacity_bytes"], 1 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`SETTINGS`]: crate::SETTINGS

use crate::counters::{OF_DISK, OP_COUNTERS};
use crate::info::{DiskFacts, DiskInfo, DiskStats, Feature, FeatureState};
use crate::properties::{Property, PropertyGroup, PropertyValue};
use forebay_core::{
    COUNTERS, Histogram, MergeKind, Op, OpStats, QueueLimits, QueueStats, StageStats, UnplugCause,
};
use serde_core::Serialize;
use serde_core::ser::{SerializeMap, SerializeStruct, Serializer};

/// Percentiles of a serialized histogram, per million.
const PERCENTILES: [(&str, u32); 4] =
    [("p50", 500_000), ("p90", 900_000), ("p99", 990_000), ("p99_9", 999_000)];

/// A value that a function serializes.
struct With<'a, T>(&'a T);

/// Implements [`Serialize`] by a function.
macro_rules! by_function {
    ($($type:ty => $function:path,)*) => {
        $(impl Serialize for With<'_, $type> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $function(self.0, serializer)
            }
        })*
    };
}

by_function! {
    QueueStats => queue_stats,
    Histogram => histogram,
    OpStats => op_stats,
    StageStats => stages,
    QueueLimits => limits,
}

/// Serializes fields of a struct under their names.
macro_rules! fields {
    ($serializer:ident, $of:expr, $($field:ident),*) => {{
        let mut map = $serializer.serialize_map(None)?;
        $(map.serialize_entry(stringify!($field), &$of.$field)?;)*
        map.end()
    }};
}

/// A map of names to values, from an iterator.
struct Named<F>(F);

impl<K, V, I, F> Serialize for Named<F>
where
    K: Serialize,
    V: Serialize,
    I: Iterator<Item = (K, V)>,
    F: Fn() -> I,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map((self.0)())
    }
}

/// Serializes the counters of the layer as a map: `ops`, each counter of [`COUNTERS`], `merges`,
/// `unplugs`, `emulation`, and `stages` with a [`histogram`] each.
///
/// # Errors
/// Fails if the serializer does.
pub fn queue_stats<S: Serializer>(stats: &QueueStats, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    add_queue_stats(stats, &mut map)?;
    map.end()
}

fn add_queue_stats<M: SerializeMap>(stats: &QueueStats, map: &mut M) -> Result<(), M::Error> {
    let ops = || Op::ALL.iter().map(|&op| (op.name(), With(stats.op(op))));
    map.serialize_entry("ops", &Named(ops))?;
    for counter in COUNTERS {
        map.serialize_entry(counter.name, &counter.of(stats))?;
    }
    let merges = || MergeKind::ALL.iter().map(|&kind| (kind.name(), stats.merges(kind)));
    map.serialize_entry("merges", &Named(merges))?;
    let unplugs = || UnplugCause::ALL.iter().map(|&cause| (cause.name(), stats.unplugs(cause)));
    map.serialize_entry("unplugs", &Named(unplugs))?;
    map.serialize_entry("emulation", &Named(|| stats.emulation.iter()))?;
    map.serialize_entry("stages", &With(&stats.stages))
}

/// Serializes a histogram as a map: `count`, `sum`, `mean`, `max`, and the percentiles `p50`,
/// `p90`, `p99` and `p99_9`. Values have the unit of the histogram; those of a disk are
/// nanoseconds.
///
/// # Errors
/// Fails if the serializer does.
pub fn histogram<S: Serializer>(histogram: &Histogram, serializer: S) -> Result<S::Ok, S::Error> {
    let moments = [
        ("count", histogram.count()),
        ("sum", histogram.sum()),
        ("mean", histogram.mean()),
        ("max", histogram.max()),
    ];
    let percentiles = PERCENTILES.map(|(name, at)| (name, histogram.percentile(at)));
    serializer.collect_map(moments.into_iter().chain(percentiles))
}

fn op_stats<S: Serializer>(op: &OpStats, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(OP_COUNTERS.iter().map(|(name, _, _, get)| (*name, get(op))))
}

fn stages<S: Serializer>(stages: &StageStats, serializer: S) -> Result<S::Ok, S::Error> {
    let StageStats { plug, tag, queue, driver, .. } = stages;
    let all = [("plug", plug), ("tag", tag), ("queue", queue), ("driver", driver)];
    serializer.collect_map(all.map(|(name, times)| (name, With(times))))
}

impl Serialize for DiskStats {
    /// Serializes the same map as [`queue_stats`], with the counters of the disk.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        add_queue_stats(&self.queue, &mut map)?;
        for (name, _, get) in &OF_DISK {
            map.serialize_entry(name, &get(self))?;
        }
        map.serialize_entry("in_flight", &self.in_flight)?;
        map.end()
    }
}

/// The settings in force on a disk, by their keys.
struct InForce<'a>(&'a DiskInfo);

impl Serialize for InForce<'_> {
    /// Numbers and switches are serialized as such, and names and words as text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let settings = self.0.properties().filter(|it| it.group == PropertyGroup::Setting);
        for Property { name, value, .. } in settings {
            match value {
                PropertyValue::Number(number) => map.serialize_entry(name, &number)?,
                PropertyValue::Flag(is_set) => map.serialize_entry(name, &is_set)?,
                PropertyValue::Text(text) => map.serialize_entry(name, &text)?,
                PropertyValue::None => {}
            }
        }
        map.end()
    }
}

impl Serialize for DiskInfo {
    /// Serializes most fields under their names, and the settings in force as `settings`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("DiskInfo", 7)?;
        fields.serialize_field("spec", &self.spec)?;
        fields.serialize_field("driver", self.driver)?;
        fields.serialize_field("limits", &With(&self.limits))?;
        fields.serialize_field("settings", &InForce(self))?;
        fields.serialize_field("facts", &self.facts)?;
        fields.serialize_field("features", &self.features)?;
        fields.serialize_field("notice", &self.notice)?;
        fields.end()
    }
}

fn limits<S: Serializer>(limits: &QueueLimits, serializer: S) -> Result<S::Ok, S::Error> {
    fields!(
        serializer,
        limits,
        capacity_bytes,
        logical_block_size,
        physical_block_size,
        io_min,
        io_opt,
        max_hw_sectors,
        max_sectors,
        max_segments,
        max_segment_size,
        seg_boundary_mask,
        virt_boundary_mask,
        dma_alignment,
        chunk_sectors,
        discard_granularity,
        max_discard_sectors,
        max_discard_segments,
        max_write_zeroes_sectors,
        volatile_cache,
        fua,
        fua_is_sync,
        fua_queueable,
        flush_queueable,
        exact_counts,
        rotational,
        read_only
    )
}

impl Serialize for DiskFacts {
    /// Serializes each field under its name.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields!(
            serializer,
            self,
            keeps_data,
            discards_to_zeroes,
            zeroes_fast,
            caches_reads,
            uses_tcp,
            out_of_reach_bytes
        )
    }
}

impl Serialize for Feature {
    /// Serializes `name`, `present`, and `how` or `why`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Feature", 3)?;
        fields.serialize_field("name", self.name)?;
        let (present, key, text) = match &self.state {
            FeatureState::Present(how) => (true, "how", how),
            FeatureState::Missing(why) => (false, "why", why),
        };
        fields.serialize_field("present", &present)?;
        fields.serialize_field(key, text)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk;
    use crate::settings::table::SETTINGS;
    use forebay_core::Values;
    use serde_json::{Value, to_value};

    fn disk() -> Disk {
        let disk = Disk::open("ram:1M?nr_hw_queues=1&tag_set=serialized").expect("it opens");
        disk.write_all_at(&[7; 4096], 0).expect("a write");
        disk
    }

    #[test]
    fn counters_have_the_names_of_the_table() {
        let stats = disk().stats();
        let json = to_value(&stats).expect("JSON");
        for counter in COUNTERS {
            assert_eq!(json[counter.name], counter.of(&stats.queue), "{}", counter.name);
        }
        let write = &json["ops"]["write"];
        assert_eq!((&write["bios"], &write["bytes"]), (&Value::from(1), &Value::from(4096)));
        assert_eq!(json["stages"]["driver"]["count"], 1);
        assert_eq!(json["stages"]["driver"]["max"], stats.queue.stages.driver.max());
        assert_eq!(json["unplugs"].as_object().expect("a map").len(), UnplugCause::ALL.len());
        assert_eq!(json["merges"].as_object().expect("a map").len(), MergeKind::ALL.len());
        assert_eq!(json["emulation"]["tag_sleeps"], 0);
        let queue = queue_stats(&stats.queue, serde_json::value::Serializer).expect("JSON");
        assert_eq!(queue["stages"], json["stages"]);
    }

    #[test]
    fn information_has_all_settings_in_force_and_all_limits() {
        let disk = disk();
        let json = to_value(disk.info()).expect("JSON");
        assert_eq!(json["spec"], "ram:1M?nr_hw_queues=1&tag_set=serialized");
        for setting in SETTINGS.iter() {
            let expected = setting.get(disk.info()).map(|text| match setting.values {
                Values::Switch => Value::from(text == "on"),
                Values::Number { .. } => text.parse::<u64>().expect("a number").into(),
                _ => Value::from(text),
            });
            assert_eq!(json["settings"].get(setting.key), expected.as_ref(), "{}", setting.key);
        }
        let limits = json["limits"].as_object().expect("a map");
        let debug = format!("{:?}", disk.limits());
        let nr_fields = debug.matches(": ").count();
        assert!(limits.keys().all(|name| debug.contains(&format!("{name}: "))), "{debug}");
        assert_eq!(limits.len(), nr_fields, "a limit is missing");
        let features = json["features"].as_array().expect("a list");
        assert_eq!(features.len(), disk.info().features.len());
        let discard = features.iter().find(|feature| feature["name"] == "discard");
        assert_eq!(discard.expect("it is there")["present"], true);
        assert_eq!(json["facts"]["keeps_data"], true);
    }
}
