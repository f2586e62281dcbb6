//! The domains of requests, each with its own depth, batch size and target.

use crate::bio::Op;
use crate::plant::plants;
use crate::scheduling::KyberParams;

/// The target of discards, which has no setting, as in Linux.
const DISCARD_LAT_NS: u64 = 5_000_000_000;

/// The depth of the device for which the depths of the domains are those of Linux.
const DEVICE_DEPTH_FULL: u32 = 256;

/// The number of domains, and of those whose latency is measured.
pub(super) const NR_DOMAINS: usize = Domain::ALL.len();
pub(super) const NR_MEASURED: usize = 3;

/// A domain: the requests of one kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    Read,
    Write,
    Discard,
    /// Not measured.
    Other,
}

impl Domain {
    /// All domains, in the order of their turns.
    pub(super) const ALL: [Domain; 4] =
        [Domain::Read, Domain::Write, Domain::Discard, Domain::Other];

    pub(super) fn of(op: Op) -> Domain {
        match op {
            Op::Read => Domain::Read,
            Op::Discard if plants!(MixDomains) => Domain::Write,
            Op::Write => Domain::Write,
            Op::Discard => Domain::Discard,
            Op::Flush | Op::WriteZeroes => Domain::Other,
        }
    }

    /// Returns the domain whose turn follows.
    pub(super) fn following(self) -> Domain {
        Domain::ALL[(self as usize + 1) % NR_DOMAINS]
    }

    /// Returns the most requests in a row while others wait.
    pub(super) const fn batch(self) -> u32 {
        match self {
            Domain::Read => 16,
            Domain::Write => 8,
            Domain::Discard | Domain::Other => 1,
        }
    }

    /// Returns the most requests at a device that takes `device_depth`: the number of Linux, or its
    /// share of a smaller depth. So only reads can use up the depth of a device.
    pub(super) fn depth_max(self, device_depth: u32) -> u32 {
        let full = match self {
            Domain::Read => 256,
            Domain::Write => 128,
            Domain::Discard => 64,
            Domain::Other => 16,
        };
        if plants!(FullDomainDepth) {
            return full;
        }
        (full * device_depth.min(DEVICE_DEPTH_FULL)).div_ceil(DEVICE_DEPTH_FULL).max(1)
    }
}

/// Returns the targets of the measured domains, in nanoseconds.
pub(super) fn targets_ns(params: &KyberParams) -> [u64; NR_MEASURED] {
    [params.read_lat_ns, params.write_lat_ns, DISCARD_LAT_NS]
}
