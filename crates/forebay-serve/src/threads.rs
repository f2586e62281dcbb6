//! The threads of a server: begun together, and ended together, whatever becomes of one of them.

use crate::error::{ServeError, system};
use crate::server::Shared;
use crate::worker::Worker;
use crate::worker::door::{Arrival, Door};
use crate::worker::status::Asker;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long workers may take until clients are let in all the same.
const READY: Duration = Duration::from_secs(5);

/// The workers. Dropping it has them end by themselves.
#[derive(Debug)]
pub(crate) struct Threads {
    doors: Vec<Arc<Door>>,
    workers: Vec<JoinHandle<()>>,
    /// Readable as soon as a worker has panicked.
    panicked: Arc<OwnedFd>,
}

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// If there are not enough threads or descriptors. Those that were started end.
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Threads, ServeError> {
        let panicked = eventfd(0, EventfdFlags::CLOEXEC);
        let panicked = panicked.map_err(|error| system("a descriptor")(error.into()))?;
        let (doors, workers) = (Vec::new(), Vec::new());
        let mut threads = Threads { doors, workers, panicked: Arc::new(panicked) };
        let nr_clients = shared.limits.connections;
        let asker = Asker::start(&shared.exports, nr_clients);
        let asker = asker.map_err(system("starting a thread"))?;
        let mut readies = Vec::new();
        for number in 0..shared.limits.threads.max(1) {
            let door = Arc::new(
                Door::new(Arc::clone(&threads.panicked))
                    .map_err(system("a descriptor for a thread"))?,
            );
            threads.doors.push(Arc::clone(&door));
            let ready = threads.start_worker(number, shared, door, &asker)?;
            readies.push(ready);
        }
        // Disks on other servers are connected to for each thread: no client is to wait for that,
        // and nobody who has the server stop for long. Who has panicked tells by its end.
        let until = Instant::now() + READY;
        for ready in readies {
            let _ = ready.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
        Ok(threads)
    }

    /// Starts one. What is returned ends when the worker has its queues.
    fn start_worker(
        &mut self,
        number: usize,
        shared: &Arc<Shared>,
        door: Arc<Door>,
        asker: &Arc<Asker>,
    ) -> Result<Receiver<()>, ServeError> {
        let epoll = Worker::epoll(&door).map_err(system("a descriptor for a thread"))?;
        let (shared, asker, told) = (Arc::clone(shared), Arc::clone(asker), Arc::clone(&door));
        let (is_ready, ready) = channel();
        let builder = std::thread::Builder::new().name(format!("worker-{number}"));
        let thread = builder.spawn(move || {
            let worker = AssertUnwindSafe(|| {
                let worker = Worker::new(shared, door, asker, epoll);
                drop(is_ready);
                worker.run();
            });
            if let Err(panic) = catch_unwind(worker) {
                // Its clients would wait for ever: the server ends, and who started it may start
                // it anew. (A worker that was there has told already.)
                told.tell_panic();
                resume_unwind(panic);
            }
        });
        self.workers.push(thread.map_err(system("starting a thread"))?);
        Ok(ready)
    }

    /// Readable as soon as a worker has panicked.
    pub(crate) fn panicked(&self) -> BorrowedFd<'_> {
        self.panicked.as_fd()
    }

    /// Hands a connection to the worker that has the fewest.
    pub(crate) fn bring(&self, arrival: Arrival) {
        let door = self.doors.iter().min_by_key(|door| door.nr_conns());
        door.expect("there is a thread").bring(arrival);
    }

    /// Has them finish what they have begun, and waits for that. They bound their own end, as far
    /// as disks answer: connections that do not take their replies are closed.
    ///
    /// # Errors
    /// If one has panicked.
    pub(crate) fn end(mut self) -> Result<(), ServeError> {
        self.close();
        let died = self.workers.drain(..).filter_map(|thread| thread.join().err()).count();
        if died == 0 { Ok(()) } else { Err(ServeError::Panicked) }
    }

    fn close(&self) {
        self.doors.iter().for_each(|door| door.close());
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
impl Threads {
    pub(crate) fn door(&self, worker: usize) -> &Arc<Door> {
        &self.doors[worker]
    }
}
