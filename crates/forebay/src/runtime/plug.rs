//! The thread's plug: one, whatever the nesting, over all disks.
//!
//! - I1 a thread has at most one active plug; the end of an inner guard unplugs nothing (but
//!   under `plug=per-level`).
//! - I4 whoever is about to wait calls [`unplug_all`] first.
//! - A guard that is forgotten leaves the level too high. Then the bios go when the thread next
//!   waits, and at the latest when it ends.

use crate::runtime::shared::Shared;
use forebay_core::{PlugPolicy, UnplugCause};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

/// Opens a plug on this thread: bios that it queues on any disk wait, so that neighbours merge,
/// until the outermost plug ends, [`PlugGuard::unplug`] is called, a limit is reached, or the
/// thread is about to wait.
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
pub fn plug() -> PlugGuard {
    let _ = PLUG.try_with(|plug| plug.level.set(plug.level.get() + 1));
    PlugGuard { not_send: PhantomData }
}

/// Keeps a plug open. Ends on the thread that opened it.
#[derive(Debug)]
pub struct PlugGuard {
    not_send: PhantomData<*const ()>,
}

impl PlugGuard {
    /// Unplugs everything that this thread has plugged, on all disks and levels, and keeps
    /// the plug open.
    ///
    /// Counterpart in Linux: `blk_flush_plug`.
    pub fn unplug(&self) {
        unplug_all(UnplugCause::Explicit, None);
    }
}

impl Drop for PlugGuard {
    fn drop(&mut self) {
        let Ok(ended) = PLUG.try_with(|plug| plug.level.replace(plug.level.get() - 1)) else {
            return;
        };
        if ended == 1 {
            unplug_all(UnplugCause::Outermost, None);
        } else {
            unplug_level(ended);
        }
    }
}

/// The state of a thread.
#[derive(Default)]
struct ThreadPlug {
    /// How many plugs are open.
    level: Cell<u32>,
    /// The disks with bios in the plug.
    members: RefCell<Vec<Rc<Shared>>>,
}

impl Drop for ThreadPlug {
    fn drop(&mut self) {
        for member in self.members.take() {
            member.unplug(UnplugCause::Wait, 1);
        }
    }
}

thread_local! {
    static PLUG: ThreadPlug = const {
        ThreadPlug { level: Cell::new(0), members: RefCell::new(Vec::new()) }
    };
}

/// How many plugs are open on this thread.
#[inline]
pub(crate) fn level() -> u32 {
    PLUG.try_with(|plug| plug.level.get()).unwrap_or(0)
}

/// Notes that a disk has bios in this thread's plug.
pub(crate) fn join(member: &Rc<Shared>) {
    // The level was above 0 a moment ago, so the thread's state is there.
    PLUG.with(|plug| plug.members.borrow_mut().push(Rc::clone(member)));
}

/// Unplugs everything. `waiter`, which waits for its own bios next, is left to run its own
/// turn.
pub(crate) fn unplug_all(cause: UnplugCause, waiter: Option<&Shared>) {
    while let Ok(Some(member)) = PLUG.try_with(|plug| plug.members.borrow_mut().pop()) {
        match waiter {
            Some(waiter) if std::ptr::eq(waiter, &*member) => member.detach(cause),
            _ => drop(member.unplug(cause, 1)),
        }
    }
}

/// The end of an inner plug: under `per-level` it unplugs what was queued on its level.
fn unplug_level(level: u32) {
    let _ = PLUG.try_with(|plug| {
        plug.members.borrow_mut().retain(|member| {
            member.plug_policy() != PlugPolicy::PerLevel || member.unplug(UnplugCause::Level, level)
        });
    });
}
