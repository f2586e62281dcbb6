//! Signals, as something that an event loop can wait for.
//!
//! A handler may do next to nothing, so it writes a byte to a socket, whose other end is polled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

/// How long after the first signal another one is the same: some programs that pass signals on send
/// each twice, and a terminal sends one to everybody.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Whether somebody asked the process to end. Its descriptor is readable from then on.
///
/// A signal ends the process at once when what was asked for has begun, and a second has passed.
#[derive(Debug)]
pub(super) struct StopSignal {
    pipe: UnixStream,
    /// Whether a signal ends the process. What the handlers read has no other word beside it that
    /// it would have to be in order with, so all accesses are relaxed.
    deadly: Arc<AtomicBool>,
}

impl StopSignal {
    /// Takes SIGTERM and SIGINT over from the default, which ends the process: from here on there
    /// must be somebody who waits for the descriptor. (Rust's runtime has seen to SIGPIPE: a write
    /// to a peer that is gone fails, and that is enough.)
    ///
    /// # Errors
    /// If the kernel refuses a handler or a socket.
    pub(super) fn install() -> io::Result<StopSignal> {
        let (pipe, handlers_end) = UnixStream::pair()?;
        let deadly = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&deadly))?;
            signal_hook::low_level::pipe::register(signal, handlers_end.try_clone()?)?;
        }
        Ok(StopSignal { pipe, deadly })
    }

    /// What was asked for has begun. A second later the next signal ends the process.
    pub(super) fn arm(&self) {
        let deadly = Arc::clone(&self.deadly);
        let thread = std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
            std::thread::sleep(SAME_SIGNAL);
            deadly.store(true, Ordering::Relaxed);
        });
        if thread.is_err() {
            // Better too early than never.
            self.deadly.store(true, Ordering::Relaxed);
        }
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
