//! Replies of the server, in all forms that the protocol allows: in chunks, with holes, in any
//! order.

use super::context::Context;
use super::plant::NbdPlant;
use super::trace::Met;
use forebay_nbd::server::{Command, NbdError, Request, Transmission};
use forebay_nbd::wire::numbers::{REPLY_FLAG_DONE, REPLY_OFFSET_HOLE};
use forebay_nbd::wire::{ChunkHeader, Framing, Hole};
use std::collections::VecDeque;

/// The maximum number of data chunks for a read.
const NR_CHUNKS_MAX: u64 = 4;

/// The messages of a reply.
pub(crate) type Messages = VecDeque<Vec<u8>>;

/// Returns the reply for success without data.
pub(crate) fn done(transmission: &Transmission, rq: &Request) -> Messages {
    [transmission.done(rq).as_slice().to_vec()].into()
}

/// Returns the reply for a failure.
pub(crate) fn error(
    transmission: &Transmission,
    rq: &Request,
    error: NbdError,
    message: &str,
) -> Messages {
    let mut out = Vec::new();
    transmission.error(rq, error, message, &mut out);
    [out].into()
}

/// Returns the reply to a read that failed after the data in `data`.
pub(crate) fn late_error(
    transmission: &Transmission,
    rq: &Request,
    data: &[u8],
    failure: NbdError,
    cx: &mut Context,
) -> Messages {
    let is_one = rq.command == Ok(Command::Read { df: true });
    let mut messages = Messages::new();
    if transmission.can_fail_late() && !is_one && !data.is_empty() {
        cx.note(Met::FailedLate, rq.offset, data.len() as u64);
        messages.push_back(chunk(transmission, rq, rq.offset, data, (true, false), cx));
        if cx.plants(NbdPlant::HideLateFailure) {
            messages.extend(done(transmission, rq));
            return messages;
        }
    }
    messages.extend(error(transmission, rq, failure, "the disk failed"));
    messages
}

/// Returns the reply to a successful read.
pub(crate) fn data(
    transmission: &Transmission,
    rq: &Request,
    data: &[u8],
    cx: &mut Context,
) -> Messages {
    let is_one = rq.command == Ok(Command::Read { df: true });
    let may_cut = transmission.framing() != Framing::Simple && !is_one;
    let nr_cuts = if may_cut { cx.random.below(NR_CHUNKS_MAX) } else { 0 };
    if may_cut && data.len().is_multiple_of(2) && cx.plants(NbdPlant::MixChunks) {
        return mixed(transmission, rq, data, cx);
    }
    let mut cuts: Vec<usize> =
        (0..nr_cuts).map(|_| cx.random.below(data.len() as u64) as usize).collect();
    cuts.extend([0, data.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut parts: Vec<(usize, usize)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
    // Shuffles the parts.
    for nth in (1..parts.len()).rev() {
        parts.swap(nth, cx.random.below(nth as u64 + 1) as usize);
    }
    if parts.len() > 1 {
        cx.note(Met::Chunks, rq.offset, parts.len() as u64);
    }
    let ends_alone = may_cut && cx.random.chance(1, 4);
    let mut messages = Messages::new();
    for (nth, &(from, to)) in parts.iter().enumerate() {
        let is_last = nth + 1 == parts.len() && !ends_alone;
        let at = rq.offset + from as u64;
        let part = chunk(transmission, rq, at, &data[from..to], (nth == 0, is_last), cx);
        messages.push_back(part);
    }
    if ends_alone {
        messages.extend(done(transmission, rq));
    }
    messages
}

/// Returns two chunks, each with the data of the other: a planted bug.
fn mixed(transmission: &Transmission, rq: &Request, data: &[u8], cx: &mut Context) -> Messages {
    let (first, second) = data.split_at(data.len() / 2);
    let middle = rq.offset + first.len() as u64;
    let first_of_two = chunk(transmission, rq, rq.offset, second, (true, false), cx);
    [first_of_two, chunk(transmission, rq, middle, first, (false, true), cx)].into()
}

/// Returns one chunk: data, or possibly a hole if the data is all zeroes.
fn chunk(
    transmission: &Transmission,
    rq: &Request,
    at: u64,
    data: &[u8],
    (is_first, is_last): (bool, bool),
    cx: &mut Context,
) -> Vec<u8> {
    let is_zero = data.iter().all(|&byte| byte == 0) && cx.random.chance(1, 2);
    let framing = transmission.framing();
    if framing != Framing::Simple && (is_zero || cx.plants(NbdPlant::FalseHole)) {
        cx.note(Met::Hole, at, data.len() as u64);
        return hole(framing, rq, at, data.len() as u32, is_last);
    }
    let at = if cx.plants(NbdPlant::WrongPlace) { at ^ 1 } else { at };
    let head = transmission.data(rq, at, data.len() as u32, is_first, is_last);
    let mut message = head.as_slice().to_vec();
    message.extend_from_slice(data);
    if cx.plants(NbdPlant::ShortData) {
        message.pop();
    }
    message
}

/// Returns a hole chunk. The real server sends none, but other servers do, and the library's client
/// must handle them.
fn hole(framing: Framing, rq: &Request, at: u64, len: u32, is_last: bool) -> Vec<u8> {
    let (flags, kind) = (if is_last { REPLY_FLAG_DONE } else { 0 }, REPLY_OFFSET_HOLE);
    let Request { cookie, offset, .. } = *rq;
    let mut message = Vec::new();
    ChunkHeader { flags, kind, cookie, offset, len: Hole::LEN }.emit(framing, &mut message);
    Hole { offset: at, len }.emit(&mut message);
    message
}
