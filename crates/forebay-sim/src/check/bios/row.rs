//! One box: the bio in it, and the state of each block.

use forebay_core::{BioFlags, BlockStatus, Class, Op, Tag};

/// Bits of an address that hold the byte's offset in its bio. The bits above number the segment.
pub(crate) const OFFSET_BITS: u32 = 24;
/// Bits of an address below the box's number.
pub(crate) const SLOT_SHIFT: u32 = 32;
/// Bits of a block's value below the bio's serial number.
const VALUE_SHIFT: u32 = 16;

/// The state of a block of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Not at the driver.
    Idle,
    /// At the driver.
    Issued,
    /// Transferred; it must not be issued again.
    Moved,
    /// The last command with this block failed.
    Failed(BlockStatus),
    /// The last command with this block transferred nothing: the end of a file.
    EndOfFile,
}

impl Unit {
    #[inline]
    fn is_sent(self) -> bool {
        matches!(self, Unit::Issued | Unit::Moved)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// With its owner.
    Free,
    /// In the layer.
    Queued,
    /// Ended, but not yet reaped by its owner.
    Ended,
}

/// A box, and the bio in it.
#[derive(Debug)]
pub(crate) struct BioRow {
    pub(crate) owner: usize,
    pub(crate) stage: Stage,
    /// Identifies the bio; never used again.
    pub(crate) serial: u64,
    pub(crate) op: Op,
    pub(crate) flags: BioFlags,
    /// The number of the owner whose limits it counts against; 0: none.
    pub(crate) limited_by: u32,
    /// The first block on the device.
    pub(crate) block: u64,
    pub(super) units: Vec<Unit>,
    /// The number of blocks that are [`Unit::Idle`], and of those at the driver or transferred.
    nr_idle: usize,
    nr_sent: usize,
    /// The values that a read returned, by block.
    pub(crate) values: Vec<u64>,
    /// A command had only a part of the bio.
    pub(crate) is_cut: bool,
    /// The layer may end the bio although it is in a command that was given up (H5).
    pub(crate) is_given_up: bool,
    /// The bio was in a command when it ended, so its box must not be used again.
    pub(crate) is_kept: bool,
    /// A driver was offered a command with a part of the bio.
    pub(crate) is_tried: bool,
    /// The class of its priority, its place in the order of arrival at the context (0: not there),
    /// and whether a driver was offered a command with it.
    pub(crate) class: Class,
    pub(crate) arrival: u64,
    pub(crate) was_offered: bool,
    /// Tags of the budget that the bio holds.
    pub(crate) charge: Option<Tag>,
    /// The time of queueing, in the user's image of durable data.
    pub(crate) mark: u64,
    /// The number of flushes that its context had completed when it accepted the bio.
    pub(crate) nr_flushes_before: u64,
    pub(super) queued_at: u64,
    pub(crate) queued_ns: u64,
    pub(crate) ended_ns: u64,
}

/// Returns the serial number of the bio that has written a value, and the number of its block.
pub(crate) fn split_value(value: u64) -> (u64, u64) {
    (value >> VALUE_SHIFT, value & ((1 << VALUE_SHIFT) - 1))
}

impl Default for BioRow {
    fn default() -> BioRow {
        BioRow {
            owner: 0,
            stage: Stage::Free,
            serial: 0,
            op: Op::Flush,
            flags: BioFlags::NONE,
            limited_by: 0,
            block: 0,
            units: Vec::new(),
            nr_idle: 0,
            nr_sent: 0,
            values: Vec::new(),
            is_cut: false,
            is_given_up: false,
            is_kept: false,
            is_tried: false,
            class: Class::BestEffort,
            arrival: 0,
            was_offered: false,
            charge: None,
            mark: 0,
            nr_flushes_before: 0,
            queued_at: 0,
            queued_ns: 0,
            ended_ns: 0,
        }
    }
}

impl BioRow {
    /// Returns the value that block number `unit` of this bio holds after the write.
    pub(crate) fn value(&self, unit: usize) -> u64 {
        self.serial << VALUE_SHIFT | unit as u64
    }

    /// Returns whether its memory stays valid for longer than the bio.
    pub(crate) fn is_owned(&self) -> bool {
        !self.op.moves_data() || self.flags.contains(BioFlags::OWNED)
    }

    /// Makes it a free box of `owner` that was never used. Keeps the allocated memory.
    pub(super) fn renew(&mut self, owner: usize) {
        let (mut units, mut values) =
            (std::mem::take(&mut self.units), std::mem::take(&mut self.values));
        units.clear();
        values.clear();
        *self = BioRow { owner, units, values, ..BioRow::default() };
    }

    /// Returns the number of its blocks.
    #[inline]
    pub(crate) fn nr_units(&self) -> usize {
        self.units.len()
    }

    /// Returns the state of a block.
    #[inline]
    pub(crate) fn unit(&self, at: usize) -> Unit {
        self.units[at]
    }

    /// Gives it so many blocks, none of them at the driver.
    pub(super) fn set_idle(&mut self, nr: usize) {
        self.units.clear();
        self.units.resize(nr, Unit::Idle);
        (self.nr_idle, self.nr_sent) = (nr, 0);
    }

    /// Sets the state of blocks.
    #[inline]
    pub(super) fn set(&mut self, units: std::ops::Range<usize>, to: Unit) {
        let (nr, nr_all) = (units.len(), self.units.len());
        let units = &mut self.units[units];
        if nr == nr_all {
            (self.nr_idle, self.nr_sent) = (0, 0);
        } else {
            for unit in &*units {
                self.nr_idle -= usize::from(*unit == Unit::Idle);
                self.nr_sent -= usize::from(unit.is_sent());
            }
        }
        match units {
            // Most bios have one block.
            [unit] => *unit = to,
            units => units.fill(to),
        }
        self.nr_idle += if to == Unit::Idle { nr } else { 0 };
        self.nr_sent += if to.is_sent() { nr } else { 0 };
    }

    /// Returns whether no block was ever at the driver, as far as the layer knows.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.nr_idle == self.units.len()
    }

    /// Returns whether some block is at the driver or transferred.
    #[inline]
    pub(crate) fn is_sent(&self) -> bool {
        self.nr_sent > 0
    }

    /// Returns whether no block was transferred, as far as the layer knows. A driver may have
    /// refused the bio.
    pub(super) fn is_undone(&self) -> bool {
        self.units.iter().all(|unit| matches!(unit, Unit::Idle | Unit::Failed(_)))
    }

    pub(crate) fn name(&self) -> String {
        let (op, block, nr) = (self.op.name(), self.block, self.units.len());
        format!("bio {} ({op} of {nr} blocks at {block}, task {})", self.serial, self.owner)
    }
}
