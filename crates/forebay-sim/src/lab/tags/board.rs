//! State that the jobs of a run share: the sizes of its I/Os, and its figures.

use super::load::{SMALL_BYTES, TagLoad};
use crate::lab::measured::Measured;
use forebay_core::{Histogram, SECTOR_SHIFT};
use std::cell::RefCell;

/// The largest logical block: a checker checks each block.
const BLOCK_MAX: u64 = 256 << 10;

/// The load, and what was measured so far.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) load: TagLoad,
    /// The logical block size.
    pub(super) block: u64,
    /// The size of a request, and of a bio of a job's I/O.
    pub(super) request_bytes: u64,
    pub(super) part_bytes: u64,
    /// The number of bios of an I/O, and of I/Os that a job has in flight.
    pub(super) nr_parts: u64,
    pub(super) depth: usize,
    measured: RefCell<Measured>,
}

impl Board {
    /// # Panics
    /// If the load has no jobs or time, if a block is not a whole number of requests, or if a mixed
    /// load has threads that wait for tags.
    pub(super) fn new(load: &TagLoad) -> Board {
        assert!(load.nr_jobs > 0 && load.run_ns > 0, "there is something to measure");
        let request_bytes = u64::from(load.device.max_sectors) << SECTOR_SHIFT;
        let part_bytes = match load.is_thread_waiting() {
            true => load.block_bytes.min(request_bytes),
            false => load.block_bytes,
        };
        assert!(load.block_bytes.is_multiple_of(part_bytes), "an I/O is whole requests");
        let has_equal_parts = !(load.is_mixed && load.is_thread_waiting());
        assert!(has_equal_parts, "each job has its own number of parts");
        let smallest = if load.is_mixed { SMALL_BYTES } else { part_bytes };
        Board {
            load: *load,
            block: (1 << smallest.trailing_zeros()).min(BLOCK_MAX),
            request_bytes,
            part_bytes,
            nr_parts: load.block_bytes / part_bytes,
            depth: (load.depth / load.nr_jobs).max(1) as usize,
            measured: RefCell::new(Measured {
                run_ns: load.run_ns,
                ios_of_jobs: vec![0; load.nr_jobs as usize],
                nr_tag_sleeps: 0,
                nr_completion_sleeps: 0,
                nr_vain_wakes: 0,
                nr_worker_runs: 0,
                tag_waits: Histogram::default(),
                latencies: [Histogram::default(), Histogram::default()],
            }),
        }
    }

    /// Returns whether this time belongs to the measurement.
    fn is_measured(&self, at_ns: u64) -> bool {
        (self.load.warm_up_ns..self.load.end_ns()).contains(&at_ns)
    }

    /// Counts the sleeps of a wait for a tag that began at `begun_ns`. Each but the first follows a
    /// wake-up that found no tag.
    pub(super) fn slept_for_tag(&self, begun_ns: u64, nr_sleeps: u64) {
        if self.is_measured(begun_ns) {
            let mut measured = self.measured.borrow_mut();
            measured.nr_tag_sleeps += nr_sleeps;
            measured.nr_vain_wakes += nr_sleeps.saturating_sub(1);
        }
    }

    /// Records that an I/O still waits for a tag at the end of the measurement, and has so far
    /// taken this long.
    pub(super) fn still_waits(&self, waited_ns: u64) {
        self.measured.borrow_mut().tag_waits.record(waited_ns);
    }

    /// Counts the sleeps of a wait for completions that began at `begun_ns`.
    pub(super) fn slept_for_completions(&self, begun_ns: u64, nr_sleeps: u64) {
        if self.is_measured(begun_ns) {
            self.measured.borrow_mut().nr_completion_sleeps += nr_sleeps;
        }
    }

    /// Counts an I/O of a job that began and ended at these times, and waited for tags meanwhile.
    pub(super) fn ended(&self, job: usize, (begun_ns, ended_ns): (u64, u64), waited_ns: u64) {
        if self.is_measured(ended_ns) {
            let mut measured = self.measured.borrow_mut();
            measured.ios_of_jobs[job] += 1;
            measured.latencies[usize::from(self.load.is_small(job))].record(ended_ns - begun_ns);
            measured.tag_waits.record(waited_ns);
        }
    }

    /// Records how often the worker ran during the measurement.
    pub(super) fn set_worker_runs(&self, nr_runs: u64) {
        self.measured.borrow_mut().nr_worker_runs = nr_runs;
    }

    /// Returns the figures.
    pub(super) fn measured(&self) -> Measured {
        self.measured.borrow().clone()
    }
}
