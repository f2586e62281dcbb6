//! The figures of the trace of one disk.

use forebay_trace::reader::TraceFiles;
use forebay_trace::record::Kind;
use forebay_trace::report::{Counts, FLUSH, Follower, LIMIT, NR_STAGES, STAGES, Times, Traced};
use std::path::PathBuf;

/// The part of all I/Os that counts as the slowest, as a divisor.
const SLOWEST_OF: usize = 100;

/// The figures of the trace of one disk.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) disk: String,
    pub(super) nr_files: usize,
    pub(super) counts: Counts,
    /// I/Os that the trace does not see complete.
    pub(super) nr_open: usize,
    /// I/Os that were in flight where records are missing.
    pub(super) nr_left_out: usize,
    pub(super) nr_missing: u64,
    pub(super) span_ns: u64,
    pub(super) first_ns: u64,
    pub(super) stages: [Times; NR_STAGES],
    pub(super) total: Times,
    /// The times of flushes, which are no part of `total`.
    pub(super) flushes: Times,
    /// The number of the slowest I/Os, one in a hundred and at least one, and the time of the
    /// fastest of them.
    pub(super) nr_slowest: usize,
    pub(super) slowest_from_ns: u64,
    /// The mean time of these in each stage.
    pub(super) slowest_mean_ns: [f64; NR_STAGES],
    /// The slowest, slowest first.
    pub(super) slowest: Vec<Traced>,
}

impl Summary {
    /// Reads the files of a disk. Keeps the `nr_listed` slowest I/Os.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has other contents, or the files have I/O of several disks.
    pub(super) fn read(disk: &str, paths: &[PathBuf], nr_listed: usize) -> Result<Summary, String> {
        let mut files = TraceFiles::open(paths).map_err(|error| error.to_string())?;
        let mut device = None;
        let (mut follower, mut done) = (Follower::default(), Vec::new());
        while let Some(entry) = files.next_entry().map_err(|error| error.to_string())? {
            let of = entry.record.device;
            if matches!(entry.record.kind, Kind::Stage(_)) && *device.get_or_insert(of) != of {
                return Err(format!(
                    "{disk}: the trace has I/O of several disks, which one report would mix: give \
                     blkparse one of them (-i), or name the directory of the trace"
                ));
            }
            follower.take(&entry, files.has_gap(), |bio| done.push(bio));
        }
        follower.finish(|bio| done.push(bio));
        let mut flushes = follower.flush_times().clone();
        flushes.sort();
        let mut stages: [Times; NR_STAGES] = Default::default();
        let mut total = Times::default();
        for bio in &done {
            total.add(bio.total_ns());
            stages.iter_mut().zip(bio.stages_ns).for_each(|(times, time_ns)| times.add(time_ns));
        }
        stages.iter_mut().for_each(Times::sort);
        total.sort();
        let first_ns = done.iter().map(|bio| bio.queued_ns).min().unwrap_or(0);
        done.sort_by_key(|bio| std::cmp::Reverse(bio.total_ns()));
        let nr_slowest = done.len().div_ceil(SLOWEST_OF);
        let slowest = &done[..nr_slowest];
        let mean = |stage: usize| {
            let sum: u128 = slowest.iter().map(|bio| u128::from(bio.stages_ns[stage])).sum();
            sum as f64 / nr_slowest.max(1) as f64
        };
        Ok(Summary {
            disk: disk.to_owned(),
            nr_files: paths.len(),
            counts: follower.counts(),
            nr_open: follower.nr_open(),
            nr_left_out: follower.nr_left_out(),
            nr_missing: files.nr_missing(),
            span_ns: follower.span_ns(),
            first_ns,
            slowest_mean_ns: std::array::from_fn(mean),
            slowest_from_ns: slowest.last().map_or(0, Traced::total_ns),
            nr_slowest,
            stages,
            total,
            flushes,
            slowest: done.into_iter().take(nr_listed).collect(),
        })
    }

    /// Returns the indices and names of the stages that text shows: waits for flushes and limits
    /// only if the trace has any.
    pub(super) fn shown_stages(&self) -> Vec<(usize, &'static str)> {
        let is_shown = |&(stage, _): &(usize, &str)| {
            ![FLUSH, LIMIT].contains(&stage) || self.stages[stage].percentile_ns(100.0) > 0
        };
        STAGES.iter().copied().enumerate().filter(is_shown).collect()
    }

    /// Returns the part of a stage in the time of all I/Os, from 0 to 1.
    pub(super) fn share(&self, stage: usize) -> f64 {
        part(self.stages[stage].mean_ns(), self.total.mean_ns())
    }

    /// Returns the part of a stage in the time of the slowest, from 0 to 1.
    pub(super) fn share_of_slowest(&self, stage: usize) -> f64 {
        part(self.slowest_mean_ns[stage], self.slowest_mean_ns.iter().sum())
    }

    /// Returns the part of the I/Os that merged with others, from 0 to 1.
    pub(super) fn merge_ratio(&self) -> f64 {
        part(self.counts.merged as f64, self.counts.queued as f64)
    }
}

fn part(of: f64, all: f64) -> f64 {
    if all > 0.0 { of / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::{json, text};
    use super::*;
    use forebay_trace::record::{Act, Categories, Record};

    #[test]
    fn damaged_numbers_are_printed_without_an_overflow() {
        let record = |act, time_ns, nth: u64, error| Record {
            sequence: 0,
            time_ns,
            sector: (1 << 60) + 8 * nth,
            bytes: 4096,
            kind: Kind::Stage(act),
            categories: Categories::READ,
            pid: 1,
            device: 0,
            cpu: 0,
            error,
            data_len: 0,
        };
        let bytes: Vec<u8> = [(Act::Queue, 1, 0), (Act::Complete, u64::MAX, i16::MIN)]
            .into_iter()
            .flat_map(|(act, at, error)| (0..200).map(move |nth| record(act, at, nth, error)))
            .flat_map(|record| record.to_bytes())
            .collect();
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("damaged.bin");
        std::fs::write(&path, bytes).expect("it is written");
        let summary = Summary::read("damaged", &[path], 1).expect("records");
        // The mean of several times that are almost 2^64 ns.
        assert_eq!((summary.nr_slowest, summary.slowest_from_ns), (2, u64::MAX - 1));
        assert_eq!(summary.slowest_mean_ns.iter().sum::<f64>(), (u64::MAX - 1) as f64);
        let text = text::render(&summary);
        assert!(text.contains(&u64::MAX.to_string()) && text.contains("failed"), "{text}");
        let json = json::render(&[summary]);
        assert!(json.contains("\"error\": 32768"), "{json}");
        assert!(json.contains("\"offset\": 18446744073709551615"), "{json}");
    }
}
