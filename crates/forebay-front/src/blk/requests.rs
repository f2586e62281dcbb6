//! Request path: parses requests, and turns them into I/O.

use super::in_flight::{HeldBack, InFlight, Work};
use super::ring::{Chain, GuestBytes, Ring};
use super::session::BlkSession;
use super::wire::{
    F_DISCARD, F_FLUSH, F_WRITE_ZEROES, Header, ID_LEN, RANGE_LEN, RANGES_MAX, Range, SECTOR,
    Status, Type,
};
use super::{BlkDesk, BlkDisk, BlkHost};
use crate::flight::Flight;
use crate::host::{Io, Peer};
use crate::kinds::RequestKind;
use crate::plant::plants;
use forebay_core::{Op, SubmitErrorKind};

/// A request as parsed.
enum Parsed<M> {
    Work(HeldBack<M>),
    /// It is answered at once, with this number of bytes written before the status.
    Answer(RequestKind, Status, u32),
}

impl<H: BlkHost> BlkSession<H> {
    /// Begins a request.
    ///
    /// # Errors
    /// Fails if the request cannot be answered.
    // Always inlined, down to the queue of the disk: otherwise the parts are passed through memory.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        desk: &mut BlkDesk<H>,
        chain: Chain<H::Memory>,
    ) -> Result<(), String> {
        let head = chain.head;
        if !chain.has_status {
            return Err(format!("request {head} has no writable byte for its status"));
        }
        desk.nr_begun += 1;
        let Chain { header, readable, writable, .. } = chain;
        let Some(header) = header else {
            self.recycle(readable);
            self.recycle(writable);
            return self.answer_at_once(desk, head, RequestKind::Refused, Status::IoError, 0);
        };
        let header = Header::parse(header);
        match header.kind {
            Some(Type::In) => {
                let is_good = readable.is_none();
                self.recycle(readable);
                self.begin_data(desk, (head, header.sector), (Op::Read, writable), is_good)
            }
            Some(Type::Out) => {
                let is_good = writable.is_none() && !desk.common.read_only;
                self.recycle(writable);
                self.begin_data(desk, (head, header.sector), (Op::Write, readable), is_good)
            }
            kind => self.begin_other(desk, head, kind, (readable, writable)),
        }
    }

    /// Gives memory back to the ring.
    #[inline]
    fn recycle(&mut self, memory: Option<H::Memory>) {
        if let Some(memory) = memory {
            self.link.peer.recycle(memory);
        }
    }

    /// Answers a request that begins and needs no I/O. `written` is the number of bytes that were
    /// written before the status.
    fn answer_at_once(
        &mut self,
        desk: &mut BlkDesk<H>,
        head: u16,
        kind: RequestKind,
        status: Status,
        written: u32,
    ) -> Result<(), String> {
        if status == Status::IoError && plants!(StopForBadRequest) {
            return Err(format!("request {head} is bad"));
        }
        let status = if plants!(Obey) { Status::Ok } else { status };
        self.link.begun();
        self.link.peer.begin(kind);
        self.link.ended((status == Status::Ok).then_some(kind), 0);
        // The round may have begun long ago.
        self.note_used(desk.host.now_ns());
        self.link.peer.put(head, status as u8, written + 1);
        Ok(())
    }

    /// Begins a read or a write.
    #[inline(always)]
    fn begin_data(
        &mut self,
        desk: &mut BlkDesk<H>,
        (head, sector): (u16, u64),
        (op, memory): (Op, Option<H::Memory>),
        is_good: bool,
    ) -> Result<(), String> {
        let kind = if op == Op::Read { RequestKind::Read } else { RequestKind::Write };
        let len = memory.as_ref().map_or(0, GuestBytes::len);
        let end = sector.checked_add(len / SECTOR);
        let is_inside = end.is_some_and(|end| end <= desk.common.nr_sectors);
        let is_good = is_good && len % SECTOR == 0 && is_inside;
        let is_lost = is_good && op == Op::Write && plants!(LostWrite);
        if !is_good || len == 0 || is_lost {
            self.recycle(memory);
            let status = if is_good { Status::Ok } else { Status::IoError };
            return self.answer_at_once(desk, head, kind, status, 0);
        }
        let memory = memory.expect("it has bytes");
        let offset = sector * SECTOR + misplacement(&desk.common, op, sector * SECTOR, len);
        let io = Io::data(op, memory, offset, len as usize);
        let io = io.fua_if(op == Op::Write && self.is_write_through());
        self.batch.add(offset, len);
        self.link.begun();
        self.link.peer.begin(kind);
        self.submit_one(desk, InFlight { head, kind, offset, len }, io);
        Ok(())
    }

    /// Begins a request that moves no data of the disk.
    fn begin_other(
        &mut self,
        desk: &mut BlkDesk<H>,
        head: u16,
        kind: Option<Type>,
        memory: (Option<H::Memory>, Option<H::Memory>),
    ) -> Result<(), String> {
        match self.parse_other(&desk.common, head, kind, memory) {
            Parsed::Work(held_back) => {
                self.link.begun();
                self.link.peer.begin(held_back.rq.kind);
                self.submit_again(desk, held_back);
                Ok(())
            }
            Parsed::Answer(kind, status, written) => {
                self.answer_at_once(desk, head, kind, status, written)
            }
        }
    }

    /// Parses a request that moves no data of the disk, and recycles its memory.
    fn parse_other(
        &mut self,
        disk: &BlkDisk,
        head: u16,
        kind: Option<Type>,
        (mut readable, mut writable): (Option<H::Memory>, Option<H::Memory>),
    ) -> Parsed<H::Memory> {
        let work = |kind, work| {
            Parsed::Work(HeldBack { rq: InFlight { head, kind, offset: 0, len: 0 }, work })
        };
        let parsed = match kind {
            Some(Type::Flush) if plants!(EarlyFlush) => {
                Parsed::Answer(RequestKind::Flush, Status::Ok, 0)
            }
            Some(Type::Flush) => work(RequestKind::Flush, Work::One(Io::range(Op::Flush, 0, 0))),
            Some(Type::GetId) => {
                let mut nr = 0;
                if let Some(writable) = &mut writable {
                    nr = writable.len().min(ID_LEN as u64) as usize;
                    writable.fill_front(&disk.serial[..nr]);
                }
                Parsed::Answer(RequestKind::GetId, Status::Ok, nr as u32)
            }
            Some(kind @ (Type::Discard | Type::WriteZeroes)) => {
                let (label, found) = match kind {
                    Type::Discard => {
                        (RequestKind::Trim, self.parse_discard(disk, readable.as_mut()))
                    }
                    _ => (RequestKind::WriteZeroes, self.parse_zeroes(disk, readable.as_mut())),
                };
                match found {
                    Ok(_) if self.ranges.is_empty() => Parsed::Answer(label, Status::Ok, 0),
                    Ok(op) => work(label, Work::Ranges { op }),
                    Err(status) => Parsed::Answer(label, status, 0),
                }
            }
            Some(Type::In | Type::Out) | None => {
                Parsed::Answer(RequestKind::Refused, Status::Unsupported, 0)
            }
        };
        self.recycle(readable);
        self.recycle(writable);
        parsed
    }

    fn parse_discard(
        &mut self,
        disk: &BlkDisk,
        bytes: Option<&mut H::Memory>,
    ) -> Result<Op, Status> {
        if self.link.peer.features() & F_DISCARD == 0 {
            return Err(Status::Unsupported);
        }
        self.parse_ranges(disk, bytes, disk.max_discard_sectors)?;
        // The standard allows no flag here.
        match self.ranges.iter().any(|range| range.unmap) {
            true => Err(Status::Unsupported),
            false => Ok(Op::Discard),
        }
    }

    fn parse_zeroes(
        &mut self,
        disk: &BlkDisk,
        bytes: Option<&mut H::Memory>,
    ) -> Result<Op, Status> {
        if self.link.peer.features() & F_WRITE_ZEROES == 0 {
            return Err(Status::Unsupported);
        }
        self.parse_ranges(disk, bytes, disk.max_write_zeroes_sectors)?;
        // `unmap` is a permission, so it counts only if all ranges have it.
        let unmap = self.ranges.iter().all(|range| range.unmap);
        Ok(if unmap && disk.discards_to_zeroes { Op::Discard } else { Op::WriteZeroes })
    }

    /// Parses the ranges of a request into the list of the session, without empty ones.
    fn parse_ranges(
        &mut self,
        disk: &BlkDisk,
        bytes: Option<&mut H::Memory>,
        max_sectors: u32,
    ) -> Result<(), Status> {
        self.ranges.clear();
        let bytes = bytes.ok_or(Status::IoError)?;
        let is_whole = bytes.len() % RANGE_LEN as u64 == 0;
        let nr = bytes.len() / RANGE_LEN as u64;
        if disk.read_only || !is_whole || nr == 0 || nr > RANGES_MAX as u64 {
            return Err(Status::IoError);
        }
        for _ in 0..nr {
            let mut one = [0; RANGE_LEN];
            bytes.take_front(&mut one);
            let range = Range::parse(one);
            if range.has_unknown_flags {
                return Err(Status::Unsupported);
            }
            let end = range.sector.checked_add(u64::from(range.nr_sectors));
            if range.nr_sectors > max_sectors || end.is_none_or(|end| end > disk.nr_sectors) {
                return Err(Status::IoError);
            }
            if range.nr_sectors > 0 {
                self.ranges.push(range);
            }
        }
        Ok(())
    }

    /// Returns whether a write must be durable before its status (Y2).
    #[inline]
    fn is_write_through(&self) -> bool {
        let ring = &self.link.peer;
        let has_no_flush = ring.features() & F_FLUSH == 0 && !plants!(CacheWithoutFlush);
        has_no_flush || !(ring.write_cache() || plants!(IgnoreWriteCache))
    }

    /// Submits a request, or holds it back if the disk has no room.
    #[inline]
    pub(super) fn submit_again(&mut self, desk: &mut BlkDesk<H>, held_back: HeldBack<H::Memory>) {
        let HeldBack { rq, work } = held_back;
        match work {
            Work::One(io) => self.submit_one(desk, rq, io),
            Work::Ranges { op } => self.submit_ranges(desk, rq, op),
        }
    }

    #[inline(always)]
    fn submit_one(&mut self, desk: &mut BlkDesk<H>, rq: InFlight, io: Io<H::Memory>) {
        let export = desk.common.export;
        let flight = Flight { in_disk: 1, ..desk.flight(self.link.key(), export, rq) };
        let key = desk.flights.insert(flight);
        let (op, offset, len, flags) = (io.op, io.offset, io.len, io.flags);
        match desk.submit(&self.link.peer, export, io.user_data(key.to_u64())) {
            Ok(()) => {}
            Err((SubmitErrorKind::WouldBlock, memory)) => {
                desk.flights.remove(key);
                let work = Work::One(Io { op, offset, len, flags, user_data: 0, memory });
                self.held_back = Some(HeldBack { rq, work });
            }
            Err((refusal, memory)) => {
                if let Some(memory) = memory {
                    self.link.peer.recycle(memory);
                }
                desk.flights.get_mut(key).expect("just inserted").in_disk = 0;
                desk.refused(key, refusal);
            }
        }
    }

    fn submit_ranges(&mut self, desk: &mut BlkDesk<H>, rq: InFlight, op: Op) {
        let export = desk.common.export;
        if !desk.host.has_room(export, self.ranges.len()) {
            self.held_back = Some(HeldBack { rq, work: Work::Ranges { op } });
            return;
        }
        let is_write_through = self.is_write_through();
        let flight = desk.flight(self.link.key(), export, rq);
        let key = desk.flights.insert(flight);
        for range in &self.ranges {
            if plants!(ForgetRange) {
                continue;
            }
            let (offset, len) = (range.sector * SECTOR, u64::from(range.nr_sectors) * SECTOR);
            let io = Io::range(op, offset, len).fua_if(is_write_through);
            // It counts from before its submission: after a panic there, the disk may have it.
            desk.flights.get_mut(key).expect("just inserted").in_disk += 1;
            if let Err((refusal, _)) =
                desk.submit(&self.link.peer, export, io.user_data(key.to_u64()))
            {
                let flight = desk.flights.get_mut(key).expect("just inserted");
                flight.in_disk -= 1;
                flight.fail(refusal.into());
            }
        }
        if desk.flights.get_mut(key).is_some_and(|flight| flight.in_disk == 0) {
            desk.to_settle.push(key);
        }
    }
}

/// Returns by how many bytes a transfer is misplaced: a planted bug.
#[inline]
fn misplacement(disk: &BlkDisk, op: Op, offset: u64, len: u64) -> u64 {
    let is_read = op == Op::Read;
    let shows = if is_read { plants!(MisplacedRead) } else { false };
    let shows = if is_read { shows } else { plants!(MisplacedWrite) };
    let has_next = offset + 2 * len <= disk.nr_sectors * SECTOR;
    if shows && has_next { len } else { 0 }
}
