//! Requests in flight, and the replies to them.
//!
//! Data do not pass through this module: [`Transmission::take`] returns where the next bytes of the
//! connection belong, and the owner of the connection reads them. So they are copied at most once,
//! and a buffer of [`Transmission::HEADER_MAX`] bytes is enough for a connection.
//!
//! Source: "Transmission phase" in the NBD protocol document, and its extensions for structured
//! replies and extended headers.

use super::failure::Broken;
use super::negotiated::Negotiated;
use super::slot::{Command, Request, Slot};
use crate::wire::numbers as wire;
use crate::wire::{
    ChunkHeader, ErrorChunk, Extents, Framing, Hole, NbdError, Reader, RequestHeader, SimpleReply,
    Sink, StatusLens, reply_magic,
};
use alloc::vec::Vec;

/// Longest extents of one reply, bytes: about a million extents.
const EXTENTS_MAX_BYTES: u64 = 16 << 20;

/// Longest payload of an error, bytes: a number, the length of a message, the message and an
/// offset.
const ERROR_MAX: u64 = 4 + 2 + wire::STRING_MAX as u64 + 8;

/// Requests in flight on a connection, and the parser of their replies.
#[derive(Debug)]
pub struct Transmission {
    framing: Framing,
    allocation: Option<u32>,
    slots: Vec<Slot>,
    state: State,
}

/// State of the parser.
#[derive(Clone, Copy, Debug)]
enum State {
    /// At a header.
    Header,
    /// After data; their reply may end with them.
    Behind { slot: usize, is_last: bool },
    /// Within extents; this many bytes of them are left.
    Extents { slot: usize, is_last: bool, left: u64 },
}

/// Result of [`Transmission::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Number of input bytes consumed.
    pub consumed: usize,
    /// Event that they contain.
    pub event: Event,
}

/// Part of a reply. Requests are identified by their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// More input is needed: the rest of this input, and the bytes that follow it.
    More,
    /// The next `len` bytes of the connection are data of a read. The caller reads them.
    Data {
        /// Slot of the request.
        slot: usize,
        /// Offset of the data within the request.
        at: u64,
        /// Length, bytes; at least 1.
        len: u64,
    },
    /// A part of a read is zero.
    Zeroes {
        /// Slot of the request.
        slot: usize,
        /// Offset of the zeroes within the request.
        at: u64,
        /// Length, bytes; at least 1.
        len: u64,
    },
    /// The next extent of a BLOCK_STATUS.
    Extent {
        /// Slot of the request.
        slot: usize,
        /// Length, bytes. The last extent may exceed the request.
        len: u64,
        /// `STATE_HOLE`, `STATE_ZERO`.
        state: u32,
    },
    /// A request has ended. Its slot is free.
    Done {
        /// Slot of the request.
        slot: usize,
        /// Result of the request.
        result: Result<(), NbdError>,
    },
}

impl Transmission {
    /// Longest header that [`take`](Self::take) needs at once, bytes: an error with the longest
    /// message.
    pub const HEADER_MAX: usize = 8 << 10;

    /// Begins the transmission phase, with slots for `nr_slots` requests in flight.
    pub fn new(export: &Negotiated, nr_slots: usize) -> Transmission {
        Transmission {
            framing: export.framing,
            allocation: export.allocation,
            slots: (0..nr_slots).map(|_| Slot::new()).collect(),
            state: State::Header,
        }
    }

    /// Begins a request in a free slot, and appends its header to `out`.
    ///
    /// # Panics
    /// Panics if the slot does not exist or is not free.
    #[inline]
    pub fn begin(&mut self, slot: usize, request: Request, out: &mut impl Sink) {
        let place = self.slots.get_mut(slot);
        assert!(place.is_some(), "there is no slot {slot}");
        let Some(place) = place else { return };
        place.begin(request);
        let cookie = u64::from(place.generation) << 32 | slot as u64;
        let (command, mut flags) = request.command.numbers();
        let is_write = matches!(request.command, Command::Write { .. });
        if is_write && self.framing == Framing::Extended {
            flags |= wire::CMD_FLAG_PAYLOAD_LEN;
        }
        let Request { offset, len, .. } = request;
        self.emit(RequestHeader { flags, command, cookie, offset, len }, out);
    }

    /// Appends DISC to `out`. There is no reply to it.
    pub fn disconnect(&self, out: &mut impl Sink) {
        let header =
            RequestHeader { flags: 0, command: wire::CMD_DISC, cookie: 0, offset: 0, len: 0 };
        self.emit(header, out);
    }

    #[inline]
    fn emit(&self, header: RequestHeader, out: &mut impl Sink) {
        match self.framing {
            Framing::Extended => header.emit_extended(out),
            Framing::Simple | Framing::Structured => header.emit_compact(out),
        }
    }

