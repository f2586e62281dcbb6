//! Simulated cost of notifying a device of work: a doorbell write, or a system call.
//!
//! `null` and `ram` need neither. With `kick_ns` they keep the committing thread busy for that
//! time. So the benefit of batches can be measured without a device.

use super::take_ns;
use crate::error::SpecError;
use crate::keys::Keys;
use crate::runtime::clock;

/// The doorbell of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doorbell {
    kick_ns: u64,
    /// A request was queued since the last ring.
    due: bool,
}

impl Doorbell {
    /// Takes the key `kick_ns`.
    pub(super) fn take(keys: &mut Keys) -> Result<Doorbell, SpecError> {
        Ok(Doorbell { kick_ns: take_ns(keys, "kick_ns")?, due: false })
    }

    /// Records that a request was queued.
    #[inline]
    pub(super) fn queued(&mut self) {
        self.due = true;
    }

    /// Notifies the device if a request was queued.
    #[inline]
    pub(super) fn ring(&mut self) {
        if self.kick_ns > 0 {
            self.notify();
        }
    }

    #[cold]
    fn notify(&mut self) {
        if !std::mem::take(&mut self.due) {
            return;
        }
        let until = clock::now_ns() + self.kick_ns;
        while clock::now_ns() < until {
            std::hint::spin_loop();
        }
    }
}
