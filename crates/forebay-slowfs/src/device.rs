//! The device below the file: memory, the time of a flush, and planned failures.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct Device {
    data: File,
    size: u64,
    flush: Duration,
    nr_flushes: AtomicU64,
    plan: Mutex<Plan>,
    /// Ends the sleep of a flush when the device is removed.
    removed: Condvar,
}

#[derive(Debug, Default)]
struct Plan {
    /// The errors of flushes, by their number.
    failures: BTreeMap<u64, Errno>,
    /// Whether every I/O fails from now on.
    is_removed: bool,
}

/// A flush that the device has received.
#[derive(Debug)]
pub(crate) struct Flush {
    nth: u64,
    at: Instant,
}

impl Device {
    pub(crate) fn new(size: u64, flush: Duration) -> io::Result<Device> {
        let data = File::from(memfd_create("forebay-slowfs", MemfdFlags::CLOEXEC)?);
        data.set_len(size)?;
        Ok(Device {
            data,
            size,
            flush,
            nr_flushes: AtomicU64::new(0),
            plan: Mutex::default(),
            removed: Condvar::new(),
        })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn nr_flushes(&self) -> u64 {
        self.nr_flushes.load(Ordering::SeqCst)
    }

    pub(crate) fn fail_flush(&self, nth: u64, errno: i32) {
        let errno = Errno::from_raw_os_error(errno);
        let is_error = (1..1000).contains(&errno.raw_os_error());
        assert!(is_error && errno != Errno::NOSYS, "{errno:?} is no error of a flush");
        self.plan().failures.insert(nth, errno);
    }

    /// Makes all I/O fail from now on, waiting flushes included.
    pub(crate) fn remove(&self) {
        self.plan().is_removed = true;
        self.removed.notify_all();
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        // No code panics between two changes that belong together.
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), Errno> {
        if self.plan().is_removed { Err(Errno::IO) } else { Ok(()) }
    }

    /// Reads into `memory`. Returns the number of bytes, which is smaller at the end of the file.
    pub(crate) fn read(&self, memory: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.check()?;
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = memory.len().min(left);
        self.data.read_exact_at(&mut memory[..len], offset).map_err(|_| Errno::IO)?;
        Ok(len)
    }

    /// Writes all of `data`. The file does not grow.
    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        self.check()?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.size) {
            return Err(Errno::NOSPC);
        }
        self.data.write_all_at(data, offset).map_err(|_| Errno::IO)
    }

    /// Counts a flush that has arrived.
    pub(crate) fn accept_flush(&self) -> Flush {
        let nth = self.nr_flushes.fetch_add(1, Ordering::SeqCst) + 1;
        Flush { nth, at: Instant::now() }
    }

    /// Executes a flush: sleeps until its time is over. The time starts when the flush has arrived
    /// and the device is idle. `idle_at` is when it became idle, and changes to the end of this
    /// flush.
    pub(crate) fn execute(
        &self,
        flush: &Flush,
        idle_at: &mut Option<Instant>,
    ) -> Result<(), Errno> {
        let start = idle_at.map_or(flush.at, |idle_at| idle_at.max(flush.at));
        let end = start + self.flush;
        *idle_at = Some(end);
        let left = end.saturating_duration_since(Instant::now());
        let sleep = self.removed.wait_timeout_while(self.plan(), left, |plan| !plan.is_removed);
        let (plan, _) = sleep.unwrap_or_else(PoisonError::into_inner);
        match plan.failures.get(&flush.nth) {
            _ if plan.is_removed => Err(Errno::IO),
            Some(errno) => Err(*errno),
            None => Ok(()),
        }
    }
}
