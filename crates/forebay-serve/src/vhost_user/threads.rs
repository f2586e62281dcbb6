//! Threads of a device: one for the messages of its front ends, and one for each ring.

use super::channel::Channel;
use super::connections::{Admission, ConnectionQueue, PendingConnection, REPLY_TIMEOUT};
use super::ring::{RingPlace, RingWorker, ThreadCommand};
use crate::device::Device;
use crate::error::{ServeError, system};
use crate::inbox::Inbox;
use crate::listen::{Listener, is_exhausted};
use crate::metrics::{ConnectionRefusal, RingCounters};
use crate::shared::Shared;
use forebay::now_ns;
use forebay_vhost_user::signal;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Threads of a device.
#[derive(Debug)]
pub(crate) struct DeviceThreads {
    shared: Arc<Shared>,
    device: Arc<Device>,
    /// Name of its export.
    name: String,
    connections: Arc<ConnectionQueue>,
    inboxes: Vec<Arc<Inbox<ThreadCommand>>>,
    running: Mutex<Running>,
    /// Whether its socket accepts no more connections. Relaxed: only the accept loop uses it.
    has_failed: AtomicBool,
}

/// The threads that have not been joined.
#[derive(Debug, Default)]
struct Running {
    channel: Vec<JoinHandle<()>>,
    rings: Vec<JoinHandle<()>>,
}

impl DeviceThreads {
    /// Starts the threads of a device. The receivers are disconnected when the threads of the rings
    /// have their queues.
    ///
    /// # Errors
    /// Returns an error if a thread or a descriptor cannot be created. Then the threads that were
    /// started end.
    pub(super) fn start(
        shared: &Arc<Shared>,
        device: &Arc<Device>,
        panicked: &Arc<OwnedFd>,
    ) -> Result<(DeviceThreads, Vec<Receiver<()>>), ServeError> {
        let mut threads = DeviceThreads {
            shared: Arc::clone(shared),
            device: Arc::clone(device),
            name: shared.exports.get(device.export).name.clone(),
            connections: Arc::default(),
            inboxes: Vec::new(),
            running: Mutex::default(),
            has_failed: AtomicBool::new(false),
        };
        match threads.start_all(panicked) {
            Ok(readies) => Ok((threads, readies)),
            Err(error) => {
                threads.abandon();
                // A ring that begins late uses the export, whose index is free after this.
                threads.end();
                Err(error)
            }
        }
    }

