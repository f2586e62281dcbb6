//! Exports: their name, size, and abilities.

use alloc::string::String;

use crate::wire::numbers::{
    FLAG_CAN_MULTI_CONN, FLAG_HAS_FLAGS, FLAG_READ_ONLY, FLAG_ROTATIONAL, FLAG_SEND_CACHE,
    FLAG_SEND_DF, FLAG_SEND_FAST_ZERO, FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM,
    FLAG_SEND_WRITE_ZEROES, STRING_MAX,
};
use crate::wire::{BlockSizes, Framing};

/// Description of an export that a server sends to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name, at most 4096 bytes. A client that asks for no name gets the export with the empty
    /// name, or else the first.
    pub name: String,
    /// Human-readable description, at most 4096 bytes; may be empty.
    pub description: String,
    /// Size in bytes. Clients cannot access a tail that is shorter than the smallest block.
    pub size_bytes: u64,
    /// Supported commands and flags.
    pub can: Abilities,
    /// Block sizes.
    pub block_size: BlockSizes,
}

/// Commands and flags that an export supports. Others are refused with `EINVAL`, writes to a
/// read-only export with `EPERM`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Abilities {
    /// The export refuses WRITE, TRIM and WRITE_ZEROES.
    pub read_only: bool,
    /// Supports FLUSH.
    pub flush: bool,
    /// Supports the flag FUA, which a client may then set on any command.
    pub fua: bool,
    /// Supports TRIM.
    pub trim: bool,
    /// Supports WRITE_ZEROES, with the flag NO_HOLE.
    pub write_zeroes: bool,
    /// Supports the flag FAST_ZERO, even if every such request fails with `ENOTSUP`.
    pub fast_zero: bool,
    /// Supports CACHE.
    pub cache: bool,
    /// A flush on one connection covers the writes of all connections.
    pub multi_conn: bool,
    /// The disk is rotational.
    pub rotational: bool,
}

impl Abilities {
    /// Returns the transmission flags for these abilities.
    pub fn flags(self, framing: Framing) -> u16 {
        let writable = !self.read_only;
        let zeroes = writable && self.write_zeroes;
        let flags = [
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
        flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag)
    }

    /// Returns the abilities for these transmission flags.
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

impl ExportInfo {
    /// Withdraws the export: clients can no longer find it, and lists do not have it. Clients that
    /// have chosen it are not affected, and the indices of other exports stay as they are.
    pub fn withdraw(&mut self) {
        // A client cannot ask for a name of this length.
        self.name = "-".repeat(STRING_MAX.saturating_add(1));
        self.description = String::new();
    }

    /// Returns whether the export was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        self.name.len() > STRING_MAX
    }

    /// Checks that a server can offer this export. A server calls it once for each export, before
    /// it serves.
    ///
    /// # Errors
    /// Returns the rule of the protocol that the export breaks.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.name.len() > STRING_MAX {
            return Err("the name is longer than 4096 bytes");
        }
        if self.description.len() > STRING_MAX {
            return Err("the description is longer than 4096 bytes");
        }
        self.block_size.check(self.size_bytes)
    }
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
    fn exports_that_break_the_protocol_are_refused() {
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
        assert!(none.check(0).is_err(), "a largest payload of 0, even for an empty export");
        let long = "n".repeat(4097);
        assert!(ExportInfo { name: long.clone(), ..export(0, 1, 512, 1) }.check().is_err());
        assert!(ExportInfo { description: long, ..export(0, 1, 512, 1) }.check().is_err());
    }
}
