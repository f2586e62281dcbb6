//! Block sizes of an export, which a server sends as `INFO_BLOCK_SIZE`.

/// Block sizes in bytes.
///
/// Source: "Block size constraints" in the NBD protocol document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSizes {
    /// Smallest block: offsets and lengths are multiples of it. A power of two up to 65536.
    pub min: u32,
    /// Smallest size for efficient I/O: a power of two, at least 512 and `min`.
    pub preferred: u32,
    /// Largest payload of a read or a write: a multiple of `min`.
    pub max: u32,
}

impl BlockSizes {
    /// Checks that an export of this size may have these block sizes. Servers and clients use it.
    ///
    /// # Errors
    /// Returns the rule of the protocol that they break.
    pub fn check(&self, size_bytes: u64) -> Result<(), &'static str> {
        let BlockSizes { min, preferred, max } = *self;
        let rules = [
            (
                min.is_power_of_two() && min <= 1 << 16,
                "the smallest block is not a power of two up to 65536",
            ),
            (
                preferred.is_power_of_two() && preferred >= min.max(512),
                "the preferred block is not a power of two of at least 512 and the smallest block",
            ),
            (
                max.checked_rem(min) == Some(0) || max == u32::MAX,
                "the largest payload is not a multiple of the smallest block",
            ),
            (max >= min, "the largest payload is smaller than the smallest block"),
            (
                u64::from(max) >= u64::from(preferred).min(size_bytes),
                "the largest payload is smaller than the preferred block",
            ),
        ];
        let broken = rules.iter().find(|(is_kept, _)| !is_kept);
        broken.map_or(Ok(()), |(_, rule)| Err(rule))
    }
}
