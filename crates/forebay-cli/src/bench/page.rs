//! The charts and the page of a run: latency distribution, and rates over time.

use forebay_fio::arguments;
use forebay_fio::generator::Direction;
use forebay_fio::histogram::Histogram;
use forebay_fio::job::JobList;
use forebay_fio::stats::JobStats;

use super::outcome::Outcomes;
use super::pictures::PictureOptions;
use super::plan::Target;
use super::series::{Moment, Series};
use super::{host, workload};
use crate::failure::Failure;
use crate::figure::chart::{Chart, Curve, Dim, Ticks};
use crate::figure::files;
use crate::figure::html::Page;
use crate::figure::unit::Unit;

/// The largest number of curves in a chart. More jobs are drawn as one.
const CURVES_MAX: usize = 6;

/// The largest number of points of a distribution.
const POINTS: usize = 160;

/// Checks the paths of the pictures before the run.
pub(super) fn prepare(asked: &PictureOptions) -> Result<(), Failure> {
    asked.svg.iter().try_for_each(|path| files::prepare_folder("--svg", path))?;
    asked.html.iter().try_for_each(|path| files::prepare_file("--html", path))
}

/// The figures of a run that its pictures show.
#[derive(Debug)]
pub(super) struct Pictures {
    load: String,
    command: String,
    disks: Vec<String>,
    jobs: Vec<OfJob>,
}

/// The figures of a job, over all its clones.
#[derive(Debug)]
struct OfJob {
    name: String,
    stats: JobStats,
    series: Option<Series>,
}

impl OfJob {
    fn merge(&mut self, stats: &JobStats, series: Option<Series>) {
        self.stats.merge(stats);
        match (&mut self.series, series) {
            (Some(mine), Some(more)) => mine.merge(more),
            (None, Some(more)) => self.series = Some(more),
            (_, None) => {}
        }
    }
}

impl Pictures {
    /// Takes the rates over time out of the outcomes of a run.
    pub(super) fn of(command: &JobList, targets: &[Target], outcomes: &mut Outcomes) -> Self {
        let empty =
            |name: &str| OfJob { name: name.to_owned(), stats: JobStats::default(), series: None };
        let mut jobs: Vec<_> = command.jobs.iter().map(|job| empty(&job.name)).collect();
        for clone in &mut outcomes.clones {
            let series = clone.series.take().map(|series| *series);
            jobs[clone.job].merge(&clone.report.stats, series);
        }
        let nr_curves: usize = jobs.iter().map(|job| directions(&job.stats).count()).sum();
        if nr_curves > CURVES_MAX {
            let mut all = empty("all jobs");
            jobs.into_iter().for_each(|job| all.merge(&job.stats, job.series));
            jobs = vec![all];
        }
        Self {
            load: workload::describe(&command.jobs, targets, None),
            command: format!("forebay bench {}", arguments::line(&command.jobs)),
            disks: outcomes.disks.iter().map(|disk| disk.info.spec.clone()).collect(),
            jobs,
        }
    }

    /// Writes the requested files. `report` is the text for a terminal.
    pub(super) fn write(&self, asked: &PictureOptions, report: &str) -> Result<(), Failure> {
        if asked.svg.is_none() && asked.html.is_none() {
            return Ok(());
        }
        let charts = self.charts();
        if let Some(folder) = &asked.svg {
            files::write_charts(folder, &charts)?;
        }
        match &asked.html {
            Some(path) => files::write("--html", path, &self.page(&charts, report)),
            None => Ok(()),
        }
    }

    /// Returns each curve's name with its figures.
    fn parts(&self) -> Vec<(String, &OfJob, Direction)> {
        let parts = self
            .jobs
            .iter()
            .flat_map(|job| directions(&job.stats).map(move |direction| (job, direction)));
        let name = |job: &OfJob, direction: Direction| match self.jobs.len() {
            1 => direction.word().to_owned(),
            _ => format!("{} {}", job.name, direction.word()),
        };
        parts.map(|(job, direction)| (name(job, direction), job, direction)).collect()
    }

