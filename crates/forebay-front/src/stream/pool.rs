//! Memory of a worker for payloads in flight between clients and disks.
//!
//! Each worker has a budget that it never exceeds, whatever its clients request. Memory is lent in
//! pieces of a few sizes. A piece that is returned is kept for the next request; an idle worker
//! frees all of them.
//!
//! **Shares.** A client that does not read its replies holds their memory, and so does one that
//! sends half of a payload. To keep such clients from starving others, half of the budget is
//! divided evenly: each client may have its share at any time, and the server does not start with
//! less memory than a piece per share. A client may also hold memory of the other half, but at most
//! as much as then remains free of it. Switches share the memory of their ports in this way
//! (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
//! 1998).
//!
//! **Gone clients.** The I/O of a client that is gone keeps its memory until it completes. All of
//! this memory counts as beyond the shares. If it does not fit into the second half, the pool keeps
//! the places of the clients that left it behind: the server accepts fewer clients, and every share
//! is still there.

use super::Piece;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size of the smallest piece, bytes; larger if a disk has larger blocks.
const PIECE_MIN: usize = 4 << 10;
/// Size of the largest piece, bytes: larger payloads are split.
pub const PIECE_MAX: usize = 256 << 10;
/// Maximum memory of one client, bytes. More would only push the data out of the processor's
/// caches between disk and socket: with 4 connections of 64 requests of 256 KiB (`nbdcopy`), this
/// saves a sixth of the processor time.
const HELD_MAX: usize = 2 << 20;
/// Piece sizes: the powers of two from the smallest to the largest.
const NR_CLASSES: usize = (PIECE_MAX / PIECE_MIN).ilog2() as usize + 1;

/// Default memory of a server, bytes; more if its limits need it.
const MEMORY_BYTES: usize = 64 << 20;

/// Memory of a server, and the clients that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Maximum number of connections that have chosen an export.
    pub connections: usize,
    /// Threads that serve connections; 0 counts as 1.
    pub threads: usize,
    /// Memory for payloads, bytes; `None`: the default, or as much as the connections need.
    pub memory_bytes: Option<usize>,
}

/// The memory of a server is less than a piece per client and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLittleMemory {
    /// The memory, bytes.
    pub given: usize,
    /// The least that is accepted, bytes.
    pub needed: usize,
    /// Smallest share of a connection, bytes.
    pub piece: usize,
}

/// Sizes of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceSizes {
    /// Size of the smallest piece, bytes: a power of two.
    pub min: usize,
    /// Size of the largest piece, bytes: a power of two, at most 64 times the smallest. Larger
    /// payloads are split.
    pub max: usize,
    /// Maximum memory of one client, bytes: at least four of the largest pieces, a portion of a
    /// large read.
    pub held_max: usize,
}

impl PieceSizes {
    const USUAL: PieceSizes = PieceSizes { min: PIECE_MIN, max: PIECE_MAX, held_max: HELD_MAX };

    /// Returns the size of the piece for `len` bytes.
    #[inline]
    fn piece_bytes(&self, len: usize) -> usize {
        len.next_power_of_two().clamp(self.min, self.max)
    }

    /// Returns the size class of a piece.
    #[inline]
    fn class(&self, piece_bytes: usize) -> usize {
        (piece_bytes.trailing_zeros() - self.min.trailing_zeros()) as usize
    }
}

/// Division of a server's memory among workers and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Budget of one worker, bytes.
    bytes: usize,
    /// Clients that one worker may have: all of them, since clients choose which of their
    /// connections they close.
    nr_clients: usize,
    /// Size of the smallest piece that is of use, bytes.
    piece_min: usize,
    sizes: PieceSizes,
}

impl Budget {
    /// Divides the memory of a server. `block` is the largest logical block of all disks, a power
    /// of two.
    ///
    /// # Errors
    /// Returns an error if the memory is too little for a piece per client.
    pub fn new(capacity: &Capacity, block: u32) -> Result<Budget, TooLittleMemory> {
        let (threads, connections) = (capacity.threads.max(1), capacity.connections.max(1));
        let piece_min = PIECE_MIN.max(block as usize);
        let bytes_min = (2 * piece_min).saturating_mul(connections).max(4 * PIECE_MAX);
        let needed = bytes_min.saturating_mul(threads);
        let given = capacity.memory_bytes.unwrap_or(MEMORY_BYTES.max(needed));
        if given < needed {
            return Err(TooLittleMemory { given, needed, piece: piece_min });
        }
        let (bytes, nr_clients) = (given / threads, connections);
        Ok(Budget { bytes, nr_clients, piece_min, sizes: PieceSizes::USUAL })
    }

