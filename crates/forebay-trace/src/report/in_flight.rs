//! The bios that have not ended, and the commands at the driver.
//!
//! D makes a command of the pieces that it covers, and C ends the oldest command of its range. The
//! rest after a short count waits for another D. So does a command that a busy driver refuses (R).
//! A failed command of several bios may be tried again, bio by bio: bios without another D end at
//! the end of the trace.
//!
//! Discards merge without being neighbours. Then the records of their request have the start of the
//! first bio, and the length of all.

use super::bio::{Open, sectors_of};
use super::waiting::{BioId, Cover, Note, Op, Phase, Piece, Waiting};
use crate::record::{Categories, Record};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The error of a NOWAIT request that would have had to wait.
const EAGAIN: i16 = -11;

/// The operations of bios, for messages, which have none.
const OPS: [Op; 9] = {
    const WRITE: Categories = Categories::WRITE;
    const DISCARD: Categories = WRITE.with(Categories::DISCARD);
    [
        Categories::READ.0,
        WRITE.0,
        WRITE.with(Categories::FLUSH).0,
        WRITE.with(Categories::FUA).0,
        WRITE.with(FLUSHES).0,
        DISCARD.0,
        DISCARD.with(Categories::FLUSH).0,
        DISCARD.with(Categories::FUA).0,
        DISCARD.with(FLUSHES).0,
    ]
};

/// The flags of requests that need flushes.
const FLUSHES: Categories = Categories::FLUSH.with(Categories::FUA);

/// Returns the operation of a record.
fn op_of(record: &Record) -> Op {
    let ops = Categories::READ.with(Categories::WRITE).with(Categories::DISCARD);
    record.categories.0 & ops.with(FLUSHES).0
}

/// Returns the operations of the bios that a record may be about, the likeliest first. Linux
/// removes the flags of the flushes that it issues itself.
fn ops_of(record: &Record) -> [Op; 4] {
    let op = Categories(op_of(record));
    let with = |flags: Categories| op.with(flags).0;
    [op.0, with(Categories::FLUSH), with(Categories::FUA), with(FLUSHES)]
}

fn is_discard(op: Op) -> bool {
    Categories(op).has(Categories::DISCARD)
}

/// Commands of the same operation and range, oldest first. A command has the pieces of its bios in
/// the order of their sectors.
type Commands = VecDeque<Vec<Piece>>;

/// The bios that have not ended.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    bios: HashMap<BioId, Open>,
    nr_queued: BioId,
    waiting: Waiting,
    /// The commands at the driver: operation, first sector, and the sector after the last.
    commands: BTreeMap<(Op, u64, u64), Commands>,
    /// Discards that have merged with requests without a tag, oldest first.
    merged_discards: VecDeque<Piece>,
    /// Discards that a scheduler has merged with requests that have one, oldest first.
    absorbed_discards: VecDeque<Piece>,
    /// The other discards of a request that has a tag, by its first bio.
    tagged_discards: HashMap<BioId, Vec<Piece>>,
}

impl InFlight {
    /// Adds the bio of a Q.
    pub(super) fn queue(&mut self, record: &Record) -> BioId {
        let id = self.nr_queued;
        self.nr_queued += 1;
        self.bios.insert(id, Open::new(record));
        let (start, end) = sectors_of(record);
        let piece = Piece { bio: id, op: op_of(record), start, end };
        self.waiting.push_back(Phase::Queued, piece);
        id
    }

    /// Ends the wait of a bio in a plug.
    pub(super) fn unplug(&mut self, id: BioId, now: u64) {
        if let Some(bio) = self.bios.get_mut(&id)
            && bio.issued_ns.is_none()
        {
            bio.unplugged_ns = Some(now);
        }
    }

    /// Takes an M or F. `last` is the bio that the same thread has queued last: if the record is
    /// not about that one, its request has merged in the scheduler with one that has a tag.
    pub(super) fn merge(&mut self, record: &Record, last: Option<BioId>) {
        let (op, range) = (op_of(record), sectors_of(record));
        if let Some(bio) = last.and_then(|id| self.bios.get_mut(&id))
            && bio.sectors() == range
        {
            bio.is_merged = true;
            if is_discard(op) {
                let piece = self.waiting.take_newest(Phase::Queued, op, range, &self.bios);
                self.merged_discards.extend(piece);
            }
            return;
        }
        for piece in self.take(&[Phase::Queued, Phase::Tagged], record) {
            self.change(piece, |bio| bio.is_merged = true);
            if !is_discard(op) {
                self.waiting.push_back(Phase::Tagged, piece);
                continue;
            }
            self.absorbed_discards.push_back(piece);
            // The discards that its request has merged with before go along.
            let others = self.tagged_discards.remove(&piece.bio);
            self.absorbed_discards.extend(others.into_iter().flatten());
        }
    }

