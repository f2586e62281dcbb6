//! The terse report: one line per job, with its figures separated by semicolons.
//!
//! Source: fio's HOWTO, "Terse output", and the lines of fio 3.33. Latencies are in microseconds:
//! minimum, maximum and percentiles without fractions, mean and deviation with six decimals. As in
//! fio, nothing is quoted: a semicolon in a name looks like the end of a field.

use std::fmt::Write;

use super::{DiskUtil, JobReport, Report, cpu_percents, share_of_group};
use crate::generator::Direction;
use crate::job::TerseVersion;
use crate::measures::{Measures, Unified};
use crate::stats::moments::Moments;
use crate::stats::rate::RateSamples;
use crate::stats::{DirectionStats, JobStats};

/// Fields for percentiles, of which fio takes as many at most.
const PERCENTILE_FIELDS: usize = 20;

/// Returns the report as one line per job.
pub fn render(report: &Report, version: TerseVersion) -> String {
    report.jobs.iter().map(|job| line(report, job, version)).collect()
}

fn line(report: &Report, job: &JobReport, version: TerseVersion) -> String {
    let mut fields = Fields(version.number().to_string());
    if version != TerseVersion::V2 {
        fields.put(&report.version);
    }
    fields.put(&job.name);
    fields.put(job.group_id);
    fields.put(job.error.as_ref().map_or(0, |error| error.errno));
    let has_trims = version != TerseVersion::V3;
    for direction in Direction::ALL {
        // The word is that of the part in other reports: `mixed` is one part for all.
        let is_part = has_trims || direction != Direction::Trim;
        if is_part && job.word(direction).is_some() {
            let share = share_of_group(report, job, direction);
            let stats = &job.stats.directions[direction.index()];
            fields.direction(stats, &job.measures, share, version);
        }
    }
    if let (Unified::Both, Some(mixed)) = (job.measures.unified, &job.mixed) {
        fields.direction(mixed, &job.measures, 0.0, version);
    }
    fields.usage(&job.stats);
    fields.distributions(&job.stats);
    if version != TerseVersion::V2 {
        report.disk_util.iter().for_each(|disk| fields.disk(disk));
    }
    // fio adds them with `continue_on_error` only.
    if let Some(errors) = &job.errors {
        fields.put(errors.total());
        fields.put(errors.first_errno());
    }
    if let Some(text) = &job.measures.description {
        if version == TerseVersion::V2 {
            fields.0.push('\n');
        }
        fields.put(text);
    }
    fields.0.push('\n');
    fields.0
}

/// A line that grows.
struct Fields(String);

impl Fields {
    fn put(&mut self, value: impl std::fmt::Display) {
        // Writing into a String does not fail.
        let _ = write!(self.0, ";{value}");
    }

    fn direction(
        &mut self,
        stats: &DirectionStats,
        measures: &Measures,
        share: f64,
        version: TerseVersion,
    ) {
        self.put(stats.io_bytes / 1024);
        self.put(stats.bytes_per_second() / 1024);
        self.put(stats.ios_per_second() as u64);
        self.put(stats.runtime_ms);
        self.latency(&stats.slat);
        self.latency(&stats.clat.moments);
        self.percentiles(stats, measures);
        self.latency(&stats.lat);
        self.put(stats.bw.min());
        self.put(stats.bw.max());
        self.put(format_args!("{share:.6}%"));
        self.mean_and_deviation(&stats.bw);
        if version == TerseVersion::V5 {
            self.put(stats.bw.count());
            self.put(stats.iops.min());
            self.put(stats.iops.max());
            self.mean_and_deviation(&stats.iops);
            self.put(stats.iops.count());
        }
    }

    fn latency(&mut self, moments: &Moments) {
        self.put(moments.min() / 1000);
        self.put(moments.max() / 1000);
        self.put(format_args!("{:.6}", moments.mean() / 1000.0));
        self.put(format_args!("{:.6}", moments.stddev() / 1000.0));
    }

    fn mean_and_deviation(&mut self, samples: &RateSamples) {
        self.put(format_args!("{:.6}", samples.mean()));
        self.put(format_args!("{:.6}", samples.stddev()));
    }

    /// As in fio, the percentiles are those of the total latency if they are wanted, else of the
    /// completion latency. Without any I/O all are 0.
    fn percentiles(&mut self, stats: &DirectionStats, measures: &Measures) {
        let has_lat = measures.lat_percentiles && !measures.disable_lat;
        let has_clat = measures.shows_clat() && !measures.disable_clat;
        let (percents, values) = match (has_lat, has_clat) {
            (true, _) => (measures.percents(), Some(&stats.lat_histogram)),
            (false, true) => (measures.percents(), Some(&stats.clat.histogram)),
            (false, false) => (&[][..], None),
        };
        let values = values.map(|histogram| histogram.percentiles(percents)).unwrap_or_default();
        for at in 0..PERCENTILE_FIELDS {
            match percents.get(at) {
                Some(percent) => {
                    let us = values.get(at).map_or(0, |ns| ns / 1000);
                    self.put(format_args!("{percent:.6}%={us}"));
                }
                None => self.put("0%=0"),
            }
        }
    }

    fn usage(&mut self, stats: &JobStats) {
        let (user, system) = cpu_percents(stats);
        self.put(format_args!("{user:.6}%"));
        self.put(format_args!("{system:.6}%"));
        self.put(stats.usage.context_switches());
        self.put(stats.usage.major_faults);
        self.put(stats.usage.minor_faults);
    }

    fn distributions(&mut self, stats: &JobStats) {
        let ios = stats.total_ios();
        for percent in stats.levels.percents(ios) {
            self.put(format_args!("{percent:.1}%"));
        }
        let (us, ms) = stats.bands.percents_from_us(ios);
        for percent in us.into_iter().chain(ms) {
            self.put(format_args!("{percent:.2}%"));
        }
    }

    fn disk(&mut self, disk: &DiskUtil) {
        self.put(&disk.name);
        for value in [
            disk.read_ios,
            disk.write_ios,
            disk.read_merges,
            disk.write_merges,
            disk.read_ticks_ms,
            disk.write_ticks_ms,
            disk.in_queue_ms,
        ] {
            self.put(value);
        }
        self.put(format_args!("{:.2}%", disk.util_percent));
    }
}
