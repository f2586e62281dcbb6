//! Threads of a server. They start together and end together, even if one of them panics.

use crate::error::{ServeError, system};
use crate::listen::Peer;
use crate::shared::Shared;
use crate::vhost_user::Devices;
use crate::worker::Worker;
use crate::worker::inbox::WorkerInbox;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for the workers to open their queues before the server accepts clients.
const READY: Duration = Duration::from_secs(5);

/// Worker threads. Dropping this makes them end, without waiting for them.
#[derive(Debug)]
pub(crate) struct Threads {
    inboxes: Vec<Arc<WorkerInbox>>,
    workers: Vec<JoinHandle<()>>,
    devices: Arc<Devices>,
    /// Readable when a worker has panicked.
    panicked: Arc<OwnedFd>,
}

impl Threads {
    /// Starts the workers.
    ///
    /// # Errors
    /// Returns an error if a thread or a descriptor cannot be made. Workers that were started end.
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Threads, ServeError> {
        let panicked = eventfd(0, EventfdFlags::CLOEXEC);
        let panicked = panicked
            .map_err(|error| system("cannot create a descriptor for the workers")(error.into()))?;
        let (inboxes, workers) = (Vec::new(), Vec::new());
        let panicked = Arc::new(panicked);
        let devices = Arc::new(Devices::new(shared, &panicked));
        let mut threads = Threads { inboxes, workers, devices, panicked };
        let nr_clients = shared.limits.connections;
        for (index, export) in shared.exports.offered() {
            let started = shared.status.start(index, &export, nr_clients);
            started.map_err(system("cannot start a thread"))?;
        }
        let mut readies = Vec::new();
        for device in shared.devices.all() {
            readies.append(&mut threads.devices.start(&device)?);
        }
        for number in 0..shared.nr_workers {
            let inbox = Arc::new(
                WorkerInbox::new(Arc::clone(&threads.panicked))
                    .map_err(system("cannot create a descriptor for a worker"))?,
            );
            threads.inboxes.push(Arc::clone(&inbox));
            shared.sizes.add_worker(inbox.clone());
            let ready = threads.start_worker(number, shared, inbox)?;
            readies.push(ready);
        }
        // Each thread connects to disks on NBD servers. Clients should not wait for that, and it
        // should not delay a shutdown for long. A panic drops the sender.
        let until = Instant::now() + READY;
        for ready in readies {
            let _ = ready.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
        Ok(threads)
    }

    /// Starts a worker. The receiver is disconnected when the worker has its queues.
    fn start_worker(
        &mut self,
        number: usize,
        shared: &Arc<Shared>,
        inbox: Arc<WorkerInbox>,
    ) -> Result<Receiver<()>, ServeError> {
        let epoll =
            Worker::epoll(&inbox).map_err(system("cannot create a descriptor for a worker"))?;
        let (shared, panicked) = (Arc::clone(shared), Arc::clone(&inbox));
        let (is_ready, ready) = channel();
        let builder = std::thread::Builder::new().name(format!("worker-{number}"));
        let thread = builder.spawn(move || {
            let worker = AssertUnwindSafe(|| {
                let worker = Worker::new(shared, inbox, epoll);
                drop(is_ready);
                worker.run();
            });
            if let Err(panic) = catch_unwind(worker) {
                // The clients of this worker would wait forever, so the server ends and can be
                // started again. (A worker that has begun its rounds has signalled already.)
                panicked.report_panic();
                resume_unwind(panic);
            }
        });
        self.workers.push(thread.map_err(system("cannot start a thread"))?);
        Ok(ready)
    }

    /// Returns the descriptor that is readable when a worker has panicked.
    pub(crate) fn panicked(&self) -> BorrowedFd<'_> {
        self.panicked.as_fd()
    }

    /// Hands a connection to the worker with the fewest connections.
    pub(crate) fn push(&self, connection: OwnedFd, peer: Peer) {
        let inbox = self.inboxes.iter().min_by_key(|inbox| inbox.nr_conns());
        inbox.expect("there is a thread").accept(connection, peer);
    }

    /// Returns the inboxes of the workers.
    pub(crate) fn inboxes(&self) -> &[Arc<WorkerInbox>] {
        &self.inboxes
    }

    /// Returns the number of connections.
    pub(crate) fn nr_connections(&self) -> usize {
        let nr: usize = self.inboxes.iter().map(|inbox| inbox.nr_conns()).sum();
        nr + self.devices.nr_connections()
    }

    /// Returns the threads of the devices.
    pub(crate) fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// Waits until the workers have completed the requests in flight and ended. If the disks
    /// respond, that takes a bounded time: connections that do not read their replies are closed.
    ///
    /// # Errors
    /// Returns an error if a worker has panicked.
    pub(crate) fn end(mut self) -> Result<(), ServeError> {
        self.close();
        let died = self.workers.drain(..).filter_map(|thread| thread.join().err()).count();
        let died = died + self.devices.end();
        if died == 0 { Ok(()) } else { Err(ServeError::Panicked) }
    }

    fn close(&self) {
        self.inboxes.iter().for_each(|inbox| inbox.close());
        self.devices.close();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close();
        self.devices.abandon();
    }
}

#[cfg(test)]
impl Threads {
    pub(crate) fn inbox(&self, worker: usize) -> &Arc<WorkerInbox> {
        &self.inboxes[worker]
    }
}
