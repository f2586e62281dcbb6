//! Traces of a running server: to a directory that was named at its start, or to a client of the
//! control socket.
//!
//! There is one trace at a time, of all exports: also of those that are added while it runs. It
//! ends by a request, at the end of the server, or by itself: its receiver hangs up, or a file
//! cannot be written. A thread waits for that end, and logs it. I/O goes on in any case.
//!
//! The directory holds one directory for each trace, with a number as its name. So a trace that is
//! switched on again, or by a server that was restarted, replaces none.

use crate::export::Export;
use crate::log::Log;
use forebay::{Trace, TraceStats, now_ns};
use rustix::fs::{Access, access};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The error of a request for the directory of a server without one.
const NO_DIRECTORY: &str = "this server has no directory for traces: start it with --trace DIR, or \
                            record with `forebay trace SOCKET`, which needs none";

/// The traces of a server.
#[derive(Debug)]
pub(crate) struct Traces {
    /// The absolute path of the directory.
    directory: Option<PathBuf>,
    inner: Arc<Inner>,
}

/// Ends the traces of a server when it is dropped.
#[derive(Debug)]
pub(crate) struct EndTraces<'a>(pub(crate) &'a Traces);

impl Drop for EndTraces<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The part that the thread of a trace shares.
#[derive(Debug)]
struct Inner {
    log: Arc<Log>,
    state: Mutex<State>,
    /// Signalled when a trace has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The trace that runs.
    running: Option<Arc<Trace>>,
    /// The thread that waits for the end of the trace.
    waiter: Option<JoinHandle<()>>,
    last: Option<Last>,
    /// The server ends: no trace begins any more.
    is_over: bool,
}

/// The outcome of the last trace.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    pub(crate) place: Place,
    pub(crate) outcome: Result<TraceStats, String>,
}

/// The exports of a server.
type Exports = Vec<Arc<Export>>;

/// Where the files of a trace are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A directory of this server.
    Directory(PathBuf),
    /// A client of the control socket.
    Client,
}

/// The state of tracing.
#[derive(Clone, Debug)]
pub(crate) enum TraceState {
    /// A trace runs, with these counts so far.
    On(Place, TraceStats),
    /// No trace runs, but one has.
    Ended(Last),
    /// No trace has run, but the server has a directory for one.
    Off,
}

impl Traces {
    /// Prepares a directory for traces, if there is one. Creates it if it does not exist.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or written, or has the files of a trace itself.
    pub(crate) fn new(dir: Option<&Path>, log: &Arc<Log>) -> io::Result<Traces> {
        let directory = dir.map(prepare).transpose()?;
        let (log, state, ended) = (Arc::clone(log), Mutex::default(), Condvar::new());
        Ok(Traces { directory, inner: Arc::new(Inner { log, state, ended }) })
    }

    /// Returns the directory.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Begins a trace of all exports in the next directory. `exports` is called once no other trace
    /// can begin, so an export that is added meanwhile is either in its list or added to the trace.
    ///
    /// # Errors
    /// Returns the reason if the server has no directory, if a trace runs already, or if the
    /// directory cannot be created.
    pub(crate) fn switch_on(&self, exports: impl FnOnce() -> Exports) -> Result<(), String> {
        let parent = self.directory.as_ref().ok_or(NO_DIRECTORY)?;
        let mut state = self.free_state()?;
        let trace = Trace::create_next(parent).map_err(|error| error.to_string())?;
        self.inner.begin(&exports(), &mut state, trace)
    }

    /// Begins a trace of all exports whose files a client writes. The client has the other end of
    /// this socket. `exports` is called as by [`switch_on`](Self::switch_on).
    ///
    /// # Errors
    /// Returns the reason if a trace runs already, or if the descriptor is no socket.
    pub(crate) fn send(
        &self,
        exports: impl FnOnce() -> Exports,
        socket: OwnedFd,
    ) -> Result<(), String> {
        drop(self.free_state()?);
        // Without the lock: a client that does not read holds up only its own request.
        let trace = Trace::send(UnixStream::from(socket)).map_err(|error| error.to_string())?;
        let mut state = self.free_state()?;
        self.inner.begin(&exports(), &mut state, trace)
    }

