//! The options of zones.

use super::row;
use crate::options::{Kind, OptionSpec, values};

#[rustfmt::skip]
pub(super) const ROWS: &[OptionSpec] = &[
    row("zonemode", &[], "none",
        "strided: I/O in zones with gaps between them, one zone after the other",
        Kind::Parsed { accepts: "none or strided",
            set: |g, word| { g.load.zones.is_strided = values::is_strided(word)?; Ok(()) } }),
    row("zonesize", &[], "none given", "bytes to transfer in a zone before the next one",
        Kind::Bytes { min: 1, max: u64::MAX, set: |g, n| g.load.zones.size = n }),
    row("zonerange", &[], "as zonesize", "bytes of a zone that I/O uses",
        Kind::Bytes { min: 1, max: u64::MAX, set: |g, n| g.load.zones.range = n }),
    row("zoneskip", &[], "0", "bytes between the zonerange of a zone and the next zone",
        Kind::Parsed { accepts: "a size such as 32k, or a multiple of zonesize as in 2z",
            set: |g, text| { g.load.zones.skip = values::zone_skip(text)?; Ok(()) } }),
];
