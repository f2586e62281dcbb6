//! Resources that all rings of a disk share, if configured: registered memory, and the kernel
//! thread that takes submissions.
//!
//! Both belong to a small ring that lives as long as the device and gets no submissions. The other
//! rings clone its registered memory and share its thread. (Before Linux 6.12 each ring registers
//! the memory again, and each registration counts against the limit of locked memory.) So if the
//! kernel refuses one of them, it does so when the disk is opened.
// It registers memory.
#![allow(unsafe_code)]

use crate::arena::Arena;
use crate::error::{OpenError, SpecError};
use crate::info::Feature;
use crate::keys::Keys;
use crate::sys::fork::Origin;
use io_uring::{Builder, IoUring};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// How long the kernel's thread of `sqpoll=on` polls before it sleeps, ms: the kernel's own
/// default.
const SQPOLL_IDLE_MS: u32 = 1000;

/// Options of the rings, from the keys of a spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingOptions {
    /// The size of the registered memory, bytes.
    pub(super) fixed_buffers: Option<u64>,
    /// The time without I/O after which the kernel's thread sleeps, ms. `None`: there is no thread.
    pub(super) sqpoll_idle_ms: Option<u32>,
}

impl RingOptions {
    /// Returns the error of an engine without rings, which names the first of these options.
    pub(super) fn refusal(&self) -> SpecError {
        let (key, value) = match self.fixed_buffers {
            Some(size) => ("fixed_buffers", size.to_string()),
            None => ("sqpoll", "on".to_owned()),
        };
        SpecError::BadValue {
            key: key.to_owned(),
            value,
            expected: "the driver file with engine=io_uring; aio and psync have no rings".into(),
        }
    }

    /// Takes the options of the rings.
    pub(super) fn take(keys: &mut Keys) -> Result<RingOptions, OpenError> {
        // A ring registers at most 1 GiB as one buffer.
        let fixed_buffers =
            keys.take_number("fixed_buffers", "a size of 4k to 1G", 4096..=1 << 30)?;
        let sqpoll = keys.take_switch("sqpoll")?.unwrap_or(false);
        let idle = keys.take_number("sqpoll_idle_ms", "a number from 1 to 600000", 1..=600_000)?;
        if let (Some(idle), false) = (idle, sqpoll) {
            return Err(OpenError::Spec(SpecError::BadValue {
                key: String::from("sqpoll_idle_ms"),
                value: idle.to_string(),
                expected: "sqpoll=on as well".into(),
            }));
        }
        let idle_ms = idle.map_or(SQPOLL_IDLE_MS, |idle| idle as u32);
        Ok(RingOptions { fixed_buffers, sqpoll_idle_ms: sqpoll.then_some(idle_ms) })
    }
}

/// The shared ring and its resources.
pub(super) struct Base {
    ring: IoUring,
    arena: Option<Arc<Arena>>,
    sqpoll_idle_ms: Option<u32>,
    origin: Origin,
}

impl Base {
    /// Opens the shared ring. Returns `None` if no option needs it.
    ///
    /// # Errors
    /// Names the key that the kernel refuses, and what to do.
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
            None => no_uring(source),
        })?;
        let mut base = Base { ring, arena: None, sqpoll_idle_ms, origin: Origin::here() };
        if let Some(len) = fixed_buffers {
            let arena = Arena::new(len as usize).map_err(|source| no_buffers(len, source))?;
            register(&base.ring, &arena).map_err(|source| no_buffers(len, source))?;
            base.arena = Some(arena);
        }
        Ok(Some(base))
    }

    /// Returns the registered memory.
    pub(super) fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.as_ref()
    }

    /// Returns whether a kernel thread takes submissions.
    pub(super) fn polls(&self) -> bool {
        self.sqpoll_idle_ms.is_some()
    }

    /// Configures a new ring to share the kernel's thread.
    pub(super) fn share(&self, builder: &mut Builder) {
        if let Some(idle_ms) = self.sqpoll_idle_ms {
            builder.setup_sqpoll(idle_ms).setup_attach_wq(self.ring.as_raw_fd());
        }
    }

    /// Registers the memory with a new ring, which no thread uses yet.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn register_with(&self, ring: &IoUring) -> io::Result<()> {
        let Some(arena) = &self.arena else { return Ok(()) };
        match ring.submitter().register_buffers_clone(self.ring.as_raw_fd()) {
            Ok(()) => Ok(()),
            // The kernel does not support this.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => register(ring, arena),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Base {
    /// The kernel destroys a ring asynchronously. This unlocks the memory now, so that it does not
    /// count when the disk is opened again. If it fails, the kernel unlocks the memory later. (In a
    /// child of a fork the ring belongs to the parent, which still uses it.)
    fn drop(&mut self) {
        if self.arena.is_some() && !self.origin.is_elsewhere() {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

/// Returns the features of both keys for `info`.
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
    // SAFETY: the memory stays mapped as long as the ring may use it. The ring's driver, or the
    // device that owns this base, holds a reference to the arena.
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

/// Returns the error of a failed registration. Locked memory is limited per user.
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

/// Returns the limit of locked memory as `ulimit -l` reports it.
pub(super) fn locked_limit() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } {
        0 if limit.rlim_cur == libc::RLIM_INFINITY => String::from("not set"),
        0 => format!("{} KiB", limit.rlim_cur / 1024),
        _ => String::from("unknown"),
    }
}

/// Converts the kernel's error to the reason why there is no ring.
pub(crate) fn no_uring(source: io::Error) -> OpenError {
    let hint = match source.raw_os_error() {
        Some(libc::EPERM) => {
            "; /proc/sys/kernel/io_uring_disabled or a container's seccomp profile forbids it"
        }
        Some(libc::ENOSYS) => "; this kernel, or a container's seccomp profile, does not have it",
        Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
        Some(libc::ENOMEM) => {
            "; raise the limit of locked memory (ulimit -l), or lower queue_depth"
        }
        _ => "",
    };
    OpenError::NoUring { source, hint }
}
