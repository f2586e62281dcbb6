//! Thread that looks for the pool of an image after a refusal.
//!
//! An OSD refuses all operations on a removed pool with `EPERM`, and gives no better reason. The
//! lookup of the pool may wait for a monitor, so the thread that reaps must not do it.

use super::cluster::Cluster;
use super::gone::Gone;
use super::status;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The least time between the starts of two lookups.
const PERIOD: Duration = Duration::from_millis(100);

/// The last lookup: its start, and its thread.
#[derive(Debug, Default)]
pub(super) struct PoolCheck(Mutex<Option<(Instant, JoinHandle<()>)>>);

impl PoolCheck {
    /// Starts a lookup, unless one runs or has begun a moment ago. Sets the image as gone if the
    /// pool has been removed.
    pub(super) fn start(&self, cluster: &Arc<Cluster>, gone: &Arc<Gone>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last
            .as_ref()
            .is_some_and(|(since, thread)| since.elapsed() < PERIOD || !thread.is_finished())
        {
            return;
        }
        let (cluster, gone) = (Arc::clone(cluster), Arc::clone(gone));
        let look = move || {
            if !cluster.has_pool() {
                gone.set(status::why_gone(-i64::from(libc::ENOENT)));
            }
        };
        let thread = thread::Builder::new().name(String::from("forebay-pool")).spawn(look);
        // Without a thread, the next refusal starts one.
        *last = thread.ok().map(|thread| (Instant::now(), thread));
    }

    /// Waits for the last lookup.
    pub(super) fn join(&mut self) {
        if let Some((_, thread)) = self.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }

    /// Forgets a thread of the parent, in a child of a fork.
    pub(super) fn forget(&mut self) {
        mem::forget(self.take());
    }

    fn take(&mut self) -> Option<(Instant, JoinHandle<()>)> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }
}