    fn start_all(&mut self, panicked: &Arc<OwnedFd>) -> Result<Vec<Receiver<()>>, ServeError> {
        let (mut readies, mut counters) = (Vec::new(), Vec::new());
        let export = self.device.export;
        for ring in 0..self.device.config.nr_queues() {
            let inbox = Inbox::new(Arc::clone(panicked));
            let inbox = inbox.map_err(system("cannot create a descriptor for a ring"))?;
            let inbox = Arc::new(inbox);
            let counted = self.shared.counters.ring(export);
            self.inboxes.push(Arc::clone(&inbox));
            self.shared.sizes.add_ring(export, inbox.clone());
            readies.push(self.start_ring(ring, &inbox, &counted)?);
            counters.push(counted);
        }
        let channel = Channel {
            shared: Arc::clone(&self.shared),
            device: Arc::clone(&self.device),
            connections: Arc::clone(&self.connections),
            inboxes: self.inboxes.clone(),
            counters,
        };
        let panicked = Arc::clone(panicked);
        let builder = Builder::new().name(format!("device-{}", self.device.number));
        let thread = builder.spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| channel.run())) {
                signal(&panicked);
                resume_unwind(panic);
            }
        });
        let thread = thread.map_err(system("cannot start a thread"))?;
        self.running().channel.push(thread);
        Ok(readies)
    }

    /// Starts the thread of a ring.
    fn start_ring(
        &mut self,
        ring: u16,
        inbox: &Arc<Inbox<ThreadCommand>>,
        counters: &Arc<RingCounters>,
    ) -> Result<Receiver<()>, ServeError> {
        let epoll = RingWorker::epoll(inbox);
        let epoll = epoll.map_err(system("cannot create a descriptor for a ring"))?;
        let shared = Arc::clone(&self.shared);
        let device = &self.device;
        let place = RingPlace {
            export: device.export,
            ring,
            serial: device.serial,
            write_cache: Arc::clone(&device.cache),
            refusal: Arc::clone(&device.refusal),
            submitter: Arc::clone(&device.submitter),
            counters: Arc::clone(counters),
        };
        let (inbox, panicked) = (Arc::clone(inbox), Arc::clone(inbox));
        let (is_ready, ready) = channel();
        let builder = Builder::new().name(format!("ring-{}-{ring}", device.number));
        let thread = builder.spawn(move || {
            let work = AssertUnwindSafe(|| {
                let worker = RingWorker::new(shared, place, inbox, epoll);
                drop(is_ready);
                worker.run();
            });
            let ended = catch_unwind(work);
            panicked.end();
            if let Err(panic) = ended {
                // The driver would wait forever, so the server ends and can be started again.
                panicked.report_panic();
                resume_unwind(panic);
            }
        });
        let thread = thread.map_err(system("cannot start a thread"))?;
        self.running().rings.push(thread);
        Ok(ready)
    }

    /// Returns the socket of the device.
    pub(crate) fn listener(&self) -> &Listener {
        &self.device.listener
    }

    /// Closes the device to new front ends, because its socket has failed. Returns whether the
    /// server goes on: it does if the device was added while it ran, because a client at the
    /// control socket has opened the socket, and must not end the server.
    pub(crate) fn fail_socket(&self, why: &io::Error) -> bool {
        if !self.accepts() {
            return true;
        }
        if !self.device.was_added {
            return false;
        }
        self.has_failed.store(true, Ordering::Relaxed);
        let (name, place) = (&self.name, self.device.spec());
        let line = format_args!(
            "export {name:?}: no more front ends can connect to {place}: {why}: remove the export, \
             and add it again"
        );
        self.shared.log.warn(now_ns(), line);
        true
    }

    /// Returns whether its socket accepts connections.
    pub(crate) fn accepts(&self) -> bool {
        !self.connections.is_withdrawn() && !self.has_failed.load(Ordering::Relaxed)
    }

    /// Makes sure that the socket does not block: the client that has passed it shares its flags.
    pub(crate) fn prepare_accept(&self) {
        if self.device.was_added {
            // It is open, so this does not fail.
            let _ = self.device.listener.set_nonblocking();
        }
    }

    /// Returns the index of its export.
    pub(super) fn export(&self) -> usize {
        self.device.export
    }

    /// Hands a connection to the device.
    pub(crate) fn push(&self, socket: OwnedFd) {
        let stream = UnixStream::from(socket);
        let counters = self.shared.counters.open_connection();
        counters.set_export(self.device.export);
        let (id, opened_ns) = (counters.id(), now_ns());
        let connection = PendingConnection { stream, counters, opened_ns };
        let admission = self.connections.push(connection);
        let server = self.shared.counters.server();
        match &admission {
            Admission::TooMany => server.refuse(ConnectionRefusal::TooMany),
            Admission::Failed(error) if is_exhausted(error) => {
                server.refuse(ConnectionRefusal::NoDescriptor);
            }
            _ => {}
        }
        if let Some(outcome) = admission.line() {
            let name = &self.name;
            let line = format_args!("connection {id} from unix: export {name:?}: {outcome}");
            self.shared.log.line(now_ns(), line);
        }
    }

    /// Returns the number of connections, including those that wait for the device.
    pub(super) fn nr_connections(&self) -> usize {
        self.connections.nr()
    }

    /// Makes the device serve no further connection, because its export is removed.
    pub(super) fn withdraw(&self) {
        self.connections.withdraw();
        self.device.refuse_connections();
    }

    /// Makes the connections end. The rings stop taking requests, and answer those in flight.
    pub(super) fn close(&self) {
        self.connections.close();
    }

    /// Waits until the current connection, which was closed, sends no more replies. It is cut off
    /// at `until` if its front end does not read them.
    pub(super) fn end_replies(&self, until: Instant) {
        self.connections.end_replies(until, REPLY_TIMEOUT);
    }

    /// Waits until the thread of the messages has ended, and ends those of the rings. The
    /// connections must have ended, or been closed. Returns how many have panicked.
    pub(super) fn end(&self) -> usize {
        let mut running = self.running();
        // A channel that ends sends the stop command to its rings, which their threads answer.
        let died = nr_died(&mut running.channel);
        self.close_rings();
        died + nr_died(&mut running.rings)
    }

    /// Makes the threads end, without waiting for them.
    pub(super) fn abandon(&self) {
        self.close();
        self.close_rings();
    }

    /// Returns the threads. A panic cannot leave them half changed.
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_rings(&self) {
        self.inboxes.iter().for_each(|inbox| inbox.close());
    }
}

#[cfg(test)]
impl DeviceThreads {
    pub(crate) fn poison_ring(&self, nr: usize) {
        self.inboxes[nr].poison();
    }
}

fn nr_died(threads: &mut Vec<JoinHandle<()>>) -> usize {
    threads.drain(..).filter_map(|thread| thread.join().err()).count()
}
