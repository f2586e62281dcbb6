//! Results of a run of the laboratory.

use forebay_core::Histogram;

/// The figures of one run, without its warm-up.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The measured time, ns.
    pub run_ns: u64,
    /// The number of I/Os that each job has completed.
    pub ios_of_jobs: Vec<u64>,
    /// How often a job's thread went to sleep because there was no tag.
    pub nr_tag_sleeps: u64,
    /// How often a job's thread went to sleep until one of its I/Os had completed.
    pub nr_completion_sleeps: u64,
    /// How often a thread that waited for a tag was woken and found none.
    pub nr_vain_wakes: u64,
    /// How often a worker thread was woken to run the queue.
    pub nr_worker_runs: u64,
    /// How long I/Os waited for tags, ns; 0 for those that did not wait. I/Os that still waited at
    /// the end count with their time until then.
    pub tag_waits: Histogram,
    /// Latencies of I/Os, ns: those of the load's size, and in a mixed load those of 4 KiB.
    pub latencies: [Histogram; 2],
}

impl Measured {
    /// Returns the completed I/Os of all jobs per second.
    pub fn iops(&self) -> f64 {
        self.per_s(self.ios_of_jobs.iter().sum())
    }

    /// Returns the voluntary context switches of job threads in waits for tags, per second. Each
    /// sleep counts twice: from the thread, and back to it.
    pub fn tag_switches_per_s(&self) -> f64 {
        self.per_s(2 * self.nr_tag_sleeps)
    }

    /// Returns the voluntary context switches of job threads in waits for completions, per second.
    pub fn completion_switches_per_s(&self) -> f64 {
        self.per_s(2 * self.nr_completion_sleeps)
    }

    /// Returns all voluntary context switches of job threads and of the worker, per second.
    pub fn switches_per_s(&self) -> f64 {
        self.per_s(2 * (self.nr_tag_sleeps + self.nr_completion_sleeps + self.nr_worker_runs))
    }

    /// Returns the voluntary context switches of the worker that runs the queue, per second.
    pub fn run_queue_switches_per_s(&self) -> f64 {
        self.per_s(2 * self.nr_worker_runs)
    }

    /// Returns how often a thread was woken for a tag and found none, per second.
    pub fn vain_wakes_per_s(&self) -> f64 {
        self.per_s(self.nr_vain_wakes)
    }

    /// Returns the fairness index of the jobs, from 1 / jobs to 1.
    pub fn jain(&self) -> f64 {
        jain(&self.ios_of_jobs)
    }

    /// Returns the share of the job that was served least, relative to the mean: 1 is even, 0 is
    /// nothing.
    pub fn least_share(&self) -> f64 {
        let sum: u64 = self.ios_of_jobs.iter().sum();
        let least = self.ios_of_jobs.iter().min().copied().unwrap_or(0);
        if sum == 0 { 0.0 } else { least as f64 * self.ios_of_jobs.len() as f64 / sum as f64 }
    }

    fn per_s(&self, nr: u64) -> f64 {
        nr as f64 * 1e9 / self.run_ns as f64
    }
}

/// Returns the fairness index of R. Jain, D. Chiu and W. Hawe (DEC-TR-301, 1984): the square of the
/// sum, divided by the number times the sum of the squares. The index is 1 if all shares are equal,
/// 1 / n if one share is everything, and 0 if all shares are 0 or there are none.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_of_equals_and_a_share_of_a_single_one() {
        assert!((jain(&[7, 7, 7, 7]) - 1.0).abs() < 1e-12);
        assert!((jain(&[9, 0, 0, 0]) - 0.25).abs() < 1e-12);
        // (1 + 2 + 3)^2 / (3 * 14)
        assert!((jain(&[1, 2, 3]) - 36.0 / 42.0).abs() < 1e-12);
        assert_eq!((jain(&[]), jain(&[0, 0])), (0.0, 0.0));
    }

    #[test]
    fn rates_are_per_measured_second() {
        let measured = Measured {
            run_ns: 500_000_000,
            ios_of_jobs: vec![10, 30],
            nr_tag_sleeps: 3,
            nr_completion_sleeps: 5,
            nr_vain_wakes: 1,
            nr_worker_runs: 2,
            tag_waits: Histogram::default(),
            latencies: [Histogram::default(), Histogram::default()],
        };
        assert_eq!(measured.iops(), 80.0);
        assert_eq!(measured.tag_switches_per_s(), 12.0);
        assert_eq!(measured.completion_switches_per_s(), 20.0);
        assert_eq!(measured.run_queue_switches_per_s(), 8.0);
        assert_eq!(measured.switches_per_s(), 40.0);
        assert_eq!(measured.least_share(), 0.5);
    }
}
