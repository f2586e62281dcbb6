//! Counters of a call and of its files, and the times of stages, for `forebay run --stats`.
//!
//! Files are counted and times are measured only if the area of the process is detailed. Otherwise
//! the clock is not read, and no call is made for it.
//!
//! An iocb of the layer counts for the file that it was submitted to: the layer has checked its
//! descriptor. Any other iocb has only the number of a descriptor, and a check of each would cost
//! too much. So its file is the one that the descriptor was seen to be in the same period of
//! [`PERIOD_NS`]: if the program uses a number again, its iocbs may count for the file before for
//! so long.

use crate::abi::{Iocb, opcode};
use crate::file::Outgoing;
use crate::plan::{Planned, is_sync};
use crate::program::{self, FileId};
use forebay_run::area::{self, Counter, FileCounter, FileNumber, LOOKUP_MS, Stage};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The time for which a descriptor is taken to be of the same file.
const PERIOD_NS: u64 = LOOKUP_MS * 1_000_000;

/// The descriptors that were seen, by the last bits of their number. 0 is none.
static SEEN: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// A descriptor that was seen, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    fd: u32,
    /// The number of the period; never 0.
    period: u16,
    number: FileNumber,
}

impl Seen {
    fn word(self) -> u64 {
        u64::from(self.fd) << 32 | u64::from(self.period) << 16 | u64::from(self.number.get())
    }

    fn of_word(word: u64) -> Seen {
        let number = FileNumber::from_number(word as u16);
        Seen { fd: (word >> 32) as u32, period: (word >> 16) as u16, number }
    }
}

/// Returns the time in nanoseconds, which is not 0. Returns 0 if times are not measured.
pub(crate) fn now() -> u64 {
    if area::is_detailed() { clock() } else { 0 }
}

#[cold]
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// Records the time of an I/O in a stage that it entered at `since`, as [`now`] returned it.
pub(crate) fn record_since(stage: Stage, since: u64) {
    if since > 0 {
        area::record(stage, now().saturating_sub(since));
    }
}

/// Returns the place of a file.
pub(crate) fn number_of(id: FileId) -> FileNumber {
    match now() {
        0 => FileNumber::OTHER,
        now => number_at(id.fd, Some(id), now),
    }
}

/// Returns the place of the file of a descriptor, which is that of `id` if the caller has checked
/// it.
fn number_at(fd: u32, id: Option<FileId>, now: u64) -> FileNumber {
    let place = &SEEN[fd as usize % SEEN.len()];
    let seen = Seen::of_word(place.load(Ordering::Relaxed));
    let period = (now / PERIOD_NS % u64::from(u16::MAX)) as u16 + 1;
    let is_recent = seen.fd == fd && seen.period == period;
    let is_right = match id {
        Some(id) if seen.number != FileNumber::OTHER => {
            seen.fd == fd && area::is_of_file(seen.number, id.dev, id.ino)
        }
        _ => is_recent,
    };
    if is_right {
        return seen.number;
    }
    let id = id.or_else(|| program::identity_of(fd));
    let number = id.map_or(FileNumber::OTHER, |id| area::file(id.dev, id.ino, || path_of(fd)));
    place.store(Seen { fd, period, number }.word(), Ordering::Relaxed);
    number
}

/// Returns the path of the file of a descriptor, as the system has it.
fn path_of(fd: u32) -> Vec<u8> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    path.map(|path| path.into_os_string().into_vec()).unwrap_or_default()
}

/// The files of the iocbs of a call, seen before it takes the lock of its context: a file system
/// may block.
#[derive(Debug)]
pub(crate) struct Call {
    now: u64,
    /// One for each iocb; empty if files are not counted.
    files: Vec<FileNumber>,
}

impl Call {
    pub(crate) fn new(planned: &[Planned]) -> Call {
        match now() {
            0 => Call { now: 0, files: Vec::new() },
            now => Call::of_files(planned, now),
        }
    }

    #[cold]
    fn of_files(planned: &[Planned], now: u64) -> Call {
        let of = |it: &Planned| {
            let id = it.layered.as_ref().map(|(id, _)| *id);
            number_at(it.copy.fildes, id, now)
        };
        Call { now, files: planned.iter().map(of).collect() }
    }

