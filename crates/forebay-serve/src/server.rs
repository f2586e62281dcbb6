//! The server as a whole: what it opens, its threads, and how it ends.

use crate::config::{Limits, Options};
use crate::end;
use crate::error::ServeError;
use crate::export::Export;
use crate::listen::{self, Address, Listener};
use crate::log::Log;
use crate::metrics::{Endpoint, ExportSource, Refusal, Source};
use crate::notify;
use crate::sandbox::{Needs, confine};
use crate::signals::StopSignal;
use crate::tls::server_config;
use crate::worker::Worker;
use crate::worker::door::{Arrival, Door};
use crate::worker::status::Asker;
use forebay::now_ns;
use forebay_nbd::export::ExportInfo;
use forebay_nbd::server::TlsPolicy;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use rustix::time::Timespec;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

/// Where a server listens that was told nothing.
const DEFAULT_SOCKET: &str = "./forebay.sock";
/// How long no connection is accepted after the last descriptor was used up.
const EXHAUSTED_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How many connections of one socket are accepted in a row: however fast they come, the other
/// sockets are looked at, and whether it is time to stop.
const ACCEPTS_IN_A_ROW: usize = 64;

/// How long the end of the whole server may take, with all that disks have to finish and to flush.
/// A disk that has not done so by then is given up on. Service managers must wait longer.
const END: Duration = Duration::from_secs(60);

/// What all threads of a server know.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) exports: Arc<[Export]>,
    pub(crate) infos: Vec<ExportInfo>,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) tls_policy: TlsPolicy,
    pub(crate) limits: Limits,
    /// Connections that have chosen an export.
    pub(crate) nr_open: Arc<AtomicUsize>,
    pub(crate) counters: Arc<Source>,
    pub(crate) log: Log,
}

/// A server whose disks are open and whose sockets listen.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    metrics: Option<Endpoint>,
    stop: StopSignal,
}

impl Server {
    /// Opens the disks and the sockets. From here on clients may connect, and wait, and SIGTERM
    /// and SIGINT no more end the process, but [`Server::run`].
    ///
    /// # Errors
    /// What cannot be opened, and what to do.
    pub fn open(options: &Options) -> Result<Server, ServeError> {
        raise_nr_descriptors();
        let stop = StopSignal::install().map_err(system("handling signals"))?;
        let tls = options.tls.as_ref();
        let tls_policy = match tls.map(|tls| tls.is_required) {
            None => TlsPolicy::Off,
            Some(false) => TlsPolicy::On,
            Some(true) => TlsPolicy::Require,
        };
        let tls = tls.map(|tls| server_config(&tls.certificates, tls.verify_peer)).transpose()?;
        if options.exports.is_empty() {
            return Err(ServeError::NoExport);
        }
        let mut exports: Vec<Export> = Vec::new();
        for export in &options.exports {
            if exports.iter().any(|other| other.info.name == export.name) {
                return Err(ServeError::SameName(export.name.clone()));
            }
            exports.push(Export::open(export)?);
        }
        let listeners = open_listeners(&options.listen)?;
        let counted = exports.iter().map(|export| ExportSource {
            name: export.info.name.clone(),
            disk: export.disk.clone(),
        });
        let counters = Source::new(counted.collect());
        let metrics = match &options.metrics {
            Some(address) => Some(Endpoint::open(address, Arc::clone(&counters))?),
            None => None,
        };
        let shared = Arc::new(Shared {
            infos: exports.iter().map(|export| export.info.clone()).collect(),
            exports: exports.into(),
            tls,
            tls_policy,
            limits: options.limits,
            nr_open: Arc::default(),
            counters,
            log: Log::to_stderr(),
        });
        // Who is told the URI may also stop the server: from here on that goes by the orderly way.
        let _ = stop.as_fd();
        Ok(Server { shared, listeners, metrics, stop })
    }

