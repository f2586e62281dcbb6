//! One direction of a connection: bytes arrive late and in pieces, and the end of the stream after
//! them.

use forebay_model::Random;
use std::collections::VecDeque;

/// One piece in so many has no length limit.
const WHOLE_OF: u32 = 8;

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Sent, and not arrived yet.
    wire: VecDeque<u8>,
    /// Arrived, and not read yet.
    here: VecDeque<u8>,
    /// The capacity in bytes, of both queues together.
    room: usize,
    /// The writer has closed the pipe.
    is_closed: bool,
    /// An event is scheduled that will move the bytes on the wire.
    pub(crate) is_moving: bool,
}

impl Pipe {
    pub(crate) fn new(room: usize) -> Pipe {
        let (wire, here) = (VecDeque::new(), VecDeque::new());
        Pipe { wire, here, room, is_closed: false, is_moving: false }
    }

    /// Sends as much as fits, and returns how much that is.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let nr = bytes.len().min(self.room.saturating_sub(self.wire.len() + self.here.len()));
        if self.is_closed {
            return bytes.len();
        }
        self.wire.extend(&bytes[..nr]);
        nr
    }

    /// Closes the pipe for writing.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Closes the pipe, and loses some of the bytes on the wire.
    pub(crate) fn cut(&mut self, random: &mut Random) {
        let nr = random.below(self.wire.len() as u64 + 1) as usize;
        self.wire.truncate(nr);
        self.is_closed = true;
    }

    /// Delivers a piece of at most `piece_max` bytes. Returns whether more is on the wire.
    pub(crate) fn advance(&mut self, random: &mut Random, piece_max: u64) -> bool {
        // Sometimes the whole stream arrives at once.
        let piece_max = if random.chance(1, WHOLE_OF) { u64::MAX } else { piece_max };
        let nr = random.between(1, piece_max.min(self.wire.len() as u64 + 1)) as usize;
        let nr = nr.min(self.wire.len());
        self.here.extend(self.wire.drain(..nr));
        !self.wire.is_empty()
    }

    /// Reads up to `max` bytes that have arrived.
    pub(crate) fn read(&mut self, max: usize, out: &mut Vec<u8>) -> usize {
        let nr = max.min(self.here.len());
        out.extend(self.here.drain(..nr));
        nr
    }

    /// Reads bytes that have arrived, and returns how many.
    pub(crate) fn read_into(&mut self, place: &mut [u8]) -> usize {
        let nr = place.len().min(self.here.len());
        for (place, byte) in place.iter_mut().zip(self.here.drain(..nr)) {
            *place = byte;
        }
        nr
    }

    /// Returns whether a write would take something.
    pub(crate) fn has_room(&self) -> bool {
        self.is_closed || self.wire.len() + self.here.len() < self.room
    }

    /// Returns whether all was read, and no more will arrive.
    pub(crate) fn is_over(&self) -> bool {
        self.is_closed && self.wire.is_empty() && self.here.is_empty()
    }

    pub(crate) fn has_arrived(&self) -> bool {
        !self.here.is_empty()
    }
}