    /// Returns a budget of one worker with pieces of other sizes, so that a simulation meets every
    /// shortage with little memory.
    ///
    /// # Panics
    /// Panics if the memory is too little for a piece per client.
    pub fn with_sizes(bytes: usize, nr_clients: usize, sizes: PieceSizes) -> Budget {
        let PieceSizes { min, max, held_max } = sizes;
        assert!(min.is_power_of_two() && max.is_power_of_two() && min <= max);
        assert!(max / min < 1 << NR_CLASSES && held_max >= 4 * max);
        assert!(bytes >= (2 * min * nr_clients).max(4 * max), "{bytes} bytes for {nr_clients}");
        Budget { bytes, nr_clients, piece_min: min, sizes }
    }

    /// Returns the memory of all workers, if it is more than the default.
    pub fn raised_bytes(&self, capacity: &Capacity) -> Option<usize> {
        let bytes = self.bytes * capacity.threads.max(1);
        (capacity.memory_bytes.is_none() && bytes > MEMORY_BYTES).then_some(bytes)
    }
}

/// Pieces of memory of one thread, and the limit of their sum.
#[derive(Debug)]
pub(crate) struct Pool<P> {
    /// Pieces that are free, by size class.
    free: [Vec<P>; NR_CLASSES],
    /// Allocates a piece of this many bytes.
    allocate: fn(usize) -> P,
    /// Bytes in `free`.
    kept_bytes: usize,
    /// Bytes that clients hold, those that are gone included.
    lent_bytes: usize,
    /// Limit of the sum of both.
    budget_bytes: usize,
    /// Bytes that each client may hold at any time.
    share_bytes: usize,
    /// Bytes that all clients hold beyond their shares, and all bytes of clients that are gone.
    beyond_bytes: usize,
    /// Places of clients that are gone. Their shares contain the part of `beyond_bytes` that is
    /// above half of the budget.
    kept_seats: Vec<Seat>,
    piece_min: usize,
    sizes: PieceSizes,
    /// An empty list, kept for its memory: the slices of one vectored write to a client.
    slices: Vec<IoSlice<'static>>,
    /// Whether a client was refused a piece because others hold the memory, since the last call of
    /// [`Pool::take_shortage`].
    is_short: bool,
}

/// Bytes of a pool that one client holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(usize);

