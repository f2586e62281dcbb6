//! The server: its disks and sockets, and how it runs from start to shutdown.

use crate::accept::accept_until;
use crate::block_status::BlockStatusThreads;
use crate::closing::Closing;
use crate::config::{DeviceOptions, ExportOptions, Limits, Options};
use crate::control::Control;
use crate::device::{self, Device, DeviceList};
use crate::end::{self, END};
use crate::error::{ServeError, passed_socket, system};
use crate::export::{Export, nr_hw_queues};
use crate::exports::Exports;
use crate::handle::ServerHandle;
use crate::listen::Listener;
use crate::log::Log;
use crate::metrics::{CountedExport, Counters, Endpoint, labels};
use crate::observer::Observer;
use crate::own_socket;
use crate::shared::Shared;
use crate::sizes::Sizes;
use crate::threads::Threads;
use crate::tls::Tls;
use crate::traces::{EndTraces, Traces};
use forebay::{Disk, now_ns};
use forebay_front::stream::Budget;
use forebay_insight::small::SmallServer;
use forebay_nbd::export::ExportInfo;
use forebay_nbd::server::TlsPolicy;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An NBD server whose disks are open and whose sockets listen.
///
/// ```
/// use forebay_serve::{Address, ExportOptions, Options, Server};
/// use std::os::unix::net::UnixStream;
///
/// # let folder = std::env::temp_dir().join(format!("forebay-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let options = Options {
///     exports: vec![ExportOptions { spec: "ram:1M".to_owned(), ..ExportOptions::default() }],
///     listen: vec![Address::Unix(folder.join("socket"))],
///     ..Options::default()
/// };
/// let server = Server::open(options)?;
/// // The server stops when this descriptor is readable: when the other end is dropped.
/// let (stop, stopped) = UnixStream::pair()?;
/// let thread = std::thread::spawn(move || server.run(&stopped, &mut ()));
/// drop(stop);
/// thread.join().unwrap()?;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    listeners: Vec<Listener>,
    metrics: Option<Endpoint>,
    control: Option<Listener>,
    /// Directories whose files may be added.
    allowed: Vec<PathBuf>,
}

/// Rights that an open server still needs, for a caller that confines the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Socket files that the server removes when it ends.
    pub socket_files: Vec<PathBuf>,
    /// Directories whose files a reload reads ([`ServerHandle::reload`]), or an export that is
    /// added.
    pub readable: Vec<PathBuf>,
    /// Directories whose files may be opened for reading and writing
    /// ([`Options::allowed`](crate::Options::allowed)).
    pub writable: Vec<PathBuf>,
    /// Directories in which files and directories are created
    /// ([`Options::trace`](crate::Options::trace)).
    pub created: Vec<PathBuf>,
    /// Whether a disk may connect to another server.
    pub connects: bool,
}

/// Block size for which the smallest pieces of the budget have room, bytes.
const PIECE_MIN: u32 = 4096;

