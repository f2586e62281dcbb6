//! Signals, as descriptors for an event loop or a thread.
//!
//! A signal handler may do very little, so it writes a byte to a socket. The other end of the
//! socket is polled or read.
//!
//! SIGTERM and SIGINT end the server. So does SIGHUP if the process has a controlling terminal,
//! since SIGHUP then means that the terminal was closed. A process without a terminal, such as a
//! service, gets SIGHUP only from an operator or a service manager: it reloads. Under `nohup` it
//! reloads as well.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A second signal within this time counts as the same one: some programs that forward signals send
/// each twice, and a terminal sends SIGINT to all of its foreground processes.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// SIGHUP, if it requests a reload.
#[derive(Debug)]
pub(super) struct Reloads {
    /// Receives a byte for each SIGHUP. `None`: SIGHUP ends the server.
    signals: Option<UnixStream>,
}

impl Reloads {
    /// Installs the handler if SIGHUP requests a reload. Call it before anything is opened, which
    /// may take long: from here on, SIGHUP does not kill the process.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a handler or a socket.
    pub(super) fn install() -> io::Result<Reloads> {
        if has_terminal() && !is_ignored(SIGHUP) {
            return Ok(Reloads { signals: None });
        }
        let (signals, handlers_end) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGHUP, handlers_end)?;
        Ok(Reloads { signals: Some(signals) })
    }

    /// Starts a thread that calls `reload` for each SIGHUP, including those that have arrived
    /// before. Several pending signals cause one call.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(super) fn start(self, mut reload: impl FnMut() + Send + 'static) -> io::Result<()> {
        let Some(mut signals) = self.signals else { return Ok(()) };
        let body = move || {
            // The handler keeps its end of the socket as long as the process lives.
            while signals.read(&mut [0; 64]).is_ok_and(|len| len > 0) {
                reload();
            }
        };
        std::thread::Builder::new().name("reload".to_owned()).spawn(body).map(drop)
    }
}

/// Signals that end the server. The descriptor is readable when one has arrived.
///
/// From one second after the server has begun to end, such a signal kills the process.
#[derive(Debug)]
pub(super) struct StopSignals {
    stop: UnixStream,
    handlers_end: UnixStream,
    /// Whether a signal kills the process. The handlers read nothing else, so all accesses are
    /// relaxed.
    deadly: Arc<AtomicBool>,
}

impl StopSignals {
    /// Installs handlers for SIGTERM and SIGINT, and for SIGHUP if that requests no reload. From
    /// here on, the caller must wait for the descriptor. (The runtime of Rust ignores SIGPIPE: a
    /// write to a closed socket returns an error.)
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a handler or a socket.
    pub(super) fn install(reloads: &Reloads) -> io::Result<StopSignals> {
        let (stop, handlers_end) = UnixStream::pair()?;
        let deadly = Arc::new(AtomicBool::new(false));
        let hangup = reloads.signals.is_none().then_some(SIGHUP);
        for signal in [SIGTERM, SIGINT].into_iter().chain(hangup) {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&deadly))?;
            signal_hook::low_level::pipe::register(signal, handlers_end.try_clone()?)?;
        }
        Ok(StopSignals { stop, handlers_end, deadly })
    }

    /// Returns a socket that ends the server when a byte is sent there, as a signal does.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptor left.
    pub(super) fn sender(&self) -> io::Result<UnixStream> {
        self.handlers_end.try_clone()
    }

    /// Records that the server has begun to end. One second later, the next signal kills the
    /// process.
    pub(super) fn arm(&self) {
        let deadly = Arc::clone(&self.deadly);
        let thread = std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
            std::thread::sleep(SAME_SIGNAL);
            deadly.store(true, Ordering::Relaxed);
        });
        if thread.is_err() {
            // No thread could be started: every further signal kills the process at once.
            self.deadly.store(true, Ordering::Relaxed);
        }
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }
}

/// Returns whether the process has a controlling terminal. Call this before SIGHUP arrives: the
/// kernel takes the terminal away before it sends the signal.
fn has_terminal() -> bool {
    fs::File::open("/dev/tty").is_ok()
}

/// Returns whether the process was started with this signal ignored, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores(&status, signal))
}

/// Returns the same for a content of `/proc/self/status`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask_of_the_process() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(ignores(status, SIGHUP));
        assert!(!ignores(status, SIGTERM));
        assert!(!ignores("SigIgn:\t0000000000001000\n", SIGHUP));
        assert!(!ignores("", SIGHUP));
    }
}
