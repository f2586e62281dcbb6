//! The trace of a disk, as its threads and hardware contexts see it.
//!
//! A trace that starts marks each context, whose next turn then takes a ring. A thread takes one
//! when it next queues a bio: it looks for a trace only while any disk of the process has one, so
//! that untraced processes test only one static. A trace that ends closes its rings, and their
//! writers drop them at the next record.
//!
//! A tracer of the system may observe all disks through [`probes`], with or without a trace. It
//! switches them on by writing to that static, so no function runs then. The thread that next
//! queues a bio finds it, and marks the contexts of its disk. Writers drop their probe at the first
//! record after the tracer has gone.
//!
//! The flags order nothing: the rings are under a lock, and a thread that sees a flag late only
//! begins to record later. So models need not see them.

mod probes;
pub(crate) mod rings;
mod switch;

pub(crate) use switch::is_any;

use forebay_core::TraceWriter;
use probes::DiskProbe;
use rings::DiskRings;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The trace of a disk.
pub(crate) struct DiskTrace {
    is_on: AtomicBool,
    rings: Mutex<Option<Arc<DiskRings>>>,
    /// `None`: the build has no probes.
    probe: Option<Arc<DiskProbe>>,
}

impl DiskTrace {
    /// Creates the trace of a disk with this spec, which is off.
    pub(super) fn new(spec: &str) -> DiskTrace {
        let probe = DiskProbe::new(spec).map(Arc::new);
        DiskTrace { is_on: AtomicBool::new(false), rings: Mutex::default(), probe }
    }

    /// Begins to record. Returns false if the disk is traced already.
    pub(super) fn begin(&self, rings: Arc<DiskRings>) -> bool {
        let mut place = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_some() {
            return false;
        }
        *place = Some(rings);
        self.is_on.store(true, Ordering::Relaxed);
        switch::add_disk();
        true
    }

    /// Ends the recording to these rings. Does nothing if there is none.
    pub(super) fn end(&self, rings: &Arc<DiskRings>) {
        let mut place = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|present| Arc::ptr_eq(present, rings)) {
            *place = None;
            self.is_on.store(false, Ordering::Relaxed);
            switch::remove_disk();
        }
    }

    /// Ends the recording because the disk was closed. The recorder then closes its files.
    pub(super) fn close(&self) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(rings) = rings {
            self.is_on.store(false, Ordering::Relaxed);
            switch::remove_disk();
            rings.close_disk();
        }
    }

    /// Returns whether the disk is traced.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Creates the writer of the hardware context `at`, if the disk is traced or probed.
    pub(super) fn context_writer(&self, at: usize) -> Option<TraceWriter> {
        self.writer(|rings| rings.add_context(at))
    }

    /// Creates the writer of the calling thread, if the disk is traced or probed.
    pub(super) fn thread_writer(&self) -> Option<TraceWriter> {
        self.writer(DiskRings::add_thread)
    }

    fn writer(&self, of_rings: impl FnOnce(&DiskRings) -> TraceWriter) -> Option<TraceWriter> {
        let probe = || self.probe.clone().map(|probe| probe as Arc<_>);
        match self.rings() {
            Some(rings) => Some(of_rings(&rings).with_probe(probe())),
            None if switch::PROBES.is_on() => probe().map(TraceWriter::for_probe),
            None => None,
        }
    }

    /// Returns the number of the present period in which a tracer observes the probes, unless the
    /// disk is traced. Contexts may lack a writer in a period that is new.
    pub(super) fn probed_period(&self) -> Option<u32> {
        (switch::PROBES.is_on() && !self.is_on()).then(probes::period)
    }

    fn rings(&self) -> Option<Arc<DiskRings>> {
        if !self.is_on() {
            return None;
        }
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rings.filter(|rings| !rings.is_closed())
    }
}

impl fmt::Debug for DiskTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskTrace").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}
