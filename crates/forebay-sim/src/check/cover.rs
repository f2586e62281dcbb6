//! Coverage: a request covers exactly its bios. Each byte of the request is the byte of a bio that
//! belongs there, in that bio's own memory.

use super::bios::{Bios, OFFSET_BITS, SLOT_SHIFT, Stage};
use super::rules::COVERS;
use super::{Broken, Verdict, broken};
use forebay_core::{IssuedRequest, Op, Segment};

/// A part of one bio within a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) slot: u32,
    /// The first block, counted from the start of the bio.
    pub(crate) first: usize,
    pub(crate) nr: usize,
    /// The first block on the device.
    pub(crate) block: u64,
}

impl Piece {
    pub(crate) fn units(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.nr
    }
}

/// Lists the parts of bios that a request covers, in `out`.
pub(crate) fn pieces(
    rq: &IssuedRequest<'_>,
    bios: &Bios,
    block_size: u64,
    out: &mut Vec<Piece>,
) -> Verdict {
    out.clear();
    match rq.op {
        Op::Flush => Ok(()),
        Op::Read | Op::Write => of_memory(rq, bios, block_size, out),
        Op::Discard | Op::WriteZeroes => of_ranges(rq, bios, block_size, out),
    }?;
    let nr_blocks: usize = out.iter().map(|piece| piece.nr).sum();
    if nr_blocks as u64 * block_size != rq.len {
        let what = format!("{} bytes at {} have {nr_blocks} blocks of bios", rq.len, rq.start);
        return broken(COVERS, what);
    }
    let nr_bios = out.chunk_by(|piece, next| piece.slot == next.slot).count();
    match nr_bios <= rq.nr_bios as usize || rq.op == Op::Flush {
        true => Ok(()),
        false => broken(COVERS, format!("{nr_bios} bios, said to be {}", rq.nr_bios)),
    }
}

/// Finds the parts by the addresses of the segments. An address has the number of the box and the
/// offset in the bio.
fn of_memory(
    rq: &IssuedRequest<'_>,
    bios: &Bios,
    block_size: u64,
    out: &mut Vec<Piece>,
) -> Verdict {
    let mut start = rq.start;
    // The part under construction: box, start and end in bytes.
    let mut open: Option<(u32, u64, u64)> = None;
    for Segment { addr, len } in rq.segments() {
        let slot = (addr >> SLOT_SHIFT) as u32;
        let offset = addr as u64 & ((1 << OFFSET_BITS) - 1);
        let end = offset + u64::from(len);
        let row = bios.row(slot);
        let belongs = row.block * block_size + offset == start
            && end <= row.nr_units() as u64 * block_size
            && (row.stage, row.op) == (Stage::Queued, rq.op);
        if !belongs {
            let what = format!("bytes {offset} to {end} of box {slot} at {start}");
            return broken(COVERS, what);
        }
        start += u64::from(len);
        open = match open {
            Some((open_slot, from, to)) if open_slot == slot && to == offset => {
                Some((slot, from, end))
            }
            Some(done) => {
                out.push(piece(bios, block_size, done)?);
                Some((slot, offset, end))
            }
            None => Some((slot, offset, end)),
        };
    }
    if let Some(done) = open {
        out.push(piece(bios, block_size, done)?);
    }
    Ok(())
}

fn piece(bios: &Bios, size: u64, (slot, from, to): (u32, u64, u64)) -> Result<Piece, Broken> {
    if !from.is_multiple_of(size) || !to.is_multiple_of(size) {
        let what = format!("bytes {from} to {to} of box {slot} are not whole blocks");
        return Err(Broken::new(COVERS, what));
    }
    let first = (from / size) as usize;
    let nr = ((to - from) / size) as usize;
    Ok(Piece { slot, first, nr, block: bios.row(slot).block + first as u64 })
}

/// Finds the parts by their ranges. No two bios without memory that are in the layer overlap.
fn of_ranges(
    rq: &IssuedRequest<'_>,
    bios: &Bios,
    block_size: u64,
    out: &mut Vec<Piece>,
) -> Verdict {
    for (start, len) in rq.ranges() {
        let (block, nr) = (start / block_size, len / block_size);
        let Some(slot) = bios.of_range(rq.op, block, nr) else {
            let what = format!("a {} of {len} bytes at {start} is nobody's", rq.op.name());
            return broken(COVERS, what);
        };
        let first = (block - bios.row(slot).block) as usize;
        out.push(Piece { slot, first, nr: nr as usize, block });
    }
    Ok(())
}
