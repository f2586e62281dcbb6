//! Retries of failed writes: none is overtaken by a write of another bio (A1, A2).
//!
//! A block is retried if its last command failed and its bio issues it again. The checker records
//! which bio has last written each block. It begins with the first failure of a run: before that
//! there is nothing to retry.

use super::bios::{Bios, Unit};
use super::cover::Piece;
use super::{Verdict, broken, rules};
use crate::sparse::Sparse;

/// The last write of a block.
#[derive(Clone, Copy, Debug)]
struct LastWrite {
    slot: u32,
    serial: u64,
    unit: usize,
    is_retry: bool,
}

/// The last write of each block since the first failure.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    has_failed: bool,
    last: Sparse<Option<LastWrite>>,
}

impl Retries {
    /// Forgets all writes and failures.
    pub(crate) fn reset(&mut self) {
        if std::mem::take(&mut self.has_failed) {
            self.last.all().for_each(|last| *last = None);
        }
    }

    /// Records that a command has failed.
    pub(crate) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// Records and checks that blocks of a bio are about to be written.
    pub(crate) fn issue(&mut self, piece: &Piece, bios: &Bios) -> Verdict {
        if !self.has_failed {
            return Ok(());
        }
        let row = bios.row(piece.slot);
        for (unit, block) in piece.units().zip(piece.block..) {
            let is_retry = matches!(row.unit(unit), Unit::Failed(_));
            let write = LastWrite { slot: piece.slot, serial: row.serial, unit, is_retry };
            let Some(before) = self.last.at_mut(block).replace(write) else { continue };
            if before.serial == row.serial {
                continue;
            }
            if is_retry {
                let what = format!("block {block} of {}, after bio {}", row.name(), before.serial);
                return broken(rules::A2, what);
            }
            let other = bios.row(before.slot);
            let is_there = other.serial == before.serial && other.unit(before.unit) == Unit::Issued;
            if before.is_retry && is_there {
                let what = format!("block {block} of {}, beside {}", row.name(), other.name());
                return broken(rules::A1, what);
            }
        }
        Ok(())
    }
}
