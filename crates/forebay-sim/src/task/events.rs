//! A task that performs the timed events of a scenario file.

use crate::coroutine::Cpu;
use crate::runtime::thread::Thread;
use crate::scenario_spec::EventSpec;
use crate::summary::CrashPoint;
use crate::trace::Kind;
use std::rc::Rc;

/// Performs the events, which are in the order of their times.
pub(crate) fn run(cpu: Cpu<'_>, events: Vec<(u64, EventSpec)>) {
    let (world, id) = (Rc::clone(&cpu.world), cpu.id);
    world.note(Kind::Start, id as u64, id as u64);
    if events.is_empty() {
        return;
    }
    let mut thread = Thread::new(cpu);
    for (at_ns, event) in events {
        let left_ns = at_ns.saturating_sub(world.now());
        thread.cpu.sleep(left_ns);
        match event {
            EventSpec::Close(gate, closed_ns) => thread.close_and_open(gate, closed_ns, false),
            EventSpec::Resize(nr_requests) => thread.set_nr_requests(nr_requests),
            EventSpec::Scheduler(scheduling) => thread.set_scheduler(scheduling),
            EventSpec::CrashPoint => {
                let (nr_written, nr_unsure) = world.checks().durable.count_blocks();
                let point = CrashPoint { at_ns, nr_written, nr_unsure };
                world.tally.borrow_mut().crash_points.push(point);
            }
        }
    }
    thread.retire(&mut Vec::new());
}
