//! Per-thread state: the plug, the state of each disk, and that of blocking calls.
//!
//! There is one plug per thread, for all disks and nesting levels:
//!
//! - I1 A thread has at most one active plug. The end of an inner guard unplugs nothing (except
//!   under `plug=per-level`).
//! - I4 A thread that is about to wait calls [`unplug_all`] first.
//! - A leaked guard leaves the level too high. Then the bios are sent when the thread next waits,
//!   and at the latest when it ends.

mod ctx;

use crate::runtime::hctx::{SHARED, await_admitted};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::shared::Shared;
use forebay_core::{Bio, Defer, PlugPolicy, QueuedBio, UnplugCause};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) use ctx::Ctx;

/// State of a thread.
struct ThreadState {
    /// Number of open plugs.
    level: Cell<u32>,
    /// The disk that joined the plug last, if it has bios in it, and the others, oldest first. Most
    /// plugs hold bios of one disk.
    newest: Cell<Option<Rc<Ctx>>>,
    plugged: RefCell<Vec<Rc<Ctx>>>,
    /// Whether `plugged` may have any.
    has_others: Cell<bool>,
    /// Whether the thread has ever used a disk with `plug=per-level`.
    has_levels: Cell<bool>,
    /// The contexts to be committed at the end of the section.
    deferred: Defer<Deferred>,
    /// The disks that the thread has used.
    ctxs: RefCell<Vec<Rc<Ctx>>>,
    /// The thread is ending: it keeps no state any more.
    is_over: Cell<bool>,
}

/// A deferred commit. It keeps the thread's state of the disk alive (D7).
struct Deferred(Rc<Ctx>);

impl PartialEq for Deferred {
    fn eq(&self, other: &Deferred) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// Ends the state of its thread when it is dropped.
struct EndOfThread(());

impl Drop for EndOfThread {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.end());
    }
}

thread_local! {
    /// Registered by the first disk that the thread uses ([`keep`]).
    static END: EndOfThread = const { EndOfThread(()) };
    /// Has no destructor of its own: with one, each access would check whether it has run.
    static THREAD: ManuallyDrop<ThreadState> = const {
        ManuallyDrop::new(ThreadState {
            level: Cell::new(0),
            newest: Cell::new(None),
            plugged: RefCell::new(Vec::new()),
            has_others: Cell::new(false),
            has_levels: Cell::new(false),
            deferred: Defer::new(),
            ctxs: RefCell::new(Vec::new()),
            is_over: Cell::new(false),
        })
    };
}

/// Calls `work` with the state of this thread. Returns `None` if the thread is ending and keeps no
/// state.
#[inline]
fn with_state<R>(work: impl FnOnce(&ThreadState) -> R) -> Option<R> {
    THREAD.with(|thread| (!thread.is_over.get()).then(|| work(thread)))
}

/// Returns the number of open plugs of this thread.
#[inline]
pub(crate) fn level() -> u32 {
    THREAD.with(|thread| thread.level.get())
}

/// Opens a plug, which is a section as well.
#[inline]
pub(crate) fn begin_plug() {
    let _ = with_state(|thread| {
        thread.level.set(thread.level.get() + 1);
        thread.deferred.begin();
    });
}

/// Ends the innermost plug.
#[inline(never)]
pub(crate) fn end_plug() {
    let _ = with_state(|thread| {
        match thread.level.replace(thread.level.get() - 1) {
            1 => {
                let is_last_section = thread.deferred.nesting() == 1;
                if let Some(ctx) = thread.newest.take() {
                    ctx.unplug(UnplugCause::Outermost, 1, is_last_section);
                }
                if thread.has_others.get() {
                    thread.unplug_others(is_last_section);
                }
            }
            level if thread.has_levels.get() => unplug_level(level),
            _ => {}
        }
        thread.end_section();
    });
}

/// Opens a section.
pub(crate) fn begin_section() {
    let _ = with_state(|thread| thread.deferred.begin());
}

/// Ends the innermost section. If it is the outermost, makes the deferred commits.
pub(crate) fn end_section() {
    let _ = with_state(ThreadState::end_section);
}

impl ThreadState {
    /// Ends the state, with the thread.
    #[cold]
    fn end(&self) {
        self.is_over.set(true);
        self.level.set(0);
        while self.deferred.is_nested() {
            self.deferred.end();
        }
        self.newest.take();
        self.plugged.take();
        drop(self.deferred.detach());
        for ctx in self.ctxs.take() {
            ctx.retire();
        }
    }

