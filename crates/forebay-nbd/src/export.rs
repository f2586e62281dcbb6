//! What a server offers: an export, what it can do, and the sizes that it takes.

use alloc::string::String;

use crate::wire::Framing;
use crate::wire::numbers::{
    FLAG_CAN_MULTI_CONN, FLAG_HAS_FLAGS, FLAG_READ_ONLY, FLAG_ROTATIONAL, FLAG_SEND_CACHE,
    FLAG_SEND_DF, FLAG_SEND_FAST_ZERO, FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM,
    FLAG_SEND_WRITE_ZEROES, STRING_MAX,
};

/// An export, as clients are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its name, at most 4096 bytes. A client that gives none means the export with an empty name,
    /// or else the first.
    pub name: String,
    /// A description for people, at most 4096 bytes; may be empty.
    pub description: String,
    /// Its size in bytes. A tail shorter than the smallest block is out of reach.
    pub size_bytes: u64,
    /// What it can do.
    pub can: Abilities,
    /// The sizes that it takes.
    pub block_size: BlockSizes,
}

/// What an export can do. What is not offered is refused with `EINVAL`, writes to a read-only
/// export with `EPERM`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Abilities {
    /// No writes, no trims, no zeroes.
    pub read_only: bool,
    /// FLUSH.
    pub flush: bool,
    /// FUA, which a client may then set on any command.
    pub fua: bool,
    /// TRIM.
    pub trim: bool,
    /// WRITE_ZEROES, with NO_HOLE.
    pub write_zeroes: bool,
    /// WRITE_ZEROES with FAST_ZERO, even if it always answers that it is not fast.
    pub fast_zero: bool,
    /// CACHE.
    pub cache: bool,
    /// A flush on one connection covers what was written on all.
    pub multi_conn: bool,
    /// A disk that turns.
    pub rotational: bool,
}

impl Abilities {
    /// The transmission flags that tell of them.
    pub fn flags(self, framing: Framing) -> u16 {
        let writable = !self.read_only;
        let zeroes = writable && self.write_zeroes;
        let told = [
            (true, FLAG_HAS_FLAGS),
            (self.read_only, FLAG_READ_ONLY),
            (self.flush, FLAG_SEND_FLUSH),
            (self.fua, FLAG_SEND_FUA),
            (self.rotational, FLAG_ROTATIONAL),
            (writable && self.trim, FLAG_SEND_TRIM),
            (zeroes, FLAG_SEND_WRITE_ZEROES),
            (zeroes && self.fast_zero, FLAG_SEND_FAST_ZERO),
            (self.multi_conn, FLAG_CAN_MULTI_CONN),
            (self.cache, FLAG_SEND_CACHE),
            (framing != Framing::Simple, FLAG_SEND_DF),
        ];
        told.iter().filter(|(is_so, _)| *is_so).fold(0, |flags, (_, flag)| flags | flag)
    }

    /// The abilities that transmission flags tell of: the other way.
    pub const fn of_flags(flags: u16) -> Abilities {
        Abilities {
            read_only: flags & FLAG_READ_ONLY != 0,
            flush: flags & FLAG_SEND_FLUSH != 0,
            fua: flags & FLAG_SEND_FUA != 0,
            trim: flags & FLAG_SEND_TRIM != 0,
            write_zeroes: flags & FLAG_SEND_WRITE_ZEROES != 0,
            fast_zero: flags & FLAG_SEND_FAST_ZERO != 0,
            cache: flags & FLAG_SEND_CACHE != 0,
            multi_conn: flags & FLAG_CAN_MULTI_CONN != 0,
            rotational: flags & FLAG_ROTATIONAL != 0,
        }
    }
}

/// Block sizes in bytes.
///
/// Source: "Block size constraints" in the NBD protocol document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSizes {
    /// What offsets and lengths are multiples of: a power of two up to 65536.
    pub min: u32,
    /// From where on I/O is efficient: a power of two, 512 and `min` or more.
    pub preferred: u32,
    /// The largest payload, of a read or a write: a multiple of `min`.
    pub max: u32,
}

impl BlockSizes {
    /// Whether an export of so many bytes may have them, for whoever offers it and for whoever is
    /// told of it.
    ///
    /// # Errors
    /// What the protocol does not allow about them.
    pub fn check(&self, size_bytes: u64) -> Result<(), &'static str> {
        let BlockSizes { min, preferred, max } = *self;
        kept(&[
            (
                min.is_power_of_two() && min <= 1 << 16,
                "its smallest block is not a power of two up to 65536",
            ),
            (
                preferred.is_power_of_two() && preferred >= min.max(512),
                "its preferred block is not a power of two from 512 and its smallest block on",
            ),
            (
                max.checked_rem(min) == Some(0) || max == u32::MAX,
                "its largest payload is not a multiple of its smallest block",
            ),
            (max >= min, "its largest payload is smaller than its smallest block"),
            (
                u64::from(max) >= u64::from(preferred).min(size_bytes),
                "its largest payload is smaller than its preferred block",
            ),
        ])
    }
}

impl ExportInfo {
    /// Whether it can be offered as it is: a server asks this once, before it serves.
    ///
    /// # Errors
    /// What the protocol does not allow about it, for the person who configured it.
    pub fn check(&self) -> Result<(), &'static str> {
        kept(&[
            (self.name.len() <= STRING_MAX, "its name is longer than 4096 bytes"),
            (self.description.len() <= STRING_MAX, "its description is longer than 4096 bytes"),
        ])?;
        self.block_size.check(self.size_bytes)
    }
}

/// The first rule that is not kept.
fn kept(rules: &[(bool, &'static str)]) -> Result<(), &'static str> {
    rules.iter().find(|(is_kept, _)| !is_kept).map_or(Ok(()), |(_, rule)| Err(rule))
}

#[cfg(test)]
mod tests {
    use super::{Abilities, BlockSizes, ExportInfo};

    fn export(size_bytes: u64, min: u32, preferred: u32, max: u32) -> ExportInfo {
        ExportInfo {
            name: "a".into(),
            description: "b".into(),
            size_bytes,
            can: Abilities::default(),
            block_size: BlockSizes { min, preferred, max },
        }
    }

    #[test]
    fn what_the_protocol_does_not_allow_is_said() {
        for (size_bytes, min, preferred, max) in [
            (1 << 30, 1, 4096, 1 << 25),
            (1 << 30, 512, 512, u32::MAX),
            (1 << 30, 1 << 16, 1 << 16, 1 << 16),
            (100, 1, 4096, 100),
            (0, 512, 4096, 512),
        ] {
            assert_eq!(export(size_bytes, min, preferred, max).check(), Ok(()));
        }
        for (min, preferred, max) in [
            (0, 4096, 1 << 25),
            (3, 4096, 3 << 20),
            (1 << 17, 1 << 17, 1 << 17),
            (512, 256, 1 << 25),
            (4096, 2048, 1 << 25),
            (512, 6000, 1 << 25),
            (512, 4096, (1 << 25) + 1),
            (512, 4096, 2048),
            (512, 4096, 0),
        ] {
            assert!(
                export(1 << 30, min, preferred, max).check().is_err(),
                "{min} {preferred} {max}"
            );
        }
        let none = BlockSizes { min: 512, preferred: 512, max: 0 };
        assert!(none.check(0).is_err(), "no payload at all, though there is nothing to read");
        let long = "n".repeat(4097);
        assert!(ExportInfo { name: long.clone(), ..export(0, 1, 512, 1) }.check().is_err());
        assert!(ExportInfo { description: long, ..export(0, 1, 512, 1) }.check().is_err());
    }
}
