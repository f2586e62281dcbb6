//! Jobs that depend on each other while they run: `wait_for`, `flow`, `exitall`.
//!
//! Source: fio's HOWTO and fio 3.33. Jobs with a flow count their I/Os together. A job whose part
//! of the sum is larger than its weight among the weights waits. Only clones in their workload are
//! part of a flow: not one that waits for its start, and not one that reads its blocks back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_fio::job::{ExitWhat, Job};

use super::gauge::Gauge;
use super::outcome::Outcome;
use super::plan::{self, Target};
use super::stop::Stop;

/// The interval at which a clone checks whether the awaited job has ended.
const POLL: Duration = Duration::from_millis(1);

/// The state that all clones of a run share.
#[derive(Debug)]
pub(super) struct Together {
    /// For each job, the clones that have not ended.
    left: Vec<AtomicU32>,
    flows: HashMap<u32, Arc<Flow>>,
}

/// The I/Os of the clones in one flow, and the sum of their weights. The counters publish no other
/// data.
#[derive(Debug, Default)]
struct Flow {
    ios: AtomicU64,
    weight: AtomicU64,
    /// Held while a clone joins or leaves.
    members: Mutex<()>,
}

impl Flow {
    /// Adds a clone. It gets the number of I/Os that it would have done so far: it need not catch
    /// up with the others, which would wait meanwhile.
    fn join(self: &Arc<Self>, weight: u32) -> FlowShare {
        let _members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let all = u128::from(self.ios.load(Ordering::Relaxed));
        let weights = u128::from(self.weight.load(Ordering::Relaxed));
        let ios = (all * u128::from(weight)).checked_div(weights).unwrap_or(0) as u64;
        self.ios.fetch_add(ios, Ordering::Relaxed);
        self.weight.fetch_add(weight.into(), Ordering::Relaxed);
        FlowShare { flow: Arc::clone(self), weight, ios }
    }
}

/// The part of a clone in a flow.
#[derive(Debug)]
pub(super) struct FlowShare {
    flow: Arc<Flow>,
    weight: u32,
    ios: u64,
}

impl FlowShare {
    /// Returns whether the clone has done more than its part.
    pub(super) fn is_ahead(&self) -> bool {
        let all = self.flow.ios.load(Ordering::Relaxed) as f64;
        let weights = self.flow.weight.load(Ordering::Relaxed) as f64;
        // Both sides of `own / all > weight / weights`.
        self.ios as f64 * weights > f64::from(self.weight) * all
    }

    /// Counts an I/O.
    pub(super) fn count(&mut self) {
        self.ios += 1;
        self.flow.ios.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for FlowShare {
    fn drop(&mut self) {
        let _members = self.flow.members.lock().unwrap_or_else(PoisonError::into_inner);
        self.flow.ios.fetch_sub(self.ios, Ordering::Relaxed);
        self.flow.weight.fetch_sub(self.weight.into(), Ordering::Relaxed);
    }
}

/// Reports the end of a clone when it is dropped, also by a panic.
#[derive(Debug)]
pub(super) struct Running<'a>(&'a AtomicU32);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Together {
    /// Returns the state before the run of these jobs.
    pub(super) fn new(jobs: &[Job]) -> Self {
        let with_flow = jobs.iter().filter(|job| job.control.flow > 0);
        let flow = |job: &Job| (job.control.flow_id, Arc::default());
        Self {
            left: jobs.iter().map(|job| AtomicU32::new(job.numjobs)).collect(),
            flows: with_flow.map(flow).collect(),
        }
    }

    /// Returns a guard that reports the end of a clone of job number `job`.
    pub(super) fn running(&self, job: usize) -> Running<'_> {
        Running(&self.left[job])
    }

    /// Returns the part in its flow of a clone that begins its workload, if it has a flow.
    pub(super) fn share(&self, job: &Job) -> Option<FlowShare> {
        let flow = self.flows.get(&job.control.flow_id).filter(|_| job.control.flow > 0)?;
        Some(flow.join(job.control.flow))
    }

