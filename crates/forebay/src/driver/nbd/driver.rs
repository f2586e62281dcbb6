//! Driver of an open export, which creates a connection for each queue.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::connect;
use super::link::{Failure, Link};
use super::queue::{NbdQueue, Shared};
use super::status;
use super::stream::{Credentials, Stream};
use super::waiter::NbdWait;
use crate::driver::refusal::Refusal;
use crate::driver::{Driver, Facts, Mode, Wait};
use crate::extent::Extents;
use forebay_core::BlockStatus;
use forebay_nbd::client::Negotiated;
use forebay_nbd::uri::Uri;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(super) struct NbdDriver {
    uri: Uri,
    /// For `nbds://`.
    credentials: Option<Credentials>,
    export: Negotiated,
    facts: Facts,
    /// The connection that opened the device, until a queue takes it.
    first: Mutex<Option<Stream>>,
    /// The connection of the shared context, once there is one.
    shared: OnceLock<Arc<Shared>>,
    failure: Failure,
    /// The server refused another connection, so later threads do not try again and wait for its
    /// reply. Relaxed: a thread that does not see it tries again.
    is_full: AtomicBool,
}

impl NbdDriver {
    pub(super) fn new(
        (uri, credentials): (Uri, Option<Credentials>),
        stream: Stream,
        export: Negotiated,
        facts: Facts,
    ) -> NbdDriver {
        let (first, shared) = (Mutex::new(Some(stream)), OnceLock::new());
        let (failure, is_full) = (Failure::default(), AtomicBool::new(false));
        NbdDriver { uri, credentials, export, facts, first, shared, failure, is_full }
    }

    /// Opens another connection to the same export and checks that its parameters are the same.
    fn connect(&self) -> io::Result<Stream> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(Refusal::from("the server refused another connection").into());
        }
        let connected =
            connect::connect(&self.uri, self.credentials.as_ref(), connect::MORE_TIMEOUT);
        let same = connected.and_then(|(stream, export)| match export == self.export {
            true => Ok(stream),
            false => {
                Err(Refusal::from("the server now reports different parameters for this export"))
            }
        });
        same.map_err(|why| {
            self.is_full.store(true, Ordering::Relaxed);
            io::Error::from(why)
        })
    }
}

// SAFETY: a connection ends each request once, after it has used its memory for the last time: all
// of it is sent, and nothing more is received for it (K5). A read is filled, or fails (K6). No
// method calls back (K7).
unsafe impl Driver for NbdDriver {
    type Queue = NbdQueue;

    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        let (Some(shared), Some(_)) = (self.shared.get(), self.export.allocation) else {
            return Ok(());
        };
        let limits = &self.facts.limits;
        let capacity = limits.capacity_bytes.unwrap_or(self.export.size_bytes);
        status::ask(shared, offset, u64::from(limits.logical_block_size), capacity, extents)
    }

    fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// An export keeps its size as long as its connections.
    fn size_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<(NbdQueue, Wait)> {
        let first = match mode {
            Mode::Shared => self.first.lock().unwrap_or_else(PoisonError::into_inner).take(),
            Mode::Owned => None,
        };
        let stream = match first {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let link = Link::new(stream, &self.export, depth, Arc::clone(&self.failure));
        let shared = Arc::new(Shared::new(link)?);
        if mode == Mode::Shared {
            let _ = self.shared.set(Arc::clone(&shared));
        }
        let wait = Wait::Blocking(Arc::new(NbdWait::new(Arc::clone(&shared), mode)));
        Ok((NbdQueue::new(shared), wait))
    }
}
