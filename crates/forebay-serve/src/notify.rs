//! What a service manager is told: that the server is ready, what it does, that it still lives.
//!
//! Without a manager (`NOTIFY_SOCKET` is not set) nothing happens. A manager that does not listen
//! is no reason to fail.

use std::time::Duration;

use sd_notify::NotifyState;

/// The server answers: sockets listen, exports are open.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The server takes no connections any more, and ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// One line for people, as `systemctl status` shows it.
pub fn status(line: &str) {
    tell(&[NotifyState::Status(line)]);
}

/// The server still makes progress. To be sent from the event loop, so that it proves that.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// How often [`alive`] is to be sent: half of what the manager waits. `None` if it does not watch.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|interval| !interval.is_zero())
}

fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
