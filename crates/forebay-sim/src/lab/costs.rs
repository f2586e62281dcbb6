//! What processors take for their part of an I/O, in virtual time.

/// The time that threads spend. None of it was fitted to a row of several jobs: each is a usual
/// figure, or comes from the row of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// To submit an I/O, ns, without what follows.
    pub submit_ns: u64,
    /// To take a tag and hand a request over, ns.
    pub tag_ns: u64,
    /// To reap an I/O that has ended, ns.
    pub reap_ns: u64,
    /// From a wake-up to the first step of the thread, ns: at least.
    pub wake_min_ns: u64,
    /// The same, at most; each time another.
    pub wake_max_ns: u64,
}

impl Default for Costs {
    /// A thread that submits 4 KiB at a time manages 400k I/Os per second, as one job does on the
    /// published NVMe disk: 2.5 us for each.
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
