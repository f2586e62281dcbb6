//! Leaks of what a driver may still use when its disk is closed (H5 of the core).
//!
//! A disk may be closed while its driver has such requests, and they may never complete. Then the
//! whole hardware context is leaked: the driver with its ring, threads and descriptors, the device,
//! and the buffers. To close the driver first would free nothing safely, and may block:
//!
//! - io_uring: closing the ring only asks the kernel to cancel. Direct I/O that the device has
//!   continues after the `close`, into the same pages. If their addresses were free, the allocator
//!   would use them again, and a late read would overwrite other data.
//! - aio: `io_destroy` waits for each request. psync: a thread that is in `pread` does not end, and
//!   the call writes to the buffer whenever it returns.
//! - nbd: a peer that is silent may still send the bytes of a read.
//!
//! If one of the requests may still change the device, the claim of the file is leaked as well. A
//! disk that is opened on it later in this process shares the place, and with it the ranges that
//! must not be written yet (H6). Other programs stay excluded.

use crate::claim::Claim;
use crate::driver::Device;
use crate::runtime::hctx::{Inner, run_disks};
use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of buffers that were leaked.
static NR_LEAKED: AtomicU64 = AtomicU64::new(0);

/// Leaks a hardware context whose driver still has requests, all of which were given up.
#[cold]
pub(crate) fn leak(inner: Inner, device: &Arc<dyn Device>, claim: &Claim) {
    assert!(inner.core.has_only_given_up(), "no other memory is in use");
    // Relaxed: a count.
    NR_LEAKED.fetch_add(inner.core.nr_quarantined() as u64, Ordering::Relaxed);
    if inner.core.may_change_late() {
        forget(claim.clone());
    }
    forget(Arc::clone(device));
    let Inner { mut core, driver, waiter, pool, .. } = inner;
    // The leaked driver has a table of its own, so other disks may use the numbers again. The holds
    // of the buffers stay with the leaked part.
    let woken = pool.map(|pool| pool.leave(|| core.put_given_up_tags()));
    forget((core, driver, waiter));
    woken.into_iter().for_each(run_disks);
}

/// Returns how many buffers this process has leaked because a disk was closed while its driver
/// could still use them: their I/O had ended with [`Timeout`](crate::BlockStatus::Timeout).
pub fn leaked_bufs() -> u64 {
    NR_LEAKED.load(Ordering::Relaxed)
}