    /// Parses bytes of the connection, from the end of those that it consumed before. Call it again
    /// until it returns [`Event::More`].
    ///
    /// # Errors
    /// Returns an error if the server broke the protocol. Close the connection then.
    pub fn take(&mut self, input: &[u8]) -> Result<Taken, Broken> {
        let mut consumed = 0_usize;
        loop {
            let step = self.step(input.get(consumed..).unwrap_or_default())?;
            consumed = consumed.saturating_add(step.consumed);
            if step.event != Event::More || step.consumed == 0 {
                return Ok(Taken { consumed, event: step.event });
            }
        }
    }

    /// Parses a part of the input, which may not yield an event.
    #[inline]
    fn step(&mut self, input: &[u8]) -> Result<Taken, Broken> {
        match self.state {
            State::Header => self.reply(input),
            State::Behind { slot, is_last } => {
                self.state = State::Header;
                match is_last {
                    true => self.end(slot, 0),
                    false => self.reply(input),
                }
            }
            State::Extents { slot, is_last, left } => self.extent(input, slot, is_last, left),
        }
    }

    fn reply(&mut self, input: &[u8]) -> Result<Taken, Broken> {
        const MORE: Taken = Taken { consumed: 0, event: Event::More };
        let Some(magic) = reply_magic(input) else { return Ok(MORE) };
        let (header, header_len) = match (magic, self.framing) {
            (wire::SIMPLE_REPLY_MAGIC, Framing::Simple | Framing::Structured) => {
                return SimpleReply::parse(input).map_or(Ok(MORE), |reply| self.simple(reply));
            }
            (wire::STRUCTURED_REPLY_MAGIC, Framing::Structured) => {
                (ChunkHeader::parse_structured(input), ChunkHeader::STRUCTURED_LEN)
            }
            (wire::EXTENDED_REPLY_MAGIC, Framing::Extended) => {
                (ChunkHeader::parse_extended(input), ChunkHeader::EXTENDED_LEN)
            }
            _ => return Err(Broken::Magic(magic)),
        };
        let Some(header) = header else { return Ok(MORE) };
        let payload = input.get(header_len..).unwrap_or_default();
        match self.chunk(header, payload)? {
            None => Ok(MORE),
            Some(Taken { consumed, event }) => {
                Ok(Taken { consumed: consumed.saturating_add(header_len), event })
            }
        }
    }

    fn simple(&mut self, reply: SimpleReply) -> Result<Taken, Broken> {
        let consumed = SimpleReply::LEN;
        let (slot, request) = self.find(reply.cookie)?;
        let is_structured = self.framing != Framing::Simple;
        match request.command {
            Command::Read if is_structured => {
                return Err(Broken::Unasked("data in a simple reply"));
            }
            Command::BlockStatus if reply.error == 0 => return Err(Broken::Missing("extents")),
            Command::Read if reply.error == 0 && request.len > 0 => {
                let Request { offset, len, .. } = request;
                let at = self.slot(slot)?.place(offset, len)?;
                self.state = State::Behind { slot, is_last: true };
                return Ok(Taken { consumed, event: Event::Data { slot, at, len } });
            }
            _ => {}
        }
        if reply.error != 0 {
            self.slot(slot)?.fail(NbdError::from_number(reply.error));
        }
        self.end(slot, consumed)
    }

    /// Handles a chunk, whose header was parsed. `None`: its payload is incomplete.
    fn chunk(&mut self, header: ChunkHeader, payload: &[u8]) -> Result<Option<Taken>, Broken> {
        let ChunkHeader { kind, len, .. } = header;
        let (slot, request) = self.find(header.cookie)?;
        if self.framing == Framing::Extended && header.offset != request.offset {
            return Err(Broken::Offset(header.offset));
        }
        let is_last = header.flags & wire::REPLY_FLAG_DONE != 0;
        let length = Broken::Length { kind, len };
        match kind {
            wire::REPLY_NONE if is_last && len == 0 => self.end(slot, 0).map(Some),
            wire::REPLY_NONE => Err(length),
            wire::REPLY_OFFSET_DATA => {
                let len = len.checked_sub(8).ok_or(length)?;
                let Some(offset) = Reader::new(payload).u64() else { return Ok(None) };
                let at = self.slot(slot)?.place(offset, len)?;
                self.state = State::Behind { slot, is_last };
                Ok(Some(Taken { consumed: 8, event: Event::Data { slot, at, len } }))
            }
            wire::REPLY_OFFSET_HOLE if len == Hole::LEN => {
                let Some(hole) = payload.get(..Hole::LEN as usize) else { return Ok(None) };
                let hole = Hole::parse(hole).ok_or(length)?;
                let len = u64::from(hole.len);
                let at = self.slot(slot)?.place(hole.offset, len)?;
                self.state = State::Behind { slot, is_last };
                let event = Event::Zeroes { slot, at, len };
                Ok(Some(Taken { consumed: Hole::LEN as usize, event }))
            }
            wire::REPLY_BLOCK_STATUS | wire::REPLY_BLOCK_STATUS_EXT => {
                self.extents(header, payload, slot, is_last)
            }
            _ if kind & wire::REPLY_ERR != 0 => {
                if len > ERROR_MAX {
                    return Err(length);
                }
                let Some(payload) = payload.get(..len as usize) else { return Ok(None) };
                self.error(kind, payload, slot)?;
                let consumed = payload.len();
                match is_last {
                    true => self.end(slot, consumed).map(Some),
                    false => Ok(Some(Taken { consumed, event: Event::More })),
                }
            }
            wire::REPLY_OFFSET_HOLE => Err(length),
            _ => Err(Broken::Kind(kind)),
        }
    }

