//! The real clock: nanoseconds since the first look at it.

use std::sync::LazyLock;
use std::time::Instant;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Now, ns. Never goes backwards.
#[inline]
pub(crate) fn now_ns() -> u64 {
    // 2^64 ns are 584 years.
    START.elapsed().as_nanos() as u64
}
