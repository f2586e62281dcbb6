//! An open file, and the rings that are made for its queues.

use super::enter::Kernel;
use super::event::Event;
use super::uring::UringDriver;
use super::waiter::UringWaiter;
use crate::driver::{Device, DriverQueue, Mode};
use crate::info::Feature;
use forebay_core::QueueLimits;
use io_uring::IoUring;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

pub(super) struct FileDevice {
    file: Arc<File>,
    limits: QueueLimits,
    /// Whether the kernel has rings for one thread that run completions when asked for them.
    defers: bool,
}

impl FileDevice {
    /// Tries whether there are rings, and of which kind.
    ///
    /// # Errors
    /// The kernel's, where there are none.
    pub(super) fn new(file: File, limits: QueueLimits) -> io::Result<FileDevice> {
        let defers = single_issuer(1).is_ok();
        if !defers {
            IoUring::new(1)?;
        }
        Ok(FileDevice { file: Arc::new(file), limits, defers })
    }

    pub(super) fn features(&self) -> [Feature; 2] {
        [
            Feature::present("io_uring", "a ring for each queue, registered file"),
            match self.defers {
                true => {
                    Feature::present("defer_taskrun", "completions run when they are asked for")
                }
                false => Feature::missing("defer_taskrun", "needs Linux 6.1"),
            },
        ]
    }
}

/// A ring for one thread, whose completions run when that thread asks for them.
fn single_issuer(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries)
}

/// A ring for any thread. Its completions run at once, in the thread that submitted, whatever that
/// is doing; a kick needs an entry as well.
fn many_issuers(depth: u32) -> io::Result<IoUring> {
    let ring = IoUring::new((depth + 1).next_power_of_two())?;
    match ring.params().is_feature_ext_arg() {
        true => Ok(ring),
        false => Err(io::Error::new(io::ErrorKind::Unsupported, "it needs Linux 5.11")),
    }
}

impl Device for FileDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let ring = match mode {
            Mode::Owned if self.defers => single_issuer(depth.next_power_of_two())?,
            Mode::Owned => IoUring::new(depth.next_power_of_two())?,
            Mode::Shared => many_issuers(depth)?,
        };
        ring.submitter().register_files(&[self.file.as_raw_fd()])?;
        let event = (mode == Mode::Owned && self.defers).then(Arc::<Event>::default);
        let waiter = UringWaiter::new(&ring, event.clone())?;
        let file = Arc::clone(&self.file);
        let driver = UringDriver::new(ring, Kernel, event, mode, file, self.limits, depth);
        Ok(DriverQueue { driver: Box::new(driver), waiter: Arc::new(waiter) })
    }
}
