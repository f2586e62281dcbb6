//! What a service manager is told: that the server is ready, that it still lives, that it ends.
//!
//! Without a manager (`NOTIFY_SOCKET` is not set) nothing happens. A manager that does not listen
//! is no reason to fail.

use std::time::Duration;

use forebay_serve::Observer;
use sd_notify::NotifyState;

use super::signals::StopSignal;

/// Passes on what a server says of itself.
#[derive(Debug)]
pub(super) struct Manager<'a> {
    pub(super) nr_exports: usize,
    pub(super) signal: &'a StopSignal,
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
        self.signal.arm();
        tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
