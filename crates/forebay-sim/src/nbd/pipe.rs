//! One way of a connection: bytes that come late and in pieces, and an end that comes behind them.

use forebay_model::Random;
use std::collections::VecDeque;

/// One piece in so many may be as long as it likes.
const WHOLE_OF: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Sent, and not there yet.
    wire: VecDeque<u8>,
    /// There, and not read yet.
    here: VecDeque<u8>,
    /// How many bytes it takes in all.
    room: usize,
    /// Whoever writes has closed it.
    is_closed: bool,
    /// An event will move what is on the wire.
    pub(crate) is_moving: bool,
}

impl Pipe {
    pub(crate) fn new(room: usize) -> Pipe {
        let (wire, here) = (VecDeque::new(), VecDeque::new());
        Pipe { wire, here, room, is_closed: false, is_moving: false }
    }

    /// Sends as much as there is room for.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let nr = bytes.len().min(self.room.saturating_sub(self.wire.len() + self.here.len()));
        if self.is_closed {
            return bytes.len();
        }
        self.wire.extend(&bytes[..nr]);
        nr
    }

    /// No more is sent.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// The same, and some of what is on the wire is lost.
    pub(crate) fn cut(&mut self, random: &mut Random) {
        let nr = random.below(self.wire.len() as u64 + 1) as usize;
        self.wire.truncate(nr);
        self.is_closed = true;
    }

    /// A piece arrives, of at most so many bytes. Whether more is on its way.
    pub(crate) fn advance(&mut self, random: &mut Random, piece_max: u64) -> bool {
        // Now and then all of it.
        let piece_max = if random.chance(1, WHOLE_OF) { u64::MAX } else { piece_max };
        let nr = random.between(1, piece_max.min(self.wire.len() as u64 + 1)) as usize;
        let nr = nr.min(self.wire.len());
        self.here.extend(self.wire.drain(..nr));
        !self.wire.is_empty()
    }

    /// Takes what has arrived, up to so many bytes.
    pub(crate) fn read(&mut self, max: usize, out: &mut Vec<u8>) -> usize {
        let nr = max.min(self.here.len());
        out.extend(self.here.drain(..nr));
        nr
    }

    /// All was read, and no more will come.
    pub(crate) fn is_over(&self) -> bool {
        self.is_closed && self.wire.is_empty() && self.here.is_empty()
    }

    pub(crate) fn has_arrived(&self) -> bool {
        !self.here.is_empty()
    }
}