    /// Returns the charts that have a point.
    fn charts(&self) -> Vec<Chart> {
        let parts = self.parts();
        let curves = |points: &dyn Fn(&OfJob, Direction) -> Vec<[f64; 2]>| -> Vec<Curve> {
            let curve = |(style, (name, job, direction)): (usize, &(String, &OfJob, _))| {
                Curve::new(name, style, points(job, *direction))
            };
            parts.iter().enumerate().map(curve).collect()
        };
        let over_time = |value: fn(&Moment) -> f64| {
            curves(&|job, direction| {
                let moments = job.series.as_ref().map(|series| series.moments(direction));
                moments.unwrap_or_default().iter().map(|it| [it.at_s, value(it)]).collect()
            })
        };
        let of_histogram = |points: fn(&Histogram) -> Vec<[f64; 2]>| {
            curves(&|job, direction| {
                points(&job.stats.directions[direction.index()].clat.histogram)
            })
        };
        let time = || Dim::linear("time since the start of the job", Unit::Seconds);
        let latency = || Dim::round("completion latency", Unit::Ns);
        let p99 = "99th percentile of the completion latency";
        let charts = [
            self.chart("latency-distribution", of_histogram(distribution)).with(
                "Distribution of the latency",
                latency(),
                Dim::linear("I/Os that took no longer", Unit::Percent),
                None,
            ),
            self.chart("latency-percentiles", of_histogram(tail)).with(
                "Latency of the slowest I/Os",
                Dim { ticks: Ticks::Powers, ..Dim::round("percentile", Unit::Nines) },
                latency(),
                Some(false),
            ),
            self.chart("iops", over_time(|it| it.iops)).with(
                "IOPS over time",
                time(),
                Dim::round("IOPS", Unit::Count),
                Some(true),
            ),
            self.chart("bandwidth", over_time(|it| it.bytes_per_s)).with(
                "Bandwidth over time",
                time(),
                Dim::round("bandwidth", Unit::BytesPerSecond),
                Some(true),
            ),
            self.chart("latency-p99", over_time(|it| it.p99_ns.unwrap_or(f64::NAN))).with(
                "Latency p99 over time",
                time(),
                Dim::round(p99, Unit::Ns),
                Some(false),
            ),
        ];
        let has_points = |chart: &Chart| chart.curves.iter().any(|it| !it.points.is_empty());
        charts.into_iter().filter(has_points).collect()
    }

    fn chart(&self, file: &'static str, curves: Vec<Curve>) -> Draft {
        let note = format!("{}, on {}", self.load, self.disks.join(", "));
        Draft { file, curves, note }
    }

