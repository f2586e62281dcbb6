//! Scripts: sequences of bios, within plugs or not, in every combination.

use super::{Kinds, Scope};
use crate::runtime::thread::Io;
use forebay_core::{BioFlags, Op, Priority};
use std::fmt;

/// The number of adjacent sectors.
pub(crate) const NR_SECTORS: u64 = 3;

/// The kind of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    WriteFua,
    PreflushWrite,
    Flush,
    Discard,
    /// A flush up to the newest durable point that the user has.
    FlushUpTo,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Read, Kind::Write, Kind::WriteFua, Kind::PreflushWrite, Kind::Flush, Kind::Discard];

    fn of(kinds: Kinds) -> &'static [Kind] {
        match kinds {
            Kinds::All => &Kind::ALL,
            Kinds::Flushes => &[Kind::Write, Kind::PreflushWrite, Kind::Flush],
            Kinds::Syncs => &[Kind::Write, Kind::WriteFua, Kind::Flush],
            Kinds::Points => &[Kind::Write, Kind::Flush, Kind::FlushUpTo],
            Kinds::Splits => &[Kind::Write, Kind::WriteFua, Kind::PreflushWrite, Kind::Flush],
        }
    }

    pub(crate) fn op(self) -> Op {
        match self {
            Kind::Read => Op::Read,
            Kind::Write | Kind::WriteFua | Kind::PreflushWrite => Op::Write,
            Kind::Flush | Kind::FlushUpTo => Op::Flush,
            Kind::Discard => Op::Discard,
        }
    }

    fn flags(self) -> BioFlags {
        match self {
            Kind::WriteFua => BioFlags::FUA,
            Kind::PreflushWrite => BioFlags::PREFLUSH,
            Kind::FlushUpTo => BioFlags::UP_TO,
            _ => BioFlags::NONE,
        }
    }

    /// Returns whether the bio requests durability.
    pub(crate) fn has_flush(self) -> bool {
        self.op() == Op::Flush || matches!(self, Kind::WriteFua | Kind::PreflushWrite)
    }

    /// Returns whether the bio may merge with another of its kind.
    fn merges(self) -> bool {
        matches!(self, Kind::Read | Kind::Write | Kind::Discard)
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Read => "R",
            Kind::Write => "W",
            Kind::WriteFua => "W+FUA",
            Kind::PreflushWrite => "PREFLUSH+W",
            Kind::Flush => "FLUSH",
            Kind::Discard => "DISCARD",
            Kind::FlushUpTo => "FLUSH-UP-TO",
        }
    }
}

/// One bio of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) kind: Kind,
    pub(crate) sector: u64,
    /// The number of sectors; 0 for a flush.
    pub(crate) nr: u64,
    /// The bio is submitted within a plug.
    pub(crate) is_plugged: bool,
    /// The index of its hardware context.
    pub(crate) hctx: usize,
}

impl Letter {
    /// Returns the I/O of this bio. `point` is the limit of a flush up to a durable point.
    pub(crate) fn io(&self, point: u64) -> Io {
        let (op, flags, cuts) = (self.kind.op(), self.kind.flags(), Vec::new());
        Io {
            op,
            flags,
            block: self.sector,
            nr: self.nr,
            cuts,
            charge: None,
            point,
            priority: Priority::default(),
        }
    }

    /// Returns its sectors as a bit mask.
    pub(crate) fn sectors(&self) -> u64 {
        mask(self.sector, self.nr)
    }
}

/// Returns the bit mask of `nr` sectors.
pub(crate) fn mask(sector: u64, nr: u64) -> u64 {
    ((1 << nr) - 1) << sector
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match self.nr {
            0 => {}
            1 => write!(f, " {}", self.sector)?,
            nr => write!(f, " {}+{nr}", self.sector)?,
        }
        if self.is_plugged {
            f.write_str(" (plugged)")?;
        }
        match self.hctx {
            0 => Ok(()),
            hctx => write!(f, " @{hctx}"),
        }
    }
}

