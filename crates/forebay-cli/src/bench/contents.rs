//! Contents of blocks: the data of writes, and the verification of reads.

use forebay_fio::data::{Contents, Member, scramble};
use forebay_fio::generator::Op;
use forebay_fio::job::{Job, Method};
use forebay_fio::random::Xoshiro256;
use forebay_fio::report::JobError;
use forebay_fio::verify::{self, Write};
use rustix::io::Errno;

use super::tally::{Check, Tally};
use crate::output;

/// Returns the write data of clone number `stream`; `None` unless the job generates data.
pub(super) fn contents(job: &Job, jobs: &[Job], stream: u64, chance: u64) -> Option<Contents> {
    if !job.generates_data() {
        return None;
    }
    let own = job.member(stream, chance);
    let data = &job.checks.data;
    let set = match (data.has_working_set, data.is_global) {
        (false, _) => Vec::new(),
        (true, false) => vec![own],
        (true, true) => shared_set(jobs, chance),
    };
    Some(job.contents(own, set))
}

/// Returns the working set of all clones that share one. Each has an equal part of it.
fn shared_set(jobs: &[Job], chance: u64) -> Vec<Member> {
    let clones = jobs.iter().flat_map(|job| (0..job.numjobs).map(move |_| job));
    let sharing = (0..).zip(clones).filter(|(_, job)| job.checks.data.shares_set());
    let mut set: Vec<_> = sharing.map(|(stream, job)| job.member(stream, chance)).collect();
    let nr = set.len() as u64;
    for member in &mut set {
        member.nr_parts = (member.nr_parts / nr).max(1);
    }
    set
}

/// Maximum number of bad blocks that are reported one by one; the rest are only counted.
const TOLD_MAX: u64 = 10;

impl Tally<'_> {
    /// Generates the data of a write.
    pub(super) fn fill(&self, block: &mut [u8], op: &Op) {
        let (offset, stamp) = (op.offset, self.stamps[usize::from(op.file)]);
        let checks = &self.job.checks;
        match (checks.method, &checks.pattern) {
            (Method::Pattern, Some(pattern)) => pattern.fill(block, offset),
            (Method::Header(_), _) => {
                let number = self.numbers.get();
                self.numbers.set(number.wrapping_add(1));
                let time_ns = self.layer_ns(self.now_ns);
                let write = Write { thread: self.thread, number, time_ns };
                self.format.fill(block, offset, stamp, write);
            }
            _ if self.contents.is_some() => {
                if let Some(contents) = &self.contents {
                    contents.borrow_mut().fill(block);
                }
            }
            _ if checks.zero_buffers => {}
            _ if checks.buffer_pattern.is_some() => {}
            _ if self.scrambles => {
                let number = self.nr_scrambled.get();
                self.nr_scrambled.set(number + 1);
                scramble(block, offset, number);
            }
            // `refill_buffers`: every write of a block has new data.
            _ => Xoshiro256::new(stamp.seed ^ offset, self.now_ns).fill(block),
        }
    }

    /// Checks a read of `moved` bytes.
    pub(super) fn check_block(&mut self, op: Op, block: &[u8], moved: u64) {
        let expected = (self.check == Check::Ours).then(|| self.stamps[usize::from(op.file)]);
        let block = &block[..moved as usize];
        let checks = &self.job.checks;
        let result = match (checks.method, &checks.pattern) {
            (Method::Pattern, Some(pattern)) => verify::check_pattern(block, op.offset, pattern),
            (Method::Header(_), _) => {
                self.format.check(block, op.len as usize, op.offset, expected)
            }
            _ => return,
        };
        if let Err(mismatch) = result {
            if checks.dump {
                self.dump(op, block, &mismatch);
            }
            self.note_mismatch(format!("{mismatch}{}", self.place(op.file)));
        } else if moved < op.len.into() && checks.method.has_header() {
            self.note_mismatch(format!(
                "verify: only {moved} bytes could be read at offset {}{}",
                op.offset,
                self.place(op.file)
            ));
        }
    }

    /// Records a mismatch. Unless `verify_fatal` is set, the job continues, so that all bad blocks
    /// are found.
    #[cold]
    fn note_mismatch(&mut self, message: String) {
        if self.continue_after_mismatch(&message) {
            return;
        }
        match &mut self.mismatch {
            None => self.mismatch = Some((message, 0)),
            Some((_, more)) => {
                *more += 1;
                if *more < TOLD_MAX {
                    output::stderr(&format!("forebay: {}: {message}\n", self.job.name));
                }
            }
        }
        if self.job.checks.fatal {
            self.end_checks();
        }
    }

    /// Turns the recorded mismatches into the error of the job.
    pub(super) fn end_checks(&mut self) {
        let Some((mut message, more)) = self.mismatch.take() else { return };
        if more > 0 {
            message.push_str(&format!(" (and {more} more bad blocks)"));
        }
        // The errno that fio reports in this case.
        self.error.get_or_insert(JobError { errno: Errno::ILSEQ.raw_os_error(), message });
    }
}
