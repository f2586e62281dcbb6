//! Driver as a device of the layer.
//!
//! The layer's own traits ask for more than authors of drivers need: requests that waiting threads
//! make themselves, registered memory, commits that a wait makes. A driver of the public contract
//! has none of these. Its queue and its wait are known at compile time here, so the connection
//! costs nothing.

use super::wait::Beside;
use super::{Answer, Driver, Facts, Queue, Wait};
use crate::driver::{Device, DriverQueue, Mode, Waiter};
use crate::error::OpenError;
use crate::extent::Extents;
use forebay_core::{BlockStatus, Completions, Issue, IssuedRequest, QueueLimits, Reap, Tag};
use std::io;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A driver with its facts.
pub(crate) struct DriverDevice<D> {
    driver: D,
    facts: Facts,
    /// How the first queue waits, and hence all others.
    way: OnceLock<Discriminant<Wait>>,
    /// Called when the disk is revived.
    on_revive: Option<Box<dyn Fn() + Send + Sync>>,
    /// Converts an error of `open_queue`.
    refusal: Option<Box<dyn Fn(io::Error) -> OpenError + Send + Sync>>,
}

impl<D: Driver> DriverDevice<D> {
    pub(crate) fn new(driver: D) -> DriverDevice<D> {
        let facts = driver.facts();
        DriverDevice { driver, facts, way: OnceLock::new(), on_revive: None, refusal: None }
    }

    /// Calls `on_revive` whenever the disk is revived.
    pub(crate) fn on_revive(self, on_revive: impl Fn() + Send + Sync + 'static) -> Self {
        DriverDevice { on_revive: Some(Box::new(on_revive)), ..self }
    }

    /// Reports a queue that cannot be opened by the error that `refusal` returns.
    pub(crate) fn refused_by(
        self,
        refusal: impl Fn(io::Error) -> OpenError + Send + Sync + 'static,
    ) -> Self {
        DriverDevice { refusal: Some(Box::new(refusal)), ..self }
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl<D: Driver> Device for DriverDevice<D> {
    fn limits(&self) -> QueueLimits {
        self.facts.limits
    }

    fn ends_at_once(&self) -> bool {
        self.way.get() == Some(&discriminant(&Wait::AtOnce))
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        self.driver.block_status(offset, extents)
    }

    fn failure(&self) -> Option<String> {
        self.driver.failure()
    }

    fn revived(&self) {
        if let Some(on_revive) = &self.on_revive {
            on_revive();
        }
    }

    fn reread_len(&self) -> io::Result<Option<u64>> {
        self.driver.size_bytes()
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let (queue, wait) = self.driver.open_queue(depth, mode)?;
        let way = discriminant(&wait);
        if *self.way.get_or_init(|| way) != way {
            return Err(io::Error::other("all queues of a driver must have the same Wait"));
        }
        let is_shared = mode == Mode::Shared;
        let beside = Arc::new(Beside::new(wait, is_shared)?);
        let makes_syscalls = queue.nr_syscalls().is_some();
        let counts_waits = !is_shared && matches!(&*beside, Beside::Descriptor(_));
        let adapted = Adapted {
            queue,
            beside: Arc::clone(&beside),
            is_shared,
            makes_syscalls: makes_syscalls || counts_waits,
            counts_waits,
        };
        Ok(DriverQueue { driver: Box::new(adapted), waiter: beside })
    }

    fn refusal(&self, source: io::Error) -> OpenError {
        match &self.refusal {
            Some(refusal) => refusal(source),
            None => OpenError::Driver { name: self.facts.name.clone(), source },
        }
    }
}

/// A queue in the form of the layer.
struct Adapted<Q> {
    queue: Q,
    beside: Arc<Beside>,
    is_shared: bool,
    makes_syscalls: bool,
    /// Counts the system calls of the owner's waits, which the layer makes. (A shared context's
    /// waiter counts its own, and the queue counts those of a blocking call.)
    counts_waits: bool,
}

impl<Q: Queue> forebay_core::Driver for Adapted<Q> {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Issue {
        match self.queue.queue_rq(rq, last) {
            Answer::Queued => Issue::Queued,
            Answer::Busy => Issue::Busy,
            Answer::Failed(status) => Issue::Failed(status),
        }
    }

    #[inline]
    fn commit_rqs(&mut self) {
        self.queue.commit_rqs();
    }

    #[inline]
    fn reap(&mut self, done: &mut Completions, how: Reap) {
        self.queue.reap(done, how);
    }

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        self.queue.commit_rqs();
        if !self.queue.has_ready() {
            self.beside.wait_as_owner(nr_completions, timeout);
        }
    }

    fn cancel(&mut self, tag: Tag) -> bool {
        self.queue.cancel(tag)
    }

    fn kick(&mut self) {
        // The owner of a context is the only thread that waits for it.
        if self.is_shared {
            self.beside.kick();
        }
    }

    #[inline]
    fn has_ready(&self) -> bool {
        self.queue.has_ready()
    }

    fn makes_syscalls(&self) -> bool {
        self.makes_syscalls
    }

    #[inline]
    fn nr_syscalls(&self) -> u64 {
        let nr = self.queue.nr_syscalls().unwrap_or(0);
        if self.counts_waits { nr + self.beside.nr_syscalls() } else { nr }
    }
}
