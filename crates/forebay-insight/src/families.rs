//! Metric families: a name, a help text, and a sample for each set of labels. The encoder appends
//! `_total` to counters, and the unit if there is one.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Name and help text of a family.
#[derive(Debug)]
pub struct Name {
    pub name: &'static str,
    pub unit: Option<Unit>,
    pub help: &'static str,
}

impl Name {
    pub const fn of(name: &'static str, help: &'static str) -> Name {
        Name { name, unit: None, help }
    }

    pub const fn bytes(name: &'static str, help: &'static str) -> Name {
        Name { name, unit: Some(Unit::Bytes), help }
    }

    pub const fn seconds(name: &'static str, help: &'static str) -> Name {
        Name { name, unit: Some(Unit::Seconds), help }
    }
}

/// A number. Counters are integers, so that they are exact at any size.
#[derive(Debug)]
pub enum Value {
    Whole(u64),
    Seconds(f64),
}

impl Value {
    pub fn from_ns(ns: u64) -> Value {
        Value::Seconds(seconds(ns))
    }
}

pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Number of bounds of histograms. The last is about 17 s.
pub const NR_BOUNDS: usize = 25;
/// The first bound is `1 << FIRST_SHIFT` ns, about a microsecond. Each other bound is twice the
/// previous one.
pub const FIRST_SHIFT: u32 = 10;

/// Returns the bounds of all histograms, ns.
pub fn bounds_ns() -> impl Iterator<Item = u64> {
    (0..NR_BOUNDS).map(|index| 1 << (FIRST_SHIFT as usize + index))
}

/// A histogram of seconds.
#[derive(Debug)]
pub struct Buckets {
    sum: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl Buckets {
    /// Creates them from upper bounds in ns and the counts of the buckets.
    pub fn new(sum_ns: u64, buckets: impl Iterator<Item = (Option<u64>, u64)>) -> Buckets {
        let buckets: Vec<_> =
            buckets.map(|(bound, count)| (bound.map_or(f64::INFINITY, seconds), count)).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        Buckets { sum: seconds(sum_ns), count, buckets }
    }
}

/// Encoder of families.
#[expect(missing_debug_implementations, reason = "the encoder has none")]
pub struct Families<'a>(pub DescriptorEncoder<'a>);

impl Families<'_> {
    /// Writes a counter without labels.
    pub fn one_counter(&mut self, name: &Name, value: Value) -> fmt::Result {
        put_counter(&mut self.describe(name, MetricType::Counter)?, value)
    }

    /// Writes a gauge without labels.
    pub fn one_gauge(&mut self, name: &Name, value: Value) -> fmt::Result {
        put_gauge(&mut self.describe(name, MetricType::Gauge)?, value)
    }

    pub fn counter<L: EncodeLabelSet>(
        &mut self,
        name: &Name,
        samples: impl IntoIterator<Item = (L, Value)>,
    ) -> fmt::Result {
        let mut family = self.describe(name, MetricType::Counter)?;
        for (labels, value) in samples {
            put_counter(&mut family.encode_family(&labels)?, value)?;
        }
        Ok(())
    }

    pub fn gauge<L: EncodeLabelSet>(
        &mut self,
        name: &Name,
        samples: impl IntoIterator<Item = (L, Value)>,
    ) -> fmt::Result {
        let mut family = self.describe(name, MetricType::Gauge)?;
        for (labels, value) in samples {
            put_gauge(&mut family.encode_family(&labels)?, value)?;
        }
        Ok(())
    }

    pub fn histogram<L: EncodeLabelSet>(
        &mut self,
        name: &Name,
        samples: impl IntoIterator<Item = (L, Buckets)>,
    ) -> fmt::Result {
        let mut family = self.describe(name, MetricType::Histogram)?;
        for (labels, Buckets { sum, count, buckets }) in samples {
            family
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    pub fn info(&mut self, name: &Name, labels: &impl EncodeLabelSet) -> fmt::Result {
        self.describe(name, MetricType::Info)?.encode_info(labels)
    }

    fn describe<'s>(
        &'s mut self,
        name: &'s Name,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name.name, name.help, name.unit.as_ref(), kind)
    }
}

fn put_counter(sample: &mut MetricEncoder<'_>, value: Value) -> fmt::Result {
    match value {
        Value::Whole(value) => sample.encode_counter::<NoLabelSet, _, u64>(&value, None),
        Value::Seconds(value) => sample.encode_counter::<NoLabelSet, _, u64>(&value, None),
    }
}

fn put_gauge(sample: &mut MetricEncoder<'_>, value: Value) -> fmt::Result {
    match value {
        Value::Whole(value) => sample.encode_gauge(&value),
        Value::Seconds(value) => sample.encode_gauge(&value),
    }
}
