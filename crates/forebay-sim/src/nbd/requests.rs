//! Requests of a client: good ones, and bad ones with a known error reply.

use super::client::{Client, Live, Phase, Shared, library};
use super::met::Met;
use super::pending::{Expected, Pending};
use super::scenario::Wish;
use crate::sectors::{self, End, Kind, Stamp};
use crate::server::{Context, SECTOR};
use forebay_nbd::client::Request;
use forebay_nbd::wire::numbers::*;
use forebay_nbd::wire::{Framing, NbdError, RequestHeader};

/// A payload longer than any server has to accept.
const PAYLOAD_TOO_LONG: u64 = 1 << 26;

/// A request before it is sent.
struct Draft {
    header: RequestHeader,
    payload: Vec<u8>,
    pending: Pending,
    /// Its effect on the sectors, if it succeeds.
    kind: Option<Kind>,
}

impl Draft {
    /// Returns the request in the library's form, if the library can send it.
    fn request(&self) -> Option<Request> {
        library::request(&self.header, !self.payload.is_empty())
    }
}

impl Live {
    /// Sends the disconnect request.
    pub(crate) fn leave(&mut self) {
        match &self.library {
            Some(library) => library.disconnect(&mut self.out),
            None => {
                let (flags, command) = (0, CMD_DISC);
                self.emit(&RequestHeader { flags, command, cookie: 0, offset: 0, len: 0 });
            }
        }
        self.phase = Phase::Leaving;
    }

    fn emit(&mut self, header: &RequestHeader) {
        match self.framing {
            Framing::Extended => header.emit_extended(&mut self.out),
            _ => header.emit_compact(&mut self.out),
        }
    }
}

impl Client {
    /// Sends a request.
    pub(crate) fn request(&mut self, shared: &mut Shared, cx: &mut Context) {
        if cx.random.chance(shared.load.breaks, 1_000) {
            return self.break_off(cx);
        }
        let wish = cx.random.pick(&shared.load.wishes);
        let live = self.live.as_ref().expect("a client that sends is connected");
        let wish = match wish {
            Wish::Status if live.allocation.is_none() => Wish::Read,
            Wish::ReadDf if live.framing == Framing::Simple => Wish::Read,
            wish => wish,
        };
        let (nr_pending, has_library) = (live.pending.len() as u64, live.library.is_some());
        let draft = match wish {
            Wish::Illegal => self.illegal(shared, cx),
            _ => self.legal(wish, shared, cx),
        };
        let (wish, draft) = match has_library && draft.request().is_none() {
            // The library never sends such a request.
            true => (Wish::Read, self.legal(Wish::Read, shared, cx)),
            false => (wish, draft),
        };
        cx.note(met(wish), self.id as u64, nr_pending);
        self.send(draft, shared, cx);
    }

    fn send(&mut self, draft: Draft, shared: &mut Shared, cx: &mut Context) {
        let request = draft.request();
        let Draft { header, payload, mut pending, kind } = draft;
        if let Some(kind) = kind {
            let (first, began) = (header.offset / SECTOR, cx.mark());
            pending.op = Some(shared.log.ops.len());
            shared.log.ops.push(sectors::Op { kind, first, began, end: End::Unknown });
        }
        let live = self.live.as_mut().expect("a client that sends is connected");
        let Some(library) = &mut live.library else {
            live.emit(&header);
            live.out.extend(payload);
            live.pending.insert(header.cookie, pending);
            return;
        };
        let is_free = |slot: &usize| !live.pending.contains_key(&(*slot as u64));
        let slot = (0..shared.load.depth).find(is_free).expect("no more than its depth");
        library.begin(slot, request.expect("it was looked at"), &mut live.out);
        live.out.extend(payload);
        pending.cookie = slot as u64;
        live.pending.insert(pending.cookie, pending);
    }

    /// Returns a cookie that no request in flight has.
    fn cookie(&self, cx: &mut Context) -> u64 {
        let live = self.live.as_ref().expect("a client that sends is connected");
        loop {
            let cookie = cx.random.draw();
            if !live.pending.contains_key(&cookie) {
                return cookie;
            }
        }
    }