    /// Takes an S. Returns whether no earlier one was about this request.
    pub(super) fn sleep(&mut self, record: &Record) -> bool {
        let range = sectors_of(record);
        let noted = self.waiting.note(Note::Sleep, op_of(record), range, &self.bios);
        let mut is_first = false;
        for bio in noted {
            if let Some(bio) = self.bios.get_mut(&bio) {
                is_first |= !std::mem::replace(&mut bio.has_slept, true);
            }
        }
        is_first
    }

    /// Takes a message about the request of a range: a limit released it.
    pub(super) fn release(&mut self, range: (u64, u64), now: u64) {
        for bio in self.note(Note::Limit, range) {
            if let Some(bio) = self.bios.get_mut(&bio) {
                bio.released_ns.get_or_insert(now);
            }
        }
    }

    /// Takes a message about the request of a range: the flush before its data has ended. Returns
    /// the bio if that has ended it.
    pub(super) fn flush(&mut self, range: (u64, u64), error: i16, now: u64) -> Option<Open> {
        let id = *self.note(Note::Flush, range).first()?;
        let bio = self.bios.get_mut(&id)?;
        if error == 0 {
            bio.flushed_ns.get_or_insert(now);
            return None;
        }
        bio.fail(range.0, error, now);
        self.bios.remove(&id)
    }

    /// Notes an event of the oldest request of a range, of any operation. A flush event prefers
    /// a request with PREFLUSH.
    fn note(&mut self, note: Note, range: (u64, u64)) -> Vec<BioId> {
        let (waiting, bios) = (&mut self.waiting, &self.bios);
        let mut oldest_of = |op: Op| {
            let lacks_preflush = note == Note::Flush && !Categories(op).has(Categories::FLUSH);
            Some((lacks_preflush, waiting.oldest_lacking(note, op, range, bios)?, op))
        };
        let oldest = OPS.into_iter().filter_map(&mut oldest_of).min();
        oldest.map_or(Vec::new(), |(_, _, op)| self.waiting.note(note, op, range, &self.bios))
    }

    /// Takes an X, with the sector where the rest begins.
    pub(super) fn split(&mut self, record: &Record, rest: u64) {
        let (op, (start, end)) = (op_of(record), sectors_of(record));
        if !(start < rest && rest < end) {
            return;
        }
        let piece = self.waiting.take_exact(Phase::Queued, op, (start, end), &self.bios);
        let Some(piece) = piece else { return };
        self.waiting.push_front(Phase::Queued, Piece { end: rest, ..piece });
        self.waiting.push_front(Phase::Queued, Piece { start: rest, ..piece });
        self.change(piece, |bio| bio.nr_left += 1);
    }

    /// Takes a G.
    pub(super) fn tag(&mut self, record: &Record) {
        let mut pieces = self.take(&[Phase::Queued], record);
        self.add_discards(&mut pieces, record);
        for piece in &pieces {
            self.change(*piece, |bio| _ = bio.tagged_ns.get_or_insert(record.time_ns));
        }
        self.keep_discards(&mut pieces, record);
        for piece in pieces {
            self.waiting.push_back(Phase::Tagged, piece);
        }
    }

    /// Takes a D.
    pub(super) fn issue(&mut self, record: &Record) {
        // Merged requests need not have a G, and other traces may have none.
        let mut pieces = self.take(&[Phase::Tagged, Phase::Failed, Phase::Queued], record);
        self.add_discards(&mut pieces, record);
        for piece in &pieces {
            self.change(*piece, |bio| {
                bio.issued_ns.get_or_insert(record.time_ns);
                bio.failure = bio.failure.filter(|(sector, _)| *sector != piece.start);
            });
        }
        if !pieces.is_empty() {
            let (start, end) = sectors_of(record);
            self.commands.entry((op_of(record), start, end)).or_default().push_back(pieces);
        }
    }

    /// Takes an R.
    pub(super) fn requeue(&mut self, record: &Record) {
        let mut pieces = self.take_command(record).unwrap_or_default();
        for piece in &pieces {
            self.change(*piece, |bio| bio.was_requeued = true);
        }
        self.keep_discards(&mut pieces, record);
        for piece in pieces {
            self.waiting.push_front(Phase::Tagged, piece);
        }
    }

    /// Takes a C. Returns the bios that have ended.
    pub(super) fn complete(&mut self, record: &Record) -> Vec<Open> {
        match record.error {
            0 => self.succeed(record),
            error => self.fail(record, error),
        }
    }

    fn succeed(&mut self, record: &Record) -> Vec<Open> {
        let (_, end) = sectors_of(record);
        // A read of no bytes has met the end of a file. A discard is complete or has failed.
        let is_end = record.bytes == 0 || is_discard(op_of(record));
        let mut ended = Vec::new();
        for piece in self.take_command(record).unwrap_or_default() {
            if piece.end <= end || is_end {
                ended.extend(self.end(piece));
            } else {
                let rest = Piece { start: piece.start.max(end), ..piece };
                self.waiting.push_front(Phase::Tagged, rest);
            }
        }
        ended
    }

