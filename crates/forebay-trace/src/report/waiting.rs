//! Pieces of bios that wait to be issued, in a queue for each phase, operation and range.
//!
//! Records name a request by its range, and several bios of one range may wait at the same time.
//! So each record is assigned to the oldest piece that has no such record yet. A piece is a whole
//! bio, a part of one that was split, or the rest after a short count.

use super::bio::Open;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;

/// The progress of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has no tag.
    Queued,
    /// It has a tag, or has merged with a request that has one.
    Tagged,
    /// It has failed together with other bios. Each of them may be tried again. The last phase, so
    /// that such pieces are at the end of the queues.
    Failed,
}

/// An event of a piece that has no tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// It waits for a tag.
    Sleep,
    /// A limit released it.
    Limit,
    /// The flush before its data is done.
    Flush,
}

const NR_NOTES: usize = 3;

/// Maximum number of queues, one for each length of pieces with the same start, that a search for a
/// piece without a note visits. So a hostile file with many lengths costs no quadratic time.
const MAX_LENGTHS: usize = 64;

/// The number of a bio. An older one has a lower number.
pub(super) type BioId = u64;

/// The bios that have not ended.
pub(super) type Bios = HashMap<BioId, Open>;

/// The operation of a bio and its flags for flushes, as in the categories of its records.
pub(super) type Op = u16;

/// Consecutive sectors of a bio, up to the one before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bio: BioId,
    pub(super) op: Op,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Piece {
    /// Returns the number of sectors.
    pub(super) fn len(self) -> u64 {
        self.end - self.start
    }
}

/// The common properties of the pieces of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueKey {
    phase: Phase,
    op: Op,
    start: u64,
    end: u64,
}

/// Pieces of the same phase, operation and range, oldest first.
#[derive(Debug, Default)]
struct PieceQueue {
    pieces: VecDeque<Piece>,
    /// How many pieces at the front have each note.
    nr_noted: [usize; NR_NOTES],
}

impl PieceQueue {
    fn push_front(&mut self, piece: Piece) {
        self.pieces.push_front(piece);
        // It is older than those that have the note, so it had it first.
        self.nr_noted.iter_mut().filter(|nr| **nr > 0).for_each(|nr| *nr += 1);
    }

    fn pop_front(&mut self) -> Option<Piece> {
        self.nr_noted.iter_mut().for_each(|nr| *nr = nr.saturating_sub(1));
        self.pieces.pop_front()
    }

    fn pop_back(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_back();
        self.nr_noted.iter_mut().for_each(|nr| *nr = (*nr).min(self.pieces.len()));
        piece
    }

    /// Returns the bio of the oldest piece that lacks a note.
    fn first_lacking(&mut self, note: Note, bios: &Bios) -> Option<BioId> {
        let nr_noted = &mut self.nr_noted[note as usize];
        while let Some(piece) = self.pieces.get(*nr_noted) {
            if bios.contains_key(&piece.bio) {
                return Some(piece.bio);
            }
            *nr_noted += 1;
        }
        None
    }
}

/// The pieces that wait. Those of bios that have ended stay until they are at the front of their
/// queue, so functions that return pieces take the bios that have not ended.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queues: BTreeMap<QueueKey, PieceQueue>,
}

/// The pieces that cover a range.
#[derive(Debug, Default)]
pub(super) struct Cover {
    /// In the order of their sectors.
    pub(super) pieces: Vec<Piece>,
    /// Whether the last one is the front of a longer one, of which the rest keeps waiting.
    pub(super) is_cut: bool,
}

impl Waiting {
    /// Adds a piece behind the others of its range.
    pub(super) fn push_back(&mut self, phase: Phase, piece: Piece) {
        self.queue(phase, piece).pieces.push_back(piece);
    }

    /// Adds a piece that has waited before the others of its range.
    pub(super) fn push_front(&mut self, phase: Phase, piece: Piece) {
        self.queue(phase, piece).push_front(piece);
    }

    fn queue(&mut self, phase: Phase, Piece { op, start, end, .. }: Piece) -> &mut PieceQueue {
        self.queues.entry(QueueKey { phase, op, start, end }).or_default()
    }

    /// Removes the oldest pieces that cover a range: at each sector one of the first phase that has
    /// any. If only a longer piece begins there, its front is cut off.
    ///
    /// A merged bio may follow sectors that no piece covers: the trace may lack the Q of those
    /// before it.
    pub(super) fn take(
        &mut self,
        phases: &[Phase],
        op: Op,
        (start, end): (u64, u64),
        bios: &Bios,
    ) -> Cover {
        let mut cover = Cover::default();
        let mut at = start;
        while at < end {
            // Ranges that are no whole sectors share one with the next range.
            let before = at.checked_sub(1).filter(|before| *before >= start);
            let found = self
                .take_at(phases, op, (at, end), bios)
                .or_else(|| self.take_at(phases, op, (before?, end), bios));
            let next = match found {
                Some((piece, is_cut)) => {
                    cover.pieces.push(piece);
                    cover.is_cut = is_cut;
                    Some(piece.end.max(at + 1))
                }
                None => self.next_start(phases, op, (at, end), bios),
            };
            at = next.unwrap_or(end);
        }
        cover
    }