impl Server {
    /// Opens the disks and the sockets. From here on clients can connect; they wait until the
    /// server runs.
    ///
    /// # Errors
    /// Returns an error that names what cannot be opened, and the remedy.
    pub fn open(mut options: Options) -> Result<Server, ServeError> {
        // Before the disks: a mistake here must change nothing.
        let log = Arc::new(Log::to(options.log.take(), options.log_format, options.log_level));
        let traces = Traces::new(options.trace.as_deref(), &log);
        let traces = traces.map_err(|error| ServeError::Trace(error.to_string()))?;
        let tls = options.tls.take().map(Tls::open).transpose()?;
        let tls_policy = tls.as_ref().map_or(TlsPolicy::Off, Tls::policy);
        if options.exports.is_empty() {
            return Err(ServeError::NoExport);
        }
        let has_nbd = !options.listen.is_empty() || !options.sockets.is_empty();
        let nr_workers = if has_nbd { options.limits.threads.max(1) } else { 0 };
        let opened = open_exports(&options, nr_workers)?;
        let (exports, infos): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let max_block = exports.iter().map(|export| export.block_bytes).max().unwrap_or(1);
        let capacity = options.limits.capacity();
        let budget = Budget::new(&capacity, max_block)
            .map_err(|error| ServeError::of_memory(error, &options.limits))?;
        let mut listeners = Vec::new();
        for socket in options.sockets {
            let fd = socket.as_raw_fd();
            listeners.push(Listener::adopt(socket).map_err(passed_socket(fd))?);
        }
        for address in &options.listen {
            listeners.push(Listener::open(address)?);
        }
        if listeners.is_empty() && options.devices.is_empty() {
            return Err(ServeError::NoSocket);
        }
        let device = |device: DeviceOptions| {
            let export = (&exports[device.export], infos[device.export].size_bytes);
            Device::open(device, export, options.register_memory)
        };
        let devices = options.devices.into_iter().map(device);
        let devices = DeviceList::new(devices.collect::<Result<_, _>>()?);
        let named = options.exports.iter().zip(&exports).map(name_and_spec);
        let labels = labels(&named.collect::<Vec<_>>());
        let counted = exports.iter().zip(labels).map(|(export, label)| CountedExport {
            name: label.to_owned(),
            disk: export.disk.clone(),
            tenant: Arc::clone(&export.tenant),
        });
        let counters = Counters::new(counted.collect());
        let open = |address| Endpoint::open(address, Arc::clone(&counters));
        let metrics = options.metrics.as_ref().map(open).transpose()?;
        let control = options.control.as_deref().map(own_socket::listen).transpose()?;
        let shared = Arc::new(Shared {
            sizes: Sizes::new(infos.into()),
            exports: Exports::new(exports),
            tls,
            tls_policy,
            devices,
            register_memory: options.register_memory,
            limits: options.limits,
            nr_workers,
            poll: options.poll,
            budget,
            nr_open: Arc::default(),
            max_block: max_block.max(PIECE_MIN),
            counters,
            log,
            status: BlockStatusThreads::default(),
            traces,
            closing: Closing::new(options.exit_last)
                .map_err(system("cannot create a descriptor"))?,
        });
        let allowed = options.allowed;
        Ok(Server { shared, listeners, metrics, control, allowed })
    }

    /// Returns the disks that are served, in the order of the exports.
    pub fn disks(&self) -> impl Iterator<Item = Disk> + use<> {
        self.shared.exports.all().into_iter().map(|export| export.disk.clone())
    }

    /// Returns the NBD URIs of all exports, at every socket, and the specs of all devices.
    pub fn uris(&self) -> Vec<String> {
        let is_tls = self.shared.tls_policy == TlsPolicy::Require;
        let exports = self.shared.exports.all();
        let of = |listener: &Listener| {
            exports.iter().map(|export| listener.uri(&export.name, is_tls)).collect::<Vec<_>>()
        };
        let nbd = self.listeners.iter().flat_map(of);
        nbd.chain(self.shared.devices.all().iter().map(|device| device.spec())).collect()
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle::new(&self.shared)
    }

    /// Returns the rights that the server needs from now on, beyond what it has open. Its open
    /// files are opened again, once for each queue.
    pub fn needs(&self) -> Needs {
        let devices = self.shared.devices.all();
        let of_devices = devices.iter().map(|device| &device.listener);
        let listeners = self.listeners.iter().chain(of_devices);
        let files = listeners.filter_map(Listener::file);
        let files = files.chain(self.metrics.as_ref().and_then(Endpoint::file));
        let files = files.chain(self.control.as_ref().and_then(Listener::file));
        let exports = self.shared.exports.all();
        let tls = self.shared.tls.as_ref().map(Tls::directories);
        // A block device that is added has its properties there.
        let of_devices = self.control.as_ref().map(|_| PathBuf::from("/sys/devices"));
        Needs {
            socket_files: files.map(Path::to_owned).collect(),
            readable: tls.into_iter().flatten().chain(of_devices).collect(),
            writable: self.allowed.clone(),
            created: self.shared.traces.directory().map(Path::to_owned).into_iter().collect(),
            connects: exports.iter().any(|export| export.disk.info().facts.uses_tcp),
        }
    }

