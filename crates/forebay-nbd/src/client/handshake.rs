//! Client side of the handshake: negotiates options and chooses an export.
//!
//! The client sends one option after another, and waits for each reply: TLS if it is required,
//! structured replies, extended headers, the context `base:allocation`, and the export. All but TLS
//! and the export are optional, and the server may decline them. If a server does not support GO,
//! the client sends EXPORT_NAME; the server then closes the connection if the export does not
//! exist.
//!
//! Source: "Handshake phase" in the NBD protocol document.

use super::failure::HandshakeError;
use super::negotiated::{self, Negotiated};
use crate::export::Abilities;
use crate::wire::numbers as wire;
use crate::wire::{
    BlockSizes, ContextRequest, ExportRequest, Framing, Info, MetaContext, OptionHeader,
    OptionReplyHeader, Reader, Sink,
};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Longest reply to an option, bytes. Known replies are far shorter, but others must be skipped.
const ANSWER_MAX: u32 = 32 << 10;

/// Most replies to all options together.
const NR_ANSWERS_MAX: u32 = 1000;

/// Most characters that are kept of a text of the server.
const WORDS_MAX: usize = 200;

/// Client side of a handshake.
#[derive(Debug)]
pub struct Handshake {
    name: String,
    insists_on_tls: bool,
    step: Step,
    no_zeroes: bool,
    nr_answers: u32,
    framing: Framing,
    allocation: Option<u32>,
    facts: ExportFacts,
}

/// Description of the export, as received so far.
#[derive(Debug, Default)]
struct ExportFacts {
    size_and_flags: Option<(u64, u16)>,
    block_size: Option<BlockSizes>,
    description: String,
}

/// Message that the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Greeting,
    /// The reply to STARTTLS.
    Tls,
    /// The TLS session, which the caller establishes.
    UnderTls,
    Structured,
    Extended,
    Context,
    Go,
    /// The reply to EXPORT_NAME, which has no option header.
    ExportName,
    /// The handshake is over.
    Over,
}

impl Step {
    /// Returns the option of a step, and its name for messages.
    fn option(self) -> (u32, &'static str) {
        match self {
            Step::Tls => (wire::OPT_STARTTLS, "STARTTLS"),
            Step::Structured => (wire::OPT_STRUCTURED_REPLY, "STRUCTURED_REPLY"),
            Step::Extended => (wire::OPT_EXTENDED_HEADERS, "EXTENDED_HEADERS"),
            Step::Context => (wire::OPT_SET_META_CONTEXT, "SET_META_CONTEXT"),
            Step::Go => (wire::OPT_GO, "GO"),
            Step::Greeting | Step::UnderTls | Step::ExportName | Step::Over => {
                (wire::OPT_EXPORT_NAME, "EXPORT_NAME")
            }
        }
    }
}

/// Result of [`Handshake::feed`].
#[derive(Debug, PartialEq, Eq)]
pub struct Fed {
    /// Number of input bytes consumed.
    pub consumed: usize,
    /// Next step of the handshake.
    pub next: Next,
}

/// Next step of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Feed more bytes: the rest of this input, and the bytes that follow it.
    More,
    /// Start TLS, then call [`Handshake::tls_started`]. Input that was not consumed may have been
    /// injected by an attacker: close the connection then.
    StartTls,
    /// The handshake is over: requests may be sent.
    Ready(Negotiated),
}

impl Handshake {
    /// Begins a handshake for the export of this name, with TLS if `insists_on_tls`.
    pub fn new(name: &str, insists_on_tls: bool) -> Handshake {
        Handshake {
            name: name.to_owned(),
            insists_on_tls,
            step: Step::Greeting,
            no_zeroes: false,
            nr_answers: 0,
            framing: Framing::Simple,
            allocation: None,
            facts: ExportFacts::default(),
        }
    }

