//! How long requests spent in each stage, and where the time of the slowest went.
//!
//! The report follows each bio that was queued (Q) to the completion (C) of the request that covers
//! it, as `btt` does: by its range on the device. If several bios of one range are in flight, each
//! record is assigned to the oldest one that has no such record yet. The time of a bio has up to
//! six parts:
//!
//! - *plug*: from Q until its plug was unplugged (U);
//! - *limit*: from there until the limits of its owner released it (message);
//! - *flush*: from there until the flush before its data was done; and from C until the flush after
//!   the data was done, for a FUA write on a device without FUA (messages);
//! - *tag*: from there until its request has got a tag (G); with S if it was not issued at once;
//! - *queue*: from there until the request was issued (D) for the first time;
//! - *driver*: from there to C.
//!
//! A bio that was merged shares the later parts with its request. Bios of which the trace lacks a
//! stage have one part less, and their remaining time counts for the stage before.
//!
//! A flush has no range, and shares its command with others. Its time is that from Q until it is
//! done, which a message has.
//!
//! Where records are missing, their bios could be taken for later ones of the same range. So bios
//! that are in flight at any time of such a gap are left out.

mod bio;
mod flush_waits;
mod in_flight;
mod plugs;
mod times;
mod waiting;

pub use bio::{DRIVER, FLUSH, LIMIT, NR_STAGES, STAGES, Traced};
pub use times::Times;

use crate::message::{Message, MessageKind};
use crate::reader::Entry;
use crate::record::{Act, Categories, Kind, Record};
use bio::sectors_of;
use flush_waits::{FlushWaits, record_error};
use in_flight::InFlight;
use plugs::Plugs;

/// Counts of a trace.
///
/// A request that a busy driver refused is issued again. It counts as issued once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bios that were queued and have a range.
    pub queued: u64,
    /// Merges.
    pub merged: u64,
    /// Requests that were issued and have a range.
    pub issued: u64,
    /// Completions of requests with a range.
    pub completed: u64,
    /// Flushes that were issued.
    pub flushes: u64,
    /// Flushes that were done without one that was issued for them.
    pub flushes_elided: u64,
    /// Requests that a limit has held back.
    pub limited: u64,
    /// Requests that waited for a tag.
    pub sleeps: u64,
    /// Requests that a busy driver refused.
    pub requeues: u64,
    /// Splits.
    pub splits: u64,
    /// Unplugs.
    pub unplugs: u64,
    /// Completions with an error.
    pub errors: u64,
    /// Bytes of completions without an error.
    pub bytes: u64,
}

/// Follows the bios of one disk. Entries come in the order of their times.
#[derive(Debug, Default)]
pub struct Follower {
    in_flight: InFlight,
    plugs: Plugs,
    flush_waits: FlushWaits,
    /// The times of flushes.
    flushes: Times,
    counts: Counts,
    first_ns: Option<u64>,
    last_ns: u64,
    has_gap: bool,
    nr_left_out: usize,
}

impl Follower {
    /// Takes the next entry, and passes the bios that it completes to `done`.
    ///
    /// `has_gap`: records are missing between this entry and the next one of some file
    /// ([`TraceFiles::has_gap`](crate::reader::TraceFiles::has_gap)). Bios that are in flight at
    /// any time of a gap are left out.
    pub fn take(&mut self, entry: &Entry, has_gap: bool, mut done: impl FnMut(Traced)) {
        let had_gap = std::mem::replace(&mut self.has_gap, has_gap);
        if had_gap && !has_gap {
            self.forget();
        }
        let mut nr_left_out = 0;
        self.take_entry(entry, &mut |bio| match had_gap && has_gap {
            true => nr_left_out += 1,
            false => done(bio),
        });
        self.nr_left_out += nr_left_out;
        if has_gap && !had_gap {
            self.forget();
        }
    }