    /// Removes a disk from the plug, the newest first.
    #[inline]
    fn pop_plugged(&self) -> Option<Rc<Ctx>> {
        let newest = self.newest.take();
        match newest.is_none() && self.has_others.get() {
            true => self.pop_other(),
            false => newest,
        }
    }

    /// Unplugs the disks that joined the outermost plug, which ends, before the newest.
    #[inline(never)]
    fn unplug_others(&self, is_last_section: bool) {
        while let Some(ctx) = self.pop_plugged() {
            ctx.unplug(UnplugCause::Outermost, 1, is_last_section);
        }
    }

    #[inline(never)]
    fn pop_other(&self) -> Option<Rc<Ctx>> {
        let mut others = self.plugged.borrow_mut();
        let newest = others.pop();
        self.has_others.set(!others.is_empty());
        newest
    }

    /// Adds disks to the plug, behind those that are there.
    fn add_plugged(&self, disks: impl IntoIterator<Item = Rc<Ctx>>) {
        self.plugged.borrow_mut().extend(disks);
        self.has_others.set(true);
    }

    /// Removes all disks from the plug. The newest is last.
    fn take_plugged(&self) -> Vec<Rc<Ctx>> {
        let mut all = self.plugged.take();
        all.extend(self.newest.take());
        all
    }

    #[inline]
    fn end_section(&self) {
        if self.deferred.end() && !self.deferred.is_empty() {
            commit_deferred(UnplugCause::Outermost, None);
        }
    }
}

/// Returns the number of open sections of this thread.
#[inline]
pub(crate) fn nr_sections() -> u32 {
    THREAD.with(|thread| thread.deferred.nesting())
}

/// Defers the commit of a context to the end of the section, or to the next wait. Returns false if
/// the thread is ending and keeps no state.
pub(crate) fn defer_commit(ctx: &Rc<Ctx>) -> bool {
    let put_off = |thread: &ThreadState| {
        thread.deferred.put_off(Deferred(Rc::clone(ctx)));
    };
    with_state(put_off).is_some()
}

/// Makes the deferred commits, because this thread may wait outside of the library.
pub(crate) fn commit_before_wait() {
    commit_deferred(UnplugCause::Wait, None);
}