/// A place among the connections that have chosen an export, and so a share of the memory. It is
/// released when this is dropped. Relaxed: it is only a count.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    /// Takes a place. Returns how many were taken before.
    pub(crate) fn take(nr_open: &Arc<AtomicUsize>) -> (Seat, usize) {
        let nr_before = nr_open.fetch_add(1, Ordering::Relaxed);
        (Seat(Arc::clone(nr_open)), nr_before)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<P: Piece> Pool<P> {
    /// Returns a pool with the budget of one worker. `allocate` allocates a piece of this many
    /// bytes.
    pub(crate) fn new(budget: Budget, allocate: fn(usize) -> P) -> Pool<P> {
        Pool {
            allocate,
            free: std::array::from_fn(|_| Vec::new()),
            kept_bytes: 0,
            lent_bytes: 0,
            budget_bytes: budget.bytes,
            share_bytes: budget.bytes / 2 / budget.nr_clients,
            beyond_bytes: 0,
            kept_seats: Vec::new(),
            piece_min: budget.piece_min,
            sizes: budget.sizes,
            slices: Vec::new(),
            is_short: false,
        }
    }

    /// Returns an empty list of slices, with the memory of the one that was kept.
    pub(crate) fn take_slices<'a>(&mut self) -> Vec<IoSlice<'a>> {
        std::mem::take(&mut self.slices)
    }

    /// Keeps the memory of a list of slices: `collect` uses that of the emptied list.
    pub(crate) fn keep_slices(&mut self, mut slices: Vec<IoSlice<'_>>) {
        slices.clear();
        self.slices = slices.into_iter().map(|_| unreachable!("it was cleared")).collect();
    }

    /// Returns the size of the largest piece, bytes.
    #[inline]
    pub(crate) fn piece_max(&self) -> usize {
        self.sizes.max
    }

    /// Returns the size class of a piece.
    #[inline]
    pub(crate) fn class(&self, piece: &P) -> usize {
        self.sizes.class(piece.len())
    }

    /// Returns the size of the pieces of a class.
    pub(crate) fn piece_bytes_of(&self, class: usize) -> usize {
        self.sizes.min << class
    }

    /// Returns the size of the piece for `len` bytes, if a client may have one that large.
    pub(crate) fn piece_bytes(&self, len: usize) -> usize {
        self.sizes.piece_bytes(len)
    }

    fn beyond(&self, held_bytes: usize) -> usize {
        held_bytes.saturating_sub(self.share_bytes)
    }

    /// Returns whether a client may have a piece of this size.
    pub(crate) fn may_have(&self, piece: usize, held: &Held) -> bool {
        if held.0 > 0 && held.0 + piece > self.sizes.held_max {
            return false;
        }
        let beyond = self.beyond(held.0 + piece);
        let left = (self.budget_bytes / 2).saturating_sub(self.beyond_bytes);
        let more = beyond - self.beyond(held.0);
        self.lent_bytes + piece <= self.budget_bytes && (more == 0 || beyond + more <= left)
    }

    /// Returns a piece for `len` bytes, or for the first of them: as large as the client may have.
    /// `None`: the client must wait until memory is returned. The piece contains the data of its
    /// last use.
    pub(crate) fn take(&mut self, len: usize, held: &mut Held) -> Option<P> {
        let mut piece = self.sizes.piece_bytes(len);
        while !self.may_have(piece, held) {
            piece /= 2;
            if piece < self.piece_min {
                self.is_short |= held.0 + self.piece_min <= self.sizes.held_max;
                return None;
            }
        }
        self.beyond_bytes += self.beyond(held.0 + piece) - self.beyond(held.0);
        held.0 += piece;
        self.lent_bytes += piece;
        if let Some(buf) = self.free[self.sizes.class(piece)].pop() {
            self.kept_bytes -= piece;
            return Some(buf);
        }
        self.make_room();
        Some((self.allocate)(piece))
    }

    /// Takes a piece back from a client.
    pub(crate) fn give(&mut self, buf: P, held: &mut Held) {
        self.beyond_bytes -= self.beyond(held.0) - self.beyond(held.0 - buf.len());
        held.0 -= buf.len();
        self.take_back(buf);
    }

    /// Ends the account of a client that is gone. Its pieces return by [`Pool::give_gone`]. The
    /// place of the client is released when the memory for another client's share is free.
    pub(crate) fn leave(&mut self, held: &mut Held, seat: Option<Seat>) {
        // This moves at most a share to `beyond_bytes`, so one place is enough for it.
        self.beyond_bytes += held.0 - self.beyond(held.0);
        held.0 = 0;
        if self.beyond_bytes > self.room_beyond() {
            self.kept_seats.extend(seat);
        }
    }

    /// Returns the most that `beyond_bytes` may be without the share of a client.
    fn room_beyond(&self) -> usize {
        self.budget_bytes / 2 + self.kept_seats.len() * self.share_bytes
    }

    /// Takes back a piece of a client that is gone.
    pub(crate) fn give_gone(&mut self, buf: P) {
        self.gone_bytes_end(buf.len());
        self.take_back(buf);
    }

    /// Records that clients that are gone hold `bytes` less, and releases their places as far as
    /// that allows.
    fn gone_bytes_end(&mut self, bytes: usize) {
        self.beyond_bytes -= bytes;
        while self.beyond_bytes + self.share_bytes <= self.room_beyond() {
            // Its drop releases the place.
            if self.kept_seats.pop().is_none() {
                break;
            }
        }
    }

    /// Removes a piece of a client from the budget, because the disk keeps it and may still write
    /// to it. The number of such pieces is limited: a disk that keeps memory is gone, and keeps
    /// only the memory of requests that were in flight.
    pub(crate) fn lose(&mut self, piece: usize, held: &mut Held) {
        self.beyond_bytes -= self.beyond(held.0) - self.beyond(held.0 - piece);
        held.0 -= piece;
        self.lent_bytes -= piece;
    }

    /// Does the same for a piece of a client that is gone.
    pub(crate) fn lose_gone(&mut self, piece: usize) {
        self.gone_bytes_end(piece);
        self.lent_bytes -= piece;
    }

    fn take_back(&mut self, buf: P) {
        self.lent_bytes -= buf.len();
        self.kept_bytes += buf.len();
        let class = self.sizes.class(buf.len());
        self.free[class].push(buf);
    }

    /// Frees unused pieces until the budget is met, the largest first.
    fn make_room(&mut self) {
        while self.lent_bytes + self.kept_bytes > self.budget_bytes {
            let Some(buf) = self.free.iter_mut().rev().find_map(Vec::pop) else { return };
            self.kept_bytes -= buf.len();
        }
    }

    /// Frees all unused pieces.
    pub(crate) fn trim(&mut self) {
        self.free.iter_mut().for_each(|free| *free = Vec::new());
        self.kept_bytes = 0;
    }

    /// Returns whether all pieces have been returned.
    pub(crate) fn is_whole(&self) -> bool {
        self.lent_bytes == 0 && self.beyond_bytes == 0 && self.kept_seats.is_empty()
    }

    /// Returns whether a client waits for memory that others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Returns the same for the time since the last call. A client that still waits tries again in
    /// the same round.
    pub(crate) fn take_shortage(&mut self) -> bool {
        std::mem::take(&mut self.is_short)
    }

    /// Returns whether the pool keeps free pieces.
    pub(crate) fn keeps_any(&self) -> bool {
        self.kept_bytes > 0
    }
}

#[cfg(test)]
mod tests;
