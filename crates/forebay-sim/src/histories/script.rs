//! What a user does: some bios, within a plug or not, in every combination.

use super::{Kinds, Scope};
use forebay_core::{Bio, BioFlags, Op, Segment};
use std::fmt;

/// How many sectors there are, side by side.
pub(crate) const NR_SECTORS: u64 = 3;

pub(crate) const SECTOR: u64 = 512;

/// What a bio does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    WriteFua,
    PreflushWrite,
    Flush,
    Discard,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Read, Kind::Write, Kind::WriteFua, Kind::PreflushWrite, Kind::Flush, Kind::Discard];

    fn of(kinds: Kinds) -> &'static [Kind] {
        match kinds {
            Kinds::All => &Kind::ALL,
            Kinds::Flushes => &[Kind::Write, Kind::PreflushWrite, Kind::Flush],
            Kinds::Syncs => &[Kind::Write, Kind::WriteFua, Kind::Flush],
        }
    }

    pub(crate) fn op(self) -> Op {
        match self {
            Kind::Read => Op::Read,
            Kind::Write | Kind::WriteFua | Kind::PreflushWrite => Op::Write,
            Kind::Flush => Op::Flush,
            Kind::Discard => Op::Discard,
        }
    }

    fn flags(self) -> BioFlags {
        match self {
            Kind::WriteFua => BioFlags::FUA,
            Kind::PreflushWrite => BioFlags::PREFLUSH,
            _ => BioFlags::NONE,
        }
    }

    /// Whether it says something of durability.
    pub(crate) fn has_flush(self) -> bool {
        matches!(self, Kind::Flush | Kind::WriteFua | Kind::PreflushWrite)
    }

    /// Whether it may join another bio of its kind.
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
        }
    }
}

/// One bio of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) kind: Kind,
    pub(crate) sector: u64,
    /// The plug is open.
    pub(crate) is_plugged: bool,
    /// Which hardware context it goes to.
    pub(crate) hctx: usize,
}

impl Letter {
    /// The bio, as number `nth`: its memory's address says so.
    pub(crate) fn bio(&self, nth: usize) -> Bio {
        let start = self.sector * SECTOR;
        let mut bio = match self.kind {
            Kind::Flush => Bio::flush(),
            Kind::Discard => Bio::range(Op::Discard, start, SECTOR),
            kind => Bio::data(kind.op(), start, Segment { addr: address(nth), len: SECTOR as u32 }),
        };
        bio.flags = self.kind.flags();
        bio.user_data = nth as u64;
        bio
    }

    /// What it leaves in its sector, as number `nth`.
    pub(crate) fn value(nth: usize) -> u64 {
        nth as u64 + 1
    }
}

/// The memory of bio number `nth`. No two are neighbours.
fn address(nth: usize) -> usize {
    (nth + 1) << 16
}

/// Whose memory this is.
pub(crate) fn owner(addr: usize) -> usize {
    (addr >> 16) - 1
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.kind != Kind::Flush {
            write!(f, " {}", self.sector)?;
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

/// Calls `act` with every script of this length. Sectors that cannot be told apart count once:
/// where nothing merges, they are numbered as they are first used.
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
        if is_first_of_its_kind(script) {
            act(script);
        }
        return;
    }
    let is_plugged = plug >> script.len() & 1 == 1;
    for hctx in 0..scope.nr_hctxs {
        for &kind in Kind::of(scope.kinds) {
            let nr_sectors = if kind == Kind::Flush { 1 } else { NR_SECTORS };
            for sector in 0..nr_sectors {
                script.push(Letter { kind, sector, is_plugged, hctx });
                add(scope, plug, script, act);
                script.pop();
            }
        }
    }
}

/// Whether no other name of its sectors, or of its contexts, comes before it.
fn is_first_of_its_kind(script: &[Letter]) -> bool {
    let has_merge = script.windows(2).any(|pair| {
        let is_one_plug = pair[0].is_plugged && pair[1].is_plugged;
        is_one_plug && pair[0].kind == pair[1].kind && pair[0].kind.merges()
    });
    let sectors = script.iter().filter(|letter| letter.kind != Kind::Flush);
    (has_merge || is_in_order(sectors.map(|letter| letter.sector as usize)))
        && is_in_order(script.iter().map(|letter| letter.hctx))
}

/// Whether each number comes for the first time after all that are smaller.
fn is_in_order(mut numbers: impl Iterator<Item = usize>) -> bool {
    let mut next = 0;
    numbers.all(|number| {
        let is_right = number <= next;
        next = next.max(number + 1);
        is_right
    })
}

/// Every way to have the plug open or closed for each bio.
pub(crate) fn all_plugs(length: usize) -> Vec<u32> {
    (0..1 << length).collect()
}

/// Those of them in which the plug is open for one stretch of two bios or more, or not at all: one
/// alone in a plug is one that is submitted later.
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
    fn sectors_that_cannot_be_told_apart_count_once() {
        assert_eq!(count(1, 1, 0), 6);
        // Two bios with a sector: the same one, or another.
        assert_eq!(count(2, 1, 0), 25 * 2 + 2 * 5 + 1);
        // Three pairs may merge: there all nine places differ.
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
