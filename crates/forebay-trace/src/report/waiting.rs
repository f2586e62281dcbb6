//! Pieces of bios that wait to be issued, in lines of the same phase, operation and range.
//!
//! Records name a request by its range, and several bios of one range may wait at the same time.
//! So each record is about the oldest piece that still lacks it. A piece is a whole bio, a part of
//! one that was split, or the rest after a short count.

use std::collections::{BTreeMap, VecDeque};

/// The progress of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has no tag.
    Queued,
    /// It has a tag, or has merged with a request that has one.
    Tagged,
    /// It has failed together with other bios. Each of them may be tried again.
    Failed,
}

/// An event of a piece that has no tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// It waits for a tag.
    Sleep,
    /// A limit has let it go.
    Limit,
    /// The flush before its data is done.
    Flush,
}

const NR_NOTES: usize = 3;

/// The number of a bio. An older one has a lower number.
pub(super) type BioId = u64;

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

/// The common properties of the pieces of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    phase: Phase,
    op: Op,
    start: u64,
    end: u64,
}

/// Pieces of the same place, oldest first.
#[derive(Debug, Default)]
struct Line {
    pieces: VecDeque<Piece>,
    /// How many pieces at the front have each note.
    nr_noted: [usize; NR_NOTES],
}

impl Line {
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
}

/// The pieces that wait. Those of bios that have ended stay until they are at the front of their
/// line, so functions that return pieces take a test for that.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    lines: BTreeMap<Place, Line>,
}

/// The pieces that cover a range.
#[derive(Debug, Default)]
pub(super) struct Cover {
    /// In the order of their sectors.
    pub(super) pieces: Vec<Piece>,
    /// Whether the last one is the front of a longer one, of which the rest keeps waiting.
    pub(super) is_cut: bool,
}

/// A test of bios.
pub(super) type Test<'a> = &'a dyn Fn(BioId) -> bool;

impl Waiting {
    /// Adds a piece behind the others of its range.
    pub(super) fn push_back(&mut self, phase: Phase, piece: Piece) {
        self.line(phase, piece).pieces.push_back(piece);
    }

    /// Adds a piece that has waited before the others of its range.
    pub(super) fn push_front(&mut self, phase: Phase, piece: Piece) {
        self.line(phase, piece).push_front(piece);
    }

    fn line(&mut self, phase: Phase, Piece { op, start, end, .. }: Piece) -> &mut Line {
        self.lines.entry(Place { phase, op, start, end }).or_default()
    }

