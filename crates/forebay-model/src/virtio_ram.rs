//! A RAM disk of a host behind a virtual controller.

use crate::machine::{Done, Machine};
use crate::parameters::{TIME_NS, params};
use crate::pipe::Pipe;
use crate::{Command, Random};

params! {
    /// The constants of a [`VirtioRam`].
    ///
    /// Source of the defaults: the RAM disk behind a virtual SCSI controller (Hyper-V) of "blk-mq:
    /// avoid repeatedly scheduling the same work to run hardware queue" (2019). Eight jobs reach
    /// 190k reads of 4 KiB per second with 16 in flight in total, before and after that change, and
    /// at most 256k with more. The second figure is the limit of the guest's processors, 4.0 us per
    /// I/O; it is not part of this model. The first figure is a latency: 16 in flight at 190k per
    /// second are 84.2 us each, minus 4.0 us of the processor and 0.4 us of the transfer. The rate
    /// of the host's memory is not published. 4 KiB in 0.4 us is usual, and far above what was
    /// reached.
    ///
    /// With `req_ns` 10100, `page_ns` 4000 and no latency it is the virtual disk of "blk-plug:
    /// don't flush nested plug lists" (2015): 70.9k reads of 4 KiB per second one by one, and
    /// 215.9k in requests of 16 (published: 70.9k and 218k). There each I/O's share of processor
    /// time is part of `page_ns`, and a page is an I/O.
    pub struct VirtioRamParams {
        /// The serial cost of a request on the host, ns.
        req_ns: 0, TIME_NS;
        /// The serial cost of each 4 KiB moved, ns.
        page_ns: 400, TIME_NS;
        /// The latency to the host and back, overlapping for all requests, ns.
        latency_ns: 79_800, TIME_NS;
    }
}

/// Host memory. It serves requests one after another, each for a fixed time plus a time for each 4
/// KiB. The latency to the host and back is added to that, and overlaps for any number of requests.
/// Requests complete in the order in which they began. Requests that move no data complete at once.
/// Nothing fails.
#[derive(Clone, Debug)]
pub struct VirtioRam {
    params: VirtioRamParams,
    pipe: Pipe,
}

impl VirtioRam {
    /// Creates an idle disk.
    pub fn new(params: VirtioRamParams) -> VirtioRam {
        VirtioRam { params, pipe: Pipe::new(params.latency_ns, None) }
    }
}

impl Machine for VirtioRam {
    fn begin(&mut self, id: u32, command: &Command, now: u64, _: &mut Random) {
        let pages_ns = (u128::from(self.params.page_ns) * u128::from(command.len)).div_ceil(4096);
        let pages_ns = u64::try_from(pages_ns).unwrap_or(u64::MAX);
        self.pipe.begin(id, command, self.params.req_ns.saturating_add(pages_ns), now);
    }

    fn next_at_ns(&self) -> Option<u64> {
        self.pipe.next_at_ns()
    }

    fn take_done(&mut self, now: u64, _: &mut Random) -> Option<Done> {
        self.pipe.take_done(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{closed_loop, closed_loop_thinking};

    #[test]
    fn sixteen_in_flight_reach_190k_as_published_and_more_reach_the_processors_limit() {
        let disk = || VirtioRam::new(VirtioRamParams::default());
        let iops = closed_loop_thinking(&mut disk(), 16, 4096, 4096, 100_000, 4_000);
        assert!((189_000..=191_000).contains(&iops), "{iops}");
        for depth in [64, 256] {
            let iops = closed_loop_thinking(&mut disk(), depth, 4096, 4096, 100_000, 4_000);
            assert!((249_000..=250_000).contains(&iops), "{iops}");
        }
    }

    #[test]
    fn with_other_constants_it_is_the_disk_of_the_plug_experiment() {
        let params = VirtioRamParams { req_ns: 10_100, page_ns: 4_000, latency_ns: 0 };
        let iops = closed_loop(&mut VirtioRam::new(params), 128, 4096, 4096, 20_000);
        assert!((70_800..=71_000).contains(&iops), "{iops}");
        let merged = closed_loop(&mut VirtioRam::new(params), 8, 64 << 10, 64 << 10, 20_000);
        assert!((215_500..=216_500).contains(&(merged * 16)), "{merged}");
    }
}
