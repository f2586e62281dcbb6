//! The queues of a clone with several files, of which each is a disk.
//!
//! A reap takes what has ended on any disk. A wait for several disks polls their descriptors.

use forebay::{BioQueue, Completion, Disk, Io, Owner, PollMode, QueuePoll, SubmitError};
use rustix::event::{PollFd, PollFlags, poll};

/// The queues of the files after the first.
#[derive(Debug)]
pub(super) struct Queues {
    rest: Vec<(BioQueue, Option<Owner>)>,
    /// The handles of all queues, the first file's first, if they were needed.
    handles: Vec<QueuePoll>,
    /// The queue that the next reap begins with, so that no file is always last.
    first: usize,
}

impl Queues {
    /// Returns the queues of these disks; `None` if there are none.
    pub(super) fn new(disks: &[(&Disk, Option<&Owner>)]) -> Option<Box<Self>> {
        let queue = |(disk, owner): &(&Disk, Option<&Owner>)| (disk.queue(), owner.cloned());
        let rest: Vec<_> = disks.iter().map(queue).collect();
        (!rest.is_empty()).then(|| Box::new(Self { rest, handles: Vec::new(), first: 0 }))
    }

    /// Submits an I/O to the queue of a file after the first.
    pub(super) fn submit(&mut self, file: u16, io: Io, now_ns: u64) -> Result<(), SubmitError> {
        let (queue, owner) = &mut self.rest[usize::from(file) - 1];
        match owner {
            None => queue.submit_at(io, now_ns),
            Some(owner) => queue.submit_for_at(owner, io, now_ns),
        }
    }

    /// Reaps between `min` and `max` I/Os from `head`, the queue of the first file, and the others.
    pub(super) fn reap(
        &mut self,
        head: &mut BioQueue,
        min: usize,
        max: usize,
        each: &mut dyn FnMut(Completion),
    ) -> usize {
        let mut reaped = 0;
        loop {
            let nr = self.rest.len() + 1;
            for at in 0..nr {
                let queue = self.queue(head, (self.first + at) % nr);
                if !queue.is_empty() && reaped < max {
                    reaped += queue.reap_with(0, max - reaped, &mut *each);
                }
            }
            self.first = (self.first + 1) % nr;
            let waiting: Vec<_> = (0..nr).filter(|&at| !self.queue(head, at).is_empty()).collect();
            match waiting[..] {
                _ if reaped >= min => return reaped,
                [] => return reaped,
                [at] => {
                    let queue = self.queue(head, at);
                    let least = (min - reaped).min(queue.len());
                    reaped += queue.reap_with(least, max - reaped, &mut *each);
                }
                _ if waiting.iter().any(|&at| self.queue(head, at).wants_reap()) => {}
                _ => reaped += self.wait(head, &waiting, max - reaped, each),
            }
        }
    }

    fn queue<'a>(&'a mut self, head: &'a mut BioQueue, at: usize) -> &'a mut BioQueue {
        match at {
            0 => head,
            _ => &mut self.rest[at - 1].0,
        }
    }

    /// Waits until one of these queues may have completions. Without descriptors, it reaps one I/O
    /// of the first of them. Returns how many it has reaped.
    fn wait(
        &mut self,
        head: &mut BioQueue,
        waiting: &[usize],
        max: usize,
        each: &mut dyn FnMut(Completion),
    ) -> usize {
        if self.handles.is_empty() {
            let all =
                std::iter::once(&mut *head).chain(self.rest.iter_mut().map(|rest| &mut rest.0));
            let handles: Result<Vec<_>, _> =
                all.map(|queue| queue.poll_handle(PollMode::AfterReap)).collect();
            self.handles = handles.unwrap_or_default();
        }
        if self.handles.is_empty() {
            return self.queue(head, waiting[0]).reap_with(1, max, &mut *each);
        }
        let fds = waiting.iter().map(|&at| PollFd::new(&self.handles[at], PollFlags::IN));
        let mut fds: Vec<_> = fds.collect();
        // An interrupted wait is followed by another look at the queues.
        let _ = poll(&mut fds, None);
        let readable: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (&at, _) in waiting.iter().zip(readable).filter(|&(_, readable)| readable) {
            self.queue(head, at).ack_poll();
        }
        0
    }
}
