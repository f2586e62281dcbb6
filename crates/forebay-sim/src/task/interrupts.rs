//! Interrupt task: it stands for the interrupts of a device, and leads the shared context.
//!
//! It is woken without delay when a command completes, and turns the context, as an interrupt does
//! in Linux. So a completion waits for no thread, and the threads only wait for their own bios.

use crate::coroutine::Cpu;
use crate::runtime::mailbox::Goal;
use crate::runtime::thread::Thread;

/// Leads until the task is dropped.
pub(crate) fn run(cpu: Cpu<'_>) {
    Thread::new(cpu).wait_for(Goal::None);
}
