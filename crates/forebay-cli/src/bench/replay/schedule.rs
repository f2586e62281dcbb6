//! The times of a replay: when each step is due.

use std::sync::Arc;

use forebay_fio::iolog::{Act, Recording, Step};

/// The place of a clone in its log. It advances beside the stream of I/Os.
#[derive(Debug)]
pub(in crate::bench) struct Schedule {
    recording: Arc<Recording>,
    /// The number of the next step.
    next: usize,
    /// The start of the pass, ns since that of the clone.
    start_ns: u64,
}

impl Schedule {
    /// Returns the schedule of a pass that begins at `start_ns`.
    pub(in crate::bench) fn new(recording: &Arc<Recording>, start_ns: u64) -> Self {
        Self { recording: Arc::clone(recording), next: 0, start_ns }
    }

    /// Returns the next step, and when it is due.
    pub(in crate::bench) fn next_step(&self) -> Option<(Step, u64)> {
        let step = *self.recording.steps().get(self.next)?;
        Some((step, self.start_ns.saturating_add(step.due_ns)))
    }

    /// Passes the next step, which is done.
    pub(in crate::bench) fn advance(&mut self) {
        self.next += 1;
    }

    /// Passes the I/O that is being submitted. Returns by how much it is late, if the log has
    /// times.
    pub(in crate::bench) fn submitted(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_step()?.1;
        self.advance();
        self.recording.is_timed().then(|| now_ns.saturating_sub(due_ns))
    }

    /// Returns whether the next step must wait, or is a sync.
    pub(in crate::bench) fn has_work(&self, now_ns: u64) -> bool {
        self.next_step().is_some_and(|(step, due_ns)| {
            due_ns > now_ns || matches!(step.act, Act::Sync | Act::Datasync)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Replayed;
    use super::*;

    #[test]
    fn steps_are_due_by_the_start_of_the_pass_and_syncs_are_not_in_the_stream() {
        let text = "fio version 3 iolog\n0 f read 0 512\n5 f sync 0 0\n9 f write 512 512\n";
        let recording = Arc::new(Recording::parse(text).expect("a log"));
        let mut schedule = Schedule::new(&recording, 1_000_000);
        assert!(!schedule.has_work(1_000_000));
        assert_eq!(schedule.submitted(1_000_300), Some(300));
        assert!(schedule.has_work(9_000_000), "the sync");
        assert_eq!(schedule.next_step().map(|(_, due_ns)| due_ns), Some(1_005_000));
        schedule.advance();
        assert!(schedule.has_work(1_008_999) && !schedule.has_work(1_009_000));
        assert_eq!(schedule.submitted(1_009_000), Some(0));
        assert!(!schedule.has_work(u64::MAX));
        let offsets: Vec<_> = Replayed::new(&recording).map(|op| op.offset).collect();
        assert_eq!(offsets, [0, 512]);
    }
}
