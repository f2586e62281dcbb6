//! Sizes of the exports, and the threads that use them.
//!
//! Threads get new sizes by messages, so the I/O path compares with a plain number.

use forebay_nbd::export::ExportInfo;
use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for the threads of an export's rings. They do not wait for I/O.
const ANSWER: Duration = Duration::from_secs(10);

/// Inbox of a thread that uses sizes.
pub(crate) trait ResizeInbox<T>: fmt::Debug + Send + Sync {
    /// Adds new sizes, and wakes the thread. Does not wait for it.
    fn resize(&self, new: T);
}

/// A new size of a ring's disk.
#[derive(Debug)]
pub(crate) struct NewSize {
    /// The size in bytes.
    pub(crate) size_bytes: u64,
    /// Receives a message when the ring accepts requests up to that size. A thread that has ended
    /// drops it.
    pub(crate) answer: SyncSender<()>,
}

/// Inbox of a worker. It uses the new sizes before it serves connections that are added later.
type NbdInbox = dyn ResizeInbox<Arc<[ExportInfo]>>;

/// Sizes of the exports, and the threads that use them.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// Held during a reload, and while an export is added or withdrawn, so that the steps of two
    /// changes do not mix.
    turn: Mutex<()>,
    /// Held for a moment, never during a wait. A thread is added before it starts, and loads the
    /// sizes when it has started. So each change reaches it: by its first load, or by a message.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    infos: Arc<[ExportInfo]>,
    workers: Vec<Arc<NbdInbox>>,
    /// The rings of all devices, with the index of their export.
    rings: Vec<(usize, Arc<dyn ResizeInbox<NewSize>>)>,
}

impl Sizes {
    pub(crate) fn new(infos: Arc<[ExportInfo]>) -> Sizes {
        let state = State { infos, workers: Vec::new(), rings: Vec::new() };
        Sizes { turn: Mutex::default(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under this lock is complete even if a panic follows.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for other changes. The caller changes sizes while it holds the guard.
    pub(crate) fn begin(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptions of the exports, with their present sizes.
    pub(crate) fn infos(&self) -> Arc<[ExportInfo]> {
        Arc::clone(&self.state().infos)
    }

    /// Adds a worker, before its thread starts.
    pub(crate) fn add_worker(&self, inbox: Arc<NbdInbox>) {
        self.state().workers.push(inbox);
    }

    /// Adds a ring of an export, before its thread starts.
    pub(crate) fn add_ring(&self, export: usize, inbox: Arc<dyn ResizeInbox<NewSize>>) {
        self.state().rings.push((export, inbox));
    }

    /// Removes the rings of an export, whose threads have ended.
    pub(crate) fn remove_rings(&self, export: usize) {
        self.state().rings.retain(|(of, _)| *of != export);
    }

    /// Replaces the descriptions of the exports, for NBD clients too.
    pub(crate) fn set(&self, infos: Arc<[ExportInfo]>) {
        let mut state = self.state();
        state.workers.iter().for_each(|worker| worker.resize(Arc::clone(&infos)));
        state.infos = infos;
    }

    /// Replaces the descriptions of the exports, for threads that start later. The caller sends
    /// them to the workers.
    pub(crate) fn set_for_new_threads(&self, infos: Arc<[ExportInfo]>) {
        self.state().infos = infos;
    }

    /// Waits until the rings of an export accept requests up to this size.
    ///
    /// # Errors
    /// Returns the reason if a ring does not. The others may accept them already.
    pub(crate) fn resize_rings(&self, export: usize, size_bytes: u64) -> Result<(), &'static str> {
        let rings: Vec<_> = {
            let state = self.state();
            let of_export = state.rings.iter().filter(|(of, _)| *of == export);
            of_export.map(|(_, ring)| Arc::clone(ring)).collect()
        };
        let (sender, answers) = sync_channel(rings.len());
        for ring in &rings {
            ring.resize(NewSize { size_bytes, answer: sender.clone() });
        }
        drop(sender);
        let until = Instant::now() + ANSWER;
        for _ in rings {
            let left = until.saturating_duration_since(Instant::now());
            answers.recv_timeout(left).map_err(|error| match error {
                RecvTimeoutError::Timeout => {
                    "a ring has not accepted the new size in time: reload again"
                }
                RecvTimeoutError::Disconnected => {
                    "the thread of a ring has ended: restart the server"
                }
            })?;
        }
        Ok(())
    }
}