    /// The NBD URIs of all exports, at every socket.
    pub fn uris(&self) -> Vec<String> {
        let is_tls = self.shared.tls_policy == TlsPolicy::Require;
        let of = |listener: &Listener| {
            let infos = self.shared.infos.iter();
            infos.map(|info| listener.uri(&info.name, is_tls)).collect::<Vec<_>>()
        };
        self.listeners.iter().flat_map(of).collect()
    }

    /// Serves until SIGTERM or SIGINT. Then no more connections are accepted, what was begun is
    /// finished and answered, and every disk is flushed.
    ///
    /// # Errors
    /// If a thread cannot be started, a flush at the end fails, or a disk does not answer any more:
    /// then its thread is left behind, and the process had better end.
    pub fn run(mut self) -> Result<(), ServeError> {
        // Before any thread is started: each has the rights of who starts it.
        self.shared.log.line(now_ns(), confine(&self.needs()));
        let metrics = self.metrics.take();
        if let Some(metrics) = &metrics {
            self.shared.log.line(now_ns(), format_args!("metrics at {}", metrics.place()));
        }
        let _metrics = metrics.map(Endpoint::start).transpose()?;
        let mut doors = Vec::new();
        let mut threads = Vec::new();
        let nr_clients = self.shared.limits.connections;
        let asker = Asker::start(&self.shared.exports, nr_clients);
        let asker = asker.map_err(system("starting a thread"))?;
        for number in 0..self.shared.limits.threads.max(1) {
            let door = Arc::new(Door::new().map_err(system("a descriptor for a thread"))?);
            threads.push(start_worker(number, &self.shared, &door, &asker)?);
            doors.push(door);
        }
        notify::ready(&format!("{} exports", self.shared.exports.len()));
        let accepted = self.accept_all(&doors);
        notify::stopping();
        doors.iter().for_each(|door| door.close());
        let shared = Arc::clone(&self.shared);
        let ended = end::within(END, move || {
            // Workers bound their own end: connections that do not take their replies are closed.
            let died = threads.into_iter().filter_map(|thread| thread.join().err()).count();
            let mut failures = flush_all(&shared.exports);
            if died > 0 {
                let error = io::Error::other("a thread of the server has panicked");
                failures.push(system("serving")(error));
            }
            failures
        });
        let mut failures = match ended {
            Ok(Some(failures)) => failures,
            Ok(None) => vec![ServeError::Hangs { limit: END }],
            Err(error) => vec![system("starting a thread for the last flush")(error)],
        };
        failures.extend(accepted.err());
        tell(&self.shared.log, failures)
    }

    /// What is still needed from here on.
    fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        self.shared.exports.iter().for_each(|export| needs.disk(&export.disk));
        let metrics = self.metrics.as_ref().map(Endpoint::address);
        for address in self.listeners.iter().map(Listener::address).chain(metrics) {
            if let Address::Unix(path) = address {
                needs.unlink(&path);
            }
        }
        needs
    }

    /// Hands connections to workers until it is time to stop.
    fn accept_all(&self, doors: &[Arc<Door>]) -> Result<(), ServeError> {
        let mut is_exhausted = false;
        // Twice within the time that the system's manager allows.
        let watchdog = notify::watchdog_interval().and_then(|interval| interval.try_into().ok());
        loop {
            if watchdog.is_some() {
                notify::alive();
            }
            let mut polled = vec![PollFd::new(&self.stop, PollFlags::IN)];
            let pause = if is_exhausted { Some(EXHAUSTED_PAUSE) } else { watchdog };
            if !is_exhausted {
                polled.extend(self.listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)));
            }
            match poll(&mut polled, pause.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(system("waiting for connections")(error.into())),
            }
            if self.stop.is_set() {
                return Ok(());
            }
            is_exhausted = false;
            for listener in &self.listeners {
                is_exhausted |= self.accept_from(listener, doors)?;
            }
        }
    }

    /// Accepts what waits at one socket. Says whether descriptors have run out.
    fn accept_from(&self, listener: &Listener, doors: &[Arc<Door>]) -> Result<bool, ServeError> {
        for _ in 0..ACCEPTS_IN_A_ROW {
            match listener.accept() {
                Ok(Some((fd, peer))) => {
                    let door = doors.iter().min_by_key(|door| door.nr_conns());
                    door.expect("there is a thread").bring(Arrival { fd, peer });
                }
                Ok(None) => return Ok(false),
                Err(error) if listen::is_exhausted(&error) => {
                    let counters = self.shared.counters.server();
                    counters.accept_errors.count();
                    counters.refuse(Refusal::NoDescriptor);
                    self.shared.log.line(now_ns(), format_args!("cannot accept: {error}"));
                    return Ok(true);
                }
                Err(error) => return Err(system("accepting connections")(error)),
            }
        }
        Ok(false)
    }
}

