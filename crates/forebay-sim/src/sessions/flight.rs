//! A request of a client on its way through the disk: its pieces, and the reply that they make.

use super::Lie;
use forebay_core::BlockStatus;
use forebay_model::Random;
use forebay_nbd::server::{Command, NbdError, Request, Transmission};
use forebay_nbd::wire::Framing;

/// A part of a request, which is one bio.
#[derive(Debug)]
pub(super) struct Piece {
    /// Where on the disk, bytes.
    pub(super) at: u64,
    pub(super) data: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Flight {
    /// Whose it is: a place, and which of the connections that have been there.
    pub(super) nr: usize,
    pub(super) conn: u64,
    pub(super) rq: Request,
    /// Pieces that the disk has.
    pub(super) left: usize,
    /// What a read has brought and not sent.
    pub(super) ready: Vec<Piece>,
    pub(super) nr_sent: usize,
    pub(super) failed: Option<BlockStatus>,
    /// It was answered before its time.
    pub(super) is_answered: bool,
}

impl Flight {
    /// Whether it is a read whose pieces may go out one by one, in any order.
    fn goes_in_pieces(&self, transmission: &Transmission) -> bool {
        transmission.framing() != Framing::Simple
            && matches!(self.rq.command, Ok(Command::Read { df: false }))
    }

    /// A piece has come back from the disk.
    pub(super) fn piece_ended(
        &mut self,
        piece: Piece,
        result: Result<u64, BlockStatus>,
        lie: Option<Lie>,
    ) {
        self.left -= 1;
        let is_read = matches!(self.rq.command, Ok(Command::Read { .. }));
        let failed = match result {
            Err(status) => Some(status),
            Ok(len) if is_read && len < piece.data.len() as u64 => Some(BlockStatus::Io),
            Ok(_) => None,
        };
        let is_hidden = match lie {
            Some(Lie::HideFailure) => true,
            Some(Lie::HideLateFailure) => self.nr_sent + self.ready.len() > 0,
            _ => false,
        };
        if failed.is_some() && !is_hidden {
            self.failed = failed;
        } else if is_read {
            self.ready.push(piece);
        }
    }

    /// Sends what has come so far, if it may and the server wants to.
    pub(super) fn send_early(
        &mut self,
        transmission: &Transmission,
        random: &mut Random,
        out: &mut Vec<u8>,
    ) {
        let is_due = self.left > 0 && self.failed.is_none() && random.chance(1, 2);
        if is_due && self.goes_in_pieces(transmission) {
            while let Some(piece) = self.ready.pop() {
                self.send(transmission, &piece, false, random, out);
            }
        }
    }

    /// The rest of the reply.
    pub(super) fn finish(
        mut self,
        transmission: &Transmission,
        lie: Option<Lie>,
        random: &mut Random,
        out: &mut Vec<u8>,
    ) {
        if let Some(status) = self.failed {
            return transmission.error(&self.rq, NbdError::of(status), "as drawn", out);
        }
        if !matches!(self.rq.command, Ok(Command::Read { .. })) {
            return out.extend(transmission.done(&self.rq).as_slice());
        }
        if !self.goes_in_pieces(transmission) {
            self.ready.sort_by_key(|piece| piece.at);
            let data = self.ready.drain(..).flat_map(|piece| piece.data).collect();
            self.ready = vec![Piece { at: self.rq.offset, data }];
        }
        if let [.., first, second] = &mut self.ready[..]
            && lie == Some(Lie::MixPieces)
            && first.data.len() == second.data.len()
        {
            std::mem::swap(&mut first.data, &mut second.data);
        }
        while let Some(piece) = self.ready.pop() {
            let is_last = self.ready.is_empty();
            self.send(transmission, &piece, is_last, random, out);
        }
    }

    fn send(
        &mut self,
        transmission: &Transmission,
        Piece { at, data }: &Piece,
        is_last: bool,
        random: &mut Random,
        out: &mut Vec<u8>,
    ) {
        let (rq, len) = (&self.rq, data.len() as u32);
        let is_zero = data.iter().all(|byte| *byte == 0);
        let hole = match is_zero && random.chance(1, 2) {
            true => transmission.hole(rq, *at, len, is_last),
            false => None,
        };
        match hole {
            Some(head) => out.extend(head.as_slice()),
            None => {
                let is_first = self.nr_sent == 0;
                out.extend(transmission.data(rq, *at, len, is_first, is_last).as_slice());
                out.extend(data);
            }
        }
        self.nr_sent += 1;
    }
}
