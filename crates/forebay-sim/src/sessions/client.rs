//! A client: its half of the protocol, a few requests at a time, and a log of them.

use super::load::{self, Asked};
use super::pipe::Link;
use super::{Failure, SECTOR, Summary};
use crate::sectors::{End, Op, Stamp};
use forebay_model::Random;
use forebay_nbd::client::{Event, Export, Handshake, Next, Replies};
use forebay_nbd::export::Abilities;
use forebay_nbd::wire::{ExportRequest, Framing, OptionHeader, numbers};
use std::collections::BTreeMap;

/// Requests at once.
const DEPTH: usize = 6;
/// Requests in one life, about.
const NR_REQUESTS: u64 = 60;

/// How far a connection is.
#[derive(Debug)]
enum Phase {
    /// Nothing was said.
    Fresh,
    /// The library's client haggles.
    Haggling(Box<Handshake>),
    /// Options were sent by hand, to have another framing.
    ByHand(Framing),
    Ready(Box<Replies>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    writer: u16,
    sequence: u64,
    left: u64,
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
    under_way: BTreeMap<usize, Asked>,
    /// What reads have brought so far, by slot.
    data: Vec<Vec<u8>>,
    /// The next bytes are data: of which slot, where in it, how many.
    coming: Option<(usize, usize, usize)>,
    nr_pieces: [u64; DEPTH],
    log: Vec<Op>,
}

impl Client {
    pub(super) fn new(writer: u16, sequence: u64, random: &mut Random) -> Client {
        Client {
            writer,
            sequence,
            left: random.between(NR_REQUESTS / 2, NR_REQUESTS * 2),
            phase: Phase::Fresh,
            input: Vec::new(),
            output: Vec::new(),
            under_way: BTreeMap::new(),
            data: vec![Vec::new(); DEPTH],
            coming: None,
            nr_pieces: [0; DEPTH],
            log: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.under_way.is_empty()
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The log of what ended, and of what did not.
    pub(super) fn take_log(&mut self) -> Vec<Op> {
        let open = std::mem::take(&mut self.under_way);
        self.log.extend(open.into_values().map(|asked| asked.op));
        std::mem::take(&mut self.log)
    }

    /// One thing of what a client does. Whether it did any.
    pub(super) fn act(
        &mut self,
        random: &mut Random,
        now: u64,
        link: &mut Link,
        summary: &mut Summary,
    ) -> Result<bool, Failure> {
        if self.is_done() {
            return Ok(false);
        }
        if random.chance(1, 3000) {
            self.hang_up(link, summary);
            return Ok(true);
        }
        match random.below(3) {
            0 => Ok(link.to_server.put(&mut self.output, random)),
            1 => {
                let brought = link.to_client.take(&mut self.input, random);
                if !brought && link.to_client.is_closed {
                    self.hang_up(link, summary);
                }
                Ok(self.understand(now, summary)? || brought)
            }
            _ => Ok(self.ask(random, now)),
        }
    }

    /// The connection is gone, and there is a new one.
    fn hang_up(&mut self, link: &mut Link, summary: &mut Summary) {
        summary.nr_hung_up += 1;
        let open = std::mem::take(&mut self.under_way);
        self.log.extend(open.into_values().map(|asked| asked.op));
        self.phase = Phase::Fresh;
        self.input.clear();
        self.output.clear();
        self.coming = None;
        *link = Link { is_new: true, ..Link::default() };
    }

    fn ask(&mut self, random: &mut Random, now: u64) -> bool {
        if matches!(self.phase, Phase::Fresh) {
            self.begin(random);
            return true;
        }
        let Phase::Ready(replies) = &mut self.phase else { return false };
        let Some(slot) = (0..DEPTH).find(|slot| !self.under_way.contains_key(slot)) else {
            return false;
        };
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.sequence += 1;
        let asked = load::draw(random, Stamp::new(self.writer, self.sequence), now);
        replies.begin(slot, asked.request, &mut self.output);
        self.output.extend(&asked.payload);
        self.data[slot] = vec![0; asked.request.len as usize];
        self.nr_pieces[slot] = 0;
        self.under_way.insert(slot, asked);
        true
    }

    /// Says hello, in one of the ways that there are.
    fn begin(&mut self, random: &mut Random) {
        let framing = random.pick(&[Framing::Simple, Framing::Structured, Framing::Extended]);
        if framing == Framing::Extended {
            self.phase = Phase::Haggling(Box::new(Handshake::new("", false)));
            return;
        }
        self.output.extend(3u32.to_be_bytes());
        if framing == Framing::Structured {
            OptionHeader::emit_with(numbers::OPT_STRUCTURED_REPLY, &[], &mut self.output);
        }
        ExportRequest::emit(numbers::OPT_GO, b"", &[], &mut self.output);
        self.phase = Phase::ByHand(framing);
    }

    /// Looks at what has come. Whether it meant anything.
    fn understand(&mut self, now: u64, summary: &mut Summary) -> Result<bool, Failure> {
        match &mut self.phase {
            Phase::Fresh => Ok(false),
            Phase::Haggling(handshake) => {
                let fed = handshake.feed(&self.input, &mut self.output);
                let fed = fed.map_err(|error| Failure::Broken(error.to_string()))?;
                self.input.drain(..fed.consumed);
                if let Next::Ready(export) = fed.next {
                    self.ready(&export, summary);
                }
                Ok(fed.consumed > 0)
            }
            Phase::ByHand(framing) => {
                let framing = *framing;
                let Some(end) = end_of_answers(&self.input) else { return Ok(false) };
                self.input.drain(..end);
                let export = Export {
                    name: String::new(),
                    description: String::new(),
                    size_bytes: super::NR_SECTORS * SECTOR,
                    can: Abilities::default(),
                    block_size: None,
                    framing,
                    allocation: None,
                };
                self.ready(&export, summary);
                Ok(true)
            }
            Phase::Ready(_) => self.take_replies(now, summary),
        }
    }

    fn ready(&mut self, export: &Export, summary: &mut Summary) {
        let nth = match export.framing {
            Framing::Simple => 0,
            Framing::Structured => 1,
            Framing::Extended => 2,
        };
        summary.nr_framings[nth] += 1;
        self.phase = Phase::Ready(Box::new(Replies::new(export, DEPTH)));
    }

    fn take_replies(&mut self, now: u64, summary: &mut Summary) -> Result<bool, Failure> {
        let Phase::Ready(replies) = &mut self.phase else { return Ok(false) };
        let mut moved = false;
        loop {
            if let Some((slot, at, left)) = self.coming {
                let nr = left.min(self.input.len());
                self.data[slot][at..at + nr].copy_from_slice(&self.input[..nr]);
                self.input.drain(..nr);
                self.coming = (left > nr).then_some((slot, at + nr, left - nr));
                moved |= nr > 0;
                if self.coming.is_some() {
                    return Ok(moved);
                }
            }
            let taken = replies.take(&self.input);
            let taken = taken.map_err(|broken| Failure::Broken(broken.to_string()))?;
            self.input.drain(..taken.consumed);
            moved |= taken.consumed > 0;
            match taken.event {
                Event::More => return Ok(moved),
                Event::Data { slot, at, len } => {
                    self.nr_pieces[slot] += 1;
                    self.coming = Some((slot, at as usize, len as usize));
                }
                Event::Zeroes { slot, at, len } => {
                    self.nr_pieces[slot] += 1;
                    self.data[slot][at as usize..(at + len) as usize].fill(0);
                }
                Event::Extent { .. } => {}
                Event::Done { slot, result } => {
                    let asked = self.under_way.remove(&slot);
                    let Asked { mut op, .. } = asked.expect("a reply to a request");
                    let nr_pieces = self.nr_pieces[slot];
                    summary.nr_in_pieces += u64::from(nr_pieces > 1);
                    if result.is_ok() {
                        load::read(&mut op, &self.data[slot]);
                        op.end = End::Ok(now);
                        summary.nr_good += 1;
                    } else {
                        summary.nr_failed += 1;
                        summary.nr_late_failures += u64::from(nr_pieces > 0);
                    }
                    self.log.push(op);
                }
            }
        }
    }
}

/// Where the answers to the options end, which were sent by hand: with the ACK of GO.
fn end_of_answers(input: &[u8]) -> Option<usize> {
    let word = |at: usize| {
        input.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes)
    };
    // Behind the greeting.
    let mut at = 18;
    loop {
        let (option, kind, len) = (word(at + 8)?, word(at + 12)?, word(at + 16)?);
        at += 20 + len as usize;
        if input.len() < at {
            return None;
        }
        if option == numbers::OPT_GO && kind == numbers::REP_ACK {
            return Some(at);
        }
    }
}
