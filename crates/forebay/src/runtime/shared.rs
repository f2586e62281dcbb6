//! The state of an open disk, and the ways into it: submit, unplug, reap, wait.
// It passes on what its callers vouch for.
#![allow(unsafe_code)]

use crate::buf::Buf;
use crate::info::{DiskInfo, DiskStats};
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::mailbox::{Completion, Mailboxes};
use crate::runtime::{clock, plug};
use forebay_core::{
    Bio, Commit, Driver, Ended, PlugPolicy, Refusal, RequestQueue, Turned, UnplugCause,
};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// How long to leave a driver alone that is busy with nothing in flight; as in Linux
/// (`BLK_MQ_RESOURCE_DELAY`).
const RESOURCE_DELAY: Duration = Duration::from_millis(3);

/// An open disk: what all its handles, queues and plugs share.
pub(crate) struct Shared {
    info: DiskInfo,
    /// The mailbox of blocking calls.
    blocking: u32,
    core: RefCell<Core>,
}

struct Core {
    queue: RequestQueue,
    driver: Box<dyn Driver>,
    /// What the last turn ended; empty between turns.
    ended: Vec<Ended>,
    /// The buffers of bios in the layer, by bio.
    bufs: Vec<Option<Buf>>,
    mailboxes: Mailboxes,
    /// The completion of a blocking call; kept for its memory.
    done: Vec<Completion>,
    /// Whether the thread's plug knows of this disk.
    in_plug: bool,
}

/// A bio that was refused: why, and what was given.
pub(crate) type Refused = (Refusal, Bio, Option<Buf>);

impl Shared {
    pub(crate) fn new(info: DiskInfo, driver: Box<dyn Driver>) -> Rc<Shared> {
        let nr_bios = info.policy.nr_bios as usize;
        let mut bufs = Vec::new();
        bufs.resize_with(nr_bios, || None);
        let mut mailboxes = Mailboxes::new(nr_bios);
        let blocking = mailboxes.open();
        let core = Core {
            queue: RequestQueue::new(info.limits, info.policy),
            driver,
            ended: Vec::with_capacity(nr_bios),
            bufs,
            mailboxes,
            done: Vec::with_capacity(1),
            in_plug: false,
        };
        Rc::new(Shared { info, blocking, core: RefCell::new(core) })
    }

    pub(crate) fn info(&self) -> &DiskInfo {
        &self.info
    }

    pub(crate) fn stats(&self) -> DiskStats {
        let core = self.core.borrow();
        DiskStats { queue: core.queue.stats().clone(), nr_syscalls: core.driver.nr_syscalls() }
    }

    pub(crate) fn open_mailbox(&self) -> u32 {
        self.core.borrow_mut().mailboxes.open()
    }

    /// Waits for a mailbox's bios in flight, and closes it.
    pub(crate) fn close_mailbox(&self, number: u32) {
        // The caller's memory may be freed once this returns, so it must not unwind before.
        AbortOnUnwind::guard(|| {
            let mut done = Vec::new();
            while self.core.borrow_mut().mailboxes.of(number).nr_in_layer() > 0 {
                self.reap(number, 1, usize::MAX, &mut done);
                done.clear();
            }
            self.core.borrow_mut().mailboxes.close(number);
        });
    }

    /// How many bios of a mailbox were not reaped yet.
    pub(crate) fn nr_unreaped(&self, number: u32) -> usize {
        self.core.borrow_mut().mailboxes.of(number).len()
    }

    /// Takes a bio in, with the buffer that its memory is in, if that is ours to keep. `commit` is
    /// [`Commit::AtWait`] where the caller reaps next.
    ///
    /// # Safety
    /// The memory of `bio` is valid for the operation, and nobody else uses it as the operation
    /// excludes, until the bio's completion was taken from the mailbox, or the mailbox was closed,
    /// or this disk's state was dropped. A buffer given along is held for as long.
    #[inline]
    pub(crate) unsafe fn submit(
        self: &Rc<Shared>,
        bio: Bio,
        buf: Option<Buf>,
        mailbox: u32,
        commit: Commit,
    ) -> Result<(), Refused> {
        let level = plug::level();
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        if core.mailboxes.of(mailbox).is_full() {
            return Err((Refusal::WouldBlock, bio, buf));
        }
        let mut now = core.now();
        let queued = match core.queue.queue_bio(bio, mailbox, level, now) {
            Err((Refusal::WouldBlock, bio)) => {
                // The plug may hold the slots itself; and what has completed frees some.
                core.queue.unplug(UnplugCause::Limit, 1, now);
                core.turn(Commit::Now);
                now = core.now();
                core.queue.queue_bio(bio, mailbox, level, now)
            }
            queued => queued,
        };
        let queued = match queued {
            Ok(queued) => queued,
            Err((refusal, bio)) => return Err((refusal, bio, buf)),
        };
        if buf.is_some() {
            core.bufs[queued.id.index()] = buf;
        }
        core.mailboxes.of(mailbox).expect();
        if queued.plugged && !core.in_plug {
            core.in_plug = true;
            plug::join(self);
        }
        if queued.turn_due {
            core.turn_at(now, commit);
        }
        Ok(())
    }

