//! The devices of a running server, each with its threads.

use super::connections::REPLY_TIMEOUT;
use super::threads::DeviceThreads;
use crate::device::Device;
use crate::error::ServeError;
use crate::shared::Shared;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The devices of a running server.
#[derive(Debug)]
pub(crate) struct Devices {
    shared: Arc<Shared>,
    panicked: Arc<OwnedFd>,
    running: Mutex<Vec<Arc<DeviceThreads>>>,
    /// Threads of removed devices that have panicked. Relaxed: only the end of the server reads it,
    /// after it has joined or left the thread that removes.
    nr_died: AtomicUsize,
}

impl Devices {
    /// Creates a server's devices, of which none runs. A thread of theirs that panics makes
    /// `panicked` readable.
    pub(crate) fn new(shared: &Arc<Shared>, panicked: &Arc<OwnedFd>) -> Devices {
        let (shared, panicked) = (Arc::clone(shared), Arc::clone(panicked));
        Devices { shared, panicked, running: Mutex::default(), nr_died: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<DeviceThreads>>> {
        // Each change under this lock is complete even if a panic follows.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<DeviceThreads>> {
        self.lock().clone()
    }

    /// Returns the devices of an export.
    pub(crate) fn of_export(&self, export: usize) -> Vec<Arc<DeviceThreads>> {
        self.lock().iter().filter(|device| device.export() == export).cloned().collect()
    }

    /// Starts the threads of a device. The receivers are disconnected when its rings have their
    /// queues.
    ///
    /// # Errors
    /// Returns an error if a thread or a descriptor cannot be created. The device does not run
    /// then.
    pub(crate) fn start(&self, device: &Arc<Device>) -> Result<Vec<Receiver<()>>, ServeError> {
        let (threads, readies) = DeviceThreads::start(&self.shared, device, &self.panicked)?;
        self.lock().push(Arc::new(threads));
        Ok(readies)
    }

    /// Returns the devices whose sockets accept connections.
    pub(crate) fn listening(&self) -> Vec<Arc<DeviceThreads>> {
        self.lock().iter().filter(|device| device.accepts()).cloned().collect()
    }

    /// Returns the number of connections, including those that wait for a device.
    pub(crate) fn nr_connections(&self) -> usize {
        self.lock().iter().map(|device| device.nr_connections()).sum()
    }

    /// Makes the devices of an export serve no further connections. Each leaves the export
    /// ([`Exports::left`](crate::exports::Exports::left)) when its current one has ended.
    pub(crate) fn withdraw(&self, export: usize) {
        self.of_export(export).iter().for_each(|device| device.withdraw());
    }

    /// Removes the devices of an export, which have left it, and waits until their threads have
    /// ended.
    pub(crate) fn remove(&self, export: usize) {
        for device in self.of_export(export) {
            // A panic has made `panicked` readable, which ends the server.
            self.nr_died.fetch_add(device.end(), Ordering::Relaxed);
        }
        self.lock().retain(|device| device.export() != export);
    }

    /// Makes the connections end. The rings stop taking requests, and answer those in flight.
    pub(crate) fn close(&self) {
        self.all().iter().for_each(|device| device.close());
    }

    /// Waits until the threads have completed the requests in flight and ended. Returns how many
    /// have panicked.
    pub(crate) fn end(&self) -> usize {
        let devices = self.all();
        end_connections(&devices);
        let nr_died: usize = devices.iter().map(|device| device.end()).sum();
        nr_died + self.nr_died.load(Ordering::Relaxed)
    }

    /// Makes the threads end, without waiting for them.
    pub(crate) fn abandon(&self) {
        self.all().iter().for_each(|device| device.abandon());
    }

    #[cfg(test)]
    pub(crate) fn poison_ring(&self, nr: usize) {
        self.all()[0].poison_ring(nr);
    }
}

/// Ends connections, after the replies to their requests in flight.
pub(crate) fn end_connections(devices: &[Arc<DeviceThreads>]) {
    devices.iter().for_each(|device| device.close());
    let until = Instant::now() + REPLY_TIMEOUT;
    devices.iter().for_each(|device| device.end_replies(until));
}