    fn legal(&mut self, wish: Wish, shared: &Shared, cx: &mut Context) -> Draft {
        let load = &shared.load;
        let cookie = self.cookie(cx);
        let live = self.live.as_ref().expect("a client that sends is connected");
        let has_data = matches!(wish, Wish::Read | Wish::ReadDf | Wish::Write | Wish::WriteFua);
        let nr_max = match has_data {
            true => load.nr_blocks_max.min(shared.payload_max / load.block),
            false => load.nr_blocks_max,
        };
        let nr = cx.random.between(1, nr_max.min(load.nr_blocks));
        let first = cx.random.below(load.nr_blocks - nr + 1);
        let (mut offset, mut len) = (first * load.block, nr * load.block);
        let nr_sectors = len / SECTOR;
        let stamp = Stamp::new(self.id as u16, self.nr_written);
        let (command, flags, kind) = match wish {
            Wish::Read | Wish::Illegal => (CMD_READ, 0, Some(Kind::Read(Vec::new()))),
            Wish::ReadDf => (CMD_READ, CMD_FLAG_DF, Some(Kind::Read(Vec::new()))),
            Wish::Write => (CMD_WRITE, 0, Some(Kind::Write { stamp, nr_sectors, fua: false })),
            Wish::WriteFua => {
                (CMD_WRITE, CMD_FLAG_FUA, Some(Kind::Write { stamp, nr_sectors, fua: true }))
            }
            Wish::Flush => {
                (offset, len) = (0, 0);
                (CMD_FLUSH, 0, Some(Kind::Flush))
            }
            Wish::Trim => (CMD_TRIM, 0, Some(Kind::Trim { nr_sectors })),
            Wish::TrimFua => (CMD_TRIM, CMD_FLAG_FUA, Some(Kind::Trim { nr_sectors })),
            Wish::Zero => (CMD_WRITE_ZEROES, 0, Some(Kind::Zero { nr_sectors, fua: false })),
            Wish::ZeroFua => {
                let kind = Kind::Zero { nr_sectors, fua: true };
                (CMD_WRITE_ZEROES, CMD_FLAG_FUA | CMD_FLAG_NO_HOLE, Some(kind))
            }
            Wish::ZeroFast => {
                let kind = Kind::Zero { nr_sectors, fua: false };
                (CMD_WRITE_ZEROES, CMD_FLAG_FAST_ZERO, Some(kind))
            }
            Wish::Cache => (CMD_CACHE, 0, None),
            Wish::Status => {
                let one = if cx.random.chance(1, 3) { CMD_FLAG_REQ_ONE } else { 0 };
                (CMD_BLOCK_STATUS, one, Some(Kind::Read(Vec::new())))
            }
        };
        let mut header = RequestHeader { flags, command, cookie, offset, len };
        let mut payload = Vec::new();
        if command == CMD_WRITE {
            self.nr_written += 1;
            payload = vec![0; len as usize];
            let sectors = payload.chunks_mut(SECTOR as usize).zip(offset / SECTOR..);
            sectors.for_each(|(bytes, sector)| stamp.fill(sector, bytes));
            if live.framing == Framing::Extended {
                header.flags |= CMD_FLAG_PAYLOAD_LEN;
            }
        }
        let writes = matches!(command, CMD_WRITE | CMD_TRIM | CMD_WRITE_ZEROES);
        let mut pending = Pending::new(cookie, offset, len, Expected::Good);
        pending.is_read = command == CMD_READ;
        pending.is_status = command == CMD_BLOCK_STATUS;
        pending.is_one = flags & (CMD_FLAG_DF | CMD_FLAG_REQ_ONE) != 0;
        if writes && shared.can.read_only {
            cx.note(Met::ReadOnlyRefused, self.id as u64, cookie);
            pending.expected = Expected::Refused(NbdError::Perm);
            return Draft { header, payload, pending, kind: None };
        }
        Draft { header, payload, pending, kind }
    }

