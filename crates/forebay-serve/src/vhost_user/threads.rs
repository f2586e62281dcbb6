//! Threads of all devices, which start and end with the server.

use super::channel::Channel;
use super::connections::{Admission, ConnectionQueue, PendingConnection, REPLY_TIMEOUT};
use super::ring::{RingPlace, RingWorker, ThreadCommand};
use crate::error::{ServeError, system};
use crate::inbox::Inbox;
use crate::listen::is_exhausted;
use crate::metrics::{ConnectionRefusal, RingCounters};
use crate::shared::Shared;
use forebay::now_ns;
use forebay_vhost_user::signal;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Threads of the devices. Dropping this makes them end, without waiting for them.
#[derive(Debug)]
pub(crate) struct DeviceThreads {
    shared: Arc<Shared>,
    /// One for each device.
    connections: Vec<Arc<ConnectionQueue>>,
    inboxes: Vec<Arc<Inbox<ThreadCommand>>>,
    channels: Vec<JoinHandle<()>>,
    rings: Vec<JoinHandle<()>>,
}

impl DeviceThreads {
    /// Starts the threads of all devices. The receivers are disconnected when the threads of the
    /// rings have their queues.
    ///
    /// # Errors
    /// Returns an error if a thread or a descriptor cannot be created. Then the threads that were
    /// started end.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        panicked: &Arc<OwnedFd>,
    ) -> Result<(DeviceThreads, Vec<Receiver<()>>), ServeError> {
        let mut threads = DeviceThreads {
            shared: Arc::clone(shared),
            connections: Vec::new(),
            inboxes: Vec::new(),
            channels: Vec::new(),
            rings: Vec::new(),
        };
        let mut readies = Vec::new();
        for device in 0..shared.devices.len() {
            threads.start_device(device, panicked, &mut readies)?;
        }
        Ok((threads, readies))
    }

    fn start_device(
        &mut self,
        device: usize,
        panicked: &Arc<OwnedFd>,
        readies: &mut Vec<Receiver<()>>,
    ) -> Result<(), ServeError> {
        let (mut inboxes, mut counters) = (Vec::new(), Vec::new());
        for ring in 0..self.shared.devices[device].config.nr_queues() {
            let inbox = Inbox::new(Arc::clone(panicked));
            let inbox = inbox.map_err(system("cannot create a descriptor for a ring"))?;
            let inbox = Arc::new(inbox);
            let export = self.shared.devices[device].export;
            let counted = self.shared.counters.ring(export);
            self.inboxes.push(Arc::clone(&inbox));
            self.shared.sizes.add_ring(export, inbox.clone());
            readies.push(self.start_ring((device, ring), &inbox, &counted)?);
            inboxes.push(inbox);
            counters.push(counted);
        }
        let connections = Arc::new(ConnectionQueue::default());
        self.connections.push(Arc::clone(&connections));
        let (shared, panicked) = (Arc::clone(&self.shared), Arc::clone(panicked));
        let channel = Channel { shared, device, connections, inboxes, counters };
        let builder = Builder::new().name(format!("device-{device}"));
        let thread = builder.spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| channel.run())) {
                signal(&panicked);
                resume_unwind(panic);
            }
        });
        self.channels.push(thread.map_err(system("cannot start a thread"))?);
        Ok(())
    }

    /// Starts the thread of a ring.
    fn start_ring(
        &mut self,
        (device, ring): (usize, u16),
        inbox: &Arc<Inbox<ThreadCommand>>,
        counters: &Arc<RingCounters>,
    ) -> Result<Receiver<()>, ServeError> {
        let epoll = RingWorker::epoll(inbox);
        let epoll = epoll.map_err(system("cannot create a descriptor for a ring"))?;
        let shared = Arc::clone(&self.shared);
        let of_device = &shared.devices[device];
        let place = RingPlace {
            export: of_device.export,
            ring,
            serial: of_device.serial,
            write_cache: Arc::clone(&of_device.cache),
            refusal: Arc::clone(&of_device.refusal),
            submitter: Arc::clone(&of_device.submitter),
            counters: Arc::clone(counters),
        };
        let (inbox, panicked) = (Arc::clone(inbox), Arc::clone(inbox));
        let (is_ready, ready) = channel();
        let builder = Builder::new().name(format!("ring-{device}-{ring}"));
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
        self.rings.push(thread.map_err(system("cannot start a thread"))?);
        Ok(ready)
    }

    /// Hands a connection to a device.
    pub(crate) fn push(&self, device: usize, socket: OwnedFd) {
        let stream = UnixStream::from(socket);
        let counters = self.shared.counters.open_connection();
        let export = self.shared.devices[device].export;
        counters.set_export(export);
        let (id, opened_ns) = (counters.id(), now_ns());
        let connection = PendingConnection { stream, counters, opened_ns };
        let admission = self.connections[device].push(connection);
        let server = self.shared.counters.server();
        match &admission {
            Admission::TooMany => server.refuse(ConnectionRefusal::TooMany),
            Admission::Failed(error) if is_exhausted(error) => {
                server.refuse(ConnectionRefusal::NoDescriptor);
            }
            _ => {}
        }
        if let Some(outcome) = admission.line() {
            let name = &self.shared.exports.get(export).name;
            let line = format_args!("connection {id} from unix: export {name:?}: {outcome}");
            self.shared.log.line(now_ns(), line);
        }
    }

    /// Returns the number of connections, including those that wait for a device.
    pub(crate) fn nr_connections(&self) -> usize {
        self.connections.iter().map(|connections| connections.nr()).sum()
    }

    /// Makes the connections end. The rings stop taking requests, and answer those in flight.
    pub(crate) fn close(&self) {
        self.connections.iter().for_each(|connections| connections.close());
    }

    /// Waits until the threads have completed the requests in flight and ended. Returns how many
    /// have panicked.
    pub(crate) fn end(mut self) -> usize {
        self.close();
        let until = Instant::now() + REPLY_TIMEOUT;
        self.connections.iter().for_each(|queue| queue.end_replies(until, REPLY_TIMEOUT));
        // A channel that ends sends the stop command to its rings, which their threads answer.
        let died = nr_died(&mut self.channels);
        self.close_rings();
        died + nr_died(&mut self.rings)
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

impl Drop for DeviceThreads {
    fn drop(&mut self) {
        self.close();
        self.close_rings();
    }
}
