//! What it costs to tell a device that there is work: a write to its doorbell, or a system call.
//!
//! `null` and `ram` need neither. With `kick_ns` they keep whoever commits busy for as long, so
//! that what batches are worth can be seen without a device.

use super::take_ns;
use crate::error::SpecError;
use crate::keys::Keys;
use crate::runtime::clock;

/// The doorbell of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doorbell {
    kick_ns: u64,
    /// Something was queued since it rang last.
    due: bool,
}

impl Doorbell {
    /// Takes the key `kick_ns`.
    pub(super) fn take(keys: &mut Keys) -> Result<Doorbell, SpecError> {
        Ok(Doorbell { kick_ns: take_ns(keys, "kick_ns")?, due: false })
    }

    /// Something was queued.
    #[inline]
    pub(super) fn queued(&mut self) {
        self.due = true;
    }

    /// Tells the device, if something was queued.
    #[inline]
    pub(super) fn ring(&mut self) {
        if std::mem::take(&mut self.due) && self.kick_ns > 0 {
            let until = clock::now_ns() + self.kick_ns;
            while clock::now_ns() < until {
                std::hint::spin_loop();
            }
        }
    }
}
