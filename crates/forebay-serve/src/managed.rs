//! Changes of the exports of a running server: exports are added and removed.
//!
//! Each step is visible to clients only when the earlier ones have succeeded: an export is offered
//! when all workers have its queue. See [`exports`](crate::exports) for the steps of a removal.

use crate::config::{DeviceOptions, ExportOptions};
use crate::device::{Device, unseen_end};
use crate::end;
use crate::error::ServeError;
use crate::export::{Export, nr_hw_queues};
use crate::exports::Found;
use crate::metrics::{CountedExport, last_part};
use crate::open_files;
use crate::shared::Shared;
use crate::vhost_user::{DeviceThreads, Devices, end_connections};
use crate::worker::inbox::{NewExport, WorkerCommand, WorkerInbox};
use forebay::{Spec, now_ns};
use forebay_insight::stats::Process;
use forebay_nbd::export::ExportInfo;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Longest wait until the workers have the queues of a disk that was added.
const OPENED: Duration = Duration::from_secs(30);

/// Open files that a disk needs beside those of the workers' queues: for its locks, and for its
/// shared queue.
const OF_DISK: usize = 2;

/// Drivers of disks on other servers: a worker that connects to one would keep its clients waiting.
const REMOTE: [&str; 3] = ["nbd", "rbd", "vhost-user"];

/// A running server, with its workers.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) shared: Arc<Shared>,
    workers: Vec<Arc<WorkerInbox>>,
    devices: Arc<Devices>,
    /// For answers at the control socket.
    pub(crate) process: Process,
}

