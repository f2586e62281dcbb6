//! Signals, as something that an event loop can wait for.
//!
//! A handler may do next to nothing, so it writes a byte to a socket, whose other end is polled.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGPIPE, SIGTERM};

/// How long after the first signal another one is the same: some programs that pass signals on send
/// each twice, and a terminal sends one to everybody.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Whether somebody asked the process to end. Its descriptor is readable from then on.
///
/// Until that descriptor is asked for the first time nobody could see a signal: so it still ends
/// the process at once. So does another signal, later than a second after the first.
#[derive(Debug)]
pub struct StopSignal {
    pipe: UnixStream,
    asked: Arc<AtomicBool>,
    /// Whether a signal ends the process. What the handlers read has no other word beside it that
    /// it would have to be in order with, so all accesses are relaxed.
    deadly: Arc<AtomicBool>,
    watched: Once,
    seen: Once,
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
        let deadly = Arc::new(AtomicBool::new(true));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&deadly))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
            signal_hook::low_level::pipe::register(signal, handlers_end.try_clone()?)?;
        }
        // Any handler keeps the signal from ending the process.
        signal_hook::flag::register(SIGPIPE, Arc::new(AtomicBool::new(false)))?;
        Ok(StopSignal { pipe, asked, deadly, watched: Once::new(), seen: Once::new() })
    }

    /// Whether a signal came. A second after this has said so for the first time, the next signal
    /// ends the process.
    pub fn is_set(&self) -> bool {
        let is_set = self.asked.load(Ordering::Relaxed);
        if is_set {
            self.seen.call_once(|| arm(Arc::clone(&self.deadly)));
        }
        is_set
    }

    /// Takes the signals off the descriptor, so that it is not readable any more.
    pub fn clear(&self) {
        let mut bytes = [0; 16];
        while (&self.pipe).read(&mut bytes).is_ok_and(|len| len > 0) {}
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.call_once(|| self.deadly.store(false, Ordering::Relaxed));
        self.pipe.as_fd()
    }
}

/// Has the next signal end the process, a little later.
fn arm(deadly: Arc<AtomicBool>) {
    let now = Arc::clone(&deadly);
    let thread = std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        std::thread::sleep(SAME_SIGNAL);
        deadly.store(true, Ordering::Relaxed);
    });
    if thread.is_err() {
        // Better too early than never.
        now.store(true, Ordering::Relaxed);
    }
}
