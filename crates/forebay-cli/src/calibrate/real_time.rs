//! The loads on a real disk, run by the engine of `bench`.
//!
//! All loads are jobs of one run, so the disk is opened once. Each is a stage of its own, and the
//! repetitions alternate: every load of one before the next. So a change in the speed of the
//! machine shows as a difference between repetitions, and not as one between loads.

use std::ffi::OsString;
use std::time::Duration;

use forebay::Disk;
use forebay_fio::stats::JobStats;
use forebay_sim::calibrate::{Figures, Probe};

use super::disk::Subject;
use super::empty;
use crate::bench::run_stages;
use crate::bench::stop::Stop;
use crate::failure::Failure;

/// The shortest time for one run of a load: the report has a resolution of a millisecond.
const RUN_MIN: Duration = Duration::from_millis(60);
/// The part of that time before the measurement, and its maximum.
const WARM_UP_PART: u32 = 8;
const WARM_UP_MAX: Duration = Duration::from_millis(250);

/// The times of a calibration.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) seconds: u64,
    pub(super) repetitions: u64,
    /// The time of each run, warm-up included.
    run: Duration,
}

impl Times {
    /// Divides the time among the runs.
    ///
    /// # Errors
    /// The time is too short.
    pub(super) fn new(seconds: u64, repetitions: u64, nr_loads: usize) -> Result<Self, Failure> {
        let nr_runs = repetitions as u32 * nr_loads as u32;
        let run = Duration::from_secs(seconds) / nr_runs;
        if run < RUN_MIN {
            let least = (RUN_MIN * nr_runs).as_millis().div_ceil(1000);
            return Err(Failure::Usage(format!(
                "--seconds={seconds}: expected at least {least} for {nr_loads} loads and \
                 --repetitions={repetitions}"
            )));
        }
        Ok(Self { seconds, repetitions, run })
    }
}

/// Measures all loads. Returns the figures of each repetition.
///
/// # Errors
/// Loads would write to a disk with data, the disk cannot be opened, an I/O fails, or a signal
/// arrives.
pub(super) fn measure(
    subject: &Subject,
    times: &Times,
    stop: &Stop,
) -> Result<Vec<Vec<Figures>>, Failure> {
    let nr_loads = subject.probes.len();
    // The disk that is checked is the disk that is written to.
    let check = |disk: &Disk| match subject.writes {
        true => empty::check(disk, &subject.name),
        false => Ok(()),
    };
    let stats = run_stages(options(subject, times), stop, check)?;
    let figures = stats.iter().zip(subject.probes.iter().cycle());
    let figures: Vec<_> = figures.map(|(stats, probe)| figures_of(stats, probe)).collect();
    Ok(figures.chunks(nr_loads).map(<[Figures]>::to_vec).collect())
}

/// Returns the arguments of `bench`: a stage for each run.
fn options(subject: &Subject, times: &Times) -> Vec<OsString> {
    let warm_up = (times.run / WARM_UP_PART).min(WARM_UP_MAX);
    let of_all = [
        format!("--filename={}", subject.spec),
        "--time_based".to_owned(),
        format!("--ramp_time={}us", warm_up.as_micros()),
        format!("--runtime={}us", (times.run - warm_up).as_micros()),
        "--randrepeat=0".to_owned(),
    ];
    let mut options: Vec<String> = of_all.into();
    for repetition in 1..=times.repetitions {
        for probe in &subject.probes {
            options.push(format!("--name={probe} #{repetition}"));
            options.push("--stonewall".to_owned());
            options.extend(probe.options());
        }
    }
    options.into_iter().map(OsString::from).collect()
}

/// A thread that sleeps more seldom, as a share of its I/Os, did not wait for the device.
const SLEEPS_MIN: f64 = 0.001;

fn figures_of(stats: &JobStats, probe: &Probe) -> Figures {
    let direction = &stats.directions[usize::from(probe.access.writes())];
    let time_ns = direction.runtime_ms as f64 * 1e6;
    let busy_ns = (stats.usage.user_us + stats.usage.system_us) as f64 * 1e3;
    let figures = Figures::new(direction.total_ios, time_ns, busy_ns, &direction.clat);
    // On a busy machine such a thread had only a part of a processor.
    let sleeps = stats.usage.voluntary_switches as f64 / (direction.total_ios as f64).max(1.0);
    if sleeps < SLEEPS_MIN { Figures { busy: 1.0, ..figures } } else { figures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sim::calibrate::Access;

    #[test]
    fn thread_that_never_sleeps_is_limited_by_its_processor() {
        let probe = Probe {
            access: Access::RandomRead,
            block_bytes: 4096,
            depth: 8,
            sync_every: 0,
            is_check: false,
        };
        let mut stats = JobStats::new(0);
        let direction = &mut stats.directions[0];
        (direction.total_ios, direction.runtime_ms) = (50_000, 1000);
        (stats.usage.user_us, stats.usage.system_us) = (100_000, 300_000);
        let figures = figures_of(&stats, &probe);
        assert!(figures.is_of_processor());
        assert_eq!((figures.iops, figures.cpu_ns), (50_000.0, 8000.0));
        stats.usage.voluntary_switches = 600;
        assert!(!figures_of(&stats, &probe).is_of_processor());
    }

    #[test]
    fn time_is_divided_among_the_runs_and_too_little_is_refused() {
        let times = Times::new(120, 5, 12).expect("two minutes");
        assert_eq!(times.run, Duration::from_secs(2));
        let error = Times::new(3, 5, 12).expect_err("50 ms").to_string();
        assert_eq!(error, "--seconds=3: expected at least 4 for 12 loads and --repetitions=5");
    }
}
