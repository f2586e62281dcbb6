//! The simulated world of virtio-blk: a guest with its rings, and the server.

use super::met::Met;
use super::rings::Rings;
use super::rules::{X3, X4};
use super::scenario::Scenario;
use super::vm::Vm;
use super::workers::Workers;
use crate::check::Verdict;
use crate::server::{self, Context, Event, Log, Outside, Stage, Way};
use forebay_front::blk::BlkDisk;

/// The simulated world of a run.
#[derive(Debug)]
pub(crate) struct World {
    stage: Stage<Rings>,
    vm: Vm,
    server: Workers,
    device: BlkDisk,
    nr_queues: usize,
    server_polls: u32,
}

impl World {
    pub(crate) fn new(scenario: Scenario, cx: Context) -> World {
        let vm = Vm::new(&scenario);
        let Scenario { disk, device, nr_queues, server_polls, endings, .. } = scenario;
        let stage = Stage::new(cx, disk, Rings::new(scenario.reap_ns_max), endings);
        let server = Workers::new(&stage.outside, &device, nr_queues, server_polls);
        World { stage, vm, server, device, nr_queues, server_polls }
    }

    /// Records that a notification arrives at the device.
    fn kicked(&self, ring: usize) {
        let Outside { cx, transport, .. } = &mut *self.stage.outside.borrow_mut();
        cx.note(Met::Kick, ring as u64, 0);
        if let Some(queue) = transport.queues.get_mut(ring) {
            queue.kicked();
        }
    }
}

impl server::World for World {
    type Transport = Rings;
    type Met = Met;
    const ENDS: &'static str = X3;
    const DRAINS: &'static str = X4;
    const CLIENTS_OUTLIVE_SERVER: bool = true;

    fn stage(&self) -> &Stage<Rings> {
        &self.stage
    }

    fn stage_mut(&mut self) -> &mut Stage<Rings> {
        &mut self.stage
    }

    fn log_mut(&mut self) -> &mut Log {
        &mut self.vm.shared.log
    }

    fn begin(&mut self) {
        self.vm.begin(&mut self.server);
    }

    fn fire(&mut self, event: Event) -> Verdict {
        match event {
            Event::Act(at) => self.vm.act(at, &mut self.server)?,
            Event::Move(ring, Way::Up) => {
                self.kicked(ring);
                self.server.wake(ring);
            }
            Event::Move(ring, Way::Down) => self.vm.interrupted(ring, &mut self.server)?,
            Event::Work(worker) => {
                if self.server.work(worker) {
                    self.vm.stopped(&mut self.server);
                }
                self.vm.notice(&mut self.server);
            }
            Event::Done(hctx, tag) => {
                self.stage.done(hctx, tag);
                self.server.wake(hctx);
            }
            Event::Again(hctx) => self.server.wake(hctx),
            Event::Tick(worker) => self.server.tick(worker),
            Event::Answer => unreachable!("rings have no such queries"),
        }
        self.stage.outside.borrow_mut().transport.verdict()
    }

    fn stop(&mut self) {
        self.vm.retire();
        self.server.stop();
    }

    fn check_over(&self) -> Verdict {
        self.vm.check_over(&self.server)?;
        self.server.check_drained(X4)
    }

    fn forget(&mut self) {
        let Outside { transport, .. } = &mut *self.stage.outside.borrow_mut();
        self.vm.forget(transport);
    }

    fn restart(&mut self) {
        let Stage { outside, .. } = &self.stage;
        self.server = Workers::new(outside, &self.device, self.nr_queues, self.server_polls);
        self.vm.reconnect(&mut self.server);
    }
}
