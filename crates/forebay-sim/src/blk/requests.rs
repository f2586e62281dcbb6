//! Requests of a driver: good ones, bad ones with a known status, and one that has no status.

use super::memory::GuestMemory;
use super::met::Met;
use super::queue::Request;
use super::scenario::{NR_RANGES_MAX, Wish};
use super::shared::Shared;
use crate::sectors::{Kind, Stamp};
use crate::server::Context;
use forebay_front::blk::{ID_LEN, RANGES_MAX, SECTOR};

pub(super) const OK: u8 = 0;
pub(super) const IO_ERROR: u8 = 1;
pub(super) const UNSUPPORTED: u8 = 2;

pub(super) const F_FLUSH: u64 = 1 << 9;
pub(super) const F_DISCARD: u64 = 1 << 13;
pub(super) const F_WRITE_ZEROES: u64 = 1 << 14;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

/// The byte that fills writable memory before the request.
const FILL: u8 = 0xaa;

/// The status that a request must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Success; or a failure, if the device may fail.
    Good,
    /// This status.
    Refused(u8),
    /// None: the ring must stop.
    Never,
}

/// A request before it has a head.
#[derive(Debug)]
pub(super) struct Draft {
    readable: Vec<u8>,
    nr_writable: usize,
    pub(super) expected: Expected,
    /// Its effects on the sectors, if it succeeds: the first sector of each.
    pub(super) effects: Vec<(u64, Kind)>,
    pub(super) data: Data,
}

/// The data of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    None,
    /// Sectors from this one on.
    Sectors(u64),
    /// The serial number.
    Id,
}

impl Draft {
    fn new(readable: Vec<u8>, nr_writable: usize, expected: Expected) -> Draft {
        Draft { readable, nr_writable, expected, effects: Vec::new(), data: Data::None }
    }

    fn with(self, effects: Vec<(u64, Kind)>) -> Draft {
        Draft { effects, ..self }
    }

    /// Returns the request with a head.
    pub(super) fn request(&self, head: u16) -> Request {
        Request {
            head,
            readable: GuestMemory::new(self.readable.clone()),
            writable: GuestMemory::new(vec![FILL; self.nr_writable]),
            has_status: self.expected != Expected::Never,
        }
    }

    /// Returns the number of bytes that the device writes before the status of a good answer.
    pub(super) fn nr_written(&self) -> u32 {
        match self.data {
            Data::None => 0,
            Data::Sectors(_) => self.nr_writable as u32,
            Data::Id => self.nr_writable.min(ID_LEN) as u32,
        }
    }
}

fn header(kind: u32, sector: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat()
}

