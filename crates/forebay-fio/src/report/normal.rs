//! The text report: fio's normal output, line by line.
//!
//! The format of the lines and the choice of units are those of fio 3.33.

mod latency;

use std::fmt::Write;

use super::{
    DiskUtil, GroupTotal, JobReport, Report, cpu_percents, date, number, share_of_group, steady,
    target,
};
use crate::errno;
use crate::generator::Direction;
use crate::stats::distribution::{BAND_LABELS, BAND_LABELS_MS, BATCH_LABELS, Depths, LEVEL_LABELS};
use crate::stats::rate::RateSamples;
use crate::stats::{DirectionStats, JobStats};

/// Returns the report as text, beginning with an empty line.
pub fn render(report: &Report) -> String {
    let mut out = Out(String::from("\n"));
    for job in &report.jobs {
        out.job(report, job);
    }
    let mut groups: Vec<_> = report.jobs.iter().map(|job| job.group_id).collect();
    groups.dedup();
    for group_id in groups {
        out.group(&report.jobs, group_id);
    }
    if !report.disk_util.is_empty() {
        out.line(format_args!("\nDisk stats (read/write):"));
        report.disk_util.iter().for_each(|disk| out.disk(disk));
    }
    report.extra.iter().for_each(|line| out.line(format_args!("{line}")));
    out.0
}

struct Out(String);

