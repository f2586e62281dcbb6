//! Device for an open file, which creates a ring for each queue.

use super::base::{self, Base};
use super::commands::Commands;
use super::enter::Kernel;
use super::event::Event;
use super::forbidden::{Forbidden, Verdict};
use super::inline::{Inline, Writes};
use super::registered::{self, Pins};
use super::restrictions;
use super::uring::UringDriver;
use super::waiter::UringWaiter;
use crate::arena::Arena;
use crate::claim::QueueFile;
use crate::driver::own_call::OwnCalls;
use crate::driver::zeroing::Ranges;
use crate::driver::{Device, DriverQueue, Mode, holes, own_file};
use crate::extent::Extents;
use crate::info::Feature;
use forebay_core::{BlockStatus, QueueLimits};
use io_uring::IoUring;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

pub(super) struct FileDevice {
    file: Arc<QueueFile>,
    limits: QueueLimits,
    ranges: Ranges,
    writes: Writes,
    /// The kernel supports single-issuer rings that run completions on demand (`DEFER_TASKRUN`).
    defers: bool,
    /// Resources that all rings share.
    base: Option<Base>,
    /// Memory that callers have registered.
    pins: Arc<Pins>,
    /// The reason why rings of this device have ended.
    verdict: Verdict,
}

impl FileDevice {
    /// Creates the device and tests which kind of ring the kernel supports.
    ///
    /// # Errors
    /// Returns the kernel's error if there are no rings.
    pub(super) fn new(
        file: Arc<QueueFile>,
        limits: QueueLimits,
        ranges: Ranges,
        writes: Writes,
        base: Option<Base>,
    ) -> io::Result<FileDevice> {
        let polls = base.as_ref().is_some_and(Base::polls);
        // With a kernel thread that submits, that thread completes as well.
        let defers = !polls && single_issuer(1).is_ok();
        if !defers {
            IoUring::new(1)?;
        }
        let writes = match polls {
            true => Writes::Ring("sqpoll=on: the kernel's thread"),
            false => writes,
        };
        let (pins, verdict) = (Arc::default(), Verdict::default());
        Ok(FileDevice { file, limits, ranges, writes, defers, base, pins, verdict })
    }

    pub(super) fn features(&self) -> Vec<Feature> {
        let polls = self.base.as_ref().is_some_and(Base::polls);
        let mut features = vec![
            Feature::present("io_uring", "a ring for each queue, restricted to its file"),
            match self.defers {
                _ if polls => Feature::missing("defer_taskrun", "sqpoll=on: the kernel's thread"),
                true => Feature::present(
                    "defer_taskrun",
                    "completions run when the thread asks for them",
                ),
                false => Feature::missing("defer_taskrun", "needs Linux 6.1"),
            },
        ];
        features.push(self.writes.feature());
        features.extend(base::features(self.base.as_ref()));
        features
    }
}

/// Creates a ring that runs completions when the kernel chooses, with the shared resources. The
/// ring is disabled at first, like the next two.
fn plain(entries: u32, base: Option<&Base>) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    if let Some(base) = base {
        base.share(&mut builder);
    }
    builder.setup_r_disabled().build(entries)
}

/// Creates a ring for one thread, which runs completions when that thread asks for them.
fn single_issuer(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_r_disabled()
        .build(entries)
}

/// Creates a ring for any thread. Completions run at once in the submitting thread and interrupt
/// it. A kick needs an entry as well.
fn many_issuers(depth: u32, base: Option<&Base>) -> io::Result<IoUring> {
    let ring = plain((depth + 1).next_power_of_two(), base)?;
    match ring.params().is_feature_ext_arg() {
        true => Ok(ring),
        false => Err(io::Error::new(io::ErrorKind::Unsupported, "it needs Linux 5.11")),
    }
}

impl Device for FileDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        self.base.as_ref()?.arena()
    }

    fn can_register_memory(&self) -> bool {
        self.arena().is_none() && registered::is_supported()
    }

    fn failure(&self) -> Option<String> {
        self.verdict.text()
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        holes::of_file(&self.file, offset, extents)
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        let base = self.base.as_ref();
        let ring = match mode {
            Mode::Owned if self.defers => single_issuer(depth.next_power_of_two())?,
            Mode::Owned => plain(depth.next_power_of_two(), base)?,
            Mode::Shared => many_issuers(depth, base)?,
        };
        let file = own_file::for_queue(&self.file, mode)?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        base.map_or(Ok(()), |base| base.register_with(&ring))?;
        let has_vectored_fixed = restrictions::enable(&ring)?;
        let event = (mode == Mode::Owned && self.defers).then(Arc::<Event>::default);
        let commands = Commands::new(&self.limits, depth, self.arena().cloned());
        let tells = event.clone();
        // With `sqpoll=on` the kernel's thread starts all I/O.
        let has_own_calls = mode == Mode::Shared && !ring.params().is_setup_sqpoll();
        let own = has_own_calls.then(|| Arc::new(OwnCalls::new(depth, true)));
        let own_file = own.clone().map(|own| (own, Arc::clone(&file)));
        let mut driver = UringDriver::new(ring, Kernel, event, mode, file, self.ranges, commands);
        driver.own = own;
        driver.inline = Inline::new(self.writes, mode, depth);
        driver.forbidden = Forbidden::new(&self.verdict, driver.ring().params().sq_entries());
        let left = Arc::clone(driver.left());
        let mut waiter = UringWaiter::new(driver.ring(), tells, left, own_file)?;
        if self.arena().is_none() {
            driver.set_memory(waiter.make_memory(&self.pins), has_vectored_fixed);
        }
        Ok(DriverQueue { driver: Box::new(driver), waiter: Arc::new(waiter) })
    }
}
