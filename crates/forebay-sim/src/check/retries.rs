//! Retries of failed writes: none is overtaken by a write of another bio (A1, A2).
//!
//! A block is retried if its last command failed and its bio issues it again. The checker records
//! which bio has last written each block. It begins with the first failure of a run: before that
//! there is nothing to retry. A command that the device refuses changes nothing, so it overtakes no
//! other. But it may be retried, and then others may have overtaken it.

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
    /// Its place among the commands of all blocks.
    number: u64,
}

/// A block of a bio whose write was refused, and the place of that command.
#[derive(Clone, Copy, Debug)]
struct Refused {
    serial: u64,
    unit: usize,
    number: u64,
}

/// The last write of each block since the first failure.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    has_failed: bool,
    last: Sparse<Option<LastWrite>>,
    /// Refused writes that were not retries.
    refused: Vec<Refused>,
    number: u64,
}

impl Retries {
    /// Forgets all writes and failures.
    pub(crate) fn reset(&mut self) {
        if std::mem::take(&mut self.has_failed) {
            self.last.all().for_each(|last| *last = None);
            self.refused.clear();
            self.number = 0;
        }
    }

    /// Records that a command has failed.
    pub(crate) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// Records and checks that blocks of a bio are about to be written, or would be if the device
    /// had not refused the command.
    pub(crate) fn issue(&mut self, piece: &Piece, is_refused: bool, bios: &Bios) -> Verdict {
        if !self.has_failed {
            return Ok(());
        }
        let row = bios.row(piece.slot);
        self.number += 1;
        let number = self.number;
        for (unit, block) in piece.units().zip(piece.block..) {
            let is_retry = matches!(row.unit(unit), Unit::Failed(_));
            let write = LastWrite { slot: piece.slot, serial: row.serial, unit, is_retry, number };
            let last = self.last.at_mut(block);
            let before = if is_refused { *last } else { last.replace(write) };
            if is_refused && !is_retry {
                self.refused.push(Refused { serial: row.serial, unit, number });
            }
            let Some(before) = before else { continue };
            if before.serial == row.serial {
                continue;
            }
            if is_retry && !self.was_refused_after(before.number, row.serial, unit) {
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

    /// Returns whether the device has refused a block of a bio since the command with this number.
    fn was_refused_after(&self, number: u64, serial: u64, unit: usize) -> bool {
        let is_it = |refused: &Refused| (refused.serial, refused.unit) == (serial, unit);
        self.refused.iter().any(|refused| is_it(refused) && refused.number > number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::register::Register;
    use forebay_core::{Bio, BlockStatus, Op};

    /// Returns two bios that write block 0, in boxes 0 and 1. The command of the first has failed.
    fn two_writes(retries: &mut Retries) -> (Bios, [Piece; 2]) {
        let (mut bios, mut register) = (Bios::new(512, false, Vec::new()), Register::default());
        let pieces = [0, 1].map(|slot| Piece { slot, first: 0, nr: 1, block: 0 });
        for slot in 0..2 {
            assert_eq!(bios.new_row(0), slot);
            bios.queue(slot, &Bio::range(Op::Write, 0, 512), 0, &mut register);
        }
        retries.failed();
        assert!(retries.issue(&pieces[0], false, &bios).is_ok());
        bios.complete(0, 0..1, Unit::Failed(BlockStatus::Io));
        (bios, pieces)
    }

    #[test]
    fn write_is_overtaken_by_a_later_one_unless_the_device_refused_that() {
        for is_refused in [false, true] {
            let mut retries = Retries::default();
            let (bios, [first, second]) = two_writes(&mut retries);
            assert!(retries.issue(&second, is_refused, &bios).is_ok());
            assert_eq!(retries.issue(&first, false, &bios).is_ok(), is_refused);
        }
    }

    #[test]
    fn retry_of_an_overtaken_write_is_found_although_the_device_refuses_it() {
        let mut retries = Retries::default();
        let (bios, [first, second]) = two_writes(&mut retries);
        assert!(retries.issue(&second, false, &bios).is_ok());
        assert!(retries.issue(&first, true, &bios).is_err());
    }

    #[test]
    fn refused_write_is_overtaken_only_by_a_later_one() {
        for is_overtaken in [false, true] {
            let mut retries = Retries::default();
            let (mut bios, [first, second]) = two_writes(&mut retries);
            assert!(retries.issue(&second, true, &bios).is_ok());
            bios.complete(1, 0..1, Unit::Failed(BlockStatus::Io));
            if is_overtaken {
                assert!(retries.issue(&first, false, &bios).is_ok());
            }
            assert_eq!(retries.issue(&second, false, &bios).is_ok(), !is_overtaken);
        }
    }
}
