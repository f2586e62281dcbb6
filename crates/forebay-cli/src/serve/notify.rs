//! Messages to the service manager: ready, alive, reloading, stopping.
//!
//! Without a manager (`NOTIFY_SOCKET` is not set) nothing is sent. A manager that does not listen
//! is no reason to fail.

use std::time::Duration;

use forebay_serve::Observer;
use sd_notify::NotifyState;

use super::signals::StopSignals;

/// Passes on what a server says of itself.
#[derive(Debug)]
pub(super) struct Manager<'a> {
    pub(super) nr_exports: usize,
    pub(super) signals: &'a StopSignals,
}

impl Observer for Manager<'_> {
    /// Half of what the manager waits. `None` if it does not watch.
    fn interval(&self) -> Option<Duration> {
        sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|half| !half.is_zero())
    }

    fn ready(&mut self) {
        let status = format!("{} exports", self.nr_exports);
        tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    fn alive(&mut self) {
        tell(&[NotifyState::Watchdog]);
    }

    fn stopping(&mut self) {
        self.signals.arm();
        tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
    }
}

/// Reports that a reload has begun. [`reloaded`] must follow.
pub(super) fn reloading() {
    // The manager takes a reload without the time for a mistake, so none is reported without it.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
}

/// Reports that a reload is over, whatever its outcome: the server serves.
pub(super) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
