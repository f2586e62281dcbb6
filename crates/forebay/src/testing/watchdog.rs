//! Time limit of a check.

use super::Check;
use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// A running check. The watchdog ends when this is dropped.
pub(super) struct Watchdog(#[expect(dead_code, reason = "its drop is the signal")] Sender<()>);

impl Watchdog {
    /// Starts a thread that ends the process if the check takes longer than `limit`.
    pub(super) fn start(check: Check, limit: Duration) -> Watchdog {
        let (sender, ended) = channel();
        thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let _ = writeln!(
                    io::stderr(),
                    "forebay: contract: {} has not ended within {limit:?}: a request has not \
                     completed, or a wait has not ended ({})",
                    check.name,
                    check.rules
                );
                std::process::abort();
            }
        });
        Watchdog(sender)
    }
}