    /// Removes the oldest pieces that cover a range: at each place one of the first phase that has
    /// any. If only a longer piece begins there, its front is cut off.
    ///
    /// `may_follow` returns whether a bio may have a place behind one that no piece covers: the
    /// trace may lack the Q of those before it.
    pub(super) fn take(
        &mut self,
        phases: &[Phase],
        op: Op,
        (start, end): (u64, u64),
        is_open: Test<'_>,
        may_follow: Test<'_>,
    ) -> Cover {
        let mut cover = Cover::default();
        let mut at = start;
        while at < end {
            // Ranges that are no whole sectors share one with the next range.
            let before = at.checked_sub(1).filter(|before| *before >= start);
            let found = self
                .take_at(phases, op, (at, end), is_open)
                .or_else(|| self.take_at(phases, op, (before?, end), is_open));
            let next = match found {
                Some((piece, is_cut)) => {
                    cover.pieces.push(piece);
                    cover.is_cut = is_cut;
                    Some(piece.end.max(at + 1))
                }
                None => self.next_start(phases, op, (at, end), may_follow),
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
        is_open: Test<'_>,
    ) -> Option<(Piece, bool)> {
        for &phase in phases {
            while let Some(place) = self.place_within(phase, op, (at, end)) {
                if let Some(piece) = self.pop(place, is_open) {
                    return Some((piece, false));
                }
            }
        }
        for &phase in phases {
            while let Some(place) = self.place_beyond(phase, op, (at, end)) {
                if let Some(piece) = self.pop(place, is_open) {
                    self.push_front(phase, Piece { start: end, ..piece });
                    return Some((Piece { end, ..piece }, true));
                }
            }
        }
        None
    }

    /// Removes the oldest piece of a line, and the line if it is empty then.
    fn pop(&mut self, place: Place, is_open: Test<'_>) -> Option<Piece> {
        let line = self.lines.get_mut(&place)?;
        let piece = std::iter::from_fn(|| line.pop_front()).find(|piece| is_open(piece.bio));
        if line.pieces.is_empty() {
            self.lines.remove(&place);
        }
        piece
    }

    /// Removes the oldest piece of exactly this range.
    pub(super) fn take_exact(
        &mut self,
        phase: Phase,
        op: Op,
        (start, end): (u64, u64),
        is_open: Test<'_>,
    ) -> Option<Piece> {
        self.pop(Place { phase, op, start, end }, is_open)
    }

    /// Removes the newest piece of exactly this range.
    pub(super) fn take_newest(
        &mut self,
        phase: Phase,
        op: Op,
        (start, end): (u64, u64),
        is_open: Test<'_>,
    ) -> Option<Piece> {
        let place = Place { phase, op, start, end };
        let line = self.lines.get_mut(&place)?;
        let piece = std::iter::from_fn(|| line.pop_back()).find(|piece| is_open(piece.bio));
        if line.pieces.is_empty() {
            self.lines.remove(&place);
        }
        piece
    }

    /// Notes an event of the oldest pieces without a tag that cover a range and lack it. Returns
    /// their bios.
    pub(super) fn note(
        &mut self,
        note: Note,
        op: Op,
        (start, end): (u64, u64),
        is_open: Test<'_>,
    ) -> Vec<BioId> {
        let mut bios = Vec::new();
        let mut at = start;
        while at < end
            && let Some((place, bio)) = self.lacking(note, op, (at, end), is_open)
        {
            bios.push(bio);
            if let Some(line) = self.lines.get_mut(&place) {
                line.nr_noted[note as usize] += 1;
            }
            at = place.end;
        }
        bios
    }

    /// Returns the bio of the oldest piece that begins a range, has no tag and lacks a note.
    pub(super) fn oldest_lacking(
        &mut self,
        note: Note,
        op: Op,
        range: (u64, u64),
        is_open: Test<'_>,
    ) -> Option<BioId> {
        self.lacking(note, op, range, is_open).map(|(_, bio)| bio)
    }

    fn lacking(
        &mut self,
        note: Note,
        op: Op,
        range: (u64, u64),
        is_open: Test<'_>,
    ) -> Option<(Place, BioId)> {
        let within = self.place_within(Phase::Queued, op, range);
        let place = within.or_else(|| self.place_beyond(Phase::Queued, op, range))?;
        let line = self.lines.get_mut(&place)?;
        let nr_noted = &mut line.nr_noted[note as usize];
        loop {
            let piece = line.pieces.get(*nr_noted)?;
            if is_open(piece.bio) {
                return Some((place, piece.bio));
            }
            *nr_noted += 1;
        }
    }

    /// Removes the pieces that have failed, and returns their bios.
    pub(super) fn take_failed(&mut self) -> Vec<BioId> {
        let is_failed = |place: &Place| place.phase == Phase::Failed;
        let failed = self.lines.extract_if(.., |place, _| is_failed(place));
        failed.flat_map(|(_, line)| line.pieces).map(|piece| piece.bio).collect()
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// Returns the place of the longest pieces that begin at `at` and end within the range.
    fn place_within(&self, phase: Phase, op: Op, (at, end): (u64, u64)) -> Option<Place> {
        let of = |end: u64| Place { phase, op, start: at, end };
        self.lines.range(of(0)..=of(end)).next_back().map(|(place, _)| *place)
    }

    /// Returns the place of the shortest pieces that begin at `at` and end behind the range.
    fn place_beyond(&self, phase: Phase, op: Op, (at, end): (u64, u64)) -> Option<Place> {
        let of = |end: u64| Place { phase, op, start: at, end };
        self.lines.range(of(end)..=of(u64::MAX)).find(|(it, _)| it.end > end).map(|(it, _)| *it)
    }

    /// Returns the next start of a piece within a range that is covered only from there on.
    fn next_start(
        &self,
        phases: &[Phase],
        op: Op,
        (at, end): (u64, u64),
        may_follow: Test<'_>,
    ) -> Option<u64> {
        let next = |phase: Phase| {
            let of = |start: u64| Place { phase, op, start, end: 0 };
            let (place, line) = self.lines.range(of(at + 1)..of(end)).next()?;
            // The rest of a range that is no whole sectors begins one sector later.
            let is_rest = place.start == at + 1;
            let follows = || line.pieces.front().is_some_and(|piece| may_follow(piece.bio));
            (is_rest || follows()).then_some(place.start)
        };
        phases.iter().filter_map(|phase| next(*phase)).min()
    }
}
