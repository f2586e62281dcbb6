//! Reaping by a task: the steps of the core's [`Reaper`](forebay_core::wait::Reaper).

use crate::runtime::mailbox::Goal;
use crate::runtime::thread::{Ended, Thread};
use crate::runtime::turn::Own;
use forebay_core::wait::{self, Reaper};
use forebay_core::{Commit, Turned, UnplugCause};
use std::rc::Rc;

impl Thread<'_> {
    /// Same as [`Thread::reap`], but waits at most until `until_ns`.
    ///
    /// Where threads wait for tags, a thread without tags sleeps until it has some, and may return
    /// later: such a sleep stands for one within a submission.
    pub(crate) fn reap_until(
        &mut self,
        until_ns: u64,
        min: usize,
        max: usize,
        out: &mut Vec<Ended>,
    ) {
        self.wait_until_ns = until_ns;
        self.reap(min, max, out);
        self.wait_until_ns = u64::MAX;
    }

    /// Takes at most `max` ended bios. Waits until there are `min`, or no bio of this task is left
    /// in the layer.
    pub(crate) fn reap(&mut self, min: usize, max: usize, out: &mut Vec<Ended>) {
        self.step();
        let nr = wait::reap(&mut Reaping(self), min, max);
        let world = Rc::clone(&self.world);
        let mut checks = world.checks();
        for boxed in self.ready.drain(..nr) {
            let slot = boxed.number();
            let row = checks.bios.row(slot);
            let latency_ns = world.now() - row.queued_ns;
            self.point = self.point.max(boxed.durable_point());
            let bio = boxed.bio();
            out.push(Ended {
                slot,
                serial: bio.user_data,
                len: bio.len,
                ended_ns: row.ended_ns,
                waited_ns: boxed.tag_wait().unwrap_or(0),
                latency_ns,
                result: boxed.result(),
            });
            let reaped = checks.bios.reap(slot, self.id);
            checks.expect(reaped);
            // A command may still use the memory that the box stands for (H5).
            if !checks.bios.row(slot).is_kept {
                self.free.push(boxed);
            }
        }
        drop(checks);
        self.cpu.spend(nr as u64 * world.cpu.reap_ns);
    }
}

/// A task that reaps.
struct Reaping<'t, 'a>(&'t mut Thread<'a>);

impl Reaper for Reaping<'_, '_> {
    fn is_shared(&self) -> bool {
        self.0.hctx().is_shared
    }

    fn nr_ready(&self) -> usize {
        self.0.ready.len()
    }

    fn nr_in_layer(&self) -> usize {
        self.0.nr_in_layer
    }

    fn nr_mailed(&self) -> u64 {
        self.0.nr_mailed
    }

    fn take_mail(&mut self) {
        let Thread { world, id, nr_in_layer, nr_mailed, ready, .. } = &mut *self.0;
        let mut mail = world.mailboxes[*id].ended.borrow_mut();
        *nr_in_layer -= mail.len().min(*nr_in_layer);
        *nr_mailed += mail.len() as u64;
        ready.extend(mail.drain(..));
    }

    fn is_timed_out(&self) -> bool {
        self.0.world.now() >= self.0.wait_until_ns
    }

    fn lacks_tags(&self) -> bool {
        self.0.world.mailboxes[self.0.id].cell.lacks_tags()
    }

    fn unplug(&mut self) {
        self.0.detach(UnplugCause::Wait, 1);
    }

    fn turn(&mut self, commit: Commit) -> Option<Turned> {
        self.0.turn(commit, Own::Direct)
    }

    fn commit(&mut self) {
        let hctx = self.0.hctx();
        wait::commit_all(&mut self.0.at(&hctx));
    }

    fn wait(&mut self, goal: u64) {
        self.0.wait_for(Goal::of_number(goal));
    }

    fn wait_as_owner(&mut self, turned: Turned, nr: u32) {
        let hctx = self.0.hctx();
        wait::wait_as_owner(&mut self.0.at(&hctx), turned, nr);
    }
}
