//! Quarantine of buffers whose I/O has ended while the driver may still use them (H5 of the core).
//!
//! The owner of a bio puts its buffer into the bio's hold, and the core keeps a second handle of
//! the hold until the driver completes the request. Dropping the last handle frees the buffer.
//!
//! [`leak`](super::leak) has what closing the disk does then.

use crate::buf::Buf;
use forebay_core::MemoryHold;
use std::mem::forget;
use std::sync::{Arc, Mutex, PoisonError};

/// The place for one buffer.
#[derive(Debug)]
struct Kept(Mutex<Option<Buf>>);

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
