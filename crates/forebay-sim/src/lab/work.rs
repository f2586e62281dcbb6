//! Queue runs that Linux leaves to a worker thread: how often the worker is woken.

/// When a device's queue leaves work to a worker thread.
///
/// Forebay has no such thread: the holder of the token makes the turn. The runs are counted for the
/// wake policies of Linux, because the published switches include them. Two events leave work to
/// the worker: a thread goes to sleep with requests in its plug (they may not be issued from within
/// the scheduler), or a request completes while others wait in the elevator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// No worker: requests go from the thread to the device (no elevator).
    Absent,
    /// Requests pass an elevator, in front of a device of this depth.
    Behind {
        /// The depth of the device.
        device_depth: u32,
    },
}

/// Counts the runs of a worker.
#[derive(Debug)]
pub(super) struct Work {
    worker: Worker,
    /// The time when the pending run begins. New work until then joins that run.
    pending_until: u64,
    pub(super) nr_runs: u64,
}

impl Work {
    pub(super) fn new(worker: Worker) -> Work {
        Work { worker, pending_until: 0, nr_runs: 0 }
    }

    /// Records that a thread sleeps with requests in its plug. The worker would need `latency_ns`
    /// to begin.
    pub(super) fn plug_left(&mut self, now: u64, latency_ns: u64, is_counted: bool) {
        if self.worker != Worker::Absent {
            self.schedule(now, latency_ns, is_counted);
        }
    }

    /// Records that a request is done while `nr_in_flight` are not.
    pub(super) fn done(&mut self, nr_in_flight: u32, now: u64, latency_ns: u64, is_counted: bool) {
        if let Worker::Behind { device_depth } = self.worker
            && nr_in_flight > device_depth
        {
            self.schedule(now, latency_ns, is_counted);
        }
    }

    fn schedule(&mut self, now: u64, latency_ns: u64, is_counted: bool) {
        if now >= self.pending_until {
            self.pending_until = now + latency_ns;
            self.nr_runs += u64::from(is_counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_before_the_worker_runs_share_one_run() {
        let mut work = Work::new(Worker::Behind { device_depth: 32 });
        work.plug_left(100, 20, true);
        work.plug_left(110, 20, true);
        work.done(33, 119, 20, true);
        assert_eq!(work.nr_runs, 1);
        work.done(33, 120, 20, true);
        work.done(32, 200, 20, true);
        assert_eq!(work.nr_runs, 2, "an elevator that is empty has no work");
    }

    #[test]
    fn without_an_elevator_nothing_is_left_to_a_worker() {
        let mut work = Work::new(Worker::Absent);
        work.plug_left(100, 20, true);
        work.done(1000, 100, 20, true);
        assert_eq!(work.nr_runs, 0);
    }
}
