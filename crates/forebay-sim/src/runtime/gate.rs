//! Freeze, quiesce and stop of the whole disk, by a task.

use crate::plant::Plant;
use crate::runtime::hctx::Hctx;
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use forebay_core::Gate;
use forebay_core::wait::run_turn;
use std::rc::Rc;

/// Sleep between two checks.
const POLL_NS: u64 = 2_000;

impl Thread<'_> {
    /// Closes a gate on every hardware context, waits until it is in force, keeps it closed for a
    /// while, and opens it. One task at a time does this: a gate is closed or open, not counted.
    pub(crate) fn close_and_open(&mut self, gate: Gate, closed_ns: u64) {
        let world = Rc::clone(&self.world);
        if world.is_gated.replace(true) {
            return;
        }
        for hctx in &world.hctxs {
            hctx.run.close(gate);
            world.note(Kind::Close, hctx.at as u64, gate as u64);
            if gate != Gate::Frozen {
                // R4.
                hctx.timers.cancel_delayed_run();
                world.checks().runs.undelayed();
            }
            self.step();
        }
        for hctx in &world.hctxs {
            while !self.is_in_force(hctx, gate) {
                self.cpu.sleep(POLL_NS);
            }
            world.checks().gates.shut(hctx.at, true);
        }
        self.cpu.sleep(closed_ns);
        for hctx in &world.hctxs {
            world.checks().gates.shut(hctx.at, false);
            hctx.run.open(gate);
            if hctx.is_shared {
                world.checks().runs.opened();
            }
            world.note(Kind::Open, hctx.at as u64, gate as u64);
            self.step();
            // R4. An owner runs its context by itself, because no other task may.
            if hctx.is_shared && !world.plants(Plant::OpenUnasked) {
                run_turn(&mut self.at(hctx));
            }
        }
        let verdict = world.checks().runs.check_opened();
        world.fail(verdict);
        world.is_gated.set(false);
    }

    /// Returns whether nothing that the gate holds back can happen any more.
    fn is_in_force(&mut self, hctx: &Rc<Hctx>, gate: Gate) -> bool {
        self.step();
        if gate != Gate::Frozen {
            return !hctx.run.is_running();
        }
        if hctx.is_shared {
            run_turn(&mut self.at(hctx));
        }
        !hctx.run.is_running() && hctx.is_drained.get()
    }
}
