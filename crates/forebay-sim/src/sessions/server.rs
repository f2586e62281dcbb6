//! The server: sessions of `forebay-nbd` on one side, bios on the other.

use super::disk::{Disk, Ended};
use super::flight::{Flight, Piece};
use super::pipe::Link;
use super::{Lie, NR_SECTORS, SECTOR};
use forebay_core::{Bio, BioFlags, Op};
use forebay_model::Random;
use forebay_nbd::export::{Abilities, BlockSizes, ExportInfo};
use forebay_nbd::server::{Command, Handshake, Next, Request, TlsPolicy, Transmission};
use std::collections::BTreeMap;

/// Pieces of a request at most: what is left of a bio's number beside that of its flight.
const PIECE_BITS: u32 = 8;

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Transmission(Transmission),
    Over,
}

/// One connection.
#[derive(Debug)]
struct Conn {
    id: u64,
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
    /// It has written since it last flushed.
    is_dirty: bool,
}

impl Conn {
    fn new(id: u64) -> Conn {
        let mut output = Vec::new();
        let phase = Phase::Handshake(Handshake::new(TlsPolicy::Off, &mut output));
        Conn { id, phase, input: Vec::new(), output, is_dirty: false }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) links: Vec<Link>,
    pub(super) disk: Disk,
    conns: Vec<Conn>,
    next_conn: u64,
    flights: BTreeMap<u64, Flight>,
    /// Where pieces of flights lie, by the number of their bio.
    places: BTreeMap<u64, u64>,
    next_flight: u64,
    exports: Vec<ExportInfo>,
    lie: Option<Lie>,
    /// What a buffer held before.
    stale: Vec<u8>,
    now: u64,
}

fn export() -> ExportInfo {
    ExportInfo {
        name: String::new(),
        description: String::new(),
        size_bytes: NR_SECTORS * SECTOR,
        can: Abilities {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            multi_conn: true,
            ..Abilities::default()
        },
        block_size: BlockSizes { min: 512, preferred: 4096, max: 1 << 20 },
    }
}

impl Server {
    pub(super) fn new(disk: Disk, nr_conns: usize, lie: Option<Lie>) -> Server {
        Server {
            links: (0..nr_conns).map(|_| Link::default()).collect(),
            disk,
            conns: (0..nr_conns as u64).map(Conn::new).collect(),
            next_conn: nr_conns as u64,
            flights: BTreeMap::new(),
            places: BTreeMap::new(),
            next_flight: 0,
            exports: vec![export()],
            lie,
            stale: vec![0; 1 << 16],
            now: 0,
        }
    }

    /// Hears of a client that hung up, and of the one that has come.
    fn look(&mut self, nr: usize) {
        if std::mem::take(&mut self.links[nr].is_new) {
            self.conns[nr] = Conn::new(self.next_conn);
            self.next_conn += 1;
        }
    }

    /// Takes some of what a client sent, and begins what is in it. Whether there was any.
    pub(super) fn serve(&mut self, nr: usize, random: &mut Random) -> bool {
        self.look(nr);
        let conn = &mut self.conns[nr];
        if !self.links[nr].to_server.take(&mut conn.input, random) {
            return false;
        }
        loop {
            let conn = &mut self.conns[nr];
            match &mut conn.phase {
                Phase::Over => return true,
                Phase::Handshake(handshake) => {
                    let fed = handshake.feed(&self.exports, &conn.input, &mut conn.output);
                    conn.input.drain(..fed.consumed);
                    match fed.next {
                        Next::More => return true,
                        Next::Transmission(transmission) => {
                            conn.phase = Phase::Transmission(transmission);
                        }
                        Next::StartTls | Next::Close(_) => conn.phase = Phase::Over,
                    }
                }
                Phase::Transmission(transmission) => {
                    let header_len = transmission.header_len();
                    if conn.input.len() < header_len {
                        return true;
                    }
                    let Ok(rq) = transmission.parse(&conn.input) else {
                        conn.phase = Phase::Over;
                        return true;
                    };
                    let end = header_len + rq.payload_len as usize;
                    if conn.input.len() < end {
                        return true;
                    }
                    let payload = conn.input[header_len..end].to_vec();
                    conn.input.drain(..end);
                    self.begin(nr, rq, payload, random);
                }
            }
        }
    }