/// Makes durable what clients have written: after this nothing is lost by a power failure. One disk
/// that fails keeps no other from being flushed. What has failed is returned.
fn flush_all(exports: &[Export]) -> Vec<ServeError> {
    let written = exports.iter().filter(|export| !export.info.can.read_only);
    let flush = |export: &Export| {
        let spec = || export.disk.info().spec.clone();
        export.disk.flush().map_err(|source| ServeError::LastFlush { spec: spec(), source }).err()
    };
    written.filter_map(flush).collect()
}

/// The end of a server that has failed in these ways, the gravest first, which is the loss of data:
/// that one is returned, and the others are logged, so that none hides another.
fn tell(log: &Log, failures: Vec<ServeError>) -> Result<(), ServeError> {
    let mut failures = failures.into_iter();
    let gravest = failures.next();
    failures.for_each(|failure| log.line(now_ns(), failure));
    gravest.map_or(Ok(()), Err)
}

/// Allows this process as many descriptors as it may allow itself: each connection takes one.
fn raise_nr_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Refused, it is as it was: then connections are refused earlier.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The sockets that the system's manager has handed down, or those that were asked for.
fn open_listeners(addresses: &[Address]) -> Result<Vec<Listener>, ServeError> {
    let inherited = Listener::inherited()?;
    if !inherited.is_empty() && addresses.is_empty() {
        return Ok(inherited);
    }
    let default = [Address::Unix(PathBuf::from(DEFAULT_SOCKET))];
    let addresses = if addresses.is_empty() { &default } else { addresses };
    let opened: Result<Vec<_>, _> = addresses.iter().map(Listener::open).collect();
    Ok(inherited.into_iter().chain(opened?).collect())
}

fn start_worker(
    number: usize,
    shared: &Arc<Shared>,
    door: &Arc<Door>,
    asker: &Arc<Asker>,
) -> Result<JoinHandle<()>, ServeError> {
    let epoll = Worker::epoll(door).map_err(system("a descriptor for a thread"))?;
    let (shared, door, asker) = (Arc::clone(shared), Arc::clone(door), Arc::clone(asker));
    let builder = std::thread::Builder::new().name(format!("worker-{number}"));
    let thread = builder.spawn(move || {
        let worker = AssertUnwindSafe(|| Worker::new(shared, door, asker, epoll).run());
        if let Err(panic) = catch_unwind(worker) {
            // Its clients would wait for ever: the server ends, and who started it may start it
            // anew.
            let _ = kill_process(getpid(), Signal::TERM);
            resume_unwind(panic);
        }
    });
    thread.map_err(system("starting a thread"))
}

fn system(what: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |source| ServeError::System { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise it would be killed at the moment when it says what is wrong.
    #[test]
    fn the_service_manager_waits_longer_than_the_server_takes_to_end() {
        let unit = include_str!("../../../contrib/systemd/forebay@.service");
        let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
        let seconds = seconds.and_then(|seconds| seconds.parse().ok()).expect("in seconds");
        assert!(Duration::from_secs(seconds) >= END + Duration::from_secs(10), "{seconds} s");
    }
}
