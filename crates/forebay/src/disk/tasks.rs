//! I/O of a disk as futures, and event loops that drive it.

use super::Disk;
use crate::future::IoFuture;
use crate::io::Io;
use crate::poll_handle::DiskPoll;
use crate::runtime::plug::plug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

impl Disk {
    /// Starts many I/Os under one plug, and returns their futures in the same order. Neighbours
    /// merge, and all requests start with one system call. If the calling thread has a plug open,
    /// they start when that one ends.
    ///
    /// Unlike [`start`](Disk::start), this submits the I/O before it returns, on the calling
    /// thread. So the futures may be awaited one after another: meanwhile all of them make
    /// progress. The future of an I/O that is refused returns the error.
    ///
    /// [`IoFuture`] lists the threads and event loops that make progress on the I/O. `ios` is
    /// iterated under the plug: if it makes a blocking call, earlier I/O starts then, and does not
    /// merge with the rest.
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
    /// #             return output;
    /// #         }
    /// #     }
    /// # }
    /// use forebay::{Buf, Disk, Io};
    ///
    /// async fn multi_get(disk: &Disk) -> Result<(), Box<dyn std::error::Error>> {
    ///     for read in disk.start_all((0..16).map(|n| Io::read(Buf::new(4096), n * 4096))) {
    ///         assert_eq!(read.await?.result, Ok(4096));
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let disk = Disk::open("ram:1M")?; // or "disk.img?direct=on", "/dev/vdb", ...
    /// block_on(multi_get(&disk))?;
    /// assert_eq!(disk.stats().queue.issued, 1); // sixteen reads, one request
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_all(&self, ios: impl IntoIterator<Item = Io>) -> Vec<IoFuture> {
        let _plug = plug();
        ios.into_iter().map(|io| IoFuture::started(Arc::clone(&self.shared), io)).collect()
    }

    /// Reaps completions of the shared hardware context and issues waiting I/O, without blocking.
    /// This makes progress for futures, and for all other users of that context.
    pub fn poll(&self) {
        self.shared.poll_shared();
    }

    /// Returns a handle of the descriptor of this disk, for an event loop that drives its futures.
    /// When the descriptor is readable, [`DiskPoll::poll`] is due. While the handle exists, futures
    /// start no thread. Every disk has a descriptor: where the device has none, it is a timer or an
    /// eventfd of the library.
    ///
    /// # Errors
    /// Fails if the process or the system can open no more descriptors, if a seccomp filter forbids
    /// setting timers, and in a child of a fork.
    ///
    /// ```
    /// use forebay::{Buf, Disk, Io};
    /// use std::os::fd::AsRawFd;
    /// use std::pin::pin;
    /// use std::task::{Context, Waker};
    ///
    /// let disk = Disk::open("ram:1M?req_ns=20000")?; // or "disk.img?direct=on", "/dev/vdb", ...
    /// let handle = disk.poll_handle()?;
    /// let mut read = pin!(disk.start(Io::read(Buf::new(4096), 0)));
    /// while read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
    ///     let fd = handle.as_raw_fd();
    ///     let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    ///     // SAFETY: `poll` is one valid entry.
    ///     unsafe { libc::poll(&mut poll, 1, -1) };
    ///     handle.poll();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_handle(&self) -> io::Result<DiskPoll> {
        DiskPoll::new(&self.shared)
    }

    /// Returns the descriptor of this disk for an event loop, as [`poll_handle`](Disk::poll_handle)
    /// does, for as long as the disk is borrowed. From the first call until the disk is closed, an
    /// event loop must drive the disk. (`service=on` keeps its thread.)
    ///
    /// # Errors
    /// Same as `poll_handle`.
    pub fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.shared.poll_fd()
    }
}
