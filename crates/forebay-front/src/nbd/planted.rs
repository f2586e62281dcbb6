//! Steps of planted bugs (`plant.rs`) that need more than a condition.

use super::conn::Conn;
#[cfg(forebay_plant)]
use super::in_flight::NbdFlight;
use super::{NbdDesk, NbdHost};
use crate::slots::Key;
use forebay_nbd::export::ExportInfo;
use forebay_nbd::server::Command;

/// Returns the offset of the block after that at `offset`, if `len` bytes fit there.
pub(super) fn next_block(info: &ExportInfo, offset: u64, len: u64) -> u64 {
    let block = u64::from(info.block_size.min);
    if offset + len + block <= info.size_bytes { offset + block } else { offset }
}

impl<H: NbdHost> NbdDesk<H> {
    /// Answers a read or a write that is in flight.
    pub(super) fn answer_early(&mut self, conn: &mut Conn<H>, key: Key) {
        let flight = self.flights.get_mut(key).expect("it was begun");
        let rq = flight.rq.rq;
        if matches!(rq.command, Ok(Command::Read { .. })) {
            let Some(buf) = self.common.pool.take(rq.len as usize, conn.held()) else { return };
            if buf.len() < rq.len as usize {
                return self.common.pool.give(buf, conn.held());
            }
            conn.reply_head(&rq, (rq.offset, rq.len), (true, true));
            conn.reply_data(buf, rq.len as usize);
        } else {
            conn.reply_done(&rq);
        }
        flight.rq.set_answered();
    }
}

#[cfg(forebay_plant)]
impl<H: NbdHost> NbdDesk<H> {
    /// Exchanges the cookies of two writes of a client, and their offsets, so that only the time of
    /// the replies reveals it.
    pub(super) fn swap_cookies(
        &mut self,
        mut flight: NbdFlight<H::Memory>,
    ) -> NbdFlight<H::Memory> {
        let is_write =
            |rq: &forebay_nbd::server::Request| matches!(rq.command, Ok(Command::Write { .. }));
        if !is_write(&flight.rq.rq) || !crate::plant::plants!(SwapCookies) {
            return flight;
        }
        let client = flight.client;
        let other = self
            .flights
            .iter_mut()
            .find(|other| other.client == client && other.is_all_there && is_write(&other.rq.rq));
        if let Some(other) = other {
            std::mem::swap(&mut flight.rq.rq.cookie, &mut other.rq.rq.cookie);
            std::mem::swap(&mut flight.rq.rq.offset, &mut other.rq.rq.offset);
        }
        flight
    }
}