    /// Returns a request that the server must refuse, and that leaves the connection in step.
    fn illegal(&mut self, shared: &Shared, cx: &mut Context) -> Draft {
        let (block, size) = (shared.load.block, shared.size_bytes);
        let cookie = self.cookie(cx);
        let framing = self.live.as_ref().expect("a client that sends is connected").framing;
        let is_extended = framing == Framing::Extended;
        let payload_flag = if is_extended { CMD_FLAG_PAYLOAD_LEN } else { 0 };
        let mut payload_len = 0;
        let inval = NbdError::Inval;
        let (command, flags, offset, len, error) = match cx.random.below(13) {
            0 => (77, 0, 0, block, inval),
            1 => (CMD_READ, 0, size, block, inval),
            2 => {
                payload_len = block;
                (CMD_WRITE, payload_flag, size, block, NbdError::NoSpc)
            }
            3 => (CMD_READ, 0, 0, 0, inval),
            4 => (CMD_READ, 0, 1, block, inval),
            5 => (CMD_READ, CMD_FLAG_NO_HOLE, 0, block, inval),
            6 => (CMD_FLUSH, 0, 0, block, inval),
            7 => {
                payload_len = block;
                (CMD_WRITE, payload_flag | CMD_FLAG_DF, 0, block, inval)
            }
            8 if is_extended => (CMD_WRITE, 0, 0, block, inval),
            9 if is_extended => {
                payload_len = cx.random.between(1, block);
                (CMD_READ, CMD_FLAG_PAYLOAD_LEN, 0, payload_len, inval)
            }
            10 if shared.payload_max < size => {
                payload_len = shared.payload_max + block;
                (CMD_WRITE, payload_flag, 0, payload_len, inval)
            }
            11 if shared.payload_max < size && framing != Framing::Simple => {
                let len = shared.payload_max + block;
                (CMD_READ, CMD_FLAG_DF, 0, len, NbdError::Overflow)
            }
            12 if !shared.can.fua => {
                payload_len = block;
                (CMD_WRITE, payload_flag | CMD_FLAG_FUA, 0, block, inval)
            }
            _ => (CMD_WRITE_ZEROES, CMD_FLAG_REQ_ONE, 0, block, inval),
        };
        let is_read_only =
            shared.can.read_only && matches!(command, CMD_WRITE | CMD_TRIM | CMD_WRITE_ZEROES);
        let error = if is_read_only { NbdError::Perm } else { error };
        if payload_len > 0 {
            cx.note(Met::IllegalWithPayload, command.into(), payload_len);
        }
        let payload = (0..payload_len).map(|_| cx.random.draw() as u8).collect();
        let mut pending = Pending::new(cookie, offset, len, Expected::Refused(error));
        pending.is_read = command == CMD_READ;
        let header = RequestHeader { flags, command, cookie, offset, len };
        Draft { header, payload, pending, kind: None }
    }

    /// Sends a message after which the server must close the connection.
    fn break_off(&mut self, cx: &mut Context) {
        let cookie = self.cookie(cx);
        let live = self.live.as_mut().expect("a client that sends is connected");
        let flags = if live.framing == Framing::Extended { CMD_FLAG_PAYLOAD_LEN } else { 0 };
        let (command, len) = (CMD_WRITE, PAYLOAD_TOO_LONG);
        let header = RequestHeader { flags, command, cookie, offset: 0, len };
        let start = live.out.len();
        live.emit(&header);
        if cx.random.chance(1, 2) {
            cx.note(Met::BadMagic, self.id as u64, live.pending.len() as u64);
            live.out[start] ^= 1;
        } else {
            cx.note(Met::PayloadTooLong, self.id as u64, live.pending.len() as u64);
        }
        live.phase = Phase::Doomed;
    }
}

fn met(wish: Wish) -> Met {
    match wish {
        Wish::Read => Met::Read,
        Wish::ReadDf => Met::ReadDf,
        Wish::Write => Met::Write,
        Wish::WriteFua => Met::WriteFua,
        Wish::Flush => Met::Flush,
        Wish::Trim => Met::Trim,
        Wish::TrimFua => Met::TrimFua,
        Wish::Zero => Met::Zero,
        Wish::ZeroFua => Met::ZeroFua,
        Wish::ZeroFast => Met::ZeroFast,
        Wish::Cache => Met::Cache,
        Wish::Status => Met::Status,
        Wish::Illegal => Met::Illegal,
    }
}
