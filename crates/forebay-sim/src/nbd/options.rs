//! Parser of the replies to a client's options.

use super::ask::{Answer, Ask};
use super::client::library::Library;
use super::client::{Live, Phase, Shared};
use super::conn::Conn;
use super::met::Met;
use super::pending::{Expected, Pending};
use super::recut::Recut;
use super::rules::{N1, N2, N4, N5};
use crate::check::{Broken, Verdict, broken};
use crate::server::Context;
use forebay_nbd::wire::numbers::*;
use forebay_nbd::wire::{Framing, Info, MetaContext, OptionReplyHeader, Reader, ServerEntry};

/// The server reads no longer option than this.
const OPTION_READ_MAX: usize = 16 << 10;
/// The server sends no longer reply than this.
const REPLY_MAX: usize = 8 << 10;

impl Live {
    /// Parses the greeting if it has arrived.
    pub(super) fn greeted(&mut self, cx: &mut Context) -> Result<bool, Broken> {
        if self.input.len() < GREETING_LEN {
            return Ok(false);
        }
        let mut reader = Reader::new(&self.input[..GREETING_LEN]);
        let is_right = reader.u64() == Some(INIT_MAGIC)
            && reader.u64() == Some(OPTION_MAGIC)
            && reader.u16() == Some(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        if !is_right {
            return Err(Broken::new(N1, "the greeting".into()));
        }
        self.input.drain(..GREETING_LEN);
        let no_zeroes = if self.no_zeroes { FLAG_NO_ZEROES } else { 0 };
        let flags = u32::from(FLAG_FIXED_NEWSTYLE | no_zeroes);
        if self.no_zeroes {
            cx.note(Met::NoZeroes, self.conn as u64, 0);
        }
        self.out.extend(flags.to_be_bytes());
        self.phase = Phase::Options;
        // All at once, or each after the reply to the previous one.
        if cx.random.chance(1, 3) && self.asks.len() > 1 {
            cx.note(Met::OptionsPipelined, self.conn as u64, self.asks.len() as u64);
            for ask in &mut self.asks {
                self.out.append(&mut ask.bytes);
            }
        }
        self.ask(cx);
        Ok(true)
    }

    /// Sends the next option, unless it was sent.
    fn ask(&mut self, cx: &mut Context) {
        let Some(ask) = self.asks.front_mut() else { return };
        self.out.append(&mut ask.bytes);
        match ask.answer {
            Answer::Close => {
                cx.note(Met::HandshakeClosed, self.conn as u64, 0);
                self.phase = Phase::Doomed;
            }
            Answer::Error(_) if ask.nr_bytes > OPTION_READ_MAX => {
                cx.note(Met::OptionSkipped, self.conn as u64, ask.nr_bytes as u64);
            }
            Answer::Export => cx.note(Met::ExportName, self.conn as u64, 0),
            _ => {}
        }
    }

    /// Parses a reply to an option, if one has arrived.
    pub(super) fn answered(&mut self, shared: &Shared, cx: &mut Context) -> Result<bool, Broken> {
        let Some(ask) = self.asks.front() else { return Ok(false) };
        if ask.answer == Answer::Export {
            return self.export(shared, cx);
        }
        if self.input.len() < OptionReplyHeader::LEN {
            return Ok(false);
        }
        let header = OptionReplyHeader::parse(&self.input);
        let is_its = |header: &OptionReplyHeader| {
            header.option == ask.option && header.len as usize <= REPLY_MAX
        };
        let Some(header) = header.filter(is_its) else {
            let what = format!("a reply to option {}: {:x?}", ask.option, self.input);
            return Err(Broken::new(N1, what));
        };
        let end = OptionReplyHeader::LEN + header.len as usize;
        if self.input.len() < end {
            return Ok(false);
        }
        let message: Vec<u8> = self.input.drain(..end).collect();
        self.option_reply(header.kind, &message[OptionReplyHeader::LEN..], shared, cx)?;
        Ok(true)
    }

    fn option_reply(
        &mut self,
        kind: u32,
        data: &[u8],
        shared: &Shared,
        cx: &mut Context,
    ) -> Verdict {
        let ask = self.asks.front_mut().expect("the caller has looked");
        if kind & REP_ERR == 0 && kind != REP_ACK {
            ask.nr_before += 1;
            check_before(ask, kind, data, shared)?;
            if let (REP_META_CONTEXT, Some(context)) = (kind, MetaContext::parse(data)) {
                self.allocation = Some(context.id);
            }
            return Ok(());
        }
        let (option, answer, nr_before) = (ask.option, ask.answer, ask.nr_before);
        let is_right = match answer {
            Answer::Ack | Answer::AckClose => kind == REP_ACK && nr_before == 0,
            Answer::Servers(nr) => kind == REP_ACK && nr_before == nr,
            Answer::Infos => kind == REP_ACK && nr_before > 0,
            Answer::Context => kind == REP_ACK && nr_before == 1,
            Answer::Error(error) => kind == error,
            Answer::Export | Answer::Close => false,
        };
        if !is_right {
            let what = format!("option {option}: {kind:x} after {nr_before}, not {answer:?}");
            return broken(N4, what);
        }
        self.asks.pop_front();
        match (answer, option) {
            (Answer::Error(error), _) => {
                cx.note(Met::OptionRefused, option.into(), error.into());
            }
            (Answer::AckClose, _) => {
                cx.note(Met::HandshakeAborted, self.conn as u64, 0);
                self.phase = Phase::Doomed;
            }
            (_, OPT_STRUCTURED_REPLY) => self.framing = Framing::Structured,
            (_, OPT_EXTENDED_HEADERS) => self.framing = Framing::Extended,
            (_, OPT_GO) => self.ready(shared, cx),
            _ => {}
        }
        self.ask(cx);
        Ok(())
    }

    /// Parses the reply to EXPORT_NAME.
    fn export(&mut self, shared: &Shared, cx: &mut Context) -> Result<bool, Broken> {
        let len = 10 + if self.no_zeroes { 0 } else { EXPORT_NAME_ZEROES };
        if self.input.len() < len {
            return Ok(false);
        }
        let mut reader = Reader::new(&self.input[..len]);
        let is_right = reader.u64() == Some(shared.size_bytes)
            && reader.u16() == Some(shared.can.flags(self.framing))
            && reader.rest().iter().all(|&byte| byte == 0);
        if !is_right {
            return Err(Broken::new(N4, "the answer to EXPORT_NAME".into()));
        }
        self.input.drain(..len);
        self.asks.pop_front();
        self.ready(shared, cx);
        Ok(true)
    }

    /// Begins the transmission phase.
    pub(super) fn ready(&mut self, shared: &Shared, cx: &mut Context) {
        let met = match self.framing {
            Framing::Simple => Met::Simple,
            Framing::Structured => Met::Structured,
            Framing::Extended => Met::Extended,
        };
        cx.note(met, self.conn as u64, 0);
        if self.allocation.is_some() {
            cx.note(Met::Contexts, self.conn as u64, 0);
        }
        if self.framing != Framing::Simple && cx.random.chance(shared.load.recuts, 100) {
            cx.note(Met::Recut, self.conn as u64, 0);
            self.recut = Some(Recut::new(self.framing));
        }
        if self.has_library {
            let library = Library::new(self.framing, self.allocation, shared, cx);
            self.library = Some(Box::new(library));
        }
        self.phase = Phase::Ready;
    }

    /// Checks the end of the connection: the server has closed it, and all its data was read.
    pub(super) fn check_end(&self, conn: &Conn, shared: &Shared, cx: &mut Context) -> Verdict {
        if conn.has_failed_read && self.may_break_off() {
            cx.note(Met::BrokenOff, self.conn as u64, self.pending.len() as u64);
            return Ok(());
        }
        let nr_left = self.input.len() + self.recut.as_ref().map_or(0, |recut| recut.raw().len());
        if nr_left > 0 {
            return broken(N1, format!("{nr_left} bytes before the end"));
        }
        if self.library.as_ref().is_some_and(|library| library.is_within_reply()) {
            return broken(N1, "the end within a reply".into());
        }
        if shared.is_stopping {
            return self.check_answered(conn);
        }
        match self.phase {
            Phase::Doomed => Ok(()),
            Phase::Leaving if self.pending.is_empty() => Ok(()),
            phase => {
                let nr = self.pending.len();
                broken(N5, format!("while {phase:?}, with {nr} requests in flight"))
            }
        }
    }
}

impl Live {
    /// Returns whether a read that failed may have ended the connection: its reply has no place for
    /// an error after its data have begun.
    fn may_break_off(&self) -> bool {
        let is_simple = self.framing == Framing::Simple;
        let is_ready = !matches!(self.phase, Phase::Greeting | Phase::Options);
        let is_read = |pending: &Pending| {
            pending.is_read && pending.expected == Expected::Good && (is_simple || pending.is_one)
        };
        is_ready && self.pending.values().any(is_read)
    }

