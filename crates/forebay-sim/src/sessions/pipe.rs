//! A stream that takes and brings bytes in pieces of any size.

use forebay_model::Random;
use std::collections::VecDeque;

/// How much it holds, bytes.
const CAPACITY: usize = 20_000;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    pub(super) is_closed: bool,
}

/// Both directions.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) to_server: Pipe,
    pub(super) to_client: Pipe,
    /// The client has hung up, and this is another connection, of which the server has to hear.
    pub(super) is_new: bool,
}

impl Pipe {
    /// Takes some of the bytes, from the front. Whether it took any.
    pub(super) fn put(&mut self, from: &mut Vec<u8>, random: &mut Random) -> bool {
        let room = CAPACITY - self.bytes.len();
        let nr = piece(room.min(from.len()), random);
        self.bytes.extend(from.drain(..nr));
        nr > 0
    }

    /// Brings some of what is in it. Whether it brought any.
    pub(super) fn take(&mut self, into: &mut Vec<u8>, random: &mut Random) -> bool {
        let nr = piece(self.bytes.len(), random);
        into.extend(self.bytes.drain(..nr));
        nr > 0
    }
}

/// Often all of it, or nearly; sometimes very little.
fn piece(most: usize, random: &mut Random) -> usize {
    if most == 0 {
        return 0;
    }
    match random.below(4) {
        0 => random.between(1, most.min(40) as u64) as usize,
        1 => random.between(1, most as u64) as usize,
        2 => most.saturating_sub(random.below(30) as usize).max(1),
        _ => most,
    }
}
