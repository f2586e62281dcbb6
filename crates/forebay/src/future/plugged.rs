//! A plug around each poll of a future.

use crate::runtime::plug::plug;
use crate::runtime::thread;
use std::future::poll_fn;
use std::pin::pin;

/// Runs a future, with a [`plug`](crate::plug()) around each of its polls. So the I/O that one poll
/// submits is one batch, and neighbours merge, even if different tasks of the poll submit them.
/// Wrap a future that polls many others, such as a join of futures, a `FuturesUnordered` or a tokio
/// `LocalSet`.
///
/// The plug ends with each poll and is never open across an `.await`. So the future is `Send` if
/// `future` is, and each poll may be on another thread. Plugs nest: inside another plug, this one
/// has no effect.
///
/// # Latency
/// The I/O of a poll starts when the poll returns, when a limit of the plug is reached (32 requests
/// of a disk, or 128 KiB in the newest), or before a blocking call. Code in the same poll delays
/// the I/O: a task that computes for 1 ms after another one has submitted a read delays that read
/// by 1 ms. A poll that submits one I/O gains nothing. An executor polls each spawned task alone,
/// so a wrapped task merges only its own I/O. During the poll, do not wait for another thread that
/// needs I/O of the plug.
///
/// # Panics
/// If `future` panics, the plug ends too: the I/O that the poll has submitted starts.
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
/// use std::task::Poll;
///
/// let disk = Disk::open("ram:1M")?; // or "disk.img?direct=on", "/dev/vdb", ...
/// let mut reads: Vec<_> =
///     (0..16).map(|n| Box::pin(disk.start(Io::read(Buf::new(4096), n * 4096)))).collect();
/// // A join of sixteen futures.
/// let join = std::future::poll_fn(|context| {
///     reads.retain_mut(|read| read.as_mut().poll(context).is_pending());
///     if reads.is_empty() { Poll::Ready(()) } else { Poll::Pending }
/// });
/// block_on(forebay::plugged(join));
/// assert_eq!(disk.stats().queue.issued, 1); // sixteen reads, one request
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn plugged<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let poll = poll_fn(|context| {
        let plug = plug();
        let polled = future.as_mut().poll(context);
        drop(plug);
        // `LoopEnd` commits before this thread waits, and an executor waits elsewhere.
        thread::commit_before_wait();
        polled
    });
    poll.await
}
