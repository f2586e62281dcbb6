//! Quarantine of buffers whose I/O has ended while the driver may still use them (H5 of the core).
//!
//! The owner of a bio puts its buffer into the bio's hold, and the core keeps a second handle of
//! the hold until the driver completes the request. Dropping the last handle frees the buffer.
//!
//! # Closing
//! A disk may be closed while its driver has such requests, and they may never complete. Then the
//! whole hardware context is leaked: the driver with its ring, threads and descriptors, the device,
//! and the buffers. Closing the driver first would not make it safe to free them, and could block:
//!
//! - io_uring: closing the ring only asks the kernel to cancel. Direct I/O that is at the device
//!   continues after the `close` and uses the same pages. If their addresses were free, the
//!   allocator would reuse them, and a late read would overwrite other data.
//! - aio: `io_destroy` waits for each request. psync: a thread inside `pread` cannot be ended, and
//!   the call writes to the buffer whenever it returns.
//! - nbd: a silent peer may still send the bytes of a read.
//!
//! If one of the requests may still change the device, the claim of the file is leaked as well. A
//! disk that this process opens on the file later then shares its place, and with it the ranges
//! where I/O must not be issued yet (H6). Other programs stay excluded.

use crate::buf::Buf;
use crate::claim::Claim;
use crate::driver::Device;
use crate::runtime::hctx::{Inner, run_disks};
use forebay_core::MemoryHold;
use std::mem::forget;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The place for one buffer.
#[derive(Debug)]
struct Kept(Mutex<Option<Buf>>);

/// The number of buffers that were leaked.
static NR_LEAKED: AtomicU64 = AtomicU64::new(0);

/// Creates an empty place.
pub(crate) fn new_hold() -> MemoryHold {
    Arc::new(Kept(Mutex::new(None)))
}

/// Moves the buffer of a bio that has ended early into its hold, until the driver is done with it.
#[cold]
pub(crate) fn keep(hold: &MemoryHold, buf: Option<Buf>) {
    let Some(kept) = hold.downcast_ref::<Kept>() else {
        // The driver may still use the buffer, so it must not be freed.
        return forget(buf);
    };
    *kept.0.lock().unwrap_or_else(PoisonError::into_inner) = buf;
}

/// Leaks a hardware context whose driver still has requests, all of which were given up.
#[cold]
pub(crate) fn leak(inner: Inner, device: &Arc<dyn Device>, claim: &Claim) {
    assert!(inner.core.has_only_given_up(), "only requests that were given up are left");
    // Relaxed: a count.
    NR_LEAKED.fetch_add(inner.core.nr_quarantined() as u64, Ordering::Relaxed);
    if inner.core.may_change_late() {
        forget(claim.clone());
    }
    forget(Arc::clone(device));
    let Inner { mut core, driver, waiter, pool, .. } = inner;
    let woken = pool.map(|pool| {
        // The leaked driver has a table of its own, so other disks may use the numbers again. The
        // holds of the buffers stay with the leaked part.
        let nr_put = core.put_given_up_tags();
        pool.leave(nr_put)
    });
    forget((core, driver, waiter));
    woken.into_iter().for_each(run_disks);
}

/// Returns how many buffers this process has leaked because a disk was closed while its driver
/// could still use them: their I/O had ended with [`Timeout`](crate::BlockStatus::Timeout).
pub fn leaked_bufs() -> u64 {
    NR_LEAKED.load(Ordering::Relaxed)
}

#[cfg(all(test, not(blk_loom), not(blk_shuttle)))]
mod tests {
    use super::*;

    /// Returns whether the buffer is in the place.
    fn has_buf(hold: &MemoryHold) -> bool {
        let kept = hold.downcast_ref::<Kept>().expect("a place of this library");
        kept.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    #[test]
    fn buffer_is_freed_with_the_last_handle_on_either_side() {
        for is_driver_last in [true, false] {
            let of_driver = new_hold();
            let of_owner = Arc::clone(&of_driver);
            let (first, last) = match is_driver_last {
                true => (of_owner, of_driver),
                false => (of_driver, of_owner),
            };
            if is_driver_last {
                keep(&first, Some(Buf::new(4096)));
            }
            drop(first);
            if !is_driver_last {
                keep(&last, Some(Buf::new(4096)));
            }
            assert!(has_buf(&last));
            // Miri reports a leak, or a second free.
            drop(last);
        }
    }
}
