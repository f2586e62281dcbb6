//! Completion path: turns completions of I/O into used entries.

use super::in_flight::InFlight;
use super::ring::Ring;
use super::session::BlkSession;
use super::wire::Status;
use super::{BlkDesk, BlkHost};
use crate::flight::{Answered, Ended, Failure, Flight};
use crate::host::Failed;
use crate::kinds::RequestKind;
use crate::plant::plants;
use crate::slots::Key;
use forebay_core::BlockStatus;

impl<H: BlkHost> BlkSession<H> {
    /// Handles the end of one I/O. Returns the request if that answers it.
    // Always inlined: otherwise the request is passed through memory.
    #[inline(always)]
    pub(super) fn complete_one(
        &mut self,
        desk: &mut BlkDesk<H>,
        ended: Ended<H::Memory>,
    ) -> Option<Answered> {
        let Ended { key, result, memory, .. } = ended;
        if let Some(memory) = memory {
            self.link.peer.recycle(memory);
        }
        let flight = desk.flights.get_mut(key).expect("checked by the caller");
        let moves_data = matches!(flight.rq.kind, RequestKind::Read | RequestKind::Write);
        match result {
            // A short transfer: the file was truncated.
            Ok(len) if moves_data && len < flight.rq.len => {
                flight.fail(Failure::Status(BlockStatus::Io));
            }
            Ok(_) => {}
            Err(status) => flight.fail(Failure::Status(status)),
        }
        (flight.in_disk == 0).then(|| self.answer(desk, key))
    }

    /// Answers a request whose I/O has ended.
    #[inline(always)]
    pub(super) fn answer(&mut self, desk: &mut BlkDesk<H>, key: Key) -> Answered {
        let flight = desk.flights.remove(key).expect("checked by the caller");
        let InFlight { head, kind, len, .. } = flight.rq;
        let status = match flight.failure {
            None => Status::Ok,
            Some(_) if plants!(HideFailure) => Status::Ok,
            Some(Failure::NotSupported | Failure::Status(BlockStatus::NotSupported)) => {
                Status::Unsupported
            }
            Some(_) => Status::IoError,
        };
        if let Some(failure) = flight.failure {
            self.report(desk, &flight, failure);
        }
        let is_read = kind == RequestKind::Read;
        let written = if is_read && status == Status::Ok { len as u32 + 1 } else { 1 };
        let written = if plants!(WrongLength) { written - 1 } else { written };
        let head = if plants!(OtherHead) { head ^ 1 } else { head };
        self.link.ended((status == Status::Ok).then_some(kind), len);
        if plants!(AnswerNever) {
            return flight.answered();
        }
        self.note_used(desk.ended_ns);
        if plants!(AnswerTwice) {
            self.link.peer.put(head, status as u8, written);
        }
        self.link.peer.put(head, status as u8, written);
        if plants!(NotifyEach) {
            self.notify();
        }
        flight.answered()
    }

    /// Reports a request that has failed.
    #[cold]
    fn report(&self, desk: &mut BlkDesk<H>, flight: &Flight<InFlight>, failure: Failure) {
        let why = match failure {
            Failure::Status(status) => &status.to_string(),
            Failure::ReadOnly => "the disk is read-only",
            Failure::NotSupported => "the disk does not support this",
            Failure::Rejected => "the disk does not accept this request",
        };
        let InFlight { kind, offset, len, .. } = flight.rq;
        let failed = Failed { export: flight.export, kind, offset, len, why };
        desk.host.failed(&self.link.peer, &failed, desk.now_ns);
    }
}