    /// Checks that a server that was stopped has answered each request that it had begun.
    fn check_answered(&self, conn: &Conn) -> Verdict {
        let may_lack_data = !self.out.is_empty() || !conn.up.is_over();
        let nr_due = conn.begun.nr_due(may_lack_data);
        match self.nr_answers < nr_due {
            true => {
                let nr = self.nr_answers;
                broken(N2, format!("the server has begun {nr_due} requests, and answered {nr}"))
            }
            false => Ok(()),
        }
    }
}

fn check_before(ask: &Ask, kind: u32, data: &[u8], shared: &Shared) -> Verdict {
    let is_right = match (ask.answer, kind) {
        (Answer::Servers(_), REP_SERVER) => ServerEntry::parse(data).is_some(),
        (Answer::Context, REP_META_CONTEXT) => MetaContext::parse(data)
            .is_some_and(|context| context.name == BASE_ALLOCATION.as_bytes()),
        (Answer::Infos, REP_INFO) => match Info::parse(data) {
            Some(Info::Export { size_bytes, .. }) => size_bytes == shared.size_bytes,
            Some(Info::BlockSize(sizes)) => u64::from(sizes.max) == shared.payload_max,
            info => info.is_some(),
        },
        _ => false,
    };
    match is_right {
        true => Ok(()),
        false => broken(N4, format!("option {}: a reply of kind {kind}", ask.option)),
    }
}
