//! The report of a sweep: a table, pictures and a page.

use super::point::{Latency, Point};
use super::size;
use crate::figure::chart::{Chart, Curve, Dim, Ticks};
use crate::figure::html::Page;
use crate::figure::unit::Unit;
use crate::table::aligned;

/// The subject of a sweep.
#[derive(Debug)]
pub(super) struct About<'a> {
    /// The swept option.
    pub(super) key: &'a str,
    /// The load without this option.
    pub(super) load: String,
    pub(super) disks: String,
    pub(super) machine: String,
    /// The command without the sweep.
    pub(super) command: String,
}

/// The percentiles with a curve.
type Pick = (&'static str, fn(Latency) -> f64);
const PICKS: [Pick; 2] = [("p50", |it| it.p50), ("p99", |it| it.p99)];

/// Returns the report for a terminal.
pub(super) fn text(about: &About<'_>, points: &[Point]) -> String {
    let About { key, load, disks, machine, .. } = about;
    format!(
        "Sweep of {key}, on {machine}\n\n  Load: {load}\n  Disk: {disks}\n\n{}\n\
         Latencies are completion latencies of all jobs. CPU time is that of the job threads.\n",
        aligned(&rows(about.key, points), "  ")
    )
}

/// Returns the table, with its headings.
fn rows(key: &str, points: &[Point]) -> Vec<Vec<String>> {
    let heads = [key, "IOPS", "bandwidth", "mean", "p50", "p99", "p99.9", "CPU per I/O"];
    let row = |point: &Point| {
        let latency = |pick: fn(Latency) -> f64| {
            point.latency.map_or("-".to_owned(), |latency| Unit::Ns.label(pick(latency)))
        };
        vec![
            point.value.clone(),
            Unit::Count.label(point.iops),
            Unit::BytesPerSecond.label(point.bytes_per_s),
            latency(|it| it.mean),
            latency(|it| it.p50),
            latency(|it| it.p99),
            latency(|it| it.p999),
            Unit::Ns.label(point.cpu_ns),
        ]
    };
    let heads = heads.map(str::to_owned).to_vec();
    std::iter::once(heads).chain(points.iter().map(row)).collect()
}

/// Returns the picture of throughput against latency. Each point has its value as a label.
pub(super) fn throughput_and_latency(about: &About<'_>, points: &[Point]) -> Chart {
    let is_size = about.key == "bs";
    let x = match is_size {
        true => Dim::round("bandwidth", Unit::BytesPerSecond),
        false => Dim::round("IOPS", Unit::Count),
    };
    let rate = |point: &Point| if is_size { point.bytes_per_s } else { point.iops };
    let curve = |(style, (name, pick)): (usize, Pick)| {
        let with = || points.iter().filter_map(|point| Some((point, point.latency?)));
        Curve {
            labels: with().map(|(point, _)| point.value.clone()).collect(),
            ..Curve::new(name, style, with().map(|(it, at)| [rate(it), pick(at)]).collect())
        }
    };
    Chart {
        file: "throughput-latency".to_owned(),
        title: format!("Latency at each throughput, for values of {}", about.key),
        x,
        y: Dim::round("completion latency", Unit::Ns),
        is_higher_better: Some(false),
        curves: PICKS.into_iter().enumerate().map(curve).collect(),
        notes: vec![
            format!("{}, on {}. Each point has its {}.", about.load, about.disks, about.key),
            about.machine.clone(),
        ],
    }
}

/// Returns the pictures of throughput and latency over the values; none if these are no numbers.
fn over_values(about: &About<'_>, points: &[Point]) -> Vec<Chart> {
    let numbers: Option<Vec<u64>> = points.iter().map(|point| size(&point.value)).collect();
    let Some(numbers) = numbers.filter(|numbers| numbers.is_sorted()) else { return Vec::new() };
    let is_size = about.key == "bs";
    let unit = if is_size { Unit::Size } else { Unit::Number };
    let x = Dim { name: about.key.to_owned(), unit, ticks: Ticks::Values };
    let at = |value: &dyn Fn(&Point) -> Option<f64>| -> Vec<[f64; 2]> {
        let pairs = numbers.iter().zip(points);
        pairs.map(|(&x, point)| [x as f64, value(point).unwrap_or(f64::NAN)]).collect()
    };
    let chart = |file: &str, title: String, y, is_higher_better, curves| Chart {
        file: file.to_owned(),
        title,
        x: x.clone(),
        y,
        is_higher_better: Some(is_higher_better),
        curves,
        notes: Vec::new(),
    };
    let latencies = PICKS
        .into_iter()
        .enumerate()
        .map(|(style, (name, pick))| Curve::new(name, style, at(&|point| point.latency.map(pick))));
    let rates = match is_size {
        true => {
            let curve = Curve::new("all jobs", 0, at(&|point| Some(point.bytes_per_s)));
            let y = Dim::round("bandwidth", Unit::BytesPerSecond);
            chart("bandwidth", format!("Bandwidth over {}", about.key), y, true, vec![curve])
        }
        false => {
            let curve = Curve::new("all jobs", 0, at(&|point| Some(point.iops)));
            let y = Dim::round("IOPS", Unit::Count);
            chart("iops", format!("IOPS over {}", about.key), y, true, vec![curve])
        }
    };
    let y = Dim::round("completion latency", Unit::Ns);
    let title = format!("Latency over {}", about.key);
    vec![rates, chart("latency", title, y, false, latencies.collect())]
}

/// Returns the page.
pub(super) fn page(about: &About<'_>, points: &[Point]) -> String {
    let About { key, load, disks, machine, command } = about;
    let mut page = Page::new(&format!("Sweep of {key}: {load}"));
    page.table(&rows(key, points));
    let mut charts = vec![throughput_and_latency(about, points)];
    charts.extend(over_values(about, points));
    page.charts(&charts);
    page.heading("Settings and machine");
    let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    page.list(&[
        pair("Load", load),
        pair("Disk", disks),
        pair("Machine", machine),
        pair("Jobs", command),
        pair("Program", crate::fio_report::VERSION),
    ]);
    page.render()
}