    /// Removes the oldest piece that begins at `at`: of those that end within the range the
    /// longest, or else the front of a longer one. Returns whether it was cut off.
    fn take_at(
        &mut self,
        phases: &[Phase],
        op: Op,
        (at, end): (u64, u64),
        bios: &Bios,
    ) -> Option<(Piece, bool)> {
        for &phase in phases {
            while let Some(key) = self.key_within(phase, op, (at, end)) {
                if let Some(piece) = self.pop(key, PieceQueue::pop_front, bios) {
                    return Some((piece, false));
                }
            }
        }
        for &phase in phases {
            while let Some(key) = self.key_beyond(phase, op, (at, end)) {
                if let Some(piece) = self.pop(key, PieceQueue::pop_front, bios) {
                    self.push_front(phase, Piece { start: end, ..piece });
                    return Some((Piece { end, ..piece }, true));
                }
            }
        }
        None
    }

    /// Removes pieces of a queue with `pop` up to one whose bio has not ended, and the queue if it
    /// is empty then. Returns that piece.
    fn pop(
        &mut self,
        key: QueueKey,
        pop: fn(&mut PieceQueue) -> Option<Piece>,
        bios: &Bios,
    ) -> Option<Piece> {
        let queue = self.queues.get_mut(&key)?;
        let is_open = |piece: &Piece| bios.contains_key(&piece.bio);
        let piece = std::iter::from_fn(|| pop(queue)).find(is_open);
        if queue.pieces.is_empty() {
            self.queues.remove(&key);
        }
        piece
    }

    /// Removes the oldest piece of exactly this range.
    pub(super) fn take_exact(
        &mut self,
        phase: Phase,
        op: Op,
        (start, end): (u64, u64),
        bios: &Bios,
    ) -> Option<Piece> {
        self.pop(QueueKey { phase, op, start, end }, PieceQueue::pop_front, bios)
    }

    /// Removes the newest piece of exactly this range.
    pub(super) fn take_newest(
        &mut self,
        phase: Phase,
        op: Op,
        (start, end): (u64, u64),
        bios: &Bios,
    ) -> Option<Piece> {
        self.pop(QueueKey { phase, op, start, end }, PieceQueue::pop_back, bios)
    }

    /// Notes an event of the oldest pieces without a tag that cover a range and lack it. Returns
    /// their bios.
    pub(super) fn note(
        &mut self,
        note: Note,
        op: Op,
        (start, end): (u64, u64),
        bios: &Bios,
    ) -> Vec<BioId> {
        let mut noted = Vec::new();
        let mut at = start;
        while at < end
            && let Some((key, bio)) = self.lacking(note, op, (at, end), bios)
        {
            noted.push(bio);
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.nr_noted[note as usize] += 1;
            }
            at = key.end;
        }
        noted
    }

    /// Returns the bio of the oldest piece that begins a range, has no tag and lacks a note.
    pub(super) fn oldest_lacking(
        &mut self,
        note: Note,
        op: Op,
        range: (u64, u64),
        bios: &Bios,
    ) -> Option<BioId> {
        self.lacking(note, op, range, bios).map(|(_, bio)| bio)
    }

    /// Returns the oldest piece of the longest ones within a range that lack the note, or else of
    /// the shortest longer ones.
    fn lacking(
        &mut self,
        note: Note,
        op: Op,
        (at, end): (u64, u64),
        bios: &Bios,
    ) -> Option<(QueueKey, BioId)> {
        let of = |end: u64| QueueKey { phase: Phase::Queued, op, start: at, end };
        let lacking = |(key, queue): (&QueueKey, &mut PieceQueue)| {
            queue.first_lacking(note, bios).map(|bio| (*key, bio))
        };
        let mut within = self.queues.range_mut(of(0)..=of(end)).rev().take(MAX_LENGTHS);
        within.find_map(lacking).or_else(|| {
            let beyond = (Bound::Excluded(of(end)), Bound::Included(of(u64::MAX)));
            self.queues.range_mut(beyond).take(MAX_LENGTHS).find_map(lacking)
        })
    }

    /// Removes the pieces that have failed, and returns their bios.
    pub(super) fn take_failed(&mut self) -> Vec<BioId> {
        let mut failed = Vec::new();
        while let Some(last) = self.queues.last_entry()
            && last.key().phase == Phase::Failed
        {
            failed.push(last.remove());
        }
        failed.into_iter().rev().flat_map(|queue| queue.pieces).map(|piece| piece.bio).collect()
    }

    /// Returns the key of the longest pieces that begin at `at` and end within the range.
    fn key_within(&self, phase: Phase, op: Op, (at, end): (u64, u64)) -> Option<QueueKey> {
        let of = |end: u64| QueueKey { phase, op, start: at, end };
        self.queues.range(of(0)..=of(end)).next_back().map(|(key, _)| *key)
    }

    /// Returns the key of the shortest pieces that begin at `at` and end behind the range.
    fn key_beyond(&self, phase: Phase, op: Op, (at, end): (u64, u64)) -> Option<QueueKey> {
        let of = |end: u64| QueueKey { phase, op, start: at, end };
        self.queues.range(of(end)..=of(u64::MAX)).find(|(it, _)| it.end > end).map(|(it, _)| *it)
    }

    /// Returns the next start of a piece within a range that is covered only from there on.
    fn next_start(
        &self,
        phases: &[Phase],
        op: Op,
        (at, end): (u64, u64),
        bios: &Bios,
    ) -> Option<u64> {
        let is_merged = |piece: &Piece| bios.get(&piece.bio).is_some_and(|bio| bio.is_merged);
        let next = |phase: Phase| {
            let of = |start: u64| QueueKey { phase, op, start, end: 0 };
            let (key, queue) = self.queues.range(of(at + 1)..of(end)).next()?;
            // The rest of a range that is no whole sectors begins one sector later.
            let is_rest = key.start == at + 1;
            let follows = || queue.pieces.front().is_some_and(is_merged);
            (is_rest || follows()).then_some(key.start)
        };
        phases.iter().filter_map(|phase| next(*phase)).min()
    }
}
