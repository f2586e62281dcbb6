//! Metric families: a name, a help text, and a sample for each set of labels. The encoder appends
//! `_total` to counters, and the unit if there is one.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::counter::TimesSum;

/// Name and help text of a family.
pub(super) struct Name {
    pub(super) name: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) help: &'static str,
}

impl Name {
    pub(super) const fn of(name: &'static str, help: &'static str) -> Name {
        Name { name, unit: None, help }
    }

    pub(super) const fn bytes(name: &'static str, help: &'static str) -> Name {
        Name { name, unit: Some(Unit::Bytes), help }
    }

    pub(super) const fn seconds(name: &'static str, help: &'static str) -> Name {
        Name { name, unit: Some(Unit::Seconds), help }
    }
}

/// A number. Counters are integers, so that they are exact at any size.
pub(super) enum Value {
    Whole(u64),
    Seconds(f64),
}

impl Value {
    pub(super) fn from_ns(ns: u64) -> Value {
        Value::Seconds(seconds(ns))
    }
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A histogram of seconds.
pub(super) struct Buckets {
    sum: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl Buckets {
    /// Creates them from upper bounds in ns and the counts of the buckets.
    pub(super) fn new(sum_ns: u64, buckets: impl Iterator<Item = (Option<u64>, u64)>) -> Buckets {
        let buckets: Vec<_> =
            buckets.map(|(bound, count)| (bound.map_or(f64::INFINITY, seconds), count)).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        Buckets { sum: seconds(sum_ns), count, buckets }
    }
}

impl From<&TimesSum> for Buckets {
    fn from(times: &TimesSum) -> Buckets {
        Buckets::new(times.sum_ns(), times.buckets())
    }
}

/// Encoder of families.
pub(super) struct Families<'a>(pub(super) DescriptorEncoder<'a>);

impl Families<'_> {
    /// Writes a counter without labels.
    pub(super) fn one_counter(&mut self, name: &Name, value: Value) -> fmt::Result {
        put_counter(&mut self.describe(name, MetricType::Counter)?, value)
    }

    /// Writes a gauge without labels.
    pub(super) fn one_gauge(&mut self, name: &Name, value: Value) -> fmt::Result {
        put_gauge(&mut self.describe(name, MetricType::Gauge)?, value)
    }

    pub(super) fn counter<L: EncodeLabelSet>(
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

    pub(super) fn gauge<L: EncodeLabelSet>(
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

    pub(super) fn histogram<L: EncodeLabelSet>(
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

    pub(super) fn info(&mut self, name: &Name, labels: &impl EncodeLabelSet) -> fmt::Result {
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
