//! Clones that ended early, because no emulated zone accepted their next I/O.
//!
//! As in fio that is no error, and the exit status does not change. Unlike fio, a note for each job
//! says what is left and why.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_fio::generator::ending::{Blocked, EarlyEnd};
use forebay_fio::job::Job;

/// The part of its work that a clone has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfinished {
    why: Blocked,
    /// Bytes left, if the clone has a byte limit.
    bytes: u64,
    /// Time left, if it has none.
    time: Duration,
}

impl Unfinished {
    /// Adds a pass that ended early, with this much of the time left.
    pub(super) fn after(before: Option<Self>, end: EarlyEnd, time: Duration) -> Self {
        let bytes = before.map_or(0, |before| before.bytes);
        match end.left_bytes {
            Some(left) => {
                Self { why: end.why, bytes: bytes.saturating_add(left), time: Duration::ZERO }
            }
            None => Self { why: end.why, bytes, time },
        }
    }

    /// Adds further passes, each of which would leave `left_bytes`.
    pub(super) fn and_passes(self, nr: u32, left_bytes: Option<u64>) -> Self {
        let bytes = left_bytes.unwrap_or(0).saturating_mul(nr.into());
        Self { bytes: self.bytes.saturating_add(bytes), ..self }
    }

    /// Adds another clone.
    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time = self.time.max(other.time);
    }
}

/// Returns the notes about clones, each with the index of its job: one for each job and reason.
pub(super) fn notes(
    jobs: &[Job],
    clones: impl IntoIterator<Item = (usize, Unfinished)>,
) -> Vec<String> {
    let mut of_jobs: BTreeMap<(usize, Blocked), (u32, Unfinished)> = BTreeMap::new();
    for (job, unfinished) in clones {
        let sum = of_jobs.entry((job, unfinished.why));
        sum.and_modify(|(nr, sum)| {
            *nr += 1;
            sum.add(&unfinished);
        })
        .or_insert((1, unfinished));
    }
    let notes = of_jobs.into_iter();
    notes.map(|((job, why), (nr, sum))| note(&jobs[job], why, nr, sum)).collect()
}

fn note(job: &Job, why: Blocked, nr: u32, sum: Unfinished) -> String {
    let clones = match job.numjobs {
        1 => String::new(),
        all => format!("{nr} of {all} clones "),
    };
    let left = match sum.time {
        Duration::ZERO => format!("{} bytes", sum.bytes),
        time if time < Duration::from_secs(1) => {
            format!("{} ms of the time", time.as_nanos().div_ceil(1_000_000))
        }
        time => format!("{:.1} s of the time", time.as_secs_f64()),
    };
    format!("{}: {clones}ended early, with {left} left: {why}", job.name)
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::*;

    fn job(args: &str) -> Job {
        match parse(format!("--name=a {args}").split_whitespace().map(Into::into)) {
            Ok(Parsed::Run(command)) => command.jobs[0].clone(),
            other => panic!("{args}: {other:?}"),
        }
    }

    #[test]
    fn passes_and_clones_add_their_bytes_and_not_their_time() {
        let end = |left_bytes| EarlyEnd { why: Blocked::NoData, left_bytes };
        let first = Unfinished::after(None, end(Some(4096)), Duration::MAX);
        let mut sum = Unfinished::after(Some(first), end(Some(512)), Duration::MAX);
        sum.add(&first);
        let text = note(&job("--numjobs=3"), sum.why, 2, sum);
        assert!(text.starts_with("a: 2 of 3 clones ended early, with 8704 bytes left: "), "{text}");
        let mut sum = Unfinished::after(None, end(None), Duration::from_millis(1800));
        sum.add(&Unfinished::after(None, end(None), Duration::from_millis(1500)));
        let text = note(&job(""), sum.why, 1, sum);
        assert!(text.starts_with("a: ended early, with 1.8 s of the time left: "), "{text}");
        for (ns, left) in [(30_000_000, "30 ms"), (1, "1 ms"), (999_999_999, "1000 ms")] {
            let sum = Unfinished::after(None, end(None), Duration::from_nanos(ns));
            let text = note(&job(""), sum.why, 1, sum);
            let start = format!("a: ended early, with {left} of the time left: ");
            assert!(text.starts_with(&start), "{text}");
        }
    }
}
