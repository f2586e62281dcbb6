//! Back ends made of futures: each request is served by a future of its own.

use super::{Backend, Batch, Request};
use std::fmt;

/// A [`Backend`] that serves each request with a future, on any executor.
///
/// `serve` makes the future of a request, and `spawn` starts it: `tokio::spawn`, for example. The
/// future owns the request, and completes it. A future that is dropped, or panics, ends its request
/// as a drop does.
///
/// `spawn` is called inside of [`Backend::submit`], so the same rules apply to it: it must not wait
/// for I/O of the same disk. An executor that runs futures only on the thread that calls `spawn`
/// must not be blocked by that disk's blocking calls.
///
/// ```
/// use forebay::{AsyncBackend, BlockStatus, Disk, Policy, QueueLimits, Request};
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     let mut future = std::pin::pin!(future);
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     loop {
/// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
/// #             return output;
/// #         }
/// #     }
/// # }
///
/// /// Serves one request.
/// async fn serve(request: Request) {
///     request.complete(Err(BlockStatus::NotSupported));
/// }
///
/// // In place of an executor, a thread for each request.
/// let spawn = |future| drop(std::thread::spawn(|| block_on(future)));
/// let limits = QueueLimits::default().capacity_bytes(Some(1 << 20));
/// let backend = AsyncBackend::new("nothing", serve, spawn);
/// let disk = Disk::with_backend(backend, limits, Policy::default())?;
/// assert!(disk.read_at(&mut [0; 512], 0).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncBackend<S, R> {
    name: String,
    serve: S,
    spawn: R,
}

impl<S, R, F> AsyncBackend<S, R>
where
    S: Fn(Request) -> F + Send + Sync + 'static,
    R: Fn(F) + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    /// Creates a back end that serves each request with a future from `serve`, started by `spawn`.
    pub fn new(name: impl Into<String>, serve: S, spawn: R) -> AsyncBackend<S, R> {
        AsyncBackend { name: name.into(), serve, spawn }
    }
}

impl<S, R, F> Backend for AsyncBackend<S, R>
where
    S: Fn(Request) -> F + Send + Sync + 'static,
    R: Fn(F) + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        for request in batch {
            (self.spawn)((self.serve)(request));
        }
    }
}

impl<S, R> fmt::Debug for AsyncBackend<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncBackend").field("name", &self.name).finish_non_exhaustive()
    }
}
