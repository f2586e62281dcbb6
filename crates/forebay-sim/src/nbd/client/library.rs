//! A client that uses the library's half of the protocol instead of a parser of its own. The events
//! that the library returns are checked by the same rules.
//!
//! The library only sends requests that are legal as messages, so this client tests fewer illegal
//! requests. Offsets and lengths may still be illegal.

use super::{Client, Live, Shared};
use crate::check::Broken;
use crate::nbd::met::Met;
use crate::nbd::pending::Pending;
use crate::nbd::rules::{N1, N2, N3, N4};
use crate::server::Context;
use forebay_nbd::client::{
    self, Command, Event, Handshake, HandshakeError, Negotiated, Next, Request, Taken, Transmission,
};
use forebay_nbd::wire::numbers::*;
use forebay_nbd::wire::{Framing, NbdError, RequestHeader};

/// Data that is arriving: the slot, the place on the disk, and the number of bytes left.
#[derive(Clone, Copy, Debug)]
struct Coming {
    slot: usize,
    at: u64,
    left: u64,
}

/// The library's requests on a connection.
#[derive(Debug)]
pub(crate) struct Library {
    transmission: Transmission,
    coming: Option<Coming>,
    /// The extents so far of the request whose reply arrives.
    extents: Vec<(u64, bool)>,
}

impl Library {
    /// Returns the state of a connection whose handshake is over.
    pub(crate) fn new(
        framing: Framing,
        allocation: Option<u32>,
        shared: &Shared,
        cx: &mut Context,
    ) -> Library {
        let export = Negotiated {
            name: String::new(),
            description: String::new(),
            size_bytes: shared.size_bytes,
            can: shared.can,
            block_size: None,
            framing,
            allocation,
        };
        let nr_slots = shared.load.depth;
        let met = match framing {
            Framing::Simple => Met::LibrarySimple,
            Framing::Structured => Met::LibraryStructured,
            Framing::Extended => Met::LibraryExtended,
        };
        cx.note(met, nr_slots as u64, 0);
        Library {
            transmission: Transmission::new(&export, nr_slots),
            coming: None,
            extents: Vec::new(),
        }
    }

    /// Begins a request, in a free slot.
    pub(crate) fn begin(&mut self, slot: usize, request: Request, out: &mut Vec<u8>) {
        self.transmission.begin(slot, request, out);
    }

    pub(crate) fn disconnect(&self, out: &mut Vec<u8>) {
        self.transmission.disconnect(out);
    }

    /// Returns whether the state shows that a reply is incomplete.
    pub(crate) fn is_within_reply(&self) -> bool {
        self.coming.is_some() || !self.extents.is_empty()
    }
}

/// Returns the request in the library's form, if the library can send it.
pub(crate) fn request(header: &RequestHeader, has_payload: bool) -> Option<Request> {
    let RequestHeader { offset, len, .. } = *header;
    let is_fua = header.flags & CMD_FLAG_FUA != 0;
    let (command, flags) = match header.command {
        CMD_READ => (Command::Read, 0),
        CMD_WRITE => (Command::Write { fua: is_fua }, CMD_FLAG_FUA | CMD_FLAG_PAYLOAD_LEN),
        CMD_FLUSH => (Command::Flush, 0),
        CMD_TRIM => (Command::Trim, 0),
        // The library cannot forbid holes.
        CMD_WRITE_ZEROES => (Command::WriteZeroes { fua: is_fua }, CMD_FLAG_FUA | CMD_FLAG_NO_HOLE),
        CMD_BLOCK_STATUS => (Command::BlockStatus, 0),
        _ => return None,
    };
    let is_sayable = header.flags & !flags == 0 && has_payload == (header.command == CMD_WRITE);
    is_sayable.then_some(Request { command, offset, len })
}