    fn fail(&mut self, record: &Record, error: i16) -> Vec<Open> {
        let (op, now) = (op_of(record), record.time_ns);
        let refused = (error == EAGAIN)
            .then(|| self.waiting.take_newest(Phase::Queued, op, sectors_of(record), &self.bios))
            .flatten();
        let (pieces, was_issued) = match refused.map(|piece| vec![piece]) {
            Some(pieces) => (pieces, false),
            None => match self.take_command_of(op, sectors_of(record)) {
                Some(pieces) => (pieces, true),
                // It has failed before it was issued.
                None => {
                    let mut pieces = self.take(&[Phase::Tagged, Phase::Queued], record);
                    self.add_discards(&mut pieces, record);
                    (pieces, false)
                }
            },
        };
        let has_several = pieces.iter().any(|piece| piece.bio != pieces[0].bio);
        let mut ended = Vec::new();
        for piece in pieces {
            self.change(piece, |bio| bio.fail(piece.start, error, now));
            match was_issued && has_several {
                true => self.waiting.push_back(Phase::Failed, piece),
                false => ended.extend(self.end(piece)),
            }
        }
        ended
    }

    /// Ends the bios that have failed together with others and were not tried again.
    pub(super) fn finish(&mut self) -> Vec<Open> {
        let failed = self.waiting.take_failed();
        failed.into_iter().filter_map(|id| self.end_of(id)).collect()
    }

    /// Removes all bios, and returns how many there were.
    pub(super) fn clear(&mut self) -> usize {
        // New maps: `HashMap::clear` takes time in proportion to the map's capacity.
        let nr_queued = self.nr_queued;
        std::mem::replace(self, InFlight { nr_queued, ..InFlight::default() }).len()
    }

    /// Returns the number of bios.
    pub(super) fn len(&self) -> usize {
        self.bios.len()
    }

    /// Removes the pieces that the range of a record covers.
    fn take(&mut self, phases: &[Phase], record: &Record) -> Vec<Piece> {
        let range = sectors_of(record);
        let Cover { pieces, is_cut } = ops_of(record)
            .into_iter()
            .map(|op| self.waiting.take(phases, op, range, &self.bios))
            .find(|cover| !cover.pieces.is_empty())
            .unwrap_or_default();
        if let Some(piece) = pieces.last().filter(|_| is_cut) {
            self.change(*piece, |bio| bio.nr_left += 1);
        }
        pieces
    }

    /// Adds the other discards of a request of which `pieces` has the first.
    fn add_discards(&mut self, pieces: &mut Vec<Piece>, record: &Record) {
        let (start, end) = sectors_of(record);
        let Some(first) = pieces.first().filter(|_| is_discard(op_of(record))) else { return };
        let is_tagged = self.bios.get(&first.bio).is_some_and(|bio| bio.tagged_ns.is_some());
        let others = self.tagged_discards.remove(&first.bio);
        pieces.extend(others.into_iter().flatten());
        let merged = match is_tagged {
            true => &mut self.absorbed_discards,
            false => &mut self.merged_discards,
        };
        let mut left = pieces.iter().fold(end - start, |left, it| left.saturating_sub(it.len()));
        while left > 0
            && let Some(piece) = merged.pop_front()
        {
            left = left.saturating_sub(piece.len());
            pieces.push(piece);
        }
    }

    /// Keeps the other discards of a request that has a tag, and leaves its first piece.
    fn keep_discards(&mut self, pieces: &mut Vec<Piece>, record: &Record) {
        if is_discard(op_of(record)) && pieces.len() > 1 {
            let others = pieces.split_off(1);
            self.tagged_discards.insert(pieces[0].bio, others);
        }
    }

    /// Removes the oldest command that a C or R is about: one of its range, or else the shortest
    /// longer one.
    fn take_command(&mut self, record: &Record) -> Option<Vec<Piece>> {
        let (op, (start, end)) = (op_of(record), sectors_of(record));
        let mut found = self.commands.range((op, start, end)..=(op, start, u64::MAX));
        let (_, _, end) = *found.next()?.0;
        self.take_command_of(op, (start, end))
    }

    /// Removes the oldest command of exactly this range.
    fn take_command_of(&mut self, op: Op, (start, end): (u64, u64)) -> Option<Vec<Piece>> {
        let commands = self.commands.get_mut(&(op, start, end))?;
        let pieces = commands.pop_front();
        if commands.is_empty() {
            self.commands.remove(&(op, start, end));
        }
        pieces
    }

    /// Ends a piece. Returns its bio if that was the last one.
    fn end(&mut self, piece: Piece) -> Option<Open> {
        self.end_of(piece.bio)
    }

    fn end_of(&mut self, id: BioId) -> Option<Open> {
        let bio = self.bios.get_mut(&id)?;
        bio.nr_left -= 1;
        if bio.nr_left == 0 { self.bios.remove(&id) } else { None }
    }

    fn change(&mut self, piece: Piece, change: impl FnOnce(&mut Open)) {
        if let Some(bio) = self.bios.get_mut(&piece.bio) {
            change(bio);
        }
    }
}