    /// Processes bytes of the server, and appends the bytes to send to `out`. A buffer of 33 KiB is
    /// enough for any message: a longer one is an error.
    ///
    /// # Errors
    /// Returns an error if the handshake has failed. Close the connection then.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Fed, HandshakeError> {
        let mut reader = Reader::new(input);
        loop {
            let taken = |reader: Reader<'_>| input.len().saturating_sub(reader.rest().len());
            let Some(next) = self.step(&mut reader, out)? else {
                return Ok(Fed { consumed: taken(reader), next: Next::More });
            };
            if next != Next::More {
                return Ok(Fed { consumed: taken(reader), next });
            }
        }
    }

    /// Continues after [`Next::StartTls`], when the TLS session is established. Discards all that
    /// the server sent before it.
    pub fn tls_started(&mut self, out: &mut Vec<u8>) {
        if self.step == Step::UnderTls {
            self.ask(Step::Structured, out);
        }
    }

    /// Processes one message. `None`: it is incomplete.
    fn step(
        &mut self,
        reader: &mut Reader<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Next>, HandshakeError> {
        match self.step {
            Step::Greeting => self.greeting(reader, out),
            Step::ExportName => self.export_name(reader),
            Step::UnderTls | Step::Over => Ok(None),
            _ => {
                let mut ahead = *reader;
                let Some(header) = ahead.take(OptionReplyHeader::LEN) else { return Ok(None) };
                let header = self.checked(header)?;
                let Some(data) = ahead.take(header.len as usize) else {
                    return Ok(None);
                };
                *reader = ahead;
                self.answer(header.kind, data, out).map(Some)
            }
        }
    }

    fn greeting(
        &mut self,
        reader: &mut Reader<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Next>, HandshakeError> {
        let mut ahead = *reader;
        // A peer that is not an NBD server may send less than a greeting, and wait.
        match ahead.u64() {
            Some(wire::INIT_MAGIC) => {}
            None if is_begun(reader.rest()) => return Ok(None),
            _ => return Err(HandshakeError::NotNbd),
        }
        match ahead.u64() {
            Some(wire::OPTION_MAGIC) => {}
            Some(wire::OLDSTYLE_MAGIC) => return Err(HandshakeError::OldStyle),
            Some(_) => return Err(HandshakeError::NotNbd),
            None => return Ok(None),
        }
        let Some(flags) = ahead.u16() else { return Ok(None) };
        *reader = ahead;
        self.no_zeroes = flags & wire::FLAG_NO_ZEROES != 0;
        out.put_u32(u32::from(flags & (wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES)));
        let is_fixed = flags & wire::FLAG_FIXED_NEWSTYLE != 0;
        match (self.insists_on_tls, is_fixed) {
            (true, false) => return Err(HandshakeError::NoTls),
            (true, true) => self.ask(Step::Tls, out),
            (false, true) => self.ask(Step::Structured, out),
            // The server does not answer options.
            (false, false) => self.ask(Step::ExportName, out),
        }
        Ok(Some(Next::More))
    }

    /// Sends the option of a step.
    fn ask(&mut self, step: Step, out: &mut Vec<u8>) {
        self.step = step;
        let (option, _) = step.option();
        let name = self.name.as_bytes();
        match step {
            Step::Tls | Step::Structured | Step::Extended => {
                OptionHeader::emit_with(option, &[], out);
            }
            Step::Context => {
                ContextRequest::emit(option, name, &[wire::BASE_ALLOCATION.as_bytes()], out);
            }
            Step::Go => {
                let infos = [wire::INFO_BLOCK_SIZE, wire::INFO_DESCRIPTION];
                ExportRequest::emit(option, name, &infos, out);
            }
            Step::ExportName => OptionHeader::emit_with(option, name, out),
            Step::Greeting | Step::UnderTls | Step::Over => {}
        }
    }

    fn malformed(&self, problem: &'static str) -> HandshakeError {
        HandshakeError::Malformed { asked: self.step.option().1, problem }
    }

    fn checked(&mut self, header: &[u8]) -> Result<OptionReplyHeader, HandshakeError> {
        let Some(header) = OptionReplyHeader::parse(header) else {
            return Err(self.malformed("it has a wrong magic number"));
        };
        if header.option != self.step.option().0 {
            return Err(self.malformed("it is for another option"));
        }
        if header.len > ANSWER_MAX {
            return Err(self.malformed("it is too long"));
        }
        Ok(header)
    }

    fn answer(
        &mut self,
        kind: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Next, HandshakeError> {
        self.nr_answers = self.nr_answers.saturating_add(1);
        if self.nr_answers > NR_ANSWERS_MAX {
            return Err(self.malformed("it has too many parts"));
        }
        match kind {
            wire::REP_ACK if data.is_empty() => self.acknowledged(out),
            wire::REP_ACK => Err(self.malformed("an acknowledgement with data")),
            _ if kind & wire::REP_ERR != 0 => self.declined(kind, data, out),
            wire::REP_META_CONTEXT if self.step == Step::Context => self.context(data),
            wire::REP_INFO if self.step == Step::Go => self.info(data),
            _ => Err(self.malformed("it has an unknown type")),
        }
    }

    fn acknowledged(&mut self, out: &mut Vec<u8>) -> Result<Next, HandshakeError> {
        match self.step {
            Step::Tls => {
                self.step = Step::UnderTls;
                return Ok(Next::StartTls);
            }
            Step::Structured => {
                self.framing = Framing::Structured;
                self.ask(Step::Extended, out);
            }
            Step::Extended => {
                self.framing = Framing::Extended;
                self.ask(Step::Context, out);
            }
            Step::Context => self.ask(Step::Go, out),
            _ => {
                let Some((size, flags)) = self.facts.size_and_flags else {
                    return Err(self.malformed("the size of the export is missing"));
                };
                return self.ready(size, flags);
            }
        }
        Ok(Next::More)
    }

    fn declined(
        &mut self,
        reply: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Next, HandshakeError> {
        let refused = |step: Step| HandshakeError::Refused {
            asked: step.option().1,
            reply,
            message: words(data),
        };
        match (self.step, reply) {
            (Step::Tls, wire::REP_ERR_UNSUP | wire::REP_ERR_POLICY) => {
                return Err(HandshakeError::NoTls);
            }
            (Step::Tls, _) => return Err(refused(Step::Tls)),
            // The server would refuse all further options as well.
            (step, wire::REP_ERR_TLS_REQD | wire::REP_ERR_SHUTDOWN) => return Err(refused(step)),
            (Step::Structured, _) => self.ask(Step::Go, out),
            (Step::Extended, _) => self.ask(Step::Context, out),
            (Step::Context, _) => {
                self.allocation = None;
                self.ask(Step::Go, out);
            }
            // Old servers. With extended headers, EXPORT_NAME is not allowed.
            (Step::Go, wire::REP_ERR_UNSUP) if self.framing != Framing::Extended => {
                self.ask(Step::ExportName, out)
            }
            (step, _) => return Err(refused(step)),
        }
        Ok(Next::More)
    }

    fn context(&mut self, data: &[u8]) -> Result<Next, HandshakeError> {
        match MetaContext::parse(data) {
            Some(context) if context.name == wire::BASE_ALLOCATION.as_bytes() => {
                match self.allocation.replace(context.id) {
                    None => Ok(Next::More),
                    Some(_) => Err(self.malformed("the same context twice")),
                }
            }
            _ => Err(self.malformed("a context that was not requested")),
        }
    }

    fn info(&mut self, data: &[u8]) -> Result<Next, HandshakeError> {
        match Info::parse(data) {
            Some(Info::Export { size_bytes, flags }) => {
                if self.facts.size_and_flags.replace((size_bytes, flags)).is_some() {
                    return Err(self.malformed("the size of the export twice"));
                }
            }
            Some(Info::BlockSize(sizes)) => self.facts.block_size = Some(sizes),
            Some(Info::Description(text)) => self.facts.description = words(text),
            Some(Info::Name(_) | Info::Other { .. }) => {}
            None => return Err(self.malformed("information with a wrong length")),
        }
        Ok(Next::More)
    }

    fn export_name(&mut self, reader: &mut Reader<'_>) -> Result<Option<Next>, HandshakeError> {
        let mut ahead = *reader;
        let (Some(size), Some(flags)) = (ahead.u64(), ahead.u16()) else { return Ok(None) };
        if !self.no_zeroes && ahead.take(wire::EXPORT_NAME_ZEROES).is_none() {
            return Ok(None);
        }
        *reader = ahead;
        self.ready(size, flags).map(Some)
    }

    fn ready(&mut self, size_bytes: u64, flags: u16) -> Result<Next, HandshakeError> {
        if i64::try_from(size_bytes).is_err() {
            return Err(HandshakeError::Size(size_bytes));
        }
        let facts = core::mem::take(&mut self.facts);
        if let Some(sizes) = facts.block_size {
            sizes.check(size_bytes).map_err(|problem| self.malformed(problem))?;
        }
        let can: Abilities = negotiated::abilities(flags);
        self.step = Step::Over;
        Ok(Next::Ready(Negotiated {
            name: self.name.clone(),
            description: facts.description,
            size_bytes,
            can,
            block_size: facts.block_size,
            framing: self.framing,
            allocation: self.allocation,
        }))
    }
}

/// Returns whether these bytes may begin a greeting.
fn is_begun(bytes: &[u8]) -> bool {
    wire::INIT_MAGIC.to_be_bytes().starts_with(bytes)
}

/// Returns a text of the server, safe to print on one line of a terminal.
fn words(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    text.chars().filter(|char| !char.is_control()).take(WORDS_MAX).collect()
}
