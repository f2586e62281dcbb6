//! Counters of disks as OpenMetrics text.

use crate::disk_metrics::{self, DiskRow};
use crate::families::{Families, Name};
use crate::owner_metrics::{self, OwnerRow};
use crate::stats::names;
use forebay::DiskMeter;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use std::fmt;

/// The content type of the text of [`openmetrics`], for an HTTP header.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the counters of these disks and of their owners as OpenMetrics text. The names are those
/// of `forebay serve --metrics`, and follow Prometheus's node_exporter. The label `device` is the
/// last part of the disk's spec, with its number if several disks have the same.
///
/// ```
/// let disk = forebay::Disk::open("ram:1M")?;
/// let text = forebay_insight::openmetrics(&[disk.meter()]);
/// assert!(text.contains("forebay_disk_size_bytes{device=\"ram:1M\"} 1048576\n"));
/// assert!(text.ends_with("# EOF\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn openmetrics(disks: &[DiskMeter]) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(All(disks.to_vec())));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("a string takes any text");
    text
}

#[derive(Debug)]
struct All(Vec<DiskMeter>);

impl Collector for All {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        families.info(
            &Name::of("forebay_build", "Version of the library."),
            &[("version", env!("CARGO_PKG_VERSION"))],
        )?;
        let names = names(&self.0);
        let disks = || names.iter().map(String::as_str).zip(&self.0);
        let rows: Vec<_> = disks().map(row).collect();
        disk_metrics::encode(&mut families, &rows, "Requests at the device.")?;
        let owners = disks().flat_map(|(device, meter)| {
            meter.owners().into_iter().map(move |owner| OwnerRow {
                device: device.to_owned(),
                owner: owner.name().to_owned(),
                limits: owner.limits(),
                stats: owner.stats(),
            })
        });
        owner_metrics::encode(&mut families, &owners.collect::<Vec<_>>())
    }
}

fn row<'a>((device, meter): (&'a str, &DiskMeter)) -> DiskRow<'a> {
    let stats = meter.stats();
    let size_bytes = meter.capacity_bytes().unwrap_or_default();
    DiskRow { device, io_now: stats.in_flight, size_bytes, stats }
}
