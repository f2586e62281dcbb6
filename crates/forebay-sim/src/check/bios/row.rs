//! One box, the bio that is in it, and where each of its blocks stands.

use forebay_core::{BioFlags, BlockStatus, Op, Tag};

/// Bits of an address that say where in its bio a byte is; those above number the segment.
pub(crate) const OFFSET_BITS: u32 = 24;
/// Bits of an address below the box's number.
pub(crate) const SLOT_SHIFT: u32 = 32;
/// Bits of a block's value below the bio's serial number.
const VALUE_SHIFT: u32 = 16;

/// Where a block of a bio stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Not at the driver.
    Idle,
    /// At the driver.
    Issued,
    /// Moved; it must not be issued again.
    Moved,
    /// The last command that had it failed.
    Failed(BlockStatus),
    /// The last command that had it moved nothing: the end of a file.
    EndOfFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// With its owner.
    Free,
    /// In the layer.
    Queued,
    /// Ended, and on its way to its owner.
    Ended,
}

/// A box, and the bio that is in it.
#[derive(Debug)]
pub(crate) struct BioRow {
    pub(crate) owner: usize,
    pub(crate) stage: Stage,
    /// Names the bio, for ever.
    pub(crate) serial: u64,
    pub(crate) op: Op,
    pub(crate) flags: BioFlags,
    /// The first block on the device.
    pub(crate) block: u64,
    pub(crate) units: Vec<Unit>,
    /// What a read has brought, by block.
    pub(crate) values: Vec<u64>,
    /// A command had a part of it only.
    pub(crate) is_cut: bool,
    /// Tags of the budget that it holds.
    pub(crate) charge: Option<Tag>,
    /// When it was queued, by the user's image of what is durable.
    pub(crate) mark: u64,
    pub(super) queued_at: u64,
    pub(crate) queued_ns: u64,
}

impl BioRow {
    /// What block number `unit` of this bio holds once it is written.
    pub(crate) fn value(&self, unit: usize) -> u64 {
        self.serial << VALUE_SHIFT | unit as u64
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.units.iter().all(|unit| *unit == Unit::Idle)
    }

    /// Whether nothing of it was done, as far as the layer was told: a driver may have refused it.
    pub(super) fn is_undone(&self) -> bool {
        self.units.iter().all(|unit| matches!(unit, Unit::Idle | Unit::Failed(_)))
    }

    pub(crate) fn name(&self) -> String {
        let (op, block, nr) = (self.op.name(), self.block, self.units.len());
        format!("bio {} ({op} of {nr} blocks at {block}, task {})", self.serial, self.owner)
    }
}