fn range(sector: u64, nr_sectors: u64, flags: u32) -> Vec<u8> {
    let nr_sectors = nr_sectors as u32;
    [&sector.to_le_bytes()[..], &nr_sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

/// Draws a range of whole blocks. Returns its first sector and its length.
fn place(shared: &Shared, cx: &mut Context) -> (u64, u64) {
    let load = &shared.load;
    let nr = cx.random.between(1, load.nr_blocks_max.min(load.nr_blocks));
    let first = cx.random.below(load.nr_blocks - nr + 1);
    let nr_sectors = load.block / SECTOR;
    (first * nr_sectors, nr * nr_sectors)
}

/// Draws a good request. `stamp`: of a write.
pub(super) fn good(wish: Wish, stamp: Stamp, shared: &Shared, cx: &mut Context) -> Draft {
    let (first, nr_sectors) = place(shared, cx);
    let len = (nr_sectors * SECTOR) as usize;
    let good = Expected::Good;
    let draft = match wish {
        Wish::Read | Wish::Bad => {
            let draft = Draft::new(header(IN, first), len, good);
            Draft { data: Data::Sectors(first), ..draft.with(vec![(first, Kind::Read(vec![]))]) }
        }
        Wish::Write => {
            let mut bytes = vec![0; len];
            let sectors = bytes.chunks_mut(SECTOR as usize).zip(first..);
            sectors.for_each(|(bytes, sector)| stamp.fill(sector, bytes));
            let kind = Kind::Write { stamp, nr_sectors, fua: false };
            Draft::new([header(OUT, first), bytes].concat(), 0, good).with(vec![(first, kind)])
        }
        Wish::Flush => Draft::new(header(FLUSH, 0), 0, good).with(vec![(0, Kind::Flush)]),
        Wish::GetId => {
            let nr = cx.random.below(30) as usize;
            Draft { data: Data::Id, ..Draft::new(header(GET_ID, 0), nr, good) }
        }
        Wish::Discard | Wish::Zero => ranges(wish, shared, cx),
    };
    let changes = matches!(wish, Wish::Write | Wish::Discard | Wish::Zero);
    if changes && shared.device.read_only {
        cx.note(Met::ReadOnlyRefused, 0, 0);
        return Draft { expected: Expected::Refused(IO_ERROR), effects: Vec::new(), ..draft };
    }
    draft
}

/// Draws a discard or a write-zeroes of one range or several.
fn ranges(wish: Wish, shared: &Shared, cx: &mut Context) -> Draft {
    let nr = if cx.random.chance(1, 2) { 1 } else { cx.random.between(2, NR_RANGES_MAX) };
    if nr > 1 {
        cx.note(Met::SeveralRanges, nr, 0);
    }
    let type_number = if wish == Wish::Discard { DISCARD } else { WRITE_ZEROES };
    let mut bytes = header(type_number, 0);
    let mut effects = Vec::new();
    for _ in 0..nr {
        let (first, nr_sectors) = place(shared, cx);
        // The device may ignore a permission to unmap, but a discard has no flags.
        let unmap = u32::from(wish == Wish::Zero && cx.random.chance(1, 3));
        let nr_sectors = if cx.random.chance(1, 8) { 0 } else { nr_sectors };
        bytes.extend(range(first, nr_sectors, unmap));
        if nr_sectors > 0 {
            let kind = match wish {
                Wish::Discard => Kind::Trim { nr_sectors },
                _ => Kind::Zero { nr_sectors, fua: false },
            };
            effects.push((first, kind));
        }
    }
    Draft::new(bytes, 0, Expected::Good).with(effects)
}

/// Draws a request with a status other than OK.
pub(super) fn bad(features: u64, shared: &Shared, cx: &mut Context) -> Draft {
    let nr_sectors = shared.device.nr_sectors;
    let nr_all = nr_sectors;
    let data = |kind, sector, len: usize| [header(kind, sector), vec![7; len]].concat();
    let ranges_of = |kind, ranges: &[u8]| [&header(kind, 0)[..], ranges].concat();
    let or_unsupported = |feature: u64, status| match features & feature {
        0 => UNSUPPORTED,
        _ => status,
    };
    let for_discard = |status| or_unsupported(F_DISCARD, status);
    let for_zero = |status| or_unsupported(F_WRITE_ZEROES, status);
    // The device checks flags after it has refused a change of a read-only disk.
    let flags = if shared.device.read_only { IO_ERROR } else { UNSUPPORTED };
    let many = range(0, 0, 0).repeat(RANGES_MAX + 1);
    let (readable, nr_writable, status) = match cx.random.below(20) {
        0 => (Vec::new(), 0, IO_ERROR),
        1 => (vec![0; 15], 512, IO_ERROR),
        2 => (header(77, 0), 0, UNSUPPORTED),
        3 => (header(1 << 31, 0), 512, UNSUPPORTED),
        4 => (header(IN, 0), 511, IO_ERROR),
        5 => (header(IN, nr_sectors), 512, IO_ERROR),
        6 => (header(IN, nr_sectors - 1), 1024, IO_ERROR),
        7 => (header(IN, u64::MAX), 512, IO_ERROR),
        8 => (data(IN, 0, 512), 512, IO_ERROR),
        9 => (data(OUT, 0, 513), 0, IO_ERROR),
        10 => (data(OUT, nr_sectors, 512), 0, IO_ERROR),
        11 => (data(OUT, u64::MAX, 1024), 0, IO_ERROR),
        12 => (data(OUT, 0, 512), 512, IO_ERROR),
        13 => (header(DISCARD, 0), 0, for_discard(IO_ERROR)),
        14 => (ranges_of(DISCARD, &range(0, 1, 1)), 0, for_discard(flags)),
        15 => (ranges_of(DISCARD, &range(nr_all, 1, 0)), 0, for_discard(IO_ERROR)),
        16 => (ranges_of(WRITE_ZEROES, &range(0, 1, 4)), 0, for_zero(flags)),
        // The disk refuses half a block.
        18 if shared.load.block > SECTOR => (header(IN, 1), 512, IO_ERROR),
        17 => (ranges_of(WRITE_ZEROES, &many), 0, for_zero(IO_ERROR)),
        _ => {
            let two = [range(0, 1, 0), range(u64::MAX, 2, 0)].concat();
            (ranges_of(WRITE_ZEROES, &two), 0, for_zero(IO_ERROR))
        }
    };
    Draft::new(readable, nr_writable, Expected::Refused(status))
}

/// Returns a request without a byte for its status.
pub(super) fn unanswerable() -> Draft {
    Draft::new(header(IN, 0), 0, Expected::Never)
}
