//! The disk: what a user opens, and its blocking calls.

use crate::driver;
use crate::error::{IoError, OpenError};
use crate::info::{DiskInfo, DiskStats};
use crate::keys::{Keys, Settings};
use crate::queue::{BioQueue, Completion, segments_of};
use crate::runtime::inner::Inner;
use crate::spec::Spec;
use forebay_core::{Bio, Op, QueueLimits, Refusal, RequestQueue};
use std::cell::RefCell;
use std::rc::Rc;

/// An open disk. Handles are cheap to clone and name the same disk.
///
/// Blocking calls wait for their own I/O; everything that the thread has plugged goes first, and
/// merges with it. A disk belongs to the thread that opened it.
///
/// Counterpart in Linux: `struct gendisk`.
///
/// ```
/// let disk = forebay::Disk::open("ram:1M")?;
/// disk.write_at(b"water", 4096 - 5 + 0).unwrap_err(); // a RAM disk has blocks of 512 bytes
/// disk.write_at(&[1; 512], 4096)?;
/// disk.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Disk {
    inner: Rc<Inner>,
    shared: Rc<Shared>,
}

/// What all handles of a disk share besides its state.
#[derive(Debug)]
struct Shared {
    info: DiskInfo,
    /// The mailbox of blocking calls.
    mailbox: u32,
    /// Their completions, kept for its memory.
    done: RefCell<Vec<Completion>>,
}

impl Disk {
    /// Opens the disk that a spec names. See [`Spec`] for the grammar.
    ///
    /// # Errors
    /// What is wrong with the spec, or with what it names, and what to do.
    pub fn open(spec: &str) -> Result<Disk, OpenError> {
        Disk::open_spec(&Spec::parse(spec)?)
    }

    /// Opens the disk that a parsed spec names.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn open_spec(spec: &Spec) -> Result<Disk, OpenError> {
        let mut keys = Keys::of(spec);
        let settings = Settings::take(&mut keys)?;
        let opened = driver::open(spec, &mut keys, &settings)?;
        keys.finish()?;
        let mut limits = opened.driver.limits();
        settings.apply(&mut limits);
        limits.validate().map_err(|source| OpenError::Limits { spec: spec.to_string(), source })?;
        let info = DiskInfo {
            spec: spec.to_string(),
            driver: spec.driver(),
            limits,
            policy: settings.policy,
            features: opened.features,
        };
        let inner = Inner::new(RequestQueue::new(limits, settings.policy), opened.driver);
        let mailbox = inner.open_mailbox();
        let done = RefCell::new(Vec::with_capacity(1));
        Ok(Disk { inner, shared: Rc::new(Shared { info, mailbox, done }) })
    }

    /// What the disk is and can do.
    pub fn info(&self) -> &DiskInfo {
        &self.shared.info
    }

    /// The limits in force.
    pub fn limits(&self) -> &QueueLimits {
        &self.shared.info.limits
    }

    /// The size, bytes; `None` where it grows.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.limits().capacity_bytes
    }

    /// The counters so far.
    pub fn stats(&self) -> DiskStats {
        self.inner.with(|queue, driver| DiskStats {
            queue: queue.stats().clone(),
            nr_syscalls: driver.nr_syscalls(),
        })
    }

    /// A new queue of completions on this disk.
    pub fn queue(&self) -> BioQueue {
        BioQueue::new(Rc::clone(&self.inner))
    }

    /// Reads `buf.len()` bytes from `offset` on. Says how many: fewer only at the end of a file.
    ///
    /// # Errors
    /// Why it was refused, or why it failed.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<u64, IoError> {
        let addr = buf.as_mut_ptr().expose_provenance();
        self.run(Op::Read, offset, buf.len(), addr)
    }

    /// Writes `buf` at `offset`. It is durable after the next [`flush`](Disk::flush).
    ///
    /// # Errors
    /// Why it was refused, or why it failed.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<u64, IoError> {
        let addr = buf.as_ptr().expose_provenance();
        self.run(Op::Write, offset, buf.len(), addr)
    }

    /// Makes every write that has ended durable.
    ///
    /// # Errors
    /// Why it failed: then nothing is known of what was written since the last flush.
    pub fn flush(&self) -> Result<(), IoError> {
        self.wait_for(Bio::flush()).map(|_| ())
    }

    /// Says that a range is not needed any more. What it reads as is the disk's choice.
    ///
    /// # Errors
    /// Why it was refused, or why it failed.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.wait_for(Bio::range(Op::Discard, offset, len)).map(|_| ())
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// Why it was refused, or why it failed.
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.wait_for(Bio::range(Op::WriteZeroes, offset, len)).map(|_| ())
    }

    /// A read or write of borrowed memory, which stays borrowed until the bio has ended.
    fn run(&self, op: Op, offset: u64, len: usize, addr: usize) -> Result<u64, IoError> {
        let segments = segments_of(addr, len);
        self.wait_for(Bio { segments, ..Bio::range(op, offset, len as u64) })
    }

    fn wait_for(&self, bio: Bio) -> Result<u64, IoError> {
        // The caller's memory is borrowed for this call only: it must not be left by a panic
        // while a device may still use it.
        let abort_on_unwind = AbortOnUnwind;
        let mailbox = self.shared.mailbox;
        let mut bio = bio;
        let submitted = loop {
            match self.inner.submit(bio, None, mailbox) {
                Ok(()) => break Ok(()),
                Err((Refusal::WouldBlock, refused, _)) => {
                    self.inner.wait_for_room();
                    bio = refused;
                }
                Err((refusal, _, _)) => break Err(refusal),
            }
        };
        let result = submitted.map_err(IoError::from).and_then(|()| {
            let done = &mut *self.shared.done.borrow_mut();
            self.inner.reap(mailbox, 1, 1, done);
            let completion = done.pop().expect("a bio that was submitted ends");
            Ok(completion.result?)
        });
        std::mem::forget(abort_on_unwind);
        result
    }
}

/// Ends the process if it is dropped by a panic.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}
