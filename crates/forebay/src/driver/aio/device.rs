//! Device for an open file, which creates a context for each queue.

use super::context::Context;
use super::driver::AioDriver;
use super::waiter::AioWaiter;
use crate::driver::own_call::OwnCalls;
use crate::driver::psync::call::Target;
use crate::driver::psync::pool::Pool;
use crate::driver::psync::queue::Queue;
use crate::driver::{Device, DriverQueue, Mode, holes};
use crate::error::OpenError;
use crate::extent::Extents;
use crate::info::Feature;
use crate::sys::event::Event;
use forebay_core::{BlockStatus, QueueLimits};
use std::io;
use std::sync::Arc;

pub(in crate::driver) struct AioDevice {
    target: Arc<Target>,
    limits: QueueLimits,
    /// One thread, because the kernel's AIO neither discards nor zeroes ranges.
    pool: Arc<Pool>,
    is_direct: bool,
}

impl AioDevice {
    pub(in crate::driver) fn new(target: Target, limits: QueueLimits, is_direct: bool) -> Self {
        AioDevice { target: Arc::new(target), limits, pool: Arc::new(Pool::new(1)), is_direct }
    }

    /// Opens a driver and its waiter.
    pub(super) fn open_parts(
        &self,
        depth: u32,
        mode: Mode,
    ) -> io::Result<(AioDriver, Arc<AioWaiter>)> {
        let context = Arc::new(Context::new(depth)?);
        let event = Arc::new(Event::new_blocking()?);
        let target = Target::for_queue(&self.target, mode)?;
        let helper = Arc::new(Queue::new(target, depth, Some(Arc::clone(&event))));
        let own = (mode == Mode::Shared).then(|| OwnCalls::new(depth, true));
        let waiter = Arc::new(AioWaiter::new(context, event, helper, own));
        let pool = Arc::clone(&self.pool);
        let driver =
            AioDriver::new(Arc::clone(&waiter), pool, mode, self.limits.max_segments, depth);
        Ok((driver, waiter))
    }

    pub(in crate::driver) fn feature(&self) -> Feature {
        let what = "io_submit, a context for each queue; a thread for discards and write-zeroes";
        match self.is_direct {
            true => Feature::present("aio", what),
            false => Feature::present(
                "aio",
                format!(
                    "{what}; without direct=on, the submitting thread waits for reads and writes"
                ),
            ),
        }
    }
}

/// Converts the kernel's error to the reason why there is no context.
pub(in crate::driver) fn no_aio(source: io::Error) -> OpenError {
    let hint = match source.raw_os_error() {
        Some(libc::EAGAIN) => "; raise /proc/sys/fs/aio-max-nr, or lower queue_depth",
        Some(libc::EPERM) => "; a container's seccomp profile forbids it",
        Some(libc::ENOSYS) => "; this kernel, or a container's seccomp profile, does not have it",
        Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
        _ => "",
    };
    OpenError::NoAio { source, hint }
}

impl Device for AioDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        holes::of_file(&self.target.file, offset, extents)
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let (driver, waiter) = self.open_parts(depth, mode)?;
        Ok(DriverQueue { driver: Box::new(driver), waiter })
    }

    fn refusal(&self, source: io::Error) -> OpenError {
        no_aio(source)
    }
}