    /// Serves until `stop` is readable or its other end is closed. Then it accepts no more
    /// connections, completes and answers the requests in flight, and flushes every disk. No thread
    /// of the server remains, except one that waits for a disk that does not answer.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started or panics, if a last flush fails and writes
    /// may be lost, or if a disk does not answer: then its thread remains, and the process should
    /// end. If there are several errors, it returns the gravest and logs the others.
    pub fn run(mut self, stop: impl AsFd, observer: &mut dyn Observer) -> Result<(), ServeError> {
        let metrics = self.metrics.take();
        if let Some(metrics) = &metrics {
            self.shared.log.line(now_ns(), format_args!("serving metrics at {}", metrics.place()));
        }
        if self.shared.nr_workers > 0
            && let Some(bytes) = self.shared.budget.raised_bytes(&self.shared.limits.capacity())
        {
            let Limits { connections, threads, .. } = self.shared.limits;
            let line = format_args!(
                "memory for data in flight: {} MiB, as {connections} connections on {threads} \
                 threads need",
                bytes.div_ceil(1 << 20)
            );
            self.shared.log.line(now_ns(), line);
        }
        let infos = self.shared.sizes.infos();
        for device in self.shared.devices.all() {
            let ExportInfo { name, size_bytes, .. } = &infos[device.export];
            if let Some(line) = device::unseen_end(*size_bytes) {
                self.shared.log.warn(now_ns(), format_args!("export {name:?}: {line}"));
            }
        }
        let _metrics = metrics.map(Endpoint::start).transpose()?;
        if self.shared.traces.directory().is_some() {
            let exports = || self.shared.exports.all();
            self.shared.traces.switch_on(exports).map_err(ServeError::Trace)?;
        }
        // Also if a thread cannot be started.
        let shared = Arc::clone(&self.shared);
        let _traces = EndTraces(&shared.traces);
        let threads = Threads::start(&self.shared)?;
        let control = || Control::new(&self.shared, threads.inboxes(), threads.devices());
        let control = self.control.take().map(|socket| SmallServer::start(socket, control()));
        let control = control.transpose().map_err(system("cannot start a thread"))?;
        self.serve(threads, control, stop.as_fd(), observer)
    }

    fn serve(
        &self,
        threads: Threads,
        control: Option<SmallServer>,
        stop: BorrowedFd<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(), ServeError> {
        observer.ready();
        let accepted = accept_until(stop, &self.listeners, &threads, &self.shared, observer);
        observer.stopping();
        let shared = &self.shared;
        // Requests in flight must not wait for a limit, and no client may set another.
        shared.exports.end();
        drop(control);
        let exports = shared.exports.all();
        exports.iter().for_each(|export| export.tenant.lift_limits());
        let note = |note| shared.log.warn(now_ns(), note);
        let mut failures = end::drain_and_flush(END, || threads.end(), &exports, note);
        failures.extend(accepted.err());
        // After the last flush, which belongs to the trace.
        shared.traces.end();
        end::gravest(&self.shared.log, failures)
    }
}

/// Opens the disks of the exports.
fn open_exports(
    options: &Options,
    nr_workers: usize,
) -> Result<Vec<(Export, ExportInfo)>, ServeError> {
    let mut opened: Vec<(Export, ExportInfo)> = Vec::new();
    for (nr, export) in options.exports.iter().enumerate() {
        if opened.iter().any(|(other, _)| other.name == export.name) {
            return Err(ServeError::SameName(export.name.clone()));
        }
        let of_export = || options.devices.iter().filter(|device| device.export == nr);
        let nr_rings: usize = of_export().map(|device| usize::from(device.nr_queues)).sum();
        let is_reachable = nr_workers > 0 || of_export().next().is_some();
        if !is_reachable && !options.devices.is_empty() {
            return Err(ServeError::Unreachable { spec: export.written() });
        }
        opened.push(Export::open(export, nr_hw_queues(export, nr_rings, nr_workers))?);
    }
    Ok(opened)
}

/// Returns the name of an export, and the spec of its disk.
fn name_and_spec<'a>((options, export): (&'a ExportOptions, &'a Export)) -> (&'a str, &'a str) {
    let spec = if options.spec.is_empty() { &export.spec } else { &options.spec };
    (&options.name, spec)
}

#[cfg(test)]
mod tests;
