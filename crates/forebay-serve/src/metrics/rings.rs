//! Counters of the request queues of devices for virtual machines.

use super::counter::Counter;
use super::traffic::Traffic;

/// Counters of one ring. Only its thread writes them.
#[derive(Debug)]
pub(crate) struct RingCounters {
    pub(super) export: usize,
    pub(super) number: usize,
    traffic: Traffic,
    kicks: Counter,
    notifications: Counter,
    suppressed: Counter,
    bounced: Counter,
    bounced_bytes: Counter,
    registered: Counter,
}

impl RingCounters {
    pub(super) fn new(export: usize, number: usize) -> RingCounters {
        RingCounters {
            export,
            number,
            traffic: Traffic::default(),
            kicks: Counter::default(),
            notifications: Counter::default(),
            suppressed: Counter::default(),
            bounced: Counter::default(),
            bounced_bytes: Counter::default(),
            registered: Counter::default(),
        }
    }

    /// Returns the counters of its requests.
    #[inline]
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Counts a notification of the driver.
    #[inline]
    pub(crate) fn kicked(&self) {
        self.kicks.add(1);
    }

    /// Counts a notification that was sent to the driver.
    #[inline]
    pub(crate) fn notified(&self) {
        self.notifications.add(1);
    }

    /// Counts a round with used entries for which the driver wants no notification.
    #[inline]
    pub(crate) fn suppressed(&self) {
        self.suppressed.add(1);
    }

    /// Counts a request whose data are copied, because the disk does not accept their memory.
    pub(crate) fn bounced(&self, bytes: u64) {
        self.bounced.add(1);
        self.bounced_bytes.add(bytes);
    }

    /// Records how many requests to the disk have used registered memory.
    #[inline]
    pub(crate) fn set_registered(&self, nr: u64) {
        self.registered.set(nr);
    }

    /// Returns the current values.
    pub(super) fn events(&self) -> RingEvents {
        RingEvents {
            kicks: self.kicks.get(),
            notifications: self.notifications.get(),
            suppressed: self.suppressed.get(),
            bounced: self.bounced.get(),
            bounced_bytes: self.bounced_bytes.get(),
            registered: self.registered.get(),
        }
    }
}

/// Notifications and copies of a ring, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingEvents {
    pub(super) kicks: u64,
    pub(super) notifications: u64,
    pub(super) suppressed: u64,
    pub(super) bounced: u64,
    pub(super) bounced_bytes: u64,
    pub(super) registered: u64,
}
