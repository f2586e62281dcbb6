//! How long requests spent in each stage, and where the time of the slowest went.
//!
//! The report follows each bio that was queued (Q) to the completion (C) of the request that covers
//! it, as `btt` does: by its range on the device. Its time has up to six parts:
//!
//! - *plug*: from Q until its plug was unplugged (U);
//! - *flush*: from there until the flush that must precede its data was done; and from C until the
//!   flush after the data was done, for a FUA write on a device without FUA (messages);
//! - *limit*: from there until the limits of its owner released it (message);
//! - *tag*: from there until its request has got a tag (G); with S if it was not issued at once;
//! - *queue*: from there until the request was issued (D) for the first time;
//! - *driver*: from there to C.
//!
//! A bio that was merged shares the later parts with its request. Bios of which the trace lacks a
//! stage have one part less, and their remaining time counts for the stage before.
//!
//! A flush has no range, and shares its command with others. Its time is that from Q until it is
//! done, which a message has.

mod bio;
mod times;

pub use bio::{DRIVER, FLUSH, LIMIT, NR_STAGES, STAGES, Traced};
pub use times::Times;

use crate::message::{Message, MessageKind};
use crate::reader::Entry;
use crate::record::{Act, Categories, Kind, Record, SECTOR_BYTES};
use bio::{Open, Written, end_of};
use std::collections::{BTreeMap, HashMap};

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

/// The plug of a thread. Bios are named by their sector and the time of Q.
#[derive(Debug, Default)]
struct Plug {
    is_open: bool,
    /// The bio that was queued last.
    last: Option<(u64, u64)>,
    bios: Vec<(u64, u64)>,
}

