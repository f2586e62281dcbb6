//! Device of an open image.

use super::extents;
use super::image::Image;
use super::lock::LockWatch;
use super::queue::RbdDriver;
use crate::driver::{Device, DriverQueue, Mode};
use crate::extent::Extents;
use forebay_core::{BlockStatus, QueueLimits};
use std::io;
use std::sync::Arc;

pub(super) struct RbdDevice {
    /// Ends before the image is closed.
    _lock: Option<LockWatch>,
    image: Arc<Image>,
    limits: QueueLimits,
    /// The image is open for writing, so librbd watches it, and notices a resize.
    is_watched: bool,
}

impl RbdDevice {
    pub(super) fn new(
        image: Arc<Image>,
        lock: Option<LockWatch>,
        limits: QueueLimits,
        is_watched: bool,
    ) -> RbdDevice {
        RbdDevice { _lock: lock, image, limits, is_watched }
    }
}

impl Device for RbdDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        let size = self.image.size_bytes().map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.image.status_of(-i64::from(errno), forebay_core::Op::Read)
        })?;
        extents::of_image(&self.image, size, offset, extents)
    }

    fn failure(&self) -> Option<String> {
        self.image.why_gone().map(str::to_owned)
    }

    fn reread_len(&self) -> io::Result<Option<u64>> {
        self.is_watched.then(|| self.image.size_bytes()).transpose()
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let driver = RbdDriver::new(&self.image, depth, self.limits.max_segments, mode);
        let waiter = driver.waiter();
        Ok(DriverQueue { driver: Box::new(driver), waiter })
    }
}
