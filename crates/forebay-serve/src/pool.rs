//! The memory of a worker: payloads on their way between sockets and disks.
//!
//! Each worker has a budget that it never exceeds, whatever clients ask for. Memory is lent in pieces
//! of a few sizes, and kept for the next request when it comes back; an idle worker gives it up.
//!
//! **Who gets how much.** A client that does not take its replies keeps their memory. So that it
//! cannot starve the others, it may have no more than what is free afterwards: n such clients
//! leave one part in n + 1 for everybody else. This is how switches share the memory of their ports
//! (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998).

use forebay::Buf;

/// The smallest piece, bytes.
const PIECE_MIN: usize = 4 << 10;
/// The largest piece, bytes: larger payloads travel in several.
pub(crate) const PIECE_MAX: usize = 256 << 10;
/// Piece sizes: the powers of two from the smallest to the largest.
const NR_CLASSES: usize = (PIECE_MAX / PIECE_MIN).ilog2() as usize + 1;

/// Pieces of memory, and how many bytes of them may be lent. Of one thread.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Pieces that nobody has, by class.
    free: [Vec<Buf>; NR_CLASSES],
    /// Bytes in `free`.
    kept_bytes: usize,
    /// Bytes that others have.
    lent_bytes: usize,
    /// What both together never exceed.
    budget_bytes: usize,
}

/// The size of the piece that `len` bytes take.
pub(crate) fn piece_bytes(len: usize) -> usize {
    len.next_power_of_two().clamp(PIECE_MIN, PIECE_MAX)
}

fn class(piece_bytes: usize) -> usize {
    (piece_bytes / PIECE_MIN).ilog2() as usize
}

impl Pool {
    /// A pool that lends at most `budget_bytes`, and has room for two of the largest pieces.
    pub(crate) fn new(budget_bytes: usize) -> Pool {
        Pool {
            free: Default::default(),
            kept_bytes: 0,
            lent_bytes: 0,
            budget_bytes: budget_bytes.max(2 * PIECE_MAX),
        }
    }

    /// A piece for `len` bytes, or for the first of them: as large as may be lent to somebody who has
    /// `held_bytes` already. None: nothing may be, until something comes back. What a piece contains
    /// is left from others.
    pub(crate) fn take(&mut self, len: usize, held_bytes: usize) -> Option<Buf> {
        let spare = self.budget_bytes - self.lent_bytes;
        let mut piece = piece_bytes(len);
        while held_bytes + 2 * piece > spare {
            piece /= 2;
            if piece < PIECE_MIN {
                return None;
            }
        }
        self.lent_bytes += piece;
        if let Some(buf) = self.free[class(piece)].pop() {
            self.kept_bytes -= piece;
            return Some(buf);
        }
        self.make_room();
        Some(Buf::new(piece))
    }

    /// Gives up kept pieces until the budget is kept, the largest first.
    fn make_room(&mut self) {
        while self.lent_bytes + self.kept_bytes > self.budget_bytes {
            let Some(buf) = self.free.iter_mut().rev().find_map(Vec::pop) else { return };
            self.kept_bytes -= buf.len();
        }
    }

    /// Takes a piece back.
    pub(crate) fn give(&mut self, buf: Buf) {
        self.lent_bytes -= buf.len();
        self.kept_bytes += buf.len();
        self.free[class(buf.len())].push(buf);
    }

    /// Gives up what is kept: nothing has happened for a while.
    pub(crate) fn trim(&mut self) {
        self.free = Default::default();
        self.kept_bytes = 0;
    }

    /// Whether anything is kept.
    pub(crate) fn keeps_any(&self) -> bool {
        self.kept_bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_as_large_as_asked_for_up_to_the_largest() {
        let mut pool = Pool::new(8 << 20);
        assert_eq!(pool.take(1, 0).unwrap().len(), PIECE_MIN);
        assert_eq!(pool.take(4097, 0).unwrap().len(), 8192);
        assert_eq!(pool.take(PIECE_MAX, 0).unwrap().len(), PIECE_MAX);
        assert_eq!(pool.take(32 << 20, 0).unwrap().len(), PIECE_MAX);
    }

    #[test]
    fn slow_clients_leave_something_for_the_next_one() {
        let mut pool = Pool::new(4 << 20);
        let mut lent = Vec::new();
        for _client in 0..50 {
            let mut held = 0;
            while let Some(buf) = pool.take(PIECE_MAX, held) {
                held += buf.len();
                lent.push(buf);
            }
        }
        assert!(pool.lent_bytes < pool.budget_bytes);
        assert!(pool.take(PIECE_MAX, 0).is_some(), "a client that holds nothing gets a piece");
    }

    #[test]
    fn the_budget_is_never_exceeded_and_everything_comes_back() {
        let mut pool = Pool::new(1 << 20);
        for len in [4096, 65536, 1, 262_144, 9000] {
            let mut lent = Vec::new();
            while let Some(buf) = pool.take(len, 0) {
                lent.push(buf);
                assert!(pool.lent_bytes + pool.kept_bytes <= 1 << 20);
            }
            assert!(pool.lent_bytes > 1 << 19);
            lent.drain(..).for_each(|buf| pool.give(buf));
            assert_eq!(pool.lent_bytes, 0);
        }
        pool.trim();
        assert!(!pool.keeps_any());
    }
}
