//! A job's thread, which keeps a fixed number of I/Os in flight, like fio's asynchronous engines.

use forebay_core::{PlugCounters, Policy, QueueLimits, QueuedBio, SoftwareQueue};
use forebay_model::Random;
use std::sync::Arc;

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Runs, or is runnable.
    Running,
    /// Sleeps within a submission, until it is woken for a tag.
    WaitingForTag,
    /// Was woken for a tag, and has not tried again yet.
    WokenForTag,
    /// Sleeps until one of its I/Os has ended.
    WaitingForEnd,
}

/// An I/O of a job, in one bio or in several parts.
#[derive(Clone, Copy, Debug, Default)]
struct Io {
    start: u64,
    begun_ns: u64,
    nr_submitted: u32,
    nr_ended: u32,
    waited_ns: u64,
}

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) ctx: SoftwareQueue,
    pub(super) doing: Doing,
    pub(super) random: Random,
    parts: u32,
    ios: Vec<Io>,
    idle: Vec<u32>,
    boxes: Vec<Box<QueuedBio>>,
    /// The I/O that is being submitted.
    current: Option<u32>,
    /// The I/O that was submitted last, in full or in part.
    newest: Option<u32>,
    /// I/Os that have ended and were not reaped.
    ended: Vec<u32>,
    /// The number of requests since the thread last slept.
    pub(super) nr_plugged: u32,
    /// The number of I/Os that ended during the measurement.
    pub(super) nr_ios: u64,
}

impl Job {
    /// Returns job number `id`, which keeps `depth` I/Os in flight, each of `parts` bios.
    pub(super) fn new(
        id: usize,
        depth: u32,
        parts: u32,
        limits: QueueLimits,
        policy: Policy,
        random: Random,
    ) -> Job {
        let nr_boxes = depth * parts;
        Job {
            ctx: SoftwareQueue::new(limits, policy, Arc::new(PlugCounters::default())),
            doing: Doing::Running,
            random,
            parts,
            ios: vec![Io::default(); depth as usize],
            idle: (0..depth).rev().collect(),
            boxes: (0..nr_boxes).map(|nr| QueuedBio::new(id as u64, nr)).collect(),
            current: None,
            newest: None,
            ended: Vec::new(),
            nr_plugged: 0,
            nr_ios: 0,
        }
    }

    /// Returns whether the job can submit: the rest of an I/O, or a new one.
    pub(super) fn can_submit(&self) -> bool {
        self.current.is_some() || !self.idle.is_empty()
    }

    /// Returns the next bio to submit: an empty box, its start, and its number. `place` draws the
    /// start of a new I/O.
    pub(super) fn next_part(
        &mut self,
        now: u64,
        part_bytes: u64,
        place: impl FnOnce(&mut Random) -> u64,
    ) -> (Box<QueuedBio>, u64, u64) {
        let at = match self.current {
            Some(at) => at,
            None => {
                let at = self.idle.pop().expect("it can submit");
                let start = place(&mut self.random);
                self.ios[at as usize] = Io { start, begun_ns: now, ..Io::default() };
                at
            }
        };
        let io = &mut self.ios[at as usize];
        let start = io.start + u64::from(io.nr_submitted) * part_bytes;
        io.nr_submitted += 1;
        self.newest = Some(at);
        self.current = (io.nr_submitted < self.parts).then_some(at);
        (self.boxes.pop().expect("there is a box for each part"), start, u64::from(at))
    }

    /// Records the end of a bio. Returns how long its I/O waited for tags and how long it took, ns,
    /// if it has ended too.
    pub(super) fn end(&mut self, queued: Box<QueuedBio>, now: u64) -> Option<(u64, u64)> {
        assert_eq!(queued.result(), Ok(queued.bio().len), "a machine does not fail");
        let at = queued.bio().user_data as u32;
        let io = &mut self.ios[at as usize];
        io.nr_ended += 1;
        io.waited_ns += queued.tag_wait().unwrap_or(0);
        self.boxes.push(queued);
        (io.nr_ended == self.parts).then(|| {
            self.ended.push(at);
            (io.waited_ns, now - io.begun_ns)
        })
    }

    /// Reaps the I/Os that have ended, and returns how many these are.
    pub(super) fn reap(&mut self) -> u64 {
        let nr = self.ended.len();
        self.idle.append(&mut self.ended);
        nr as u64
    }

    /// Returns whether the next submission begins a new I/O.
    pub(super) fn is_between(&self) -> bool {
        self.current.is_none()
    }

    /// Returns the age of the I/O whose request was submitted last, ns; `None` before the first.
    pub(super) fn submitting_ns(&self, now: u64) -> Option<u64> {
        self.newest.map(|at| now - self.ios[at as usize].begun_ns)
    }
}
