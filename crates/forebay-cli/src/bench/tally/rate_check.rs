//! The lowest rate of a job: `rate_min`, `rate_iops_min`, `rate_cycle`.
//!
//! Source: fio 3.33. The check begins after two seconds. A direction without I/O is not checked.

use forebay_fio::generator::Direction;
use forebay_fio::job::Job;
use forebay_fio::report::JobError;
use rustix::io::Errno;

use super::{Check, Tally, ns};

/// The time after the start in which no rate is checked, ns.
const SETTLE_NS: u64 = 2_000_000_000;

/// The counts of the last check.
#[derive(Debug)]
pub(super) struct RateCheck {
    every_ns: u64,
    at_ns: u64,
    /// The time of the last check; `None` before the first.
    last_ns: Option<u64>,
    /// Bytes and I/Os then, by direction.
    last: [(u64, u64); 3],
}

impl RateCheck {
    /// Returns the check of a job; `None` if it has no lowest rate.
    pub(super) fn new(job: &Job) -> Option<Box<Self>> {
        let every_ns = ns(job.control.rate_check()?);
        Some(Box::new(Self { every_ns, at_ns: SETTLE_NS, last_ns: None, last: [(0, 0); 3] }))
    }

    /// Makes no checks until [`resume`](Self::resume).
    fn suspend(&mut self) {
        (self.at_ns, self.last_ns) = (u64::MAX, None);
    }

    /// Makes checks again, after [`suspend`](Self::suspend). The first one only records the counts.
    fn resume(&mut self, now_ns: u64) {
        if self.at_ns == u64::MAX {
            self.at_ns = now_ns.max(SETTLE_NS);
        }
    }

    /// Returns the time of the next check; `u64::MAX` if there is none.
    pub(super) fn at_ns(&self) -> u64 {
        self.at_ns
    }
}

impl Tally<'_> {
    /// Suspends the checks: the I/O from here on is not that of the workload.
    pub(in crate::bench) fn suspend_rate_check(&mut self) {
        if let Some(check) = &mut self.rate_check {
            check.suspend();
        }
    }

    /// Resumes the checks: a pass over the workload begins.
    pub(in crate::bench) fn resume_rate_check(&mut self) {
        let now_ns = self.now_ns;
        if let Some(check) = &mut self.rate_check {
            check.resume(now_ns);
        }
    }

    /// Fails the job if its rate is too low, and a check is due.
    pub(super) fn check_rate(&mut self) {
        let now_ns = self.now_ns;
        let reads_back = self.written.is_some() && self.check != Check::Nothing;
        let Some(check) = self.rate_check.as_mut().filter(|check| now_ns >= check.at_ns) else {
            return;
        };
        let counts: [_; 3] = std::array::from_fn(|at| {
            let direction = &self.stats.directions[at];
            (direction.io_bytes, direction.total_ios)
        });
        check.at_ns = now_ns.saturating_add(check.every_ns);
        if reads_back {
            // The job's own rate counts again after the backlog.
            check.last_ns = None;
            return;
        }
        let last_ns = check.last_ns.replace(now_ns);
        let last = std::mem::replace(&mut check.last, counts);
        let Some(last_ns) = last_ns else { return };
        let seconds = (now_ns - last_ns).max(1) as f64 / 1e9;
        let control = &self.job.control;
        for direction in Direction::ALL {
            let at = direction.index();
            // At the end of a ramp the counts restart.
            let (Some(bytes), Some(ios)) =
                (counts[at].0.checked_sub(last[at].0), counts[at].1.checked_sub(last[at].1))
            else {
                return;
            };
            let rates = [
                ("rate_min", "bytes", control.rate_min[at], bytes),
                ("rate_iops_min", "I/Os", control.rate_iops_min[at], ios),
            ];
            for (option, unit, least, count) in rates {
                let rate = (count as f64 / seconds) as u64;
                if counts[at].1 > 0 && rate < least {
                    let word = direction.word();
                    let message = format!(
                        "--{option}={least}: {rate} {unit} per second ({word}) in the last \
                         {seconds:.1} s are too few"
                    );
                    self.error.get_or_insert(JobError { errno: Errno::IO.raw_os_error(), message });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::*;

    #[test]
    fn checks_go_on_after_a_verification() {
        let args = ["--name=a", "--filename=ram:1M", "--rate_min=1m", "--loops=2"];
        let Ok(Parsed::Run(command)) = parse(args.map(Into::into)) else { panic!("a job") };
        let mut check = RateCheck::new(&command.jobs[0]).expect("a lowest rate");
        check.resume(0);
        assert_eq!(check.at_ns(), SETTLE_NS);
        check.last_ns = Some(SETTLE_NS);
        check.suspend();
        assert_eq!(check.at_ns(), u64::MAX);
        check.resume(3 * SETTLE_NS);
        assert_eq!((check.at_ns(), check.last_ns), (3 * SETTLE_NS, None));
    }
}