impl Out {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing into a String does not fail.
        let _ = writeln!(self.0, "{text}");
    }

    fn job(&mut self, report: &Report, job: &JobReport) {
        let error = match job.shown_error() {
            None => " 0".to_owned(),
            Some(error) => format!("{:2} ({})", error.errno, error.message),
        };
        let date = date::ctime(report.timestamp_ms / 1000);
        let (name, group, jobs, pid) = (&job.name, job.group_id, job.jobs, job.pid);
        self.line(format_args!(
            "{name}: (groupid={group}, jobs={jobs}): err={error}: pid={pid}: {date}"
        ));
        if let Some(text) = &job.measures.description {
            self.line(format_args!("  Description  : [{text}]"));
        }
        for direction in Direction::ALL {
            let stats = &job.stats.directions[direction.index()];
            if let Some(word) = job.word(direction).filter(|_| stats.total_ios > 0) {
                self.direction(word, stats, job, share_of_group(report, job, direction));
            }
        }
        if let Some(mixed) = &job.mixed {
            self.direction("mixed", mixed, job, 0.0);
        }
        self.bands(&job.stats);
        if job.stats.sync.moments.count() > 0 {
            self.line(format_args!("  fsync/fdatasync/sync_file_range:"));
            latency::moments(self, "sync", &job.stats.sync.moments);
            latency::percentiles(self, "sync", &job.stats.sync.histogram, job.measures.percents());
        }
        self.usage(&job.stats);
        self.depths(job);
    }

    fn direction(&mut self, word: &str, stats: &DirectionStats, job: &JobReport, share: f64) {
        let (rate, io) = (stats.bytes_per_second(), stats.io_bytes);
        let units = job.measures.units;
        let resets = match word == Direction::Write.word() {
            true => format!("; {} zone resets", job.nr_zone_resets),
            false => String::new(),
        };
        self.line(format_args!(
            "  {}: IOPS={}, BW={} ({})({}/{}msec){}",
            word,
            number::count(stats.ios_per_second() as u64),
            units.rate(rate),
            units.rate_in_other_base(rate),
            units.size(io),
            stats.runtime_ms,
            resets
        ));
        latency::moments(self, "slat", &stats.slat);
        latency::moments(self, "clat", &stats.clat.moments);
        latency::moments(self, "lat", &stats.lat);
        let name = job.measures.latency_by_priority();
        for (class, level, latency) in stats.priorities.several() {
            let name = format!("    {name} prio {class}/{level}");
            latency::moments(self, &name, &latency.moments);
        }
        let (measures, percents) = (&job.measures, job.measures.percents());
        for (name, histogram, is_shown) in [
            ("slat", &stats.slat_histogram, measures.slat_percentiles),
            ("clat", &stats.clat.histogram, measures.shows_clat()),
            ("lat", &stats.lat_histogram, measures.lat_percentiles),
        ] {
            if is_shown {
                latency::percentiles(self, name, histogram, percents);
            }
        }
        if measures.shows_priorities() {
            let total: u64 = stats.priorities.several().map(|(.., it)| it.moments.count()).sum();
            for (class, level, latency) in stats.priorities.several() {
                let share = latency.moments.count() as f64 * 100.0 / total as f64;
                let name = format!("{name} prio {class}/{level} ({share:.2}% of IOs)");
                latency::percentiles(self, &name, &latency.histogram, percents);
            }
        }
        self.samples(&stats.bw, &stats.iops, share);
    }

    fn samples(&mut self, bw: &RateSamples, iops: &RateSamples, share: f64) {
        if bw.count() == 0 {
            return;
        }
        let (unit, scale) = if bw.mean() > 1_048_576.0 { ("MiB", 1024) } else { ("KiB", 1) };
        self.line(format_args!(
            "   bw (  {unit}/s): min={:5}, max={:5}, per={share:3.2}%, avg={:5.2}, stdev={:5.2}, \
             samples={}",
            bw.min() / scale,
            bw.max() / scale,
            bw.mean() / scale as f64,
            bw.stddev() / scale as f64,
            bw.count()
        ));
        self.line(format_args!(
            "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
            iops.min(),
            iops.max(),
            iops.mean(),
            iops.stddev(),
            iops.count()
        ));
    }

    fn bands(&mut self, stats: &JobStats) {
        let (ns, us, ms) = stats.bands.percents(stats.total_ios());
        self.band_lines("nsec", &BAND_LABELS, &ns);
        self.band_lines("usec", &BAND_LABELS, &us);
        self.band_lines("msec", &BAND_LABELS_MS, &ms);
    }

    /// Formats the bands that are not empty, five to a line.
    fn band_lines(&mut self, unit: &str, labels: &[&str], percents: &[f64]) {
        let used = labels.iter().zip(percents).filter(|&(_, &percent)| percent > 0.0);
        let texts: Vec<_> = used.map(|(label, percent)| format!("{label}={percent:.2}%")).collect();
        for line in texts.chunks(5) {
            self.line(format_args!("  lat ({unit})   : {}", line.join(", ")));
        }
    }

    fn usage(&mut self, stats: &JobStats) {
        let (user, system) = cpu_percents(stats);
        self.line(format_args!(
            "  cpu          : usr={user:.2}%, sys={system:.2}%, ctx={}, majf={}, minf={}",
            stats.usage.context_switches(),
            stats.usage.major_faults,
            stats.usage.minor_faults
        ));
    }

    fn depths(&mut self, job: &JobReport) {
        let stats = &job.stats;
        let batches = |depths: &Depths| classes(&BATCH_LABELS, &depths.percents(depths.total()));
        let levels = classes(&LEVEL_LABELS, &stats.levels.percents(stats.issued_ios()));
        self.line(format_args!("  IO depths    : {levels}"));
        self.line(format_args!("     submit    : {}", batches(&stats.submits)));
        self.line(format_args!("     complete  : {}", batches(&stats.completes)));
        let each = |field: fn(&DirectionStats) -> u64| {
            stats.directions.each_ref().map(|direction| field(direction).to_string()).join(",")
        };
        self.line(format_args!(
            "     issued rwts: total={},{} short={},0 dropped={},0",
            each(DirectionStats::issued_ios),
            stats.sync.moments.count(),
            each(|direction| direction.short_ios),
            each(|direction| direction.drop_ios)
        ));
        if let Some(errors) = &job.errors {
            let (total, first) = (errors.total(), errors.first_errno());
            let text = errno::text(first);
            self.line(format_args!("     errors    : total={total}, first_error={first}/<{text}>"));
        }
        self.line(format_args!("{}", target::line(&job.target, job.iodepth)));
        if let Some(window) = &job.steady {
            self.line(format_args!("{}", steady::line(window, job.measures.units)));
        }
    }

    fn group(&mut self, jobs: &[JobReport], group_id: u32) {
        self.line(format_args!("\nRun status group {group_id} (all jobs):"));
        for direction in Direction::ALL {
            let Some(total) = GroupTotal::new(jobs, group_id, direction) else {
                continue;
            };
            let first = jobs.iter().find(|job| job.group_id == group_id);
            let word = first.and_then(|job| job.word(direction)).unwrap_or(direction.word());
            // As in fio, the units are those of the last job of the group.
            let last = jobs.iter().rev().find(|job| job.group_id == group_id);
            let units = last.map(|job| job.measures.units).unwrap_or_default();
            self.line(format_args!(
                "{:>7}: bw={} ({}), {}-{} ({}-{}), io={} ({}), run={}-{}msec",
                word.to_uppercase(),
                units.rate(total.rate()),
                units.rate_in_other_base(total.rate()),
                units.rate(total.min_rate),
                units.rate(total.max_rate),
                units.rate_in_other_base(total.min_rate),
                units.rate_in_other_base(total.max_rate),
                units.size(total.bytes),
                units.size_in_other_base(total.bytes),
                total.min_runtime_ms,
                total.max_runtime_ms
            ));
        }
    }

    fn disk(&mut self, disk: &DiskUtil) {
        self.line(format_args!(
            "  {}: ios={}/{}, merge={}/{}, ticks={}/{}, in_queue={}, util={:.2}%",
            disk.name,
            disk.read_ios,
            disk.write_ios,
            disk.read_merges,
            disk.write_merges,
            disk.read_ticks_ms,
            disk.write_ticks_ms,
            disk.in_queue_ms,
            disk.util_percent
        ));
    }
}

fn classes(labels: &[&str], percents: &[f64]) -> String {
    let texts =
        labels.iter().zip(percents).map(|(label, percent)| format!("{label}={percent:.1}%"));
    texts.collect::<Vec<_>>().join(", ")
}
