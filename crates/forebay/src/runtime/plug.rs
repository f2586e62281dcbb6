//! Guards of a plug and of a section.

use crate::runtime::thread;
use forebay_core::UnplugCause;
use std::marker::PhantomData;

/// Opens a plug on this thread. Bios that the thread queues on any disk wait, so that neighbours
/// merge. They are unplugged when the outermost plug ends, [`PlugGuard::unplug`] is called, a limit
/// is reached, or the thread is about to wait.
///
/// Counterpart in Linux: `blk_start_plug`.
///
/// ```
/// # let disk = forebay::Disk::open("ram:1M")?;
/// # let mut queue = disk.queue();
/// let plug = forebay::plug();
/// for n in 0..16 {
///     queue.submit(forebay::Io::read(forebay::Buf::new(4096), n * 4096))?;
/// }
/// drop(plug); // one request of 64 KiB
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a plug that is not kept ends at once"]
#[inline]
pub fn plug() -> PlugGuard {
    thread::begin_plug();
    PlugGuard { not_send: PhantomData }
}

/// Keeps a plug open until it is dropped. It stays on the thread that opened it.
#[derive(Debug)]
pub struct PlugGuard {
    not_send: PhantomData<*const ()>,
}

impl PlugGuard {
    /// Unplugs everything that this thread has plugged, on all disks and levels, and keeps the plug
    /// open.
    ///
    /// Counterpart in Linux: `blk_flush_plug`.
    pub fn unplug(&self) {
        thread::unplug_all(UnplugCause::Explicit, None);
    }
}

impl Drop for PlugGuard {
    #[inline]
    fn drop(&mut self) {
        thread::end_plug();
    }
}

/// Opens a section on this thread. The drivers receive submitted I/O at once, but do not start it
/// until the outermost section ends, once per hardware context, or until the thread is about to
/// wait. A plug is a section too. Use a section alone if I/O should not be held back for merging.
///
/// Effective with `kick=deferred`, the default.
///
/// Counterpart in QEMU: `defer_call_begin`.
///
/// ```
/// # let disk = forebay::Disk::open("ram:1M")?;
/// # let mut queue = disk.queue();
/// let section = forebay::defer();
/// for n in 0..16 {
///     queue.submit(forebay::Io::read(forebay::Buf::new(4096), n * 8192))?;
/// }
/// drop(section);
/// assert_eq!(disk.stats().queue.commits, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a section that is not kept ends at once"]
pub fn defer() -> DeferGuard {
    thread::begin_section();
    DeferGuard { not_send: PhantomData }
}

/// Keeps a section open until it is dropped. It stays on the thread that opened it.
#[derive(Debug)]
pub struct DeferGuard {
    not_send: PhantomData<*const ()>,
}

impl Drop for DeferGuard {
    fn drop(&mut self) {
        thread::end_section();
    }
}
