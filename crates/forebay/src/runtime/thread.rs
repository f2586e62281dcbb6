//! Per-thread state: the plug, and the state of each disk.
//!
//! There is one plug per thread, for all disks and nesting levels:
//!
//! - I1 A thread has at most one active plug. The end of an inner guard unplugs nothing (except
//!   under `plug=per-level`).
//! - I4 A thread that is about to wait calls [`unplug_all`] first.
//! - A leaked guard leaves the level too high. Then the bios are sent when the thread next waits,
//!   and at the latest when it ends.

use crate::runtime::ctx::Ctx;
use crate::runtime::mailbox::Wake;
use crate::runtime::shared::{SHARED, Shared};
use forebay_core::{Defer, PlugPolicy, UnplugCause};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// State of a thread.
struct ThreadState {
    /// Number of open plugs.
    level: Cell<u32>,
    /// The disks with bios in the plug.
    plugged: RefCell<Vec<Rc<Ctx>>>,
    /// The contexts to be committed at the end of the section.
    deferred: RefCell<Defer<Deferred>>,
    /// The disks that the thread has used.
    ctxs: RefCell<Vec<Rc<Ctx>>>,
    /// An empty list, kept for its allocation.
    spare: RefCell<Vec<Wake>>,
}

/// Initial capacity of a list of wake-ups, in threads and tasks.
const NR_WAKES_USUAL: usize = 32;

/// A deferred commit. It keeps the thread's state of the disk alive (D7).
struct Deferred(Rc<Ctx>);

impl PartialEq for Deferred {
    fn eq(&self, other: &Deferred) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        self.plugged.take();
        self.deferred.take();
        for ctx in self.ctxs.take() {
            ctx.retire();
        }
    }
}

thread_local! {
    static THREAD: ThreadState = const {
        ThreadState {
            level: Cell::new(0),
            plugged: RefCell::new(Vec::new()),
            deferred: RefCell::new(Defer::new()),
            ctxs: RefCell::new(Vec::new()),
            spare: RefCell::new(Vec::new()),
        }
    };
}

/// Returns the number of open plugs of this thread.
#[inline]
pub(crate) fn level() -> u32 {
    THREAD.try_with(|thread| thread.level.get()).unwrap_or(0)
}

/// Opens a plug, which is a section as well.
pub(crate) fn begin_plug() {
    let _ = THREAD.try_with(|thread| {
        thread.level.set(thread.level.get() + 1);
        thread.deferred.borrow_mut().begin();
    });
}

/// Ends the innermost plug.
pub(crate) fn end_plug() {
    let ended = THREAD.try_with(|thread| {
        let level = thread.level.replace(thread.level.get() - 1);
        (!thread.plugged.borrow().is_empty()).then_some(level)
    });
    match ended {
        Ok(Some(1)) => unplug_all(UnplugCause::Outermost, None),
        Ok(Some(level)) => unplug_level(level),
        Ok(None) | Err(_) => {}
    }
    end_section();
}

/// Opens a section.
pub(crate) fn begin_section() {
    let _ = THREAD.try_with(|thread| thread.deferred.borrow_mut().begin());
}

/// Ends the innermost section. If it is the outermost, makes the deferred commits.
pub(crate) fn end_section() {
    let is_due = THREAD.try_with(|thread| {
        let mut deferred = thread.deferred.borrow_mut();
        deferred.end() && !deferred.is_empty()
    });
    if let Ok(true) = is_due {
        commit_deferred(UnplugCause::Outermost, None);
    }
}

/// Returns the number of open sections of this thread.
#[inline]
pub(crate) fn nr_sections() -> u32 {
    THREAD.try_with(|thread| thread.deferred.borrow().nesting()).unwrap_or(0)
}

/// Defers the commit of a context to the end of the section, or to the next wait. Returns false if
/// the thread is ending and keeps no state.
pub(crate) fn defer_commit(ctx: &Rc<Ctx>) -> bool {
    let put_off = |thread: &ThreadState| {
        thread.deferred.borrow_mut().put_off(Deferred(Rc::clone(ctx)));
    };
    THREAD.try_with(put_off).is_ok()
}

/// Makes the deferred commits (D4). If the thread is about to wait (D5), makes all of them, except
/// that of `waiter`, which commits and waits with one call.
fn commit_deferred(cause: UnplugCause, waiter: Option<&Ctx>) {
    if is_nothing_deferred() {
        return;
    }
    let mut kept = Vec::new();
    loop {
        let Ok(mut calls) = THREAD.try_with(|thread| thread.deferred.borrow_mut().detach()) else {
            return;
        };
        let is_last = calls.is_empty();
        for Deferred(ctx) in calls.drain(..) {
            if cause != UnplugCause::Wait && ctx.commits_at_wait() {
                kept.push(ctx);
                continue;
            }
            let is_waiter = waiter.is_some_and(|waiter| std::ptr::eq(waiter, &*ctx));
            ctx.commit_deferred(is_waiter);
        }
        let _ = THREAD.try_with(|thread| thread.deferred.borrow_mut().give_back(calls));
        if is_last {
            break;
        }
    }
    for ctx in kept {
        defer_commit(&ctx);
    }
}

