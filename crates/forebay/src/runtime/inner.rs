//! The state of an open disk, and the ways into it: submit, unplug, reap, wait.

use crate::buf::Buf;
use crate::queue::Completion;
use crate::runtime::{clock, plug};
use forebay_core::{
    Bio, BlockStatus, Commit, Driver, Ended, PlugPolicy, Refusal, RequestQueue, Turned, UnplugCause,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// How long to leave a driver alone that is busy with nothing in flight; as in Linux
/// (`BLK_MQ_RESOURCE_DELAY`).
const RESOURCE_DELAY: Duration = Duration::from_millis(3);

/// An open disk.
pub(crate) struct Inner {
    plug_policy: PlugPolicy,
    core: RefCell<Core>,
}

struct Core {
    queue: RequestQueue,
    driver: Box<dyn Driver>,
    /// What the last turn ended; empty between turns.
    ended: Vec<Ended>,
    /// The buffers of bios in the layer, by bio.
    bufs: Vec<Option<Buf>>,
    mailboxes: Vec<Mailbox>,
    /// Whether the thread's plug knows of this disk.
    in_plug: bool,
}

/// Who is told of the end of a bio: one for each completion queue.
#[derive(Debug, Default)]
struct Mailbox {
    open: bool,
    nr_in_layer: usize,
    ready: VecDeque<Completion>,
}

impl Inner {
    pub(crate) fn new(queue: RequestQueue, driver: Box<dyn Driver>) -> Rc<Inner> {
        let mut bufs = Vec::new();
        bufs.resize_with(queue.policy().nr_bios as usize, || None);
        let ended = Vec::with_capacity(queue.policy().nr_bios as usize);
        let plug_policy = queue.policy().plug;
        let mailboxes = Vec::new();
        let core = Core { queue, driver, ended, bufs, mailboxes, in_plug: false };
        Rc::new(Inner { plug_policy, core: RefCell::new(core) })
    }

    pub(crate) fn plug_policy(&self) -> PlugPolicy {
        self.plug_policy
    }

    pub(crate) fn is_plugged(&self) -> bool {
        let mut core = self.core.borrow_mut();
        core.in_plug = core.queue.is_plugged();
        core.in_plug
    }

    /// Looks at queue and driver.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&RequestQueue, &dyn Driver) -> T) -> T {
        let core = self.core.borrow();
        look(&core.queue, &*core.driver)
    }

    /// Opens a mailbox, whose number is the owner of the bios that are told to it.
    pub(crate) fn open_mailbox(&self) -> u32 {
        let mut core = self.core.borrow_mut();
        let free = core.mailboxes.iter().position(|mailbox| !mailbox.open);
        let number = free.unwrap_or_else(|| {
            let ready = VecDeque::with_capacity(core.queue.policy().queue_depth as usize);
            core.mailboxes.push(Mailbox { ready, ..Mailbox::default() });
            core.mailboxes.len() - 1
        });
        core.mailboxes[number].open = true;
        number as u32
    }

    /// Closes a mailbox that has been emptied.
    pub(crate) fn close_mailbox(&self, number: u32) {
        let mailbox = &mut self.core.borrow_mut().mailboxes[number as usize];
        assert!(mailbox.nr_in_layer == 0, "a mailbox outlives its bios");
        mailbox.ready.clear();
        mailbox.open = false;
    }

    /// How many bios of a mailbox have not ended.
    pub(crate) fn nr_in_layer(&self, number: u32) -> usize {
        self.core.borrow().mailboxes[number as usize].nr_in_layer
    }

    /// How many completions can be reaped without a turn.
    pub(crate) fn nr_ready(&self, number: u32) -> usize {
        self.core.borrow().mailboxes[number as usize].ready.len()
    }

    /// Takes a bio in, with the buffer that its memory is in, if that is ours to keep.
    #[inline]
    pub(crate) fn submit(
        self: &Rc<Inner>,
        bio: Bio,
        buf: Option<Buf>,
        owner: u32,
    ) -> Result<(), (Refusal, Bio, Option<Buf>)> {
        let level = plug::level();
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let now = core.now();
        let queued = match core.queue.queue_bio(bio, owner, level, now) {
            Err((Refusal::WouldBlock, bio)) => {
                // The plug may hold the slots itself; and what has completed frees some.
                core.queue.unplug(UnplugCause::Limit, 1, now);
                core.turn(Commit::Now);
                core.queue.queue_bio(bio, owner, level, now)
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
        core.mailboxes[owner as usize].nr_in_layer += 1;
        if queued.plugged && !core.in_plug {
            core.in_plug = true;
            plug::join(self);
        }
        if queued.turn_due {
            core.turn_at(now, Commit::Now);
        }
        Ok(())
    }

    /// Lets the plug's requests of `level` and above through and issues them.
    pub(crate) fn unplug(&self, cause: UnplugCause, level: u32) {
        let mut core = self.core.borrow_mut();
        let now = core.now();
        core.in_plug = false;
        if core.queue.unplug(cause, level, now) {
            core.turn_at(now, Commit::Now);
        }
    }

    /// Lets the plug's requests through, for a turn that follows.
    pub(crate) fn detach(&self, cause: UnplugCause) {
        let mut core = self.core.borrow_mut();
        let now = core.now();
        core.in_plug = false;
        core.queue.unplug(cause, 1, now);
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
        let mut nr = self.core.borrow_mut().take_ready(number, max, out);
        if nr == max || nr >= min && min > 0 {
            return nr;
        }
        plug::unplug_all(UnplugCause::Wait, Some(self));
        let mut core = self.core.borrow_mut();
        loop {
            let commit = if min > nr { Commit::AtWait } else { Commit::Now };
            let turned = core.turn(commit);
            nr += core.take_ready(number, max - nr, out);
            if nr >= min || core.mailboxes[number as usize].nr_in_layer == 0 {
                if commit == Commit::AtWait {
                    core.turn(Commit::Now);
                }
                return nr;
            }
            core.wait(turned, min - nr);
        }
    }

    /// Lets everything through and waits until a bio may have ended, whosever it is.
    pub(crate) fn wait_for_room(&self) {
        plug::unplug_all(UnplugCause::Wait, Some(self));
        let mut core = self.core.borrow_mut();
        let turned = core.turn(Commit::AtWait);
        core.wait(turned, 1);
        core.turn(Commit::Now);
    }

    /// Runs the disk until nothing of it is in the layer.
    fn drain(&self) {
        let mut core = self.core.borrow_mut();
        core.detach_all();
        loop {
            let turned = core.turn(Commit::AtWait);
            if core.queue.nr_bios() == 0 {
                return;
            }
            core.wait(turned, 1);
        }
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
            let mailbox = &mut self.mailboxes[owner as usize];
            mailbox.nr_in_layer -= 1;
            mailbox.ready.push_back(Completion { user_data, result, buf });
        }
        turned
    }

    fn wait(&mut self, turned: Turned, nr_bios: usize) {
        if turned.nr_in_flight > 0 {
            self.queue.wait(&mut *self.driver, nr_bios.min(u32::MAX as usize) as u32);
        } else if turned.work_left {
            std::thread::sleep(RESOURCE_DELAY);
        }
    }

    #[inline]
    fn take_ready(&mut self, number: u32, max: usize, out: &mut Vec<Completion>) -> usize {
        let ready = &mut self.mailboxes[number as usize].ready;
        let nr = ready.len().min(max);
        out.extend(ready.drain(..nr));
        nr
    }

    fn detach_all(&mut self) {
        let now = self.now();
        self.queue.unplug(UnplugCause::Wait, 1, now);
    }
}

impl Drop for Inner {
    /// Waits for what is in flight: its memory must not be freed under the device.
    fn drop(&mut self) {
        self.drain();
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("plug_policy", &self.plug_policy).finish_non_exhaustive()
    }
}

/// The result of one bio, for those who wait for a single one.
pub(crate) type BioResult = Result<u64, BlockStatus>;
