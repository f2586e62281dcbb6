//! Sample of waits, with and without polls: the time and the processor time that requests take.
//!
//! If other threads run during the yields of polls, and soon yield or sleep themselves, polling
//! threads share the processors: other rings, and their clients. If several requests also gather
//! between waits, the time of one thread's requests does not show whether polls pay off. A thread
//! that sleeps has an advantage, because its wake-up preempts the others. But it is woken for each
//! single request, and all threads together serve less. So the processor time of a request decides.

/// Minimum gain of a block with polls: the cost of a request without polls, in hundredths of that
/// with polls.
const MIN_GAIN: u64 = 110;
/// Blocks over which the cost of requests with polls is averaged: an interrupt or a short
/// preemption may double that of one block.
const NR_AVERAGED: u64 = 8;
/// Minimum part of the waits in which other threads ran, if the processors are shared: one divided
/// by this.
const SHARED_PART: u64 = 4;
/// Maximum number of waits that a long yield may end: those with short yields, divided by this.
/// Yields to busy threads are long. So are up to a fifth of the yields to other rings while these
/// sleep.
const LONG_PART: u64 = 2;
/// Minimum average number of requests between two waits for which processor time decides. For a
/// client with a single request in flight, the time of the request matters.
const GATHERED: u64 = 2;
/// Processor time of the client to wake this thread from a sleep, ns.
const KICK_NS: u64 = 1_000;

/// Time and requests of some waits, each with the work that follows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Short waits, and how many of them let other threads run for a short time.
    pub(super) nr_waits: u64,
    pub(super) nr_shared: u64,
    /// Short waits that a long yield has ended.
    pub(super) nr_long: u64,
    /// Requests and time of the short waits.
    pub(super) nr_requests: u64,
    pub(super) ns: u64,
    /// Requests and processor time of all waits.
    pub(super) nr_served: u64,
    pub(super) cpu_ns: u64,
}

impl Sample {
    /// Adds a block to an average over the last blocks.
    pub(super) fn average(&mut self, block: &Sample) {
        let add = |sum: &mut u64, block: u64| *sum = *sum - *sum / NR_AVERAGED + block;
        add(&mut self.nr_waits, block.nr_waits);
        add(&mut self.nr_shared, block.nr_shared);
        add(&mut self.nr_long, block.nr_long);
        add(&mut self.nr_requests, block.nr_requests);
        add(&mut self.ns, block.ns);
        add(&mut self.nr_served, block.nr_served);
        add(&mut self.cpu_ns, block.cpu_ns);
    }

    /// Returns whether polls have paid off, compared with waits without polls.
    pub(super) fn beats(&self, slept: &Sample) -> bool {
        if self.is_shared() {
            let slept_cpu_ns = slept.cpu_ns + slept.nr_waits * KICK_NS;
            return is_less((self.cpu_ns, self.nr_served), 1, (slept_cpu_ns, slept.nr_served), 1);
        }
        let (time, slept_time) = ((self.ns, self.nr_requests), (slept.ns, slept.nr_requests));
        is_less(time, MIN_GAIN, slept_time, 100)
    }

    /// Returns whether threads that soon yield or sleep ran in many of the waits, and requests
    /// gathered meanwhile.
    fn is_shared(&self) -> bool {
        self.nr_shared * SHARED_PART >= self.nr_waits
            && self.nr_long * LONG_PART <= self.nr_shared
            && self.nr_requests >= self.nr_waits * GATHERED
    }
}

/// Returns whether the cost of a request, times a factor, is less than another one, times its
/// factor.
fn is_less((cost, nr): (u64, u64), factor: u64, other: (u64, u64), other_factor: u64) -> bool {
    let product =
        |cost: u64, nr: u64, factor: u64| u128::from(cost) * u128::from(nr) * u128::from(factor);
    product(cost, other.1, factor) < product(other.0, nr, other_factor)
}