impl Live {
    /// Continues the library's handshake. Returns whether anything moved.
    pub(in crate::nbd) fn negotiate(
        &mut self,
        mut handshake: Box<Handshake>,
        shared: &Shared,
        cx: &mut Context,
    ) -> Result<bool, Broken> {
        let wrong = |error: HandshakeError| Broken::new(N4, error.to_string());
        let fed = handshake.feed(&self.input, &mut self.out).map_err(wrong)?;
        self.input.drain(..fed.consumed);
        match fed.next {
            Next::More => self.handshake = Some(handshake),
            Next::StartTls => unreachable!("it does not insist on TLS"),
            Next::Ready(export) => {
                cx.note(Met::LibraryHandshake, self.conn as u64, export.size_bytes);
                let max = export.block_size.map(|sizes| u64::from(sizes.max));
                let is_right = export.size_bytes == shared.size_bytes
                    && export.can.flags(export.framing) == shared.can.flags(export.framing)
                    && export.framing == Framing::Extended
                    && max == Some(shared.payload_max);
                if !is_right {
                    return Err(Broken::new(N4, format!("{export:?}")));
                }
                (self.framing, self.allocation) = (export.framing, export.allocation);
                self.ready(shared, cx);
            }
        }
        Ok(fed.consumed > 0)
    }
}

impl Client {
    /// Takes input through the library. Returns whether anything moved.
    pub(in crate::nbd) fn take_by_library(
        &mut self,
        shared: &mut Shared,
        cx: &mut Context,
    ) -> Result<bool, Broken> {
        let Some(live) = &mut self.live else { return Ok(false) };
        let Some(library) = &mut live.library else { return Ok(false) };
        if let Some(Coming { slot, at, left }) = library.coming.take() {
            let nr = left.min(live.input.len() as u64);
            if nr > 0 {
                let data = &live.input[..nr as usize];
                pending_of(&mut live.pending, slot)?.part(at, nr, Some(data))?;
                live.input.drain(..nr as usize);
            }
            if nr < left {
                library.coming = Some(Coming { slot, at: at + nr, left: left - nr });
            }
            return Ok(nr > 0);
        }
        let Taken { consumed, event } =
            library.transmission.take(&live.input).map_err(disbelieved)?;
        live.input.drain(..consumed);
        match event {
            Event::More => return Ok(consumed > 0),
            Event::Data { slot, at, len } => {
                let at = pending_of(&mut live.pending, slot)?.offset + at;
                library.coming = Some(Coming { slot, at, left: len });
            }
            Event::Zeroes { slot, at, len } => {
                let pending = pending_of(&mut live.pending, slot)?;
                pending.part(pending.offset + at, len, None)?;
            }
            Event::Extent { len, state, .. } => {
                library.extents.push((len, state & STATE_ZERO != 0));
            }
            Event::Done { slot, result } => {
                let extents = std::mem::take(&mut library.extents);
                pending_of(&mut live.pending, slot)?;
                let pending = live.pending.remove(&(slot as u64)).expect("looked up");
                return self.done(pending, extents, result, shared, cx).map(|()| true);
            }
        }
        Ok(true)
    }

    fn done(
        &mut self,
        mut pending: Pending,
        extents: Vec<(u64, bool)>,
        result: Result<(), NbdError>,
        shared: &mut Shared,
        cx: &mut Context,
    ) -> Result<(), Broken> {
        if !extents.is_empty() {
            pending.add_extents(extents)?;
        }
        if let Err(error) = result {
            pending.failed(error.number())?;
        }
        self.finish(pending, shared, cx)
    }
}

type AllPending = std::collections::BTreeMap<u64, Pending>;

fn pending_of(all: &mut AllPending, slot: usize) -> Result<&mut Pending, Broken> {
    let unknown = || Broken::new(N2, format!("slot {slot} has no request"));
    all.get_mut(&(slot as u64)).ok_or_else(unknown)
}

/// Returns the rule that the server has broken, by the library's error.
fn disbelieved(broken: client::Broken) -> Broken {
    use client::Broken::{Cookie, Missing, Offset, Outside, Scattered, Twice};
    let rule = match broken {
        Cookie(_) | Offset(_) => N2,
        Outside { .. } | Twice { .. } | Scattered | Missing(_) => N3,
        _ => N1,
    };
    Broken::new(rule, format!("the client half of forebay-nbd reports: {broken}"))
}