    /// Waits until all clones of the job that `at` waits for have ended. Returns the start of its
    /// time: `start`, or the end of the wait.
    pub(super) fn wait(
        &self,
        jobs: &[Job],
        at: usize,
        start: Instant,
        quit: impl Fn() -> bool,
    ) -> Instant {
        let Some(name) = &jobs[at].control.wait_for else { return start };
        let awaited = jobs[..at].iter().zip(&self.left).filter(|(job, _)| job.name == *name);
        let mut has_waited = false;
        for (_, left) in awaited {
            while left.load(Ordering::Acquire) > 0 && !quit() {
                has_waited = true;
                std::thread::sleep(POLL);
            }
        }
        if has_waited { Instant::now() } else { start }
    }
}

/// Ends other clones when one has ended, if the jobs ask for that. `targets` and `gauges` are those
/// of the stage.
pub(super) fn end_others(
    jobs: &[Job],
    targets: &[Target],
    gauges: &[Gauge],
    ended: &Outcome,
    all: &Stop,
) {
    let has_failed = ended.report.error.is_some();
    let is_asked = |job: &Job| job.control.exitall || (job.control.exitall_on_error && has_failed);
    if !jobs.iter().any(is_asked) {
        return;
    }
    let what = jobs[ended.job].control.exit_what;
    for (clone, gauge) in plan::clones(targets).zip(gauges) {
        if what != ExitWhat::Group || jobs[clone[0].job].group == jobs[ended.job].group {
            gauge.quit();
        }
    }
    if what == ExitWhat::All {
        all.end_stages();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fio::cmdline::{Parsed, parse};

    #[test]
    fn flow_divides_ios_by_weight() {
        let args = [
            "--name=a",
            "--flow=3",
            "--filename=ram:1M",
            "--name=b",
            "--flow=1",
            "--filename=ram:1M",
        ];
        let Ok(Parsed::Run(command)) = parse(args.map(Into::into)) else { panic!("two jobs") };
        let together = Together::new(&command.jobs);
        let mut shares: Vec<_> =
            command.jobs.iter().filter_map(|job| together.share(job)).collect();
        for _ in 0..4000 {
            for share in &mut shares {
                if !share.is_ahead() {
                    share.count();
                }
            }
        }
        let ratio = shares[0].ios as f64 / shares[1].ios as f64;
        assert!((2.9..3.1).contains(&ratio), "{ratio}");
        // The other one has ended.
        shares.remove(1);
        assert!(!shares[0].is_ahead());
    }

    #[test]
    fn clone_that_joins_a_flow_later_does_not_stop_the_others() {
        let flow = Arc::new(Flow::default());
        let mut early = flow.join(2);
        (0..1000).for_each(|_| early.count());
        assert!(!early.is_ahead());
        let mut late = flow.join(1);
        assert!(!early.is_ahead());
        early.count();
        assert!(early.is_ahead());
        late.count();
        assert!(!early.is_ahead());
        drop(late);
        (0..1000).for_each(|_| early.count());
        assert!(!early.is_ahead());
    }

    #[test]
    fn job_starts_when_all_clones_of_the_awaited_one_have_ended() {
        let args = [
            "--filename=ram:1M",
            "--name=a",
            "--numjobs=2",
            "--name=b",
            "--numjobs=1",
            "--wait_for=a",
        ];
        let Ok(Parsed::Run(command)) = parse(args.map(Into::into)) else { panic!("two jobs") };
        let together = Together::new(&command.jobs);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for delay_ms in [5, 20] {
                let running = together.running(0);
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(delay_ms));
                    drop(running);
                });
            }
            let begun = together.wait(&command.jobs, 1, start, || false);
            assert!(begun >= start + Duration::from_millis(20));
        });
        assert_eq!(together.wait(&command.jobs, 0, start, || false), start);
    }
}