    fn error(&mut self, kind: u16, payload: &[u8], slot: usize) -> Result<(), Broken> {
        let error = ErrorChunk::parse(kind, payload).ok_or(Broken::Error)?;
        let request = self.slot(slot)?.request.ok_or(Broken::Error)?;
        let is_inside =
            |at: u64| at.checked_sub(request.offset).is_some_and(|at| at <= request.len);
        if error.error == 0 || error.message.len() > wire::STRING_MAX {
            return Err(Broken::Error);
        }
        if error.offset.is_some_and(|at| !is_inside(at)) {
            return Err(Broken::Error);
        }
        self.slot(slot)?.fail(NbdError::from_number(error.error));
        Ok(())
    }

    /// Parses the beginning of extents. `StatusChunk::parse` needs all extents at once, and they
    /// may exceed the buffer of the caller: here each one is parsed when it has arrived.
    fn extents(
        &mut self,
        header: ChunkHeader,
        payload: &[u8],
        slot: usize,
        is_last: bool,
    ) -> Result<Option<Taken>, Broken> {
        let ChunkHeader { kind, len, .. } = header;
        let is_wide = self.framing == Framing::Extended;
        let StatusLens { start: before, each } = StatusLens::of(self.framing);
        let length = Broken::Length { kind, len };
        if is_wide != (kind == wire::REPLY_BLOCK_STATUS_EXT) {
            return Err(Broken::Kind(kind));
        }
        let left = len.checked_sub(before).filter(|left| left.checked_rem(each) == Some(0));
        let left = left.filter(|&left| left > 0 && left <= EXTENTS_MAX_BYTES).ok_or(length)?;
        let mut reader = Reader::new(payload);
        let Some(context) = reader.u32() else { return Ok(None) };
        if is_wide {
            // Number of extents, or 0. If it is not 0, it must agree with the length.
            let Some(nr) = reader.u32() else { return Ok(None) };
            if nr != 0 && left.checked_div(each) != Some(u64::from(nr)) {
                return Err(length);
            }
        }
        if self.allocation != Some(context) {
            return Err(Broken::Context(context));
        }
        self.slot(slot)?.begin_extents()?;
        let taken = self.extent(reader.rest(), slot, is_last, left)?;
        let consumed = taken.consumed.saturating_add(before as usize);
        Ok(Some(Taken { consumed, event: taken.event }))
    }

    /// Parses one extent.
    fn extent(
        &mut self,
        input: &[u8],
        slot: usize,
        is_last: bool,
        left: u64,
    ) -> Result<Taken, Broken> {
        let mut reader = Reader::new(input);
        let each = StatusLens::of(self.framing).each;
        let Some((len, state)) = Extents::one(self.framing, &mut reader) else {
            self.state = State::Extents { slot, is_last, left };
            return Ok(Taken { consumed: 0, event: Event::More });
        };
        if len == 0 {
            return Err(Broken::EmptyExtent);
        }
        self.state = match left.saturating_sub(each) {
            0 => State::Behind { slot, is_last },
            left => State::Extents { slot, is_last, left },
        };
        // The context has two flags, in the lower half.
        let state = (state & u64::from(wire::STATE_HOLE | wire::STATE_ZERO)) as u32;
        Ok(Taken { consumed: each as usize, event: Event::Extent { slot, len, state } })
    }

    /// Returns the slot of a cookie, and its request.
    #[inline]
    fn find(&self, cookie: u64) -> Result<(usize, Request), Broken> {
        let unknown = Broken::Cookie(cookie);
        let (slot, generation) = ((cookie & 0xFFFF_FFFF) as usize, (cookie >> 32) as u32);
        let place = self.slots.get(slot).filter(|slot| slot.generation == generation);
        let request = place.and_then(|place| place.request).ok_or(unknown)?;
        Ok((slot, request))
    }

    fn slot(&mut self, slot: usize) -> Result<&mut Slot, Broken> {
        self.slots.get_mut(slot).ok_or(Broken::Cookie(slot as u64))
    }

    fn end(&mut self, slot: usize, consumed: usize) -> Result<Taken, Broken> {
        let result = self.slot(slot)?.end()?;
        Ok(Taken { consumed, event: Event::Done { slot, result } })
    }
}