    /// Returns the time at which the call has begun; 0 if times are not measured.
    pub(crate) fn time(&self) -> u64 {
        self.now
    }

    /// Counts the iocbs that were accepted, which are the first ones of the call.
    pub(crate) fn count(&self, accepted: &[Planned]) {
        area::add(Counter::Iocbs, accepted.len() as u64);
        area::add(Counter::Syncs, nr_syncs(accepted));
        if !self.files.is_empty() {
            self.count_files(accepted);
        }
    }

    #[cold]
    fn count_files(&self, accepted: &[Planned]) {
        let mut rest = accepted;
        let nr = accepted.len().min(self.files.len());
        for run in self.files[..nr].chunk_by(|one, other| one == other) {
            let (of_file, after) = rest.split_at(run.len());
            let add = |counter, nr| area::add_of_file(run[0], counter, nr);
            add(FileCounter::Iocbs, of_file.len() as u64);
            // An iocb that the layer does not take is a request.
            let bypassing = of_file.iter().filter(|it| it.layered.is_none());
            add(FileCounter::Requests, bypassing.count() as u64);
            add(FileCounter::Syncs, nr_syncs(of_file));
            rest = after;
        }
    }
}

fn nr_syncs(planned: &[Planned]) -> u64 {
    planned.iter().filter(|it| is_sync(&it.copy)).count() as u64
}

/// Counts a read that is held.
pub(crate) fn count_held(number: FileNumber) {
    area::add(Counter::Held, 1);
    area::add_of_file(number, FileCounter::Iocbs, 1);
    area::add_of_file(number, FileCounter::Held, 1);
}

/// Counts requests of one file that are passed to the kernel.
pub(crate) fn count_requests(requests: &[Outgoing]) {
    area::add(Counter::Requests, requests.len() as u64);
    if let Some(first) = requests.first() {
        area::add_of_file(first.number, FileCounter::Requests, requests.len() as u64);
    }
}

/// The times at which iocbs were submitted that are at the kernel as they are, by their record.
/// Empty if times are not measured.
#[derive(Debug, Default)]
pub(crate) struct Starts(Vec<(Stage, u64)>);

impl Starts {
    /// Stores the time of a submission. A poll has none: it waits for something else than I/O.
    pub(crate) fn begin(&mut self, record: u32, iocb: &Iocb, now: u64) {
        if now > 0 {
            self.store(record, iocb, now);
        }
    }

    #[cold]
    fn store(&mut self, record: u32, iocb: &Iocb, now: u64) {
        let stage = if is_sync(iocb) { Stage::Sync } else { Stage::Kernel };
        let nth = record as usize;
        if self.0.len() <= nth {
            self.0.resize(nth + 1, (stage, 0));
        }
        self.0[nth] = (stage, if iocb.opcode == opcode::POLL { 0 } else { now });
    }

    /// Records the time of an iocb that has ended.
    pub(crate) fn end(&mut self, record: u32) {
        if let Some((stage, since)) = self.0.get_mut(record as usize) {
            record_since(*stage, std::mem::take(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_descriptor_is_one_word() {
        for (fd, period, number) in [(0, 1, 0), (u32::MAX, u16::MAX, 1023), (1 << 20, 7, 500)] {
            let number = FileNumber::from_number(number);
            let seen = Seen { fd, period, number };
            assert_eq!(Seen::of_word(seen.word()), seen);
            assert_ne!(seen.word(), 0);
        }
    }

    #[test]
    fn polls_and_ends_without_a_start_have_no_time() {
        let mut starts = Starts::default();
        let iocb = |opcode| Iocb { opcode, ..Iocb::default() };
        starts.end(3);
        starts.begin(3, &iocb(opcode::FSYNC), 0);
        assert!(starts.0.is_empty(), "times are not measured");
        starts.begin(1, &iocb(opcode::FSYNC), 9);
        assert_eq!(starts.0, [(Stage::Sync, 0), (Stage::Sync, 9)]);
        starts.end(1);
        assert_eq!(starts.0[1], (Stage::Sync, 0));
        starts.begin(0, &iocb(opcode::PREAD), 5);
        starts.begin(0, &iocb(opcode::POLL), 6);
        assert_eq!(starts.0[0], (Stage::Kernel, 0));
    }
}
