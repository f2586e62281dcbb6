//! Counters of the iocbs of a call and of the requests to the kernel, and times of iocbs that the
//! layer does not take.

use crate::abi::{Iocb, opcode};
use crate::file::Outgoing;
use crate::plan::{Planned, is_sync};
use crate::stats;
use forebay_run::area::{self, Counter, FileNumber, Stage};

/// The files of the iocbs of a call, seen before it takes the lock of its context: a file system
/// may block.
#[derive(Debug)]
pub(super) struct Call {
    now: u64,
    /// One for each iocb; empty if files are not counted.
    files: Vec<FileNumber>,
}

impl Call {
    pub(super) fn new(planned: &[Planned]) -> Call {
        match stats::now() {
            0 => Call { now: 0, files: Vec::new() },
            now => Call::of_files(planned, now),
        }
    }

    #[cold]
    fn of_files(planned: &[Planned], now: u64) -> Call {
        let of = |it: &Planned| {
            let id = it.layered.as_ref().map(|(id, _)| *id);
            stats::number_at(it.copy.fildes, id, now)
        };
        Call { now, files: planned.iter().map(of).collect() }
    }

    /// Returns the time at which the call has begun; 0 if times are not measured.
    pub(super) fn time(&self) -> u64 {
        self.now
    }

    /// Returns the file of an iocb of the call.
    pub(super) fn number(&self, nth: usize) -> FileNumber {
        self.files.get(nth).copied().unwrap_or(FileNumber::OTHER)
    }

    /// Counts the iocbs that were accepted, which are the first ones of the call.
    pub(super) fn count(&self, accepted: &[Planned]) {
        area::add(Counter::Iocbs, accepted.len() as u64);
        area::add(Counter::Syncs, nr_syncs(accepted));
        if !self.files.is_empty() {
            self.count_files(accepted);
        }
    }

    /// Counts iocbs for which the context has no place, which are the ones from `start` on.
    pub(super) fn count_full(&self, start: usize, nr: usize) {
        area::add(Counter::Full, (nr - start) as u64);
        for number in self.files.iter().take(nr).skip(start) {
            area::add_of_file(*number, Counter::Full, 1);
        }
    }

    #[cold]
    fn count_files(&self, accepted: &[Planned]) {
        let mut rest = accepted;
        let nr = accepted.len().min(self.files.len());
        for run in self.files[..nr].chunk_by(|one, other| one == other) {
            let (of_file, after) = rest.split_at(run.len());
            let add = |counter, nr| area::add_of_file(run[0], counter, nr);
            add(Counter::Iocbs, of_file.len() as u64);
            // An iocb that the layer does not take is a request.
            let bypassing = of_file.iter().filter(|it| it.layered.is_none());
            add(Counter::Requests, bypassing.count() as u64);
            add(Counter::Syncs, nr_syncs(of_file));
            rest = after;
        }
    }
}

fn nr_syncs(planned: &[Planned]) -> u64 {
    planned.iter().filter(|it| is_sync(&it.copy)).count() as u64
}

/// Counts requests of one file that are passed to the kernel.
pub(super) fn count_requests(requests: &[Outgoing]) {
    if let Some(first) = requests.first() {
        area::count(first.number, Counter::Requests, requests.len() as u64);
    }
}

/// The submission times, by record, of iocbs that bypassed the layer and have not ended. Empty if
/// times are not measured.
#[derive(Debug, Default)]
pub(super) struct Starts(Vec<Start>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    stage: Stage,
    number: FileNumber,
    /// 0 if there is none.
    since: u64,
}

impl Starts {
    /// Stores the time of a submission. A poll has none: it waits for something else than I/O.
    pub(super) fn begin(&mut self, record: u32, iocb: &Iocb, number: FileNumber, now: u64) {
        if now > 0 {
            self.store(record, iocb, number, now);
        }
    }

    #[cold]
    fn store(&mut self, record: u32, iocb: &Iocb, number: FileNumber, now: u64) {
        let stage = if is_sync(iocb) { Stage::Sync } else { Stage::Kernel };
        let nth = record as usize;
        if self.0.len() <= nth {
            self.0.resize(nth + 1, Start { stage, number, since: 0 });
        }
        let since = if iocb.opcode == opcode::POLL { 0 } else { now };
        self.0[nth] = Start { stage, number, since };
    }

    /// Records the time of an iocb that has ended.
    pub(super) fn end(&mut self, record: u32) {
        if let Some(start) = self.0.get_mut(record as usize) {
            stats::record_since(start.stage, start.number, std::mem::take(&mut start.since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_and_ends_without_a_start_have_no_time() {
        let mut starts = Starts::default();
        let iocb = |opcode| Iocb { opcode, ..Iocb::default() };
        let number = FileNumber::from_number(4);
        let start = |stage, since| Start { stage, number, since };
        starts.end(3);
        starts.begin(3, &iocb(opcode::FSYNC), number, 0);
        assert!(starts.0.is_empty(), "times are not measured");
        starts.begin(1, &iocb(opcode::FSYNC), number, 9);
        assert_eq!(starts.0, [start(Stage::Sync, 0), start(Stage::Sync, 9)]);
        starts.end(1);
        assert_eq!(starts.0[1], start(Stage::Sync, 0));
        starts.begin(0, &iocb(opcode::PREAD), number, 5);
        starts.begin(0, &iocb(opcode::POLL), number, 6);
        assert_eq!(starts.0[0], start(Stage::Kernel, 0));
    }
}