    /// Takes a bio in, and waits for its end.
    ///
    /// # Safety
    /// The memory of `bio` is valid for the operation, and nobody else uses it as the operation
    /// excludes, until this returns.
    pub(crate) unsafe fn run(self: &Rc<Shared>, bio: Bio) -> Result<Completion, Refusal> {
        // Unwinding would give the memory back while a device may still use it.
        AbortOnUnwind::guard(|| {
            let mut bio = bio;
            loop {
                // SAFETY: passed on; this returns only when the bio has ended or was refused.
                match unsafe { self.submit(bio, None, self.blocking, Commit::AtWait) } {
                    Ok(()) => break,
                    Err((Refusal::WouldBlock, refused, _)) => {
                        self.wait_for_room();
                        bio = refused;
                    }
                    Err((refusal, _, _)) => return Err(refusal),
                }
            }
            let mut done = std::mem::take(&mut self.core.borrow_mut().done);
            self.reap(self.blocking, 1, 1, &mut done);
            let completion = done.pop().expect("a bio that was taken in ends");
            self.core.borrow_mut().done = done;
            Ok(completion)
        })
    }

    /// Unplugs the requests of `level` and above and issues them. Says whether others
    /// stay in the plug.
    pub(crate) fn unplug(&self, cause: UnplugCause, level: u32) -> bool {
        let mut core = self.core.borrow_mut();
        let now = core.now();
        if core.queue.unplug(cause, level, now) {
            core.turn_at(now, Commit::Now);
        }
        core.in_plug = core.queue.is_plugged();
        core.in_plug
    }

    /// Unplugs the requests, for a turn that follows.
    pub(crate) fn detach(&self, cause: UnplugCause) {
        let mut core = self.core.borrow_mut();
        let now = core.now();
        core.in_plug = false;
        core.queue.unplug(cause, 1, now);
    }

    pub(crate) fn plug_policy(&self) -> PlugPolicy {
        self.info.policy.plug
    }

    /// Moves at most `max` completions of a mailbox to `out`, waiting until there are `min` or the
    /// mailbox has no bio left. Says how many.
    #[inline]
    pub(crate) fn reap(
        &self,
        number: u32,
        min: usize,
        max: usize,
        out: &mut Vec<Completion>,
    ) -> usize {
        assert!(min <= max);
        let mut core = self.core.borrow_mut();
        let mut nr = core.mailboxes.of(number).take(max, out);
        if nr == max || nr >= min && min > 0 {
            // A submission may have left its commit to the wait that does not come now.
            core.commit();
            return nr;
        }
        drop(core);
        plug::unplug_all(UnplugCause::Wait, Some(self));
        let mut core = self.core.borrow_mut();
        loop {
            let commit = if min > nr { Commit::AtWait } else { Commit::Now };
            let turned = core.turn(commit);
            let mailbox = core.mailboxes.of(number);
            nr += mailbox.take(max - nr, out);
            let nr_in_layer = mailbox.nr_in_layer();
            if nr >= min || nr_in_layer == 0 {
                core.commit();
                return nr;
            }
            // Completions of others do not count; with others about, each one may be.
            let all_ours = nr_in_layer == core.queue.nr_bios() as usize;
            core.wait(turned, if all_ours { min - nr } else { 1 });
        }
    }

    /// Unplugs everything and waits until a bio may have ended, whosever it is.
    fn wait_for_room(&self) {
        plug::unplug_all(UnplugCause::Wait, Some(self));
        let mut core = self.core.borrow_mut();
        let turned = core.turn(Commit::AtWait);
        if core.queue.nr_bios() == core.queue.policy().nr_bios {
            core.wait(turned, 1);
        }
        core.turn(Commit::Now);
    }
}

impl Core {
    /// The time for stamps; none is needed where no latency is recorded.
    #[inline]
    fn now(&self) -> u64 {
        if self.queue.policy().iostats { clock::now_ns() } else { 0 }
    }

    /// One turn, and the ends it brought to their mailboxes.
    #[inline]
    fn turn(&mut self, commit: Commit) -> Turned {
        self.turn_at(self.now(), commit)
    }

    /// A turn at a time that was read a moment ago.
    #[inline]
    fn turn_at(&mut self, now: u64, commit: Commit) -> Turned {
        let turned = self.queue.turn(&mut *self.driver, now, commit, &mut self.ended);
        for Ended { id, owner, user_data, result } in self.ended.drain(..) {
            let buf = self.bufs[id.index()].take();
            self.mailboxes.of(owner).deliver(Completion { user_data, result, buf });
        }
        turned
    }

    fn commit(&mut self) {
        self.queue.commit(&mut *self.driver);
    }

    fn wait(&mut self, turned: Turned, nr_bios: usize) {
        if turned.nr_in_flight > 0 {
            let nr_bios = nr_bios.min(u32::MAX as usize) as u32;
            self.driver.wait(self.queue.prepare_wait(nr_bios));
        } else if turned.work_left {
            std::thread::sleep(RESOURCE_DELAY);
        }
    }

    /// Runs the disk until nothing of it is in the layer.
    fn drain(&mut self) {
        let now = self.now();
        self.queue.unplug(UnplugCause::Wait, 1, now);
        loop {
            let turned = self.turn(Commit::AtWait);
            if self.queue.nr_bios() == 0 {
                return;
            }
            self.wait(turned, 1);
        }
    }
}

impl Drop for Core {
    /// Waits for what is in flight: its memory must not be freed under the device.
    fn drop(&mut self) {
        AbortOnUnwind::guard(|| self.drain());
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("spec", &self.info.spec).finish_non_exhaustive()
    }
}
