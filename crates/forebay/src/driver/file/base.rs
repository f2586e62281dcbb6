//! What all rings of a disk have in common, if it is asked for: registered memory, and the kernel's
//! thread that takes what is submitted.
//!
//! Both belong to a small ring that nothing is submitted to, which lives as long as the device:
//! other rings take its registered memory over (Linux 6.12; before that each registers it again,
//! and it counts each time against the limit of locked memory), and share its thread. So what the
//! kernel refuses is refused when the disk is opened.
// It registers memory.
#![allow(unsafe_code)]

use crate::arena::Arena;
use crate::error::OpenError;
use crate::info::Feature;
use crate::runtime::fork::Origin;
use io_uring::{Builder, IoUring};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// What the keys of a spec ask of its rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingOptions {
    /// How much memory to register, bytes.
    pub(super) fixed_buffers: Option<u64>,
    /// After how long without I/O the kernel's thread goes to sleep, ms; None: there is no thread.
    pub(super) sqpoll_idle_ms: Option<u32>,
}

/// The ring, and what goes with it.
pub(super) struct Base {
    ring: IoUring,
    arena: Option<Arc<Arena>>,
    sqpoll_idle_ms: Option<u32>,
    origin: Origin,
}

impl Base {
    /// None where nothing is asked for.
    ///
    /// # Errors
    /// Which key the kernel refuses, and what to do.
    pub(super) fn open(options: RingOptions) -> Result<Option<Base>, OpenError> {
        let RingOptions { fixed_buffers, sqpoll_idle_ms } = options;
        if fixed_buffers.is_none() && sqpoll_idle_ms.is_none() {
            return Ok(None);
        }
        let mut builder = IoUring::builder();
        if let Some(idle_ms) = sqpoll_idle_ms {
            builder.setup_sqpoll(idle_ms);
        }
        let ring = builder.build(1).map_err(|source| match sqpoll_idle_ms {
            Some(_) => no_sqpoll(source),
            None => super::no_uring(source),
        })?;
        let mut base = Base { ring, arena: None, sqpoll_idle_ms, origin: Origin::here() };
        if let Some(len) = fixed_buffers {
            let arena = Arena::new(len as usize).map_err(|source| no_buffers(len, source))?;
            register(&base.ring, &arena).map_err(|source| no_buffers(len, source))?;
            base.arena = Some(arena);
        }
        Ok(Some(base))
    }

    /// The memory that is registered.
    pub(super) fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.as_ref()
    }

    /// Whether a thread of the kernel takes what is submitted.
    pub(super) fn polls(&self) -> bool {
        self.sqpoll_idle_ms.is_some()
    }

    /// Has a ring that is being made share the kernel's thread.
    pub(super) fn share(&self, builder: &mut Builder) {
        if let Some(idle_ms) = self.sqpoll_idle_ms {
            builder.setup_sqpoll(idle_ms).setup_attach_wq(self.ring.as_raw_fd());
        }
    }

    /// Makes the memory known to a new ring, which nobody else uses yet.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn register_with(&self, ring: &IoUring) -> io::Result<()> {
        let Some(arena) = &self.arena else { return Ok(()) };
        match ring.submitter().register_buffers_clone(self.ring.as_raw_fd()) {
            Ok(()) => Ok(()),
            // The kernel does not know of this.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => register(ring, arena),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Base {
    /// The kernel takes a ring apart in its own time; the memory is unlocked now, so that it does
    /// not count when the disk is opened again. If that fails, it is unlocked then. (In a child of
    /// a fork the ring is the parent's, which goes on with it.)
    fn drop(&mut self) {
        if self.arena.is_some() && !self.origin.is_elsewhere() {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

/// What `info` says of both keys.
pub(super) fn features(base: Option<&Base>) -> [Feature; 2] {
    [
        match base.and_then(Base::arena) {
            Some(arena) => Feature::present(
                "fixed_buffers",
                format!("{} KiB, registered with each ring", arena.len() / 1024),
            ),
            None => Feature::missing("fixed_buffers", "not asked for: fixed_buffers=64M"),
        },
        match base.and_then(|base| base.sqpoll_idle_ms) {
            Some(idle_ms) => Feature::present(
                "sqpoll",
                format!("a kernel thread takes what is submitted; it sleeps after {idle_ms} ms"),
            ),
            None => Feature::missing("sqpoll", "not asked for: sqpoll=on"),
        },
    ]
}

/// Registers an arena as the one buffer of a ring.
fn register(ring: &IoUring, arena: &Arena) -> io::Result<()> {
    let iov_base = std::ptr::with_exposed_provenance_mut(arena.addr());
    let vector = libc::iovec { iov_base, iov_len: arena.len() };
    // SAFETY: the memory stays mapped as long as the ring may use it: the driver of the ring, or
    // the device, whose base it is, has a part in the arena.
    unsafe { ring.submitter().register_buffers(&[vector]) }
}

fn no_sqpoll(source: io::Error) -> OpenError {
    let hint = match source.raw_os_error() {
        Some(libc::EPERM) => "; before Linux 5.11 it takes CAP_SYS_NICE or root; leave it out",
        Some(libc::ENOMEM | libc::EAGAIN) => "; raise the limit of processes (ulimit -u)",
        _ => "; leave it out",
    };
    OpenError::RingKey { key: String::from("sqpoll=on"), source, hint: hint.to_owned() }
}

/// Why memory could not be registered. Locked memory is limited, and counted for each user.
fn no_buffers(len: u64, source: io::Error) -> OpenError {
    let hint = match source.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => format!(
            "; the limit of locked memory is {}: raise it (ulimit -l), or lower fixed_buffers",
            locked_limit()
        ),
        _ => String::from("; lower it, or leave it out"),
    };
    OpenError::RingKey { key: format!("fixed_buffers={len}"), source, hint }
}

/// The limit of locked memory, as `ulimit -l` says it.
fn locked_limit() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } {
        0 if limit.rlim_cur == libc::RLIM_INFINITY => String::from("not set"),
        0 => format!("{} KiB", limit.rlim_cur / 1024),
        _ => String::from("unknown"),
    }
}