    /// Returns the table of all jobs and directions, with its headings.
    fn rows(&self) -> Vec<Vec<String>> {
        let heads = ["", "I/Os", "IOPS", "bandwidth", "mean", "p50", "p99", "p99.9", "maximum"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for (name, job, direction) in self.parts() {
            let stats = &job.stats.directions[direction.index()];
            let mut row = vec![
                name,
                stats.total_ios.to_string(),
                Unit::Count.label(stats.ios_per_second()),
                Unit::BytesPerSecond.label(stats.bytes_per_second() as f64),
            ];
            let clat = &stats.clat;
            match clat.histogram.percentiles(&[50.0, 99.0, 99.9])[..] {
                [p50, p99, p999] => {
                    let (mean, max) = (clat.moments.mean(), clat.moments.max() as f64);
                    let times = [mean, p50 as f64, p99 as f64, p999 as f64, max];
                    row.extend(times.map(|ns| Unit::Ns.label(ns)));
                }
                _ => row.extend(["-"; 5].map(str::to_owned)),
            }
            rows.push(row);
        }
        rows
    }

    fn page(&self, charts: &[Chart], report: &str) -> String {
        let mut page = Page::new(&self.load);
        page.table(&self.rows());
        page.charts(charts);
        page.heading("Settings and machine");
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let mut pairs = vec![pair("Jobs", &self.command)];
        pairs.extend(self.disks.iter().map(|spec| pair("Disk", spec)));
        pairs.push(pair("Machine", &host::describe()));
        pairs.push(pair("Program", crate::fio_report::VERSION));
        page.list(&pairs);
        page.heading("Report");
        page.preformatted(report.trim_matches('\n'));
        page.render()
    }
}

/// The curves of a chart.
struct Draft {
    file: &'static str,
    curves: Vec<Curve>,
    note: String,
}

impl Draft {
    /// Returns the chart with this title and these axes.
    fn with(self, title: &str, x: Dim, y: Dim, is_higher_better: Option<bool>) -> Chart {
        let Self { file, curves, note } = self;
        let (file, title) = (file.to_owned(), title.to_owned());
        Chart { file, title, x, y, is_higher_better, curves, notes: vec![note] }
    }
}

/// Returns the directions in which a job did I/O.
fn directions(stats: &JobStats) -> impl Iterator<Item = Direction> + use<> {
    let has: Vec<_> = Direction::ALL
        .into_iter()
        .filter(|direction| stats.directions[direction.index()].total_ios > 0)
        .collect();
    has.into_iter()
}

/// Returns the share of I/Os, in percent, up to each latency.
fn distribution(histogram: &Histogram) -> Vec<[f64; 2]> {
    let total = histogram.total() as f64;
    let mut sum = 0;
    let points: Vec<_> = histogram
        .iter()
        .map(|(ns, count)| {
            sum += count;
            [ns as f64, 100.0 * sum as f64 / total]
        })
        .collect();
    thinned(points)
}

/// Returns the latency of each percentile, up to that of a single I/O.
fn tail(histogram: &Histogram) -> Vec<[f64; 2]> {
    let total = histogram.total() as f64;
    let mut below = 0;
    let points: Vec<_> = histogram
        .iter()
        .map(|(ns, count)| {
            let at = total / (total - below as f64);
            below += count;
            [at, ns as f64]
        })
        .collect();
    thinned(points)
}

/// Returns at most [`POINTS`] of these points, with the first and the last one.
fn thinned(points: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    let every = points.len().div_ceil(POINTS).max(1);
    let last = points.len().saturating_sub(1);
    let kept = |at: usize| at.is_multiple_of(every) || at == last;
    points.into_iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, it)| it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram() -> Histogram {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|at| histogram.record(at * 100));
        histogram
    }

    #[test]
    fn a_distribution_ends_at_all_ios() {
        let points = distribution(&histogram());
        assert!(points.len() <= POINTS + 1, "{}", points.len());
        assert!(points.is_sorted_by(|a, b| a[0] < b[0] && a[1] < b[1]));
        assert_eq!(points.last().map(|point| point[1]), Some(100.0));
        assert!(distribution(&Histogram::new()).is_empty());
    }

    #[test]
    fn the_tail_ends_before_the_slowest_io() {
        let points = tail(&histogram());
        assert_eq!(points.first().map(|point| point[0]), Some(1.0));
        assert!(points.last().is_some_and(|point| point[0] > 100.0 && point[0] <= 1000.0));
    }

    #[test]
    fn all_charts_and_the_table_are_on_the_page() {
        let mut stats = JobStats::new(0);
        let mut series = Series::new(|direction| direction == Direction::Read);
        for at in 1..=1000 {
            stats.record_complete(Direction::Read, 4096, at * 100, at * 100);
            series.record(Direction::Read, at * 1_000_000, 4096, at * 100);
        }
        stats.directions[0].runtime_ms = 1000;
        let pictures = Pictures {
            load: "rw=read".to_owned(),
            command: "forebay bench --name=a".to_owned(),
            disks: vec!["ram:1M?x=1".to_owned()],
            jobs: vec![OfJob { name: "a".to_owned(), stats, series: Some(series) }],
        };
        let html = pictures.page(&pictures.charts(), "a <report>");
        assert_eq!(html.matches("<svg ").count(), 5);
        assert!(html.contains("<td>read</td><td>1000</td><td>1k</td>"), "{html}");
        assert!(html.contains("a &lt;report&gt;") && !html.contains("NaN"), "{html}");
    }
}
