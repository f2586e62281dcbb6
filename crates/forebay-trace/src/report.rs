//! How long requests spent in each stage, and where the time of the slowest went.
//!
//! The report follows each bio that was queued (Q) to the completion (C) of the request that covers
//! it, as `btt` does: by its range on the device. Its time has up to four parts:
//!
//! - *plug*: from Q until its plug was unplugged (U);
//! - *tag*: from there until its request has got a tag (G); with S if it was not issued at once;
//! - *queue*: from there until the request was issued (D) for the first time;
//! - *driver*: from there to C.
//!
//! A bio that was merged shares the later parts with its request. Bios of which the trace lacks a
//! stage have one part less, and their remaining time counts for the stage before.

use crate::reader::Entry;
use crate::record::{Act, Categories, Kind, Record, SECTOR_BYTES};
use std::collections::{BTreeMap, HashMap};

/// The number of stages of a bio.
pub const NR_STAGES: usize = 4;

/// The names of the stages.
pub const STAGES: [&str; NR_STAGES] = ["plug", "tag", "queue", "driver"];

/// The stages of a bio in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// When it was queued.
    pub queued_ns: u64,
    /// The first sector.
    pub sector: u64,
    /// The number of bytes.
    pub bytes: u32,
    /// The operation.
    pub categories: Categories,
    /// The thread that queued it.
    pub pid: u32,
    /// It merged with a request.
    pub is_merged: bool,
    /// Its request waited for a tag.
    pub has_slept: bool,
    /// The driver was busy at first.
    pub was_requeued: bool,
    /// The errno, negative, or 0.
    pub error: i16,
    /// The time in each of [`STAGES`], in nanoseconds.
    pub stages_ns: [u64; NR_STAGES],
}

impl Traced {
    /// Returns the time from Q to C in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.stages_ns.iter().sum()
    }
}

/// A bio that is not complete yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    queued: Record,
    unplugged_ns: Option<u64>,
    tagged_ns: Option<u64>,
    issued_ns: Option<u64>,
    left: u64,
    is_merged: bool,
    has_slept: bool,
    was_requeued: bool,
}

impl Open {
    fn end(&self) -> u64 {
        end_of(&self.queued)
    }

    /// Returns the bio with the times of its stages, at its completion.
    fn ended(&self, complete: &Record) -> Traced {
        let mut stages_ns = [0; NR_STAGES];
        let mut since_ns = self.queued.time_ns;
        let ends = [self.unplugged_ns, self.tagged_ns, self.issued_ns, Some(complete.time_ns)];
        for (stage, end_ns) in stages_ns.iter_mut().zip(ends) {
            if let Some(end_ns) = end_ns {
                *stage = end_ns.saturating_sub(since_ns);
                since_ns = since_ns.max(end_ns);
            }
        }
        Traced {
            queued_ns: self.queued.time_ns,
            sector: self.queued.sector,
            bytes: self.queued.bytes,
            categories: self.queued.categories,
            pid: self.queued.pid,
            is_merged: self.is_merged,
            has_slept: self.has_slept,
            was_requeued: self.was_requeued,
            error: complete.error,
            stages_ns,
        }
    }
}

/// Returns the sector after the range of a record.
fn end_of(record: &Record) -> u64 {
    record.sector.saturating_add(u64::from(record.bytes).div_ceil(SECTOR_BYTES))
}

/// Counts of a trace.
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
    counts: Counts,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Follower {
    /// Takes the next entry, and passes the bios that it completes to `done`.
    pub fn take(&mut self, entry: &Entry, mut done: impl FnMut(Traced)) {
        let record = &entry.record;
        let Kind::Stage(act) = record.kind else { return };
        self.first_ns.get_or_insert(record.time_ns);
        self.last_ns = self.last_ns.max(record.time_ns);
        let now = record.time_ns;
        // A range beyond the last sector is none: the file is damaged.
        let has_range = end_of(record) > record.sector && record.bytes > 0;
        match act {
            Act::Queue if has_range => self.queue(record),
            Act::BackMerge | Act::FrontMerge => {
                self.counts.merged += 1;
                self.within(record, |bio| bio.is_merged = true);
            }
            Act::Plug => self.plug(record),
            Act::Unplug | Act::UnplugTimer => self.unplug(record),
            Act::Sleep => {
                self.counts.sleeps += 1;
                self.within(record, |bio| bio.has_slept = true);
            }
            Act::GetRequest => {
                self.within(record, |bio| _ = bio.tagged_ns.get_or_insert(now));
            }
            Act::Issue if has_range => {
                self.counts.issued += 1;
                self.within(record, |bio| _ = bio.issued_ns.get_or_insert(now));
            }
            Act::Issue => self.counts.flushes += 1,
            Act::Requeue => {
                self.counts.requeues += 1;
                self.within(record, |bio| bio.was_requeued = true);
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
        self.plugs.values_mut().for_each(|plug| plug.bios.clear());
        nr
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns how many bios are not complete.
    pub fn nr_open(&self) -> usize {
        self.open.values().map(Vec::len).sum()
    }

    /// Returns the time between the first and the last stage, in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.first_ns.map_or(0, |first_ns| self.last_ns - first_ns)
    }

    fn queue(&mut self, record: &Record) {
        self.counts.queued += 1;
        let open = Open {
            queued: *record,
            unplugged_ns: None,
            tagged_ns: None,
            issued_ns: None,
            left: u64::from(record.bytes),
            is_merged: false,
            has_slept: false,
            was_requeued: false,
        };
        self.open.entry(record.sector).or_default().push(open);
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

    /// Calls `change` for each bio that is covered by the range of a record, or covers it.
    fn within(&mut self, record: &Record, mut change: impl FnMut(&mut Open)) {
        let (start, end) = (record.sector, end_of(record));
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
                if bio.left == 0 {
                    done(bio.ended(record));
                }
                bio.left > 0
            });
            if bios.is_empty() {
                self.open.remove(&sector);
            }
        }
    }
}

/// The times of one stage, or of all, over many bios.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    all: Vec<u64>,
    sum: u128,
}

impl Times {
    /// Adds a time.
    pub fn add(&mut self, time_ns: u64) {
        self.all.push(time_ns);
        self.sum += u128::from(time_ns);
    }

    /// Sorts the times, which [`percentile_ns`](Self::percentile_ns) needs.
    pub fn sort(&mut self) {
        self.all.sort_unstable();
    }

    /// Returns the mean in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        if self.all.is_empty() { 0.0 } else { self.sum as f64 / self.all.len() as f64 }
    }

    /// Returns the smallest time that is not less than `percent` % of all; the times are sorted.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let nth = (percent / 100.0 * self.all.len() as f64).ceil() as usize;
        self.all.get(nth.clamp(1, self.all.len().max(1)) - 1).copied().unwrap_or(0)
    }

    /// Returns the number of times.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests;
