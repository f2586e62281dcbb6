//! Simulated cost of notifying a device of work: a doorbell write, or a system call.
//!
//! `null` and `ram` need neither. With `kick_ns` they keep the committing thread busy for that
//! time. So the benefit of batches can be measured without a device.

use super::take_ns;
use crate::error::SpecError;
use crate::keys::Keys;
use crate::sys::clock;

/// The cost of the kicks of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct KickCost {
    kick_ns: u64,
    /// Whether a request was queued since the last kick.
    due: bool,
}

impl KickCost {
    /// Takes the key `kick_ns`.
    pub(super) fn take(keys: &mut Keys) -> Result<KickCost, SpecError> {
        Ok(KickCost { kick_ns: take_ns(keys, "kick_ns")?, due: false })
    }

    /// Records that a request was queued.
    #[inline]
    pub(super) fn queued(&mut self) {
        self.due = true;
    }

    /// Keeps the thread busy for the cost of a kick if a request was queued.
    #[inline]
    pub(super) fn pay(&mut self) {
        if self.kick_ns > 0 {
            self.spin();
        }
    }

    #[cold]
    fn spin(&mut self) {
        if !std::mem::take(&mut self.due) {
            return;
        }
        let until = clock::now_ns() + self.kick_ns;
        while clock::now_ns() < until {
            std::hint::spin_loop();
        }
    }
}
