//! A tokio task that drives the futures of a disk.
// It registers a descriptor with the runtime, which requires that the descriptor stays open.
#![allow(unsafe_code)]

use super::Disk;
use crate::poll_handle::DiskPoll;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::yield_now;

impl Disk {
    /// Returns a future that drives the futures of this disk from a tokio runtime, instead of a
    /// thread of the disk. It waits for the descriptor of the disk
    /// ([`poll_handle`](Disk::poll_handle)), and reaps. From this call on, futures of the disk
    /// start no thread, and a thread that a future has started ends. So spawn the returned future
    /// immediately, and only once for each disk. Needs the feature `tokio`.
    ///
    /// The future does not keep the disk open, and is ready once the disk is closed. If it is
    /// dropped before that, a thread of the disk takes over, so no other future waits forever.
    ///
    /// # Errors
    /// The future fails if the process or the system can open no more descriptors, if it is polled
    /// outside a tokio runtime, if another future drives the disk in the same runtime, if this is a
    /// child of a fork, or when the runtime shuts down.
    ///
    /// # Panics
    /// The future panics if the runtime was built without `enable_io`.
    ///
    /// ```
    /// use forebay::{Buf, Disk, Io};
    ///
    /// async fn first_block(disk: &Disk) -> Result<Option<Buf>, Box<dyn std::error::Error>> {
    ///     let read = disk.start(Io::read(Buf::new(4096), 0)).await?;
    ///     read.result?;
    ///     Ok(read.buf)
    /// }
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let disk = Disk::open("ram:1M?req_ns=20000")?; // or "disk.img?direct=on", ...
    ///     let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    ///     runtime.block_on(async {
    ///         let driver = tokio::spawn(disk.drive());
    ///         assert!(first_block(&disk).await?.is_some());
    ///         drop(disk);
    ///         Ok(driver.await??) // it ends with the disk
    ///     })
    /// }
    /// ```
    pub fn drive(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        // Taken now and not in the first poll, so that no other future starts a thread before it.
        let handle = self.poll_handle();
        async move { drive(handle?).await }
    }
}

/// Polls the disk each time the descriptor is readable, until the disk is closed.
async fn drive(handle: DiskPoll) -> io::Result<()> {
    // `AsyncFd` would panic.
    Handle::try_current().map_err(io::Error::other)?;
    // SAFETY: the handle returns the same descriptor each time, and keeps it open until it is
    // dropped. `AsyncFd` owns the handle, and the descriptor is deregistered first.
    let fd = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) };
    let fd = fd.map_err(|error| error.into_parts().1)?;
    loop {
        let mut readable = fd.readable().await?;
        if !fd.get_ref().poll() {
            return Ok(());
        }
        // The runtime waits for edges, but the descriptor is level-triggered. If it is still
        // readable, because another thread makes the turn, there may be no further edge.
        if fd.get_ref().is_readable() {
            drop(readable);
            yield_now().await;
        } else {
            // An edge since the test is not cleared: the runtime clears only the event that it had
            // delivered before.
            readable.clear_ready();
        }
    }
}
