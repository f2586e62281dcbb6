//! Messages to the service manager: ready, alive, reloading, stopping.
//!
//! Without a service manager (`NOTIFY_SOCKET` is not set) nothing is sent. If the service manager
//! does not listen, the error is ignored.

use std::time::Duration;

use forebay_serve::Observer;
use sd_notify::NotifyState;

use super::fork::Background;
use super::signals::StopSignals;

/// Reports the state of the server to the service manager.
#[derive(Debug)]
pub(super) struct Manager<'a> {
    pub(super) nr_exports: usize,
    pub(super) signals: &'a StopSignals,
    /// The process, if it is in the background and its parent waits.
    pub(super) background: Option<Background>,
}

impl Observer for Manager<'_> {
    /// Returns half of the watchdog interval. `None`: there is no watchdog.
    fn interval(&self) -> Option<Duration> {
        sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|half| !half.is_zero())
    }

    fn ready(&mut self) {
        let status = format!("{} exports", self.nr_exports);
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
        if let Some(background) = self.background.take() {
            background.ready();
        }
    }

    fn alive(&mut self) {
        notify(&[NotifyState::Watchdog]);
    }

    fn stopping(&mut self) {
        self.signals.arm();
        notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
    }
}

/// Reports that a reload has begun. [`reloaded`] must follow.
pub(super) fn reloading() {
    // The service manager ignores a reload without the time, so none is reported without it.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// Reports that a reload is over, whatever its outcome: the server serves.
pub(super) fn reloaded() {
    notify(&[NotifyState::Ready]);
}

fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