    fn take_entry(&mut self, entry: &Entry, done: &mut impl FnMut(Traced)) {
        let record = &entry.record;
        let message = entry.text().and_then(|text| Message::parse(&text));
        let is_taken = self.flush_waits.take(record, message, done);
        let Kind::Stage(act) = record.kind else {
            if let Some(message) = message {
                self.note(record.time_ns, message, is_taken, done);
            }
            return;
        };
        self.first_ns.get_or_insert(record.time_ns);
        self.last_ns = self.last_ns.max(record.time_ns);
        // A range beyond the last sector is none: the file is damaged.
        let (start, end) = sectors_of(record);
        let has_range = start < end;
        match act {
            Act::Queue if has_range => self.queue(record),
            Act::BackMerge | Act::FrontMerge => {
                self.counts.merged += 1;
                let last = self.plugs.last(record.cpu);
                self.in_flight.merge(record, last);
            }
            Act::Queue => self.plugs.queue(record.cpu, None),
            Act::Plug => self.plugs.plug(record.cpu),
            Act::Unplug | Act::UnplugTimer => {
                self.counts.unplugs += 1;
                self.plugs.unplug(record.cpu, record.time_ns, &mut self.in_flight);
            }
            Act::Sleep => self.counts.sleeps += u64::from(self.in_flight.sleep(record)),
            Act::GetRequest => self.in_flight.tag(record),
            Act::Issue if has_range => {
                self.counts.issued += 1;
                self.in_flight.issue(record);
            }
            Act::Issue => self.counts.flushes += 1,
            Act::Requeue => {
                self.counts.requeues += 1;
                // It is issued again. Its last D may be before the beginning of the trace.
                let issued = match has_range {
                    true => &mut self.counts.issued,
                    false => &mut self.counts.flushes,
                };
                *issued = issued.saturating_sub(1);
                if has_range {
                    self.in_flight.requeue(record);
                }
            }
            Act::Split => {
                self.counts.splits += 1;
                if let Ok(rest) = entry.data[..].try_into() {
                    self.in_flight.split(record, u64::from_be_bytes(rest));
                }
            }
            Act::Complete => self.complete(record, has_range, done),
            _ => {}
        }
    }

    /// Leaves out the bios that are not complete.
    fn forget(&mut self) {
        self.nr_left_out += self.in_flight.clear() + self.flush_waits.nr_open();
        self.flush_waits.clear();
        self.plugs.forget();
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Ends the trace: passes to `done` the bios for which only a later record could have shown
    /// that they wait for a flush, or are tried again.
    pub fn finish(&mut self, mut done: impl FnMut(Traced)) {
        self.flush_waits.finish(&mut done);
        self.in_flight.finish().iter().for_each(|bio| done(bio.ended(bio.failed_ns)));
    }

    /// Returns the times of the flushes that were done so far.
    pub fn flush_times(&self) -> &Times {
        &self.flushes
    }

    /// Returns how many bios have not ended, without those that were left out.
    pub fn nr_open(&self) -> usize {
        self.in_flight.len() + self.flush_waits.nr_open()
    }

    /// Returns how many bios were left out because of missing records.
    pub fn nr_left_out(&self) -> usize {
        self.nr_left_out
    }

    /// Returns the time between the first and the last stage, in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.first_ns.map_or(0, |first_ns| self.last_ns - first_ns)
    }

    fn queue(&mut self, record: &Record) {
        self.counts.queued += 1;
        let id = self.in_flight.queue(record);
        self.plugs.queue(record.cpu, Some(id));
    }

    /// Takes a message. `is_taken`: it is about a write whose data are complete.
    fn note(&mut self, now: u64, message: Message, is_taken: bool, done: &mut impl FnMut(Traced)) {
        let range = message.extent.map(|extent| (extent.sector, extent.end()));
        match (message.kind, range) {
            (MessageKind::LimitWait { .. }, range) => {
                self.counts.limited += 1;
                range.into_iter().for_each(|range| self.in_flight.release(range, now));
            }
            (MessageKind::FlushDone { age_ns, .. }, None) => self.flushes.add(age_ns),
            (MessageKind::FlushDone { errno, .. }, Some(range)) if !is_taken => {
                let failed = self.in_flight.flush(range, record_error(errno), now);
                failed.iter().for_each(|bio| done(bio.ended(now)));
            }
            (MessageKind::FlushElided, _) => self.counts.flushes_elided += 1,
            _ => {}
        }
    }

    fn complete(&mut self, record: &Record, has_range: bool, done: &mut impl FnMut(Traced)) {
        self.counts.completed += u64::from(has_range);
        match record.error {
            0 if has_range => self.counts.bytes += u64::from(record.bytes),
            0 => {}
            _ => self.counts.errors += 1,
        }
        // A read of no bytes has met the end of a file. Other commands without a range are flushes.
        if !has_range && !record.categories.has(Categories::READ) {
            return;
        }
        for bio in self.in_flight.complete(record) {
            let is_fua = bio.queued.categories.has(Categories::FUA);
            match bio.failure {
                None if is_fua => self.flush_waits.add(bio, record, done),
                _ => done(bio.ended(record.time_ns)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
