//! Slots: a request in flight, and the part of its reply received so far.

use super::coverage::{Coverage, Misplaced};
use super::failure::Broken;
use crate::wire::{NbdError, numbers as wire};

/// Command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// READ.
    Read,
    /// WRITE. The data follow the header.
    Write {
        /// The data must be durable before the reply (FUA).
        fua: bool,
    },
    /// FLUSH: makes all completed writes durable.
    Flush,
    /// TRIM: discards a range.
    Trim,
    /// WRITE_ZEROES.
    WriteZeroes {
        /// The zeroes must be durable before the reply (FUA).
        fua: bool,
    },
    /// BLOCK_STATUS: returns which parts are holes or zeroes.
    BlockStatus,
}

impl Command {
    /// Returns the number of the command, and its flags.
    pub(super) fn numbers(self) -> (u16, u16) {
        let flag = |fua: bool| if fua { wire::CMD_FLAG_FUA } else { 0 };
        match self {
            Command::Read => (wire::CMD_READ, 0),
            Command::Write { fua } => (wire::CMD_WRITE, flag(fua)),
            Command::Flush => (wire::CMD_FLUSH, 0),
            Command::Trim => (wire::CMD_TRIM, 0),
            Command::WriteZeroes { fua } => (wire::CMD_WRITE_ZEROES, flag(fua)),
            Command::BlockStatus => (wire::CMD_BLOCK_STATUS, 0),
        }
    }
}

/// A request: a command and a range of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// Offset of the range, bytes; 0 for a flush.
    pub offset: u64,
    /// Length of the range, bytes; 0 for a flush.
    pub len: u64,
}

/// A slot for one request at a time.
#[derive(Debug)]
pub(super) struct Slot {
    /// Number of requests that have used this slot; part of the cookie, so that a reply to an
    /// earlier request is not taken for one to this request.
    pub(super) generation: u32,
    pub(super) request: Option<Request>,
    coverage: Coverage,
    error: Option<NbdError>,
    has_extents: bool,
}

impl Slot {
    pub(super) fn new() -> Slot {
        let coverage = Coverage::default();
        Slot { generation: 0, request: None, coverage, error: None, has_extents: false }
    }

    pub(super) fn begin(&mut self, request: Request) {
        assert!(self.request.is_none(), "a slot has one request at a time");
        self.request = Some(request);
        self.coverage.clear();
        (self.error, self.has_extents) = (None, false);
    }

    /// Records `len` received bytes at `offset` of the export. Returns their offset in the request.
    pub(super) fn place(&mut self, offset: u64, len: u64) -> Result<u64, Broken> {
        let Some(Request { command: Command::Read, offset: start, len: whole }) = self.request
        else {
            return Err(Broken::Unasked("data"));
        };
        let outside = Broken::Outside { offset, len };
        let at = offset.checked_sub(start).ok_or(outside)?;
        let end = at.checked_add(len).filter(|&end| end <= whole && len > 0).ok_or(outside)?;
        self.coverage.add(at, end).map_err(|misplaced| match misplaced {
            Misplaced::Twice => Broken::Twice { offset, len },
            Misplaced::Scattered => Broken::Scattered,
        })?;
        Ok(at)
    }

    /// Records the extents of the reply, which may be sent once.
    pub(super) fn begin_extents(&mut self) -> Result<(), Broken> {
        let is_status = self.request.is_some_and(|rq| rq.command == Command::BlockStatus);
        if !is_status || core::mem::replace(&mut self.has_extents, true) {
            return Err(Broken::Unasked("extents"));
        }
        Ok(())
    }

    /// Records an error of the server. The first error counts.
    pub(super) fn fail(&mut self, error: NbdError) {
        self.error.get_or_insert(error);
    }

    /// Ends the request: returns its result, and frees the slot.
    pub(super) fn end(&mut self) -> Result<Result<(), NbdError>, Broken> {
        let request = self.request.take().ok_or(Broken::Unasked("an end"))?;
        self.generation = self.generation.wrapping_add(1);
        if let Some(error) = self.error {
            return Ok(Err(error));
        }
        match request.command {
            Command::Read if !self.coverage.is_whole(request.len) => Err(Broken::Missing("data")),
            Command::BlockStatus if !self.has_extents => Err(Broken::Missing("extents")),
            _ => Ok(Ok(())),
        }
    }
}
