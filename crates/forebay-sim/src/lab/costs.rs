//! Processor time of an I/O, in virtual time.

/// The time that threads take. No value was fitted to published results of several jobs: each is a
/// usual figure, or comes from the result of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The time to submit an I/O, ns, without the following steps.
    pub submit_ns: u64,
    /// The time to take a tag and issue a request, ns.
    pub tag_ns: u64,
    /// The time to reap an I/O that has ended, ns.
    pub reap_ns: u64,
    /// The minimum time from a wake-up to the first step of the thread, ns.
    pub wake_min_ns: u64,
    /// The maximum of that time. Each wake-up draws a new one.
    pub wake_max_ns: u64,
}

impl Default for Costs {
    /// Returns the costs of a thread that submits 4 KiB at a time and reaches 400k I/Os per second,
    /// as one job does on the published NVMe disk: 2.5 us for each.
    fn default() -> Costs {
        Costs {
            submit_ns: 1_200,
            tag_ns: 800,
            reap_ns: 500,
            wake_min_ns: 5_000,
            wake_max_ns: 40_000,
        }
    }
}
