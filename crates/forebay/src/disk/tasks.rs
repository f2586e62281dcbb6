//! I/O of a disk as futures.

use super::Disk;
use crate::future::IoFuture;
use crate::io::Io;
use crate::runtime::plug::plug;
use std::sync::Arc;

impl Disk {
    /// Starts many I/Os under one plug, and returns their futures in the same order. Neighbours
    /// merge, and all requests start with one system call. If the calling thread has a plug open,
    /// they start when that one ends.
    ///
    /// Unlike [`start`](Disk::start), it submits the I/O before it returns, on the calling thread.
    /// So the futures may be awaited one after another: meanwhile all of them make progress. The
    /// future of an I/O that is refused returns the error.
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
}
