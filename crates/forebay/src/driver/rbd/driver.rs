//! Driver of an open image: its facts, its extents and its size.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::extents;
use super::image::Image;
use super::lock::LockWatch;
use super::queue::RbdQueue;
use crate::driver::{Driver, Facts, Mode, Wait};
use crate::extent::Extents;
use forebay_core::BlockStatus;
use std::io;
use std::sync::Arc;

pub(super) struct RbdDriver {
    /// Ends before the image is closed.
    _lock: Option<LockWatch>,
    image: Arc<Image>,
    facts: Facts,
    size: Size,
}

/// How the size of an image is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// The image is open for writing, so librbd watches it, and notices a resize.
    Watched,
    /// The image is open read-only.
    Reopened,
    /// That of a snapshot does not change.
    Fixed,
}

impl RbdDriver {
    pub(super) fn new(
        image: Arc<Image>,
        lock: Option<LockWatch>,
        facts: Facts,
        size: Size,
    ) -> RbdDriver {
        RbdDriver { _lock: lock, image, facts, size }
    }
}

// SAFETY: librbd ends each command once, after it has used its memory for the last time (K5), and
// reads in full or fails (K6). Its callback only adds to a list (K7).
unsafe impl Driver for RbdDriver {
    type Queue = RbdQueue;

    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(RbdQueue, Wait)> {
        let queue = RbdQueue::new(&self.image, depth, self.facts.limits.max_segments);
        let wait = queue.wait();
        Ok((queue, wait))
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        let size = self.image.size_bytes().map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.image.status_of(-i64::from(errno), forebay_core::Op::Read)
        })?;
        extents::of_image(&self.image, size, offset, extents)
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        match self.size {
            Size::Watched => self.image.size_bytes().map(Some),
            Size::Reopened => self.image.reread_size().map(Some),
            Size::Fixed => Ok(None),
        }
    }

    fn failure(&self) -> Option<String> {
        self.image.why_gone().map(str::to_owned)
    }
}