impl Managed {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        workers: &[Arc<WorkerInbox>],
        devices: &Arc<Devices>,
    ) -> Managed {
        let (shared, devices) = (Arc::clone(shared), Arc::clone(devices));
        Managed { shared, workers: workers.to_vec(), devices, process: Process::here() }
    }

    /// Returns the size of an export, bytes.
    pub(crate) fn size_of(&self, export: &Arc<Export>) -> u64 {
        let found = self.shared.exports.named(&export.name);
        let found = found.filter(|found| Arc::ptr_eq(&found.export, export));
        let infos = self.shared.sizes.infos();
        let info = found.and_then(|found| infos.get(found.index));
        info.map_or(0, |info| info.size_bytes)
    }

    /// Returns the paths of the sockets of an export's devices.
    pub(crate) fn device_sockets(&self, export: &Arc<Export>) -> Vec<String> {
        let found = self.shared.exports.named(&export.name);
        let found = found.filter(|found| Arc::ptr_eq(&found.export, export));
        let devices = found.map(|found| self.shared.devices.of_export(found.index));
        devices.into_iter().flatten().map(|device| device.path()).collect()
    }

    /// Adds an export, for NBD clients if the server has any, and as a device. The index of the
    /// export in `device` has no meaning. `descriptors` are of the export's file, if there are any.
    ///
    /// # Errors
    /// Returns the reason. Nothing has changed then, unless a worker has not opened the disk in
    /// time: the reason says that the export was added.
    pub(crate) fn add(
        &self,
        options: &ExportOptions,
        device: Option<DeviceOptions>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Arc<Export>, ChangeError> {
        let (export, answers) = self.add_offered(options, device, descriptors)?;
        let until = Instant::now() + OPENED;
        for _ in &self.workers {
            let left = until.saturating_duration_since(Instant::now());
            answers.recv_timeout(left).map_err(|_| ChangeError {
                why: format!(
                    "the export {:?} was added, but a thread has not opened it within {OPENED:?}: \
                     check the log, or remove it",
                    export.name
                ),
                is_done: true,
            })?;
        }
        Ok(export)
    }

    /// Adds an export that workers may not have opened yet. Each sends an answer.
    fn add_offered(
        &self,
        options: &ExportOptions,
        device: Option<DeviceOptions>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Arc<Export>, Receiver<()>), String> {
        if self.workers.is_empty() && device.is_none() {
            return Err("this server has no NBD socket: add the export for a virtual machine \
                        (--vhost-user-blk), or start the server with --nbd"
                .to_owned());
        }
        self.check_name(&options.name)?;
        let spec = Spec::parse(&options.spec).map_err(|error| error.to_string())?;
        if REMOTE.iter().any(|driver| *driver == spec.driver()) {
            return Err(format!(
                "{}: disks on another server cannot be added at run time: name the disk when you \
                 start the server",
                options.spec
            ));
        }
        let nr_rings = device.as_ref().map_or(0, |device| device.nr_queues.into());
        let nr_hw_queues = nr_hw_queues(options, nr_rings, self.workers.len());
        let opened = match descriptors.is_empty() {
            true => Export::open(options, nr_hw_queues),
            false => {
                let nr = self.workers.len() + nr_rings + OF_DISK;
                open_files::open(options, nr_hw_queues, descriptors, nr)
            }
        };
        let (export, info) = opened.map_err(|error| error.to_string())?;
        let max = self.shared.max_block;
        if export.block_bytes > max {
            return Err(format!(
                "{}: its blocks of {} bytes are larger than {max} bytes, the largest block that \
                 the server has buffers for: name the disk when you start the server",
                export.spec, export.block_bytes
            ));
        }
        let export = Arc::new(export);
        let (device, answers) = self.offer(&export, info, device)?;
        let Export { name, spec, .. } = &*export;
        let device = device.map(|device| format!(", {}", device.spec())).unwrap_or_default();
        self.shared.log.line(now_ns(), format_args!("export {name:?}: added, {spec}{device}"));
        Ok((export, answers))
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        match self.shared.exports.named(name) {
            None => Ok(()),
            Some(found) if found.is_withdrawn => Err(format!(
                "export {name:?} is being removed and still has clients: repeat this when they \
                 have disconnected"
            )),
            Some(_) => {
                Err(format!("export {name:?} already exists: use another name or remove it first"))
            }
        }
    }

    /// Opens the queues of an export, and offers it. Returns its device, and the answers of the
    /// workers.
    fn offer(
        &self,
        export: &Arc<Export>,
        info: ExportInfo,
        device: Option<DeviceOptions>,
    ) -> Result<(Option<Arc<Device>>, Receiver<()>), String> {
        let size_bytes = info.size_bytes;
        let Shared { exports, sizes, counters, status, limits, traces, .. } = &*self.shared;
        let turn = sizes.begin();
        // Another thread may have added one meanwhile.
        self.check_name(&export.name)?;
        let index = exports.free_index();
        let device = device.map(|device| {
            let options = DeviceOptions { export: index, ..device };
            let of_export = (&**export, size_bytes);
            let opened = Device::open(options, of_export, self.shared.register_memory)?;
            Ok(Arc::new(Device { was_added: true, ..opened }))
        });
        let device = device.transpose().map_err(|error: ServeError| error.to_string())?;
        status
            .start(index, export, limits.connections)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        let label = match export.name.as_str() {
            "" => last_part(&export.spec),
            name => name,
        };
        let (disk, tenant) = (export.disk.clone(), Arc::clone(&export.tenant));
        counters.add_export(index, CountedExport { name: label.to_owned(), disk, tenant });
        if !exports.add(index, export) {
            counters.remove_export(index);
            status.end(index);
            return Err(format!(
                "export {:?} was not added: the server is shutting down",
                export.name
            ));
        }
        // Also if a thread opens it late below: it is offered from now on.
        traces.add(export);
        let mut infos = sizes.infos().to_vec();
        match infos.get_mut(index) {
            Some(free) => *free = info,
            None => infos.push(info),
        }
        let infos: Arc<[ExportInfo]> = infos.into();
        sizes.set_for_new_threads(Arc::clone(&infos));
        let (answer, answers) = sync_channel(self.workers.len());
        let new = NewExport { index, export: Arc::clone(export), infos, answer };
        for worker in &self.workers {
            worker.push(WorkerCommand::Add(new.clone()));
        }
        let started = device.as_ref().map_or(Ok(()), |device| self.start(device));
        drop((new, turn));
        if let Err(why) = started {
            let line = format_args!("export {:?}: not added: {why}", export.name);
            self.shared.log.warn(now_ns(), line);
            // No front end has used it.
            let found = Found { index, export: Arc::clone(export), is_withdrawn: false };
            let _ = self.remove(&found, true);
            return Err(why);
        }
        Ok((device, answers))
    }

    /// Starts a device whose export is offered. Its front ends wait until its rings are ready.
    fn start(&self, device: &Arc<Device>) -> Result<(), String> {
        if let Some(line) = unseen_end(self.shared.sizes.infos()[device.export].size_bytes) {
            self.shared.log.warn(now_ns(), format_args!("{}: {line}", device.spec()));
        }
        self.shared.devices.add(device);
        let started = self.devices.start(device).map_err(|error| error.to_string());
        if started.is_err() {
            self.shared.devices.remove(device.export);
            self.shared.sizes.remove_rings(device.export);
        }
        self.shared.closing.note_sockets();
        started.map(drop)
    }

    /// Removes an export when its clients have left, or ends them with `force`. Its disk is flushed
    /// then, and closed.
    ///
    /// # Errors
    /// Returns the reason if it cannot be removed. If the last flush fails, it is removed all the
    /// same.
    pub(crate) fn remove(&self, found: &Found, force: bool) -> Result<(), ChangeError> {
        let Found { index, export, .. } = found;
        let (index, name) = (*index, &export.name);
        let Withdrawn { is_first, devices } = self.withdraw(index, export, force)?;
        if force {
            end_connections(&devices);
        }
        let exports = &self.shared.exports;
        let has_ended = match is_first {
            true => exports.wait_until_unused(index, export),
            false => exports.wait_until_removed(index, export),
        };
        if !has_ended {
            let why = format!("export {name:?} was not removed: the server is shutting down");
            return Err(ChangeError { why, is_done: false });
        }
        if !is_first {
            return Ok(());
        }
        self.devices.remove(index);
        self.shared.devices.remove(index);
        self.shared.sizes.remove_rings(index);
        let flushed = if export.can.read_only { Ok(None) } else { end::flush(export) };
        self.shared.counters.remove_export(index);
        self.shared.status.end(index);
        exports.remove(index);
        match flushed {
            Ok(harmless) => {
                if let Some(line) = harmless {
                    self.shared.log.warn(now_ns(), line);
                }
                self.shared.log.line(now_ns(), format_args!("export {name:?}: removed"));
                Ok(())
            }
            Err(error) => {
                let line = format_args!("export {name:?}: removed: {error}");
                self.shared.log.warn(now_ns(), line);
                let why = format!("the export {name:?} was removed, but {error}");
                Err(ChangeError { why, is_done: true })
            }
        }
    }

    /// Withdraws an export, unless another thread has done that. With `force`, makes the workers
    /// end its clients; the caller ends those of the devices.
    ///
    /// # Errors
    /// Returns the reason if the export is no longer there: another one may have its index.
    fn withdraw(
        &self,
        index: usize,
        export: &Arc<Export>,
        force: bool,
    ) -> Result<Withdrawn, String> {
        let Shared { exports, sizes, .. } = &*self.shared;
        let _turn = sizes.begin();
        let found = exports.named(&export.name);
        let found = found.filter(|found| Arc::ptr_eq(&found.export, export));
        let found =
            found.ok_or_else(|| format!("the export {:?} was removed already", export.name))?;
        let devices = self.devices.of_export(index);
        if !found.is_withdrawn {
            let mut infos = sizes.infos().to_vec();
            infos[index].withdraw();
            let infos: Arc<[ExportInfo]> = infos.into();
            sizes.set_for_new_threads(Arc::clone(&infos));
            exports.withdraw(index, self.workers.len() + devices.len());
            self.devices.withdraw(index);
            self.shared.closing.note_sockets();
            for worker in &self.workers {
                let infos = Arc::clone(&infos);
                worker.push(WorkerCommand::Withdraw { index, infos });
            }
        }
        if force {
            // I/O in flight must not wait for a limit.
            export.tenant.lift_limits();
            for worker in &self.workers {
                worker.push(WorkerCommand::EndClients { index });
            }
        }
        Ok(Withdrawn { is_first: !found.is_withdrawn, devices })
    }
}

/// An export that was withdrawn.
struct Withdrawn {
    /// No other thread has withdrawn it before.
    is_first: bool,
    devices: Vec<Arc<DeviceThreads>>,
}

/// A change of the exports that has failed.
#[derive(Debug)]
pub(crate) struct ChangeError {
    pub(crate) why: String,
    /// Whether the export was added or removed all the same.
    pub(crate) is_done: bool,
}

impl From<String> for ChangeError {
    fn from(why: String) -> ChangeError {
        ChangeError { why, is_done: false }
    }
}
