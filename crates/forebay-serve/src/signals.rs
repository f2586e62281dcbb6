//! Signals, as something that an event loop can wait for.
//!
//! A handler may do next to nothing, so it writes a byte to a socket, whose other end is polled.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGPIPE, SIGTERM};

/// Whether somebody asked the process to end. Its descriptor is readable from then on.
///
/// The second signal ends the process at once, by the signal's own way.
#[derive(Debug)]
pub struct StopSignal {
    pipe: UnixStream,
    asked: Arc<AtomicBool>,
}

impl StopSignal {
    /// Takes SIGTERM and SIGINT over from the default, which ends the process, and lets SIGPIPE do
    /// nothing: a write to a peer that is gone fails, and that is enough.
    ///
    /// # Errors
    /// If the kernel refuses a handler or a socket.
    pub fn install() -> io::Result<StopSignal> {
        let (pipe, handlers_end) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // They run in this order: so the first signal finds the flag down, and raises it.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
            signal_hook::low_level::pipe::register(signal, handlers_end.try_clone()?)?;
        }
        // Any handler keeps the signal from ending the process.
        signal_hook::flag::register(SIGPIPE, Arc::new(AtomicBool::new(false)))?;
        Ok(StopSignal { pipe, asked })
    }

    /// Whether a signal came.
    pub fn is_set(&self) -> bool {
        // Nothing else is told by it.
        self.asked.load(Ordering::Relaxed)
    }

    /// Takes the signals off the descriptor, so that it is not readable any more.
    pub fn clear(&self) {
        let mut bytes = [0; 16];
        while (&self.pipe).read(&mut bytes).is_ok_and(|len| len > 0) {}
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