#[inline]
fn is_nothing_deferred() -> bool {
    THREAD.try_with(|thread| thread.deferred.borrow().is_empty()).unwrap_or(true)
}

/// Records that a disk has bios in this thread's plug.
pub(crate) fn join_plug(ctx: &Rc<Ctx>) {
    // The level was above 0 just now, so the thread's state exists.
    THREAD.with(|thread| thread.plugged.borrow_mut().push(Rc::clone(ctx)));
}

/// Unplugs everything. For `waiter`, which waits for its own bios next, leaves the turn to the
/// caller.
pub(crate) fn unplug_all(cause: UnplugCause, waiter: Option<&Ctx>) {
    while let Ok(Some(ctx)) = THREAD.try_with(|thread| thread.plugged.borrow_mut().pop()) {
        match waiter {
            Some(waiter) if std::ptr::eq(waiter, &*ctx) => ctx.detach(cause),
            _ => drop(ctx.unplug(cause, 1)),
        }
    }
    // D5.
    if cause == UnplugCause::Wait {
        commit_deferred(cause, waiter);
    }
}

/// Ends an inner plug: under `per-level`, unplugs the bios that were queued on its level.
fn unplug_level(level: u32) {
    let goes = |ctx: &Rc<Ctx>| ctx.plug_policy() == PlugPolicy::PerLevel;
    if !THREAD.try_with(|thread| thread.plugged.borrow().iter().any(goes)).unwrap_or(false) {
        return;
    }
    let Ok(mut ctxs) = THREAD.try_with(|thread| thread.plugged.take()) else { return };
    ctxs.retain(|ctx| {
        ctx.plug_policy() != PlugPolicy::PerLevel || ctx.unplug(UnplugCause::Level, level)
    });
    // A waker may have plugged bios of other disks meanwhile.
    let _ = THREAD.try_with(|thread| {
        let others = thread.plugged.replace(ctxs);
        thread.plugged.borrow_mut().extend(others);
    });
}

/// Returns this thread's state of a disk, for a queue. It has an owned hardware context if one is
/// free.
pub(crate) fn queue_ctx_of(shared: &Arc<Shared>) -> Rc<Ctx> {
    if let Some(ctx) = find(shared, |ctx| ctx.hctx() != SHARED) {
        return ctx;
    }
    match shared.assign() {
        SHARED => shared_ctx_of(shared),
        at => keep(shared, Ctx::new(shared, at)),
    }
}

/// Returns this thread's state of a disk, for a blocking call. It maps to the thread's owned
/// context if there is one, otherwise to the shared one, where waiters elect a leader.
pub(crate) fn blocking_ctx_of(shared: &Arc<Shared>) -> Rc<Ctx> {
    find(shared, |ctx| ctx.hctx() != SHARED).unwrap_or_else(|| shared_ctx_of(shared))
}

/// Returns this thread's state of a disk that maps to the shared context.
pub(crate) fn shared_ctx_of(shared: &Arc<Shared>) -> Rc<Ctx> {
    let known = find(shared, |ctx| ctx.hctx() == SHARED);
    known.unwrap_or_else(|| keep(shared, Ctx::new(shared, SHARED)))
}

fn find(shared: &Arc<Shared>, fits: impl Fn(&Ctx) -> bool) -> Option<Rc<Ctx>> {
    let known = THREAD.try_with(|thread| {
        let ctxs = thread.ctxs.borrow();
        ctxs.iter().find(|ctx| ctx.is_of(shared) && fits(ctx)).map(Rc::clone)
    });
    known.ok().flatten()
}

/// Keeps the state until the thread ends. A thread that is ending keeps nothing, and gives its
/// owned context up at once.
fn keep(shared: &Arc<Shared>, ctx: Rc<Ctx>) -> Rc<Ctx> {
    let kept = THREAD.try_with(|thread| {
        let mut ctxs = thread.ctxs.borrow_mut();
        // Drop the state of disks that were closed meanwhile.
        ctxs.retain(|ctx| ctx.is_live());
        ctxs.push(Rc::clone(&ctx));
    });
    if kept.is_err() && ctx.hctx() != SHARED {
        assert!(ctx.is_of(shared));
        ctx.retire();
    }
    ctx
}

/// Returns whether this thread owns the context `at` of a disk.
pub(crate) fn owns(shared: &Arc<Shared>, at: usize) -> bool {
    let owns = |thread: &ThreadState| {
        thread.ctxs.borrow().iter().any(|ctx| ctx.is_of(shared) && ctx.hctx() == at)
    };
    THREAD.try_with(owns).unwrap_or(false)
}

/// Returns an empty list of wake-ups, with the allocation of the last one.
pub(crate) fn take_spare() -> Vec<Wake> {
    THREAD.try_with(|thread| thread.spare.take()).unwrap_or_default()
}

/// Reserves room in the spare list of wake-ups. A thread calls this before its first turn.
pub(crate) fn reserve_spare() {
    let _ = THREAD.try_with(|thread| thread.spare.borrow_mut().reserve(NR_WAKES_USUAL));
}

/// Keeps the allocation of an empty list.
pub(crate) fn put_spare(list: Vec<Wake>) {
    assert!(list.is_empty());
    let _ = THREAD.try_with(|thread| thread.spare.replace(list));
}