    /// Ends the trace, and waits until its files are complete. Returns its outcome. `None`: no
    /// trace was running.
    pub(crate) fn switch_off(&self) -> Option<Last> {
        let trace = self.state().running.clone()?;
        trace.stop();
        let runs = |state: &mut State| {
            state.running.as_ref().is_some_and(|running| Arc::ptr_eq(running, &trace))
        };
        let state = self.inner.ended.wait_while(self.state(), runs);
        state.unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    /// Adds an export that is offered from now on to the trace that runs, if there is one.
    pub(crate) fn add(&self, export: &Export) {
        let state = self.state();
        if let Some(trace) = &state.running
            && let Err(error) = trace.add(&export.disk)
            // The trace has begun after the export was offered.
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            self.inner.left_out(export, &error);
        }
    }

    /// Returns the state. `None`: there was no trace, and the server has no directory for one.
    pub(crate) fn describe(&self) -> Option<TraceState> {
        let state = self.state();
        match (&state.running, &state.last) {
            (Some(trace), _) => Some(TraceState::On(Place::of(trace), trace.stats())),
            (None, Some(last)) => Some(TraceState::Ended(last.clone())),
            (None, None) => self.directory.as_ref().map(|_| TraceState::Off),
        }
    }

    /// Ends the trace, and lets none begin any more.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.switch_off();
        let waiter = self.state().waiter.take();
        // A panic of the thread was printed already, and no caller can handle it.
        waiter.map(|thread| thread.join().ok());
    }

    /// Returns the state if a trace may begin.
    fn free_state(&self) -> Result<MutexGuard<'_, State>, String> {
        let state = self.state();
        match state.running.as_ref().map(|trace| Place::of(trace)) {
            _ if state.is_over => Err("the server is shutting down".to_owned()),
            None => Ok(state),
            Some(Place::Client) => Err("another client records a trace: wait for its end, or end \
                                        it with `forebay ctl SOCKET trace off`"
                .to_owned()),
            Some(place) => Err(format!(
                "a trace to {place} runs already: end it with `forebay ctl SOCKET trace off`"
            )),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds exports to a trace, and starts the thread that waits for its end.
    fn begin(
        self: &Arc<Inner>,
        exports: &[Arc<Export>],
        state: &mut State,
        trace: Trace,
    ) -> Result<(), String> {
        let trace = Arc::new(trace);
        for export in exports {
            if let Err(error) = trace.add(&export.disk) {
                self.left_out(export, &error);
            }
        }
        let waiter = {
            let (inner, trace) = (Arc::clone(self), Arc::clone(&trace));
            move || inner.await_end(&trace)
        };
        let thread = std::thread::Builder::new().name("trace-end".to_owned()).spawn(waiter);
        let thread =
            thread.map_err(|error| format!("cannot start a thread for the trace: {error}"))?;
        let place = Place::of(&trace);
        self.log.line(now_ns(), format_args!("trace: on, to {place}"));
        (state.running, state.waiter) = (Some(trace), Some(thread));
        Ok(())
    }

    /// Logs that an export cannot be traced.
    fn left_out(&self, export: &Export, error: &io::Error) {
        let line = format_args!("trace: the export {:?} is left out: {error}", export.name);
        self.log.warn(now_ns(), line);
    }

    /// Waits until a trace has ended, and records its outcome.
    fn await_end(&self, trace: &Trace) {
        let place = Place::of(trace);
        let outcome = trace.wait().map_err(|error| error.to_string());
        match &outcome {
            Ok(stats) => {
                let lost = Lost(stats.lost);
                let line = format_args!("trace: off, {} records to {place}{lost}", stats.records);
                self.log.line(now_ns(), line);
            }
            Err(error) => {
                let line = format_args!("trace: ended early, to {place}: {error}");
                self.log.warn(now_ns(), line);
            }
        }
        let mut state = self.state();
        state.running = None;
        state.last = Some(Last { place, outcome });
        self.ended.notify_all();
    }
}

/// Creates the directory for traces. Returns its absolute path: the process may change its own.
fn prepare(dir: &Path) -> io::Result<PathBuf> {
    let named = |error: io::Error| {
        let dir = dir.display();
        io::Error::new(error.kind(), format!("{dir}: cannot write traces there: {error}"))
    };
    let path = std::path::absolute(dir).map_err(named)?;
    fs::create_dir_all(&path).map_err(named)?;
    let rights = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    access(&path, rights).map_err(|errno| named(errno.into()))?;
    Ok(path)
}

impl Place {
    fn of(trace: &Trace) -> Place {
        trace.dir().map_or(Place::Client, |dir| Place::Directory(dir.to_owned()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(dir) => write!(f, "{}", dir.display()),
            Place::Client => f.write_str("a client of the control socket"),
        }
    }
}

/// The end of a line about a trace.
struct Lost(u64);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            lost => write!(f, "; {lost} were lost"),
        }
    }
}

#[cfg(test)]
mod tests;
