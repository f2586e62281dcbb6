//! What a client asks for: stamps, and reads of them.

use super::{NR_SECTORS, SECTOR};
use crate::sectors::{End, Kind, Op, Stamp, Value};
use forebay_model::Random;
use forebay_nbd::client::{Command, Request};

/// The longest request, sectors.
const MOST_SECTORS: u64 = 9;

/// A request, its entry in the log, and its payload.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) op: Op,
    pub(super) payload: Vec<u8>,
}

/// Draws a request. `stamp` is used if it is a write.
pub(super) fn draw(random: &mut Random, stamp: Stamp, now: u64) -> Asked {
    let nr_sectors = random.between(1, MOST_SECTORS);
    let first = random.below(NR_SECTORS - nr_sectors + 1);
    let fua = random.chance(1, 8);
    let mut payload = Vec::new();
    let (command, kind) = match random.below(20) {
        0 | 1 => (Command::Flush, Kind::Flush),
        2 => (Command::WriteZeroes { fua }, Kind::Zero { nr_sectors, fua }),
        3 => (Command::Trim, Kind::Trim { nr_sectors }),
        4..=11 => (Command::Read, Kind::Read(vec![Value::Unseen; nr_sectors as usize])),
        _ => (Command::Write { fua }, Kind::Write { stamp, nr_sectors, fua }),
    };
    if matches!(command, Command::Write { .. }) {
        payload.resize((nr_sectors * SECTOR) as usize, 0);
        for (sector, bytes) in (first..).zip(payload.chunks_mut(SECTOR as usize)) {
            stamp.fill(sector, bytes);
        }
    }
    let (offset, len) = match command {
        Command::Flush => (0, 0),
        _ => (first * SECTOR, nr_sectors * SECTOR),
    };
    let op = Op { kind, first, began: now, end: End::Unknown };
    Asked { request: Request { command, offset, len }, op, payload }
}

/// What a read has brought.
pub(super) fn read(op: &mut Op, data: &[u8]) {
    if let Kind::Read(values) = &mut op.kind {
        let sectors = (op.first..).zip(data.chunks(SECTOR as usize));
        for ((sector, bytes), value) in sectors.zip(values) {
            *value = value_of(sector, bytes);
        }
    }
}

/// What a sector holds.
pub(super) fn value_of(sector: u64, bytes: &[u8]) -> Value {
    Value::of(sector, bytes)
}
