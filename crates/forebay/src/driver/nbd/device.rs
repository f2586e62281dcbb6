//! An export that is open, and the connections that are made for its queues.

use super::connect;
use super::link::{Failure, Link};
use super::queue::{NbdDriver, Shared};
use super::status;
use super::stream::Stream;
use super::waiter::NbdWaiter;
use crate::driver::{Device, DriverQueue, Mode};
use crate::error::OpenError;
use crate::extent::Extents;
use forebay_core::{BlockStatus, QueueLimits};
use forebay_nbd::client::Export;
use forebay_nbd::uri::Uri;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(super) struct NbdDevice {
    uri: Uri,
    export: Export,
    limits: QueueLimits,
    /// The connection by which it was opened, until a queue takes it.
    first: Mutex<Option<Stream>>,
    /// That of the shared context, once there is one.
    shared: OnceLock<Arc<Shared>>,
    failure: Failure,
}

impl NbdDevice {
    pub(super) fn new(uri: Uri, stream: Stream, export: Export, limits: QueueLimits) -> NbdDevice {
        let (first, failure) = (Mutex::new(Some(stream)), Failure::default());
        NbdDevice { uri, export, limits, first, shared: OnceLock::new(), failure }
    }

    /// Another connection to the same export, with the same answers.
    fn connect(&self) -> io::Result<Stream> {
        let (stream, export) = connect::connect(&self.uri).map_err(io::Error::other)?;
        match export == self.export {
            true => Ok(stream),
            false => Err(io::Error::other("the server tells another story of the export now")),
        }
    }
}

impl Device for NbdDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        let (Some(shared), Some(_)) = (self.shared.get(), self.export.allocation) else {
            return Ok(());
        };
        let capacity = self.limits.capacity_bytes.unwrap_or(self.export.size_bytes);
        status::ask(shared, offset, u64::from(self.limits.logical_block_size), capacity, extents)
    }

    fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
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
        let waiter = Arc::new(NbdWaiter::new(Arc::clone(&shared)));
        let driver = NbdDriver::new(shared, mode);
        Ok(DriverQueue { driver: Box::new(driver), waiter })
    }

    fn refusal(&self, source: io::Error) -> OpenError {
        OpenError::Nbd { uri: self.uri.to_string(), why: source.to_string() }
    }
}