    fn begin(&mut self, nr: usize, rq: Request, payload: Vec<u8>, random: &mut Random) {
        let conn = &mut self.conns[nr];
        let Phase::Transmission(transmission) = &conn.phase else { return };
        let is_write = matches!(rq.command, Ok(Command::Write { .. }));
        let skips = match self.lie {
            Some(Lie::SkipFlush) => true,
            Some(Lie::FlushOwn) => !conn.is_dirty,
            _ => false,
        };
        let (op, fua) = match rq.command {
            Ok(Command::Read { .. }) => (Op::Read, false),
            Ok(Command::Write { fua }) => (Op::Write, fua),
            Ok(Command::Trim { fua }) => (Op::Discard, fua),
            Ok(Command::WriteZeroes { fua, .. }) => (Op::WriteZeroes, fua),
            Ok(Command::Flush) if skips => {
                return conn.output.extend(transmission.done(&rq).as_slice());
            }
            Ok(Command::Flush) => (Op::Flush, false),
            Ok(Command::Cache | Command::BlockStatus { .. } | Command::Disconnect) => return,
            Err(refused) => {
                return transmission.error(&rq, refused.error, refused.message, &mut conn.output);
            }
        };
        conn.is_dirty = op.is_write() || (conn.is_dirty && op != Op::Flush);
        let is_answered = is_write && self.lie == Some(Lie::AnswerEarly);
        if is_answered {
            conn.output.extend(transmission.done(&rq).as_slice());
        }
        let lens = if op.moves_data() { split(rq.len, random) } else { vec![rq.len] };
        let (conn, left) = (conn.id, lens.len());
        let (ready, nr_sent, failed) = (Vec::new(), 0, None);
        let flight = Flight { nr, conn, rq, left, ready, nr_sent, failed, is_answered };
        let id = self.next_flight;
        self.next_flight += 1;
        self.flights.insert(id, flight);
        self.submit(id, op, fua, &lens, &payload);
    }

    fn submit(&mut self, id: u64, op: Op, fua: bool, lens: &[u64], payload: &[u8]) {
        let start = self.flights[&id].rq.offset;
        let mut at = 0;
        for (nth, &len) in lens.iter().enumerate() {
            let user = id << PIECE_BITS | nth as u64;
            let mut bio = match op {
                Op::Flush => Bio::flush(),
                op => Bio::range(op, start + at, len),
            };
            bio.user_data = user;
            if fua {
                bio.flags = BioFlags::FUA;
            }
            let memory = match op {
                Op::Read => vec![0xee; len as usize],
                Op::Write => payload[at as usize..(at + len) as usize].to_vec(),
                _ => Vec::new(),
            };
            self.places.insert(user, start + at);
            self.disk.submit(bio, memory, self.now);
            at += len;
        }
    }

    /// The end of a round. Whether anything has ended.
    pub(super) fn turn(&mut self, random: &mut Random, now: u64) -> bool {
        self.now = now;
        let ended = self.disk.turn(now);
        let moved = !ended.is_empty();
        for ended in ended {
            self.ended(ended, random);
        }
        moved
    }

    fn ended(&mut self, ended: Ended, random: &mut Random) {
        let Ended { user, result, memory: mut data } = ended;
        let at = self.places.remove(&user).expect("it ends once");
        let id = user >> PIECE_BITS;
        let lie = self.lie;
        if lie == Some(Lie::StaleBuffer) && random.chance(1, 8) {
            let len = data.len();
            data.copy_from_slice(&self.stale[..len]);
        }
        self.stale[..data.len()].copy_from_slice(&data);
        let flight = self.flights.get_mut(&id).expect("its pieces are on their way");
        flight.piece_ended(Piece { at, data }, result, lie);
        let (nr, left) = (flight.nr, flight.left);
        self.look(nr);
        let conn = &mut self.conns[nr];
        let flight = self.flights.get_mut(&id).expect("as above");
        let is_there = conn.id == flight.conn || lie == Some(Lie::AnswerNext);
        match &conn.phase {
            Phase::Transmission(transmission) if is_there && !flight.is_answered => {
                if left > 0 {
                    return flight.send_early(transmission, random, &mut conn.output);
                }
            }
            _ if left > 0 => return,
            _ => {
                self.flights.remove(&id);
                return;
            }
        }
        self.finish(id, random);
    }

    fn finish(&mut self, id: u64, random: &mut Random) {
        let mut flight = self.flights.remove(&id).expect("it was there");
        let is_write = |flight: &Flight| matches!(flight.rq.command, Ok(Command::Write { .. }));
        if self.lie == Some(Lie::WrongCookie) && is_write(&flight) {
            let mut others = self.flights.values_mut();
            let other = others.find(|other| is_write(other) && other.conn == flight.conn);
            if let Some(other) = other {
                std::mem::swap(&mut other.rq.cookie, &mut flight.rq.cookie);
            }
        }
        let conn = &mut self.conns[flight.nr];
        if let Phase::Transmission(transmission) = &conn.phase {
            flight.finish(transmission, self.lie, random, &mut conn.output);
        }
    }

    /// Sends some of what a client is to get. Whether there was any.
    pub(super) fn send(&mut self, nr: usize, random: &mut Random) -> bool {
        self.look(nr);
        let (conn, link) = (&mut self.conns[nr], &mut self.links[nr]);
        if matches!(conn.phase, Phase::Over) && conn.output.is_empty() {
            link.to_client.is_closed = true;
        }
        link.to_client.put(&mut conn.output, random)
    }
}

/// A length in up to three pieces, of whole sectors.
fn split(len: u64, random: &mut Random) -> Vec<u64> {
    let mut lens = Vec::new();
    let mut left = len / SECTOR;
    while left > 1 && lens.len() < 2 && random.chance(1, 2) {
        let nr = random.between(1, left - 1);
        lens.push(nr * SECTOR);
        left -= nr;
    }
    lens.push(left * SECTOR);
    lens
}
