//! The options of zones.

use super::row;
use crate::options::{Kind, OptionSpec, values};

#[rustfmt::skip]
pub(super) const ROWS: &[OptionSpec] = &[
    row("zonemode", &[], "none",
        "strided: zones with gaps between them; zbd: zones with write pointers, emulated",
        Kind::Parsed { accepts: "none, strided or zbd",
            set: |g, word| { g.load.zones.mode = values::zone_mode(word)?; Ok(()) } }),
    row("zonesize", &[], "none given",
        "strided: bytes to transfer in a zone before the next one; zbd: bytes of a zone",
        Kind::Bytes { min: 1, max: u64::MAX, set: |g, n| g.load.zones.size = n }),
    row("zonerange", &[], "as zonesize", "strided: bytes of a zone that I/O uses",
        Kind::Bytes { min: 1, max: u64::MAX, set: |g, n| g.load.zones.range = n }),
    row("zoneskip", &[], "0", "strided: bytes between the zonerange of a zone and the next zone",
        Kind::Parsed { accepts: "a size such as 32k, or a multiple of zonesize as in 2z",
            set: |g, text| { g.load.zones.skip = values::zone_skip(text)?; Ok(()) } }),
    row("zonecapacity", &[], "as zonesize", "zbd: bytes that can be written to a zone",
        Kind::Bytes { min: 0, max: u64::MAX, set: |g, n| g.load.zones.capacity = n }),
    row("max_open_zones", &[], "0 (any number)",
        "zbd: maximum number of zones of a file that are open for writes at the same time",
        Kind::Int { min: 0, max: 4096, set: |g, n| g.load.zones.max_open = n as u32 }),
    row("job_max_open_zones", &[], "0 (any number)",
        "zbd: maximum number of zones that a clone has open for writes at the same time",
        Kind::Int { min: 0, max: 4096, set: |g, n| g.load.zones.job_max_open = n as u32 }),
    row("zone_reset_frequency", &[], "0", "zbd: resets of zones per write",
        Kind::Parsed { accepts: "a number from 0 to 1, such as 0.01",
            set: |g, text| { g.load.zones.reset_frequency = values::share(text)?; Ok(()) } }),
    row("zone_reset_threshold", &[], "0",
        "zbd: fraction of the region that must contain data before zone_reset_frequency applies",
        Kind::Parsed { accepts: "a number from 0 to 1, such as 0.5",
            set: |g, text| { g.load.zones.reset_threshold = values::share(text)?; Ok(()) } }),
    row("read_beyond_wp", &[], "0", "zbd: whether reads may go beyond the write pointer",
        Kind::Bool { set: |g, on| g.load.zones.read_beyond_wp = on }),
    row("ignore_zone_limits", &[], "0",
        "zbd: accepted, no effect: emulated zones have no limits of a device",
        Kind::Bool { set: |g, on| g.load.zones.ignores_limits = on }),
];