/// Follows the bios of one disk. Entries come in the order of their times.
#[derive(Debug, Default)]
pub struct Follower {
    /// The bios that are not complete, by their first sector.
    open: BTreeMap<u64, Vec<Open>>,
    /// The plug of each thread, by the index of its file.
    plugs: HashMap<u32, Plug>,
    /// FUA writes that may wait for a flush.
    written: Vec<Written>,
    /// The times of flushes.
    flushes: Times,
    counts: Counts,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Follower {
    /// Takes the next entry, and passes the bios that it completes to `done`.
    pub fn take(&mut self, entry: &Entry, mut done: impl FnMut(Traced)) {
        let record = &entry.record;
        let message = entry.text().and_then(|text| Message::parse(&text));
        if !self.written.is_empty() {
            self.settle_written(record, message, &mut done);
        }
        let Kind::Stage(act) = record.kind else {
            return message.into_iter().for_each(|message| self.note(record.time_ns, message));
        };
        self.first_ns.get_or_insert(record.time_ns);
        self.last_ns = self.last_ns.max(record.time_ns);
        let now = record.time_ns;
        // A range beyond the last sector is none: the file is damaged.
        let has_range = end_of(record) > record.sector && record.bytes > 0;
        match act {
            Act::Queue if has_range => self.queue(record),
            Act::BackMerge | Act::FrontMerge => {
                self.counts.merged += 1;
                self.within(range_of(record), |bio| bio.is_merged = true);
            }
            Act::Plug => self.plug(record),
            Act::Unplug | Act::UnplugTimer => self.unplug(record),
            Act::Sleep => {
                self.counts.sleeps += 1;
                self.within(range_of(record), |bio| bio.has_slept = true);
            }
            Act::GetRequest => {
                self.within(range_of(record), |bio| _ = bio.tagged_ns.get_or_insert(now));
            }
            Act::Issue if has_range => {
                self.counts.issued += 1;
                self.within(range_of(record), |bio| _ = bio.issued_ns.get_or_insert(now));
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
                self.within(range_of(record), |bio| bio.was_requeued = true);
            }
            Act::Split => self.counts.splits += 1,
            Act::Complete if has_range => self.complete(record, &mut done),
            Act::Complete => self.counts.errors += u64::from(record.error != 0),
            _ => {}
        }
    }

    /// Forgets the bios that are not complete, because records are missing before the next entry.
    /// Returns how many there were.
    pub fn forget(&mut self) -> usize {
        let nr = self.nr_open();
        self.open.clear();
        self.written.clear();
        self.plugs.values_mut().for_each(|plug| plug.bios.clear());
        nr
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Ends the trace: passes to `done` the FUA writes that have completed and wait for no flush.
    pub fn finish(&mut self, done: impl FnMut(Traced)) {
        let ended = self.written.extract_if(.., |written| !written.waits);
        ended.map(|written| written.bio.ended(&written.complete)).for_each(done);
    }

    /// Returns the times of the flushes that were done so far.
    pub fn flush_times(&self) -> &Times {
        &self.flushes
    }

    /// Returns how many bios have not ended.
    pub fn nr_open(&self) -> usize {
        self.open.values().map(Vec::len).sum::<usize>() + self.written.len()
    }

    /// Returns the time between the first and the last stage, in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.first_ns.map_or(0, |first_ns| self.last_ns - first_ns)
    }

    fn queue(&mut self, record: &Record) {
        self.counts.queued += 1;
        self.open.entry(record.sector).or_default().push(Open::new(record));
        let plug = self.plugs.entry(record.cpu).or_default();
        plug.last = Some((record.sector, record.time_ns));
        if plug.is_open {
            plug.bios.extend(plug.last);
        }
    }

    /// Opens the plug of a thread. The bio that it has just queued is in it.
    fn plug(&mut self, record: &Record) {
        let plug = self.plugs.entry(record.cpu).or_default();
        plug.is_open = true;
        plug.bios.extend(plug.last);
    }

    /// Ends the plug of a thread.
    fn unplug(&mut self, record: &Record) {
        self.counts.unplugs += 1;
        let plug = self.plugs.entry(record.cpu).or_default();
        plug.is_open = false;
        for (sector, queued_ns) in plug.bios.drain(..) {
            for bio in self.open.get_mut(&sector).into_iter().flatten() {
                let is_it = bio.queued.time_ns == queued_ns && bio.queued.cpu == record.cpu;
                if is_it && bio.issued_ns.is_none() {
                    bio.unplugged_ns = Some(record.time_ns);
                }
            }
        }
    }

    /// Takes a message.
    fn note(&mut self, now: u64, message: Message) {
        let (start, end) = message.extent.map_or((0, 0), |extent| (extent.sector, extent.end()));
        match message.kind {
            MessageKind::LimitWait { .. } => {
                self.counts.limited += 1;
                self.within((start, end), |bio| {
                    if bio.issued_ns.is_none() {
                        bio.released_ns.get_or_insert(now);
                    }
                });
            }
            MessageKind::FlushDone { age_ns, .. } if message.extent.is_none() => {
                self.flushes.add(age_ns)
            }
            MessageKind::FlushDone { .. } => self.within((start, end), |bio| {
                if bio.issued_ns.is_none() {
                    bio.flushed_ns.get_or_insert(now);
                }
            }),
            MessageKind::FlushElided => self.counts.flushes_elided += 1,
            MessageKind::FlushWait | MessageKind::FlushJoin => {}
        }
    }

    /// Ends the FUA writes that wait for no flush, or whose flush is done.
    fn settle_written(
        &mut self,
        record: &Record,
        message: Option<Message>,
        done: &mut impl FnMut(Traced),
    ) {
        let (kind, extent) = match message {
            Some(Message { kind, extent }) => (Some(kind), extent),
            None => (None, None),
        };
        let touches = |it: &Written| extent.is_some_and(|extent| it.touches(extent));
        self.written.retain_mut(|it| {
            match kind {
                Some(
                    MessageKind::FlushWait | MessageKind::FlushJoin | MessageKind::FlushElided,
                ) if touches(it) => {
                    it.waits = true;
                }
                Some(MessageKind::FlushDone { errno, .. }) if touches(it) && it.waits => {
                    done(it.flushed(record.time_ns, errno));
                    return false;
                }
                // The message would have come first.
                _ if record.cpu == it.complete.cpu && !it.waits => {
                    done(it.bio.ended(&it.complete));
                    return false;
                }
                _ => {}
            }
            true
        });
    }

    /// Calls `change` for each bio that is covered by this range of sectors, or covers it.
    fn within(&mut self, (start, end): (u64, u64), mut change: impl FnMut(&mut Open)) {
        if start >= end {
            return;
        }
        for bio in self.open.range_mut(start..end).flat_map(|(_, bios)| bios) {
            if bio.end() <= end || bio.queued.sector == start {
                change(bio);
            }
        }
        // A part of a bio that was split.
        let before = self.open.range_mut(..start).next_back();
        for bio in before.into_iter().flat_map(|(_, bios)| bios) {
            if bio.end() >= end {
                change(bio);
            }
        }
    }

    fn complete(&mut self, record: &Record, done: &mut impl FnMut(Traced)) {
        self.counts.completed += 1;
        match record.error {
            0 => self.counts.bytes += u64::from(record.bytes),
            _ => self.counts.errors += 1,
        }
        let (start, end) = (record.sector, end_of(record));
        let before = self.open.range(..start).next_back().map(|(sector, _)| *sector);
        let sectors: Vec<u64> = before
            .into_iter()
            .chain(self.open.range(start..end).map(|(sector, _)| *sector))
            .collect();
        for sector in sectors {
            let Some(bios) = self.open.get_mut(&sector) else { continue };
            bios.retain_mut(|bio| {
                let (from, to) = (sector.max(start), bio.end().min(end));
                // A bio in flight of the same range may belong to another request.
                if from >= to || bio.issued_ns.is_none() && record.error == 0 {
                    return true;
                }
                bio.left = bio.left.saturating_sub((to - from) * SECTOR_BYTES);
                match bio.left {
                    // A failure ends it.
                    0 if record.error == 0 && bio.queued.categories.has(Categories::FUA) => {
                        let (bio, complete) = (*bio, *record);
                        self.written.push(Written { bio, complete, waits: false });
                    }
                    0 => done(bio.ended(record)),
                    _ => {}
                }
                bio.left > 0
            });
            if bios.is_empty() {
                self.open.remove(&sector);
            }
        }
    }
}

/// Returns the sectors of a record.
fn range_of(record: &Record) -> (u64, u64) {
    (record.sector, end_of(record))
}

#[cfg(test)]
mod tests;