/// Calls `act` with every script of this length. Interchangeable sectors count once: if nothing can
/// merge, they are numbered in the order of their first use.
pub(crate) fn each(scope: &Scope, act: &mut dyn FnMut(&[Letter])) {
    let plugs = match scope.short_plugs {
        _ if scope.kinds != Kinds::All => vec![0],
        true => all_plugs(scope.length),
        false => long_plugs(scope.length),
    };
    let mut script = Vec::with_capacity(scope.length);
    for plug in plugs {
        add(scope, plug, &mut script, act);
    }
}

fn add(scope: &Scope, plug: u32, script: &mut Vec<Letter>, act: &mut dyn FnMut(&[Letter])) {
    if script.len() == scope.length {
        // Sectors of bios that overlap in part are not interchangeable.
        if scope.kinds == Kinds::Splits || is_first_of_its_kind(script) {
            act(script);
        }
        return;
    }
    let is_plugged = plug >> script.len() & 1 == 1;
    for hctx in 0..scope.nr_hctxs {
        for &kind in Kind::of(scope.kinds) {
            let nr = match kind.op() {
                Op::Flush => 0,
                _ => scope.kinds.nr_sectors(),
            };
            let nr_places = if nr == 0 { 1 } else { NR_SECTORS + 1 - nr };
            for sector in 0..nr_places {
                script.push(Letter { kind, sector, nr, is_plugged, hctx });
                add(scope, plug, script, act);
                script.pop();
            }
        }
    }
}

/// Returns whether the script is the first among those that differ only in the names of its sectors
/// or contexts.
fn is_first_of_its_kind(script: &[Letter]) -> bool {
    let has_merge = script.windows(2).any(|pair| {
        let is_one_plug = pair[0].is_plugged && pair[1].is_plugged;
        is_one_plug && pair[0].kind == pair[1].kind && pair[0].kind.merges()
    });
    let sectors = script.iter().filter(|letter| letter.nr > 0);
    (has_merge || is_in_order(sectors.map(|letter| letter.sector as usize)))
        && is_in_order(script.iter().map(|letter| letter.hctx))
}

/// Returns whether each number first appears after all smaller ones.
fn is_in_order(mut numbers: impl Iterator<Item = usize>) -> bool {
    let mut next = 0;
    numbers.all(|number| {
        let is_right = number <= next;
        next = next.max(number + 1);
        is_right
    })
}

/// Returns every combination of an open or closed plug for each bio.
pub(crate) fn all_plugs(length: usize) -> Vec<u32> {
    (0..1 << length).collect()
}

/// Returns the combinations with at most one plug, of two adjacent bios or more. A bio alone in a
/// plug is the same as one submitted later.
pub(crate) fn long_plugs(length: usize) -> Vec<u32> {
    let is_stretch = |plug: &u32| {
        let stretch = plug >> plug.trailing_zeros().min(31);
        *plug == 0 || stretch > 1 && (stretch & (stretch + 1)) == 0
    };
    all_plugs(length).into_iter().filter(is_stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(length: usize, nr_hctxs: usize, plug: u32) -> usize {
        let mut nr = 0;
        let scope = Scope { nr_hctxs, ..Scope::all(length) };
        add(&scope, plug, &mut Vec::new(), &mut |_| nr += 1);
        nr
    }

    #[test]
    fn indistinguishable_sectors_count_once() {
        assert_eq!(count(1, 1, 0), 6);
        // Two bios with a sector: the same one, or different ones.
        assert_eq!(count(2, 1, 0), 25 * 2 + 2 * 5 + 1);
        // Three pairs may merge: for these all nine combinations of sectors count.
        assert_eq!(count(2, 1, 3), 61 + 3 * 7);
        assert_eq!(count(1, 2, 0), 6, "nor contexts");
    }

    #[test]
    fn long_plugs_are_stretches() {
        assert_eq!(long_plugs(2), [0, 3]);
        assert_eq!(long_plugs(4), [0, 3, 6, 7, 12, 14, 15]);
        assert_eq!(all_plugs(4).len(), 16);
    }
}
