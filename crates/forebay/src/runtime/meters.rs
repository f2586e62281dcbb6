//! Counters of a disk, which are readable without a handle of it.
//!
//! A reader that held a handle for a moment could be the last one, and would then close the disk,
//! later than its user expects. So the counters are apart from the disk: they are memory, and hold
//! no file, ring or thread of it.

use crate::info::{DiskInfo, DiskStats};
use crate::runtime::hctx::{Hctx, SHARED};
use crate::runtime::owners::OwnerList;
use crate::runtime::size::Size;
use crate::sys::primitive::{Mutex, lock};
use forebay_core::{DeviceState, Owner, PlugCounters, QueueStats, Scheduling};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The counters of a disk, and its state for reports.
pub(crate) struct Meters {
    info: DiskInfo,
    state: Arc<DeviceState>,
    hctxs: Arc<[Hctx]>,
    owners: Arc<OwnerList>,
    plugs: Mutex<Plugs>,
    size: Size,
    /// The present scheduler. Changed by the holder of the token, with the scheduler itself.
    scheduling: Mutex<Scheduling>,
    is_closed: AtomicBool,
    /// 0 until the disk is listed.
    number: AtomicU64,
}

/// The counters of the threads' software queues.
#[derive(Default)]
struct Plugs {
    live: Vec<Arc<PlugCounters>>,
    /// The sum over threads that have ended.
    retired: PlugCounters,
}

impl Meters {
    /// Creates the counters of a disk that is being opened.
    pub(super) fn new(
        info: &DiskInfo,
        state: &Arc<DeviceState>,
        hctxs: &Arc<[Hctx]>,
        owners: &Arc<OwnerList>,
    ) -> Meters {
        Meters {
            info: info.clone(),
            state: Arc::clone(state),
            hctxs: Arc::clone(hctxs),
            owners: Arc::clone(owners),
            plugs: Mutex::default(),
            size: Size::new(info.limits.capacity_bytes),
            scheduling: Mutex::new(info.policy.scheduling()),
            is_closed: AtomicBool::new(false),
            number: AtomicU64::new(0),
        }
    }

    /// Returns the properties of the disk.
    pub(crate) fn info(&self) -> &DiskInfo {
        &self.info
    }

    /// Returns the number of the disk in this process.
    pub(crate) fn number(&self) -> u64 {
        // Relaxed: the disk is listed before any handle of it exists.
        self.number.load(Ordering::Relaxed)
    }

    /// Sets the number of the disk.
    pub(crate) fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Returns the size up to which the disk accepts I/O.
    pub(crate) fn size(&self) -> &Size {
        &self.size
    }

    /// Returns the present scheduler, with its settings.
    pub(crate) fn scheduling(&self) -> Scheduling {
        *lock(&self.scheduling)
    }

    /// Records a change of the scheduler.
    pub(super) fn set_scheduling(&self, scheduling: Scheduling) {
        *lock(&self.scheduling) = scheduling;
    }

    /// Returns whether the device is gone.
    pub(crate) fn is_failed(&self) -> bool {
        self.state.is_failed()
    }

    /// Returns whether the disk is closed, or about to be.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: nothing else depends on it.
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Records that the disk is closed.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Returns all owners, by number.
    pub(crate) fn owners(&self) -> Vec<Arc<Owner>> {
        self.owners.lock().iter().cloned().collect()
    }

    /// Adds the counters of a thread that begins to use the disk.
    pub(super) fn add_thread(&self) -> Arc<PlugCounters> {
        let counters = Arc::default();
        lock(&self.plugs).live.push(Arc::clone(&counters));
        counters
    }

    /// Keeps the counts of a thread that ends.
    pub(super) fn retire_thread(&self, counters: &Arc<PlugCounters>) {
        let mut plugs = lock(&self.plugs);
        plugs.live.retain(|live| !Arc::ptr_eq(live, counters));
        plugs.retired.take_over(counters);
    }

    /// Returns all counters. Those that a worker of emulated behaviour keeps are 0.
    pub(crate) fn stats(&self) -> DiskStats {
        let mut queue = QueueStats::default();
        let plugs = lock(&self.plugs);
        plugs.live.iter().for_each(|counters| queue.add_plugs(counters));
        queue.add_plugs(&plugs.retired);
        drop(plugs);
        let mut nr_syscalls = self.hctxs[SHARED].nr_waits();
        let (mut skipped_runs, mut tag_rescues, mut in_flight) = (0, 0, 0);
        for hctx in self.hctxs.iter() {
            queue.add_runs(&hctx.counters);
            nr_syscalls += hctx.nr_syscalls();
            skipped_runs += hctx.run.nr_skipped();
            queue.emulation.add("tag_sleeps", hctx.nr_tag_sleeps());
            tag_rescues += hctx.nr_tag_rescues();
            in_flight += u64::from(hctx.nr_in_flight());
        }
        DiskStats { queue, nr_syscalls, skipped_runs, tag_rescues, in_flight }
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("spec", &self.info.spec).finish_non_exhaustive()
    }
}
