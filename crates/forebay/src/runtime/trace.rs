//! The trace of a disk, as its threads and hardware contexts see it.
//!
//! A trace that starts marks each context, whose next turn then takes a ring. A thread takes one
//! when it next queues a bio: it looks for a trace only while any disk of the process has one, so
//! that untraced processes test only one static. A trace that ends closes its rings, and their
//! writers drop them at the next record.
//!
//! The flags order nothing: the rings are under a lock, and a thread that sees a flag late only
//! begins to record later. So models need not see them.

pub(crate) mod rings;

use forebay_core::TraceWriter;
use rings::DiskRings;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of disks of this process that are traced.
static NR_TRACED: AtomicU32 = AtomicU32::new(0);

/// Returns whether any disk of this process is traced.
#[inline(always)]
pub(crate) fn is_any() -> bool {
    NR_TRACED.load(Ordering::Relaxed) != 0
}

/// The trace of a disk.
#[derive(Default)]
pub(crate) struct DiskTrace {
    is_on: AtomicBool,
    rings: Mutex<Option<Arc<DiskRings>>>,
}

impl DiskTrace {
    /// Begins to record. Returns false if the disk is traced already.
    pub(super) fn begin(&self, rings: Arc<DiskRings>) -> bool {
        let mut place = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_some() {
            return false;
        }
        *place = Some(rings);
        self.is_on.store(true, Ordering::Relaxed);
        NR_TRACED.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Ends the recording to these rings. Does nothing if there is none.
    pub(super) fn end(&self, rings: &Arc<DiskRings>) {
        let mut place = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|present| Arc::ptr_eq(present, rings)) {
            *place = None;
            self.is_on.store(false, Ordering::Relaxed);
            NR_TRACED.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether the disk is traced.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Creates a ring for the hardware context `at`, if the disk is traced.
    pub(super) fn context_writer(&self, at: usize) -> Option<TraceWriter> {
        self.rings().map(|rings| rings.add_context(at))
    }

    /// Creates a ring for the calling thread, if the disk is traced.
    pub(super) fn thread_writer(&self) -> Option<TraceWriter> {
        self.rings().map(|rings| rings.add_thread())
    }

    fn rings(&self) -> Option<Arc<DiskRings>> {
        if !self.is_on() {
            return None;
        }
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rings.filter(|rings| !rings.is_closed())
    }
}

impl Drop for DiskTrace {
    fn drop(&mut self) {
        // The disk was closed before its trace was ended.
        if self.is_on() {
            NR_TRACED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for DiskTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskTrace").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}