/// Makes the deferred commits (D4). If the thread is about to wait (D5), makes all of them, except
/// that of `waiter`, which commits and waits with one call.
fn commit_deferred(cause: UnplugCause, waiter: Option<&Ctx>) {
    if is_nothing_deferred() {
        return;
    }
    let mut kept = Vec::new();
    loop {
        let Some(mut calls) = with_state(|thread| thread.deferred.detach()) else { return };
        let is_last = calls.is_empty();
        for Deferred(ctx) in calls.drain(..) {
            if cause != UnplugCause::Wait && ctx.commits_at_wait() {
                kept.push(ctx);
                continue;
            }
            let is_waiter = waiter.is_some_and(|waiter| std::ptr::eq(waiter, &*ctx));
            ctx.commit_deferred(is_waiter);
        }
        let _ = with_state(|thread| thread.deferred.give_back(calls));
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
    with_state(|thread| thread.deferred.is_empty()).unwrap_or(true)
}

/// Records that this thread uses a disk with `plug=per-level`.
pub(crate) fn use_levels() {
    let _ = with_state(|thread| thread.has_levels.set(true));
}

/// Records that a disk has bios in this thread's plug.
#[inline]
pub(crate) fn join_plug(ctx: &Rc<Ctx>) {
    // The level was above 0 just now, so the thread's state exists.
    THREAD.with(|thread| {
        if let Some(older) = thread.newest.replace(Some(Rc::clone(ctx))) {
            thread.add_plugged([older]);
        }
    });
}

/// Unplugs everything. For `waiter`, which waits for its own bios next, leaves the turn to the
/// caller.
pub(crate) fn unplug_all(cause: UnplugCause, waiter: Option<&Ctx>) {
    let _ = with_state(|thread| {
        while let Some(ctx) = thread.pop_plugged() {
            match waiter {
                Some(waiter) if std::ptr::eq(waiter, &*ctx) => ctx.detach(cause),
                _ => drop(ctx.unplug(cause, 1, false)),
            }
        }
    });
    // D5.
    if cause == UnplugCause::Wait {
        commit_deferred(cause, waiter);
    }
}

/// Ends an inner plug: under `per-level`, unplugs the bios that were queued on its level.
#[inline(never)]
fn unplug_level(level: u32) {
    let Some(mut ctxs) = with_state(ThreadState::take_plugged) else { return };
    ctxs.retain(|ctx| {
        let goes = ctx.plug_policy() == PlugPolicy::PerLevel;
        !goes || ctx.unplug(UnplugCause::Level, level, false)
    });
    // A waker may have plugged bios of other disks meanwhile.
    let _ = with_state(|thread| {
        ctxs.extend(thread.take_plugged());
        thread.add_plugged(ctxs);
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

/// Returns whether this thread owns a context of the disk.
pub(crate) fn owns_context_of(shared: &Arc<Shared>) -> bool {
    find(shared, |ctx| ctx.hctx() != SHARED).is_some()
}

/// Submits the plugged bios of this thread. If it owns a context of the disk, waits until that has
/// no admitted request left, the device is gone, or `is_over` returns true. Meanwhile it turns the
/// shared context too, because a request there may hold back one of the owned context.
pub(crate) fn settle_owned(shared: &Arc<Shared>, is_over: impl Fn() -> bool) {
    let Some(owned) = find(shared, |ctx| ctx.hctx() != SHARED) else { return };
    unplug_all(UnplugCause::Wait, None);
    let is_over = || {
        shared.hctx(SHARED).run_turn();
        is_over() || shared.device_state().is_failed()
    };
    await_admitted(shared.hctx(owned.hctx()), is_over);
}

/// Same as [`settle_owned`], but only while the disk is frozen.
pub(crate) fn settle_owned_if_frozen(shared: &Arc<Shared>, is_over: impl Fn() -> bool) {
    let is_frozen = || !shared.hctx(SHARED).run.gates().enter;
    if is_frozen() {
        settle_owned(shared, || is_over() || !is_frozen());
    }
}

/// Returns this thread's state of a disk that maps to the shared context.
pub(crate) fn shared_ctx_of(shared: &Arc<Shared>) -> Rc<Ctx> {
    let known = find(shared, |ctx| ctx.hctx() == SHARED);
    known.unwrap_or_else(|| keep(shared, Ctx::new(shared, SHARED)))
}

fn find(shared: &Arc<Shared>, fits: impl Fn(&Ctx) -> bool) -> Option<Rc<Ctx>> {
    let known = with_state(|thread| {
        let ctxs = thread.ctxs.borrow();
        ctxs.iter().find(|ctx| ctx.is_of(shared) && fits(ctx)).map(Rc::clone)
    });
    known.flatten()
}

/// Keeps the state until the thread ends. A thread that is ending keeps nothing, and gives its
/// owned context up at once.
fn keep(shared: &Arc<Shared>, ctx: Rc<Ctx>) -> Rc<Ctx> {
    // The end of the thread is registered first. That fails if it has come.
    let _ = END.try_with(|_| ());
    let kept = with_state(|thread| {
        let mut ctxs = thread.ctxs.borrow_mut();
        // Drop the state of disks that were closed meanwhile.
        ctxs.retain(|ctx| ctx.is_live());
        ctxs.push(Rc::clone(&ctx));
    });
    if kept.is_none() && ctx.hctx() != SHARED {
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
    with_state(owns).unwrap_or(false)
}

/// State of a thread's blocking calls on one disk: a box for a bio, and the mailbox that it comes
/// back to. One call at a time uses it.
///
/// Each disk has its own: a mailbox may stay in a context's list of followers after its owner has
/// returned. It must not receive that context's baton while the owner waits on another context.
#[derive(Debug)]
pub(crate) struct Blocking {
    pub(crate) mailbox: Arc<Mailbox>,
    /// `None` while a bio is in flight.
    bio: Option<Box<QueuedBio>>,
    /// Total number of bios submitted.
    pub(crate) nr_queued: u64,
}

impl Blocking {
    /// Creates the state for the calling thread.
    pub(crate) fn new() -> Blocking {
        let mailbox = Arc::new(Mailbox::of_thread());
        let bio = Some(QueuedBio::new(mailbox.owner(), 0));
        Blocking { mailbox, bio, nr_queued: 0 }
    }

    /// Takes the box and fills it with a bio.
    pub(crate) fn boxed(&mut self, bio: Bio) -> Box<QueuedBio> {
        let mut boxed = self.bio.take().expect("one bio at a time");
        boxed.fill(bio);
        boxed
    }

    /// Returns the box after the call.
    pub(crate) fn put_box(&mut self, boxed: Box<QueuedBio>) {
        self.bio = Some(boxed);
    }
}
