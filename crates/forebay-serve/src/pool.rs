//! The memory of a worker: payloads on their way between sockets and disks.
//!
//! Each worker has a budget that it never exceeds, whatever clients ask for. Memory is lent in
//! pieces of a few sizes, and kept for the next request when it comes back; an idle worker gives it
//! up.
//!
//! **Who gets how much.** A client that does not take its replies keeps their memory. So that such
//! clients cannot starve the others, half of the budget is divided evenly: everybody may have that
//! share at any time. Of the other half a client may have no more than what is left of it
//! afterwards. That is how switches share the memory of their ports (Choudhury and Hahne, "Dynamic
//! queue length thresholds for shared-memory packet switches", 1998).

use forebay::Buf;

/// The smallest piece, bytes.
const PIECE_MIN: usize = 4 << 10;
/// The largest piece, bytes: larger payloads travel in several.
pub(crate) const PIECE_MAX: usize = 256 << 10;
/// What one client has at most, bytes. More would only drive the data out of the processor's caches
/// between the disk and the socket: with 4 connections of 64 requests of 256 KiB, `nbdcopy`, this
/// saves a sixth of the processor time.
const HELD_MAX: usize = 2 << 20;
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
    /// What everybody may have at any time.
    share_bytes: usize,
    /// What clients have beyond their shares, together.
    beyond_bytes: usize,
}

/// How many bytes of a pool one client has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(usize);

/// The size of the piece that `len` bytes take.
pub(crate) fn piece_bytes(len: usize) -> usize {
    len.next_power_of_two().clamp(PIECE_MIN, PIECE_MAX)
}

fn class(piece_bytes: usize) -> usize {
    (piece_bytes / PIECE_MIN).ilog2() as usize
}

impl Pool {
    /// A pool that lends at most `budget_bytes` to at most `nr_clients`.
    pub(crate) fn new(budget_bytes: usize, nr_clients: usize) -> Pool {
        let budget_bytes = budget_bytes.max(4 * PIECE_MAX);
        Pool {
            free: Default::default(),
            kept_bytes: 0,
            lent_bytes: 0,
            budget_bytes,
            share_bytes: (budget_bytes / 2 / nr_clients.max(1)).max(PIECE_MIN),
            beyond_bytes: 0,
        }
    }

    fn beyond(&self, held_bytes: usize) -> usize {
        held_bytes.saturating_sub(self.share_bytes)
    }

    /// Whether a client may have so many bytes more.
    pub(crate) fn may_have(&self, piece: usize, held: &Held) -> bool {
        if held.0 > 0 && held.0 + piece > HELD_MAX {
            return false;
        }
        let beyond = self.beyond(held.0 + piece);
        let left = (self.budget_bytes / 2).saturating_sub(self.beyond_bytes);
        let more = beyond - self.beyond(held.0);
        self.lent_bytes + piece <= self.budget_bytes && (more == 0 || beyond + more <= left)
    }

    /// A piece for `len` bytes, or for the first of them: as large as may be lent to somebody who
    /// has so much already. None: nothing may be, until something comes back. What a piece contains
    /// is left from others.
    pub(crate) fn take(&mut self, len: usize, held: &mut Held) -> Option<Buf> {
        let mut piece = piece_bytes(len);
        while !self.may_have(piece, held) {
            piece /= 2;
            if piece < PIECE_MIN {
                return None;
            }
        }
        self.beyond_bytes += self.beyond(held.0 + piece) - self.beyond(held.0);
        held.0 += piece;
        self.lent_bytes += piece;
        if let Some(buf) = self.free[class(piece)].pop() {
            self.kept_bytes -= piece;
            return Some(buf);
        }
        self.make_room();
        Some(Buf::new(piece))
    }

    /// Takes a piece back from who has it.
    pub(crate) fn give(&mut self, buf: Buf, held: &mut Held) {
        self.beyond_bytes -= self.beyond(held.0) - self.beyond(held.0 - buf.len());
        held.0 -= buf.len();
        self.give_left(buf);
    }

    /// A client is gone. What it has comes back by [`Pool::give_left`].
    pub(crate) fn leave(&mut self, held: &mut Held) {
        self.beyond_bytes -= self.beyond(held.0);
        held.0 = 0;
    }

    /// Takes a piece back whose client is gone.
    pub(crate) fn give_left(&mut self, buf: Buf) {
        self.lent_bytes -= buf.len();
        self.kept_bytes += buf.len();
        self.free[class(buf.len())].push(buf);
    }

    /// Gives up kept pieces until the budget is kept, the largest first.
    fn make_room(&mut self) {
        while self.lent_bytes + self.kept_bytes > self.budget_bytes {
            let Some(buf) = self.free.iter_mut().rev().find_map(Vec::pop) else { return };
            self.kept_bytes -= buf.len();
        }
    }

    /// Gives up what is kept: nothing has happened for a while.
    pub(crate) fn trim(&mut self) {
        self.free = Default::default();
        self.kept_bytes = 0;
    }

    /// Returns whether everything that was lent has come back.
    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        self.lent_bytes == 0 && self.beyond_bytes == 0
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
        let mut pool = Pool::new(8 << 20, 1);
        let held = &mut Held::default();
        assert_eq!(pool.take(1, held).unwrap().len(), PIECE_MIN);
        assert_eq!(pool.take(4097, held).unwrap().len(), 8192);
        assert_eq!(pool.take(PIECE_MAX, held).unwrap().len(), PIECE_MAX);
        assert_eq!(pool.take(32 << 20, held).unwrap().len(), PIECE_MAX);
    }

    /// Takes all that a client can get.
    fn take_all(pool: &mut Pool, held: &mut Held) -> Vec<Buf> {
        std::iter::from_fn(|| pool.take(PIECE_MAX, held)).collect()
    }

    #[test]
    fn greedy_clients_leave_everybody_a_share() {
        let (budget, nr_clients) = (4 << 20, 50);
        let mut pool = Pool::new(budget, nr_clients);
        let mut clients: Vec<_> = (0..nr_clients).map(|_| (Held::default(), Vec::new())).collect();
        for (held, bufs) in &mut clients {
            bufs.extend(take_all(&mut pool, held));
            assert!(pool.lent_bytes <= budget);
        }
        let least = clients.iter().map(|(held, _)| held.0).min().unwrap();
        assert!(least >= 32 << 10, "the last client got {least} bytes");
        let most = clients.iter().map(|(held, _)| held.0).max().unwrap();
        assert!((1 << 20..=HELD_MAX).contains(&most), "the first client got {most} bytes");
    }

    #[test]
    fn the_budget_is_never_exceeded_and_everything_comes_back() {
        let mut pool = Pool::new(1 << 20, 2);
        for len in [4096, 65536, 1, 262_144, 9000] {
            let mut helds = [Held::default(), Held::default()];
            let mut lent: Vec<Vec<Buf>> = Vec::new();
            for held in &mut helds {
                lent.push(std::iter::from_fn(|| pool.take(len, held)).collect());
                assert!(pool.lent_bytes + pool.kept_bytes <= 1 << 20);
            }
            assert!(pool.lent_bytes > 1 << 19);
            let mut lent = lent.into_iter();
            lent.next().unwrap().into_iter().for_each(|buf| pool.give(buf, &mut helds[0]));
            pool.leave(&mut helds[1]); // it is gone, and the disk still has its pieces
            lent.next().unwrap().into_iter().for_each(|buf| pool.give_left(buf));
            assert_eq!((pool.lent_bytes, pool.beyond_bytes), (0, 0));
        }
        pool.trim();
        assert!(!pool.keeps_any());
    }
}
