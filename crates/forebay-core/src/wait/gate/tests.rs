//! Tests of the gates of a disk with several contexts.

use super::{Gated, Holds, await_drained, await_turns, close, open};
use crate::run_state::{Gate, RunState};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

const GATES: [Gate; 3] = [Gate::Quiesced, Gate::Stopped, Gate::Frozen];

/// A disk with a shared context, one that this thread owns, and one of another thread.
#[derive(Default)]
struct Disk {
    runs: [RunState; 3],
    holds: RefCell<Holds>,
    is_after_fork: bool,
    /// The numbers of checks after which a context is drained.
    nr_checks: RefCell<[u32; 3]>,
    stranded: Option<usize>,
    /// How many more sleeps the time limit allows.
    nr_sleeps: u32,
    /// The context whose turn ends at the next pause.
    running: Option<usize>,
    log: RefCell<Vec<String>>,
}

impl Disk {
    fn call(&self, text: String) {
        assert!(self.log.borrow().len() < 50, "no end");
        self.log.borrow_mut().push(text);
    }

    fn log(&mut self) -> Vec<String> {
        core::mem::take(self.log.get_mut())
    }
}

impl Gated for Disk {
    type Error = String;

    fn nr_hctxs(&self) -> usize {
        3
    }

    fn with_holds<T>(&self, change: impl FnOnce(&mut Holds) -> T) -> T {
        change(&mut self.holds.borrow_mut())
    }

    fn run_state(&self, at: usize) -> &RunState {
        &self.runs[at]
    }

    fn changed(&self, at: usize, gate: Gate, is_closed: bool) {
        assert!(self.holds.try_borrow().is_err(), "the lock is held");
        let change = if is_closed { "closed" } else { "opened" };
        self.call(format!("{gate:?} {change} {at}"));
    }

    fn cancel_runs(&self, at: usize) {
        self.call(format!("cancel {at}"));
    }

    fn is_after_fork(&self) -> bool {
        self.is_after_fork
    }

    fn is_shared(&self, at: usize) -> bool {
        at == 0
    }

    fn owns(&self, at: usize) -> bool {
        at == 1
    }

    fn run_turn(&mut self, at: usize) {
        self.call(format!("turn {at}"));
    }

    fn wake_owner(&mut self, at: usize) {
        self.call(format!("wake {at}"));
    }

    fn is_drained(&self, at: usize) -> bool {
        let nr = &mut self.nr_checks.borrow_mut()[at];
        let is_drained = *nr == 0;
        *nr -= u32::from(!is_drained);
        is_drained
    }

    fn is_stranded(&self, at: usize) -> bool {
        self.stranded == Some(at)
    }

    fn stranded(&self, behind: Gate) -> String {
        format!("stranded behind {behind:?}")
    }

    fn pause(&mut self) {
        self.call("pause".into());
        self.running.take().into_iter().for_each(|at| assert!(self.runs[at].release()));
    }

    fn sleep(&mut self) -> Result<(), String> {
        self.call("sleep".into());
        self.running.take().into_iter().for_each(|at| assert!(self.runs[at].release()));
        self.nr_sleeps = self.nr_sleeps.checked_sub(1).ok_or("the time is over")?;
        Ok(())
    }
}

#[test]
fn gate_is_open_once_its_last_hold_has_ended() {
    for gate in GATES {
        let mut disk = Disk::default();
        let is_open =
            |disk: &Disk| disk.runs.each_ref().map(|run| run.gates().dispatch && run.gates().enter);
        close(&mut disk, gate);
        close(&mut disk, gate);
        assert_eq!(is_open(&disk), [false; 3]);
        disk.log();
        open(&mut disk, gate);
        assert_eq!((is_open(&disk), disk.log()), ([false; 3], Vec::new()));
        open(&mut disk, gate);
        assert_eq!(is_open(&disk), [true; 3]);
        let mut expected: Vec<_> = (0..3).map(|at| format!("{gate:?} opened {at}")).collect();
        // R4.
        expected.extend(["turn 0", "wake 1", "wake 2"].map(String::from));
        assert_eq!(disk.log(), expected);
    }
}

#[test]
fn gate_of_dispatch_cancels_delayed_runs() {
    for gate in GATES {
        let mut disk = Disk::default();
        close(&mut disk, gate);
        let mut expected: Vec<_> = (0..3).map(|at| format!("{gate:?} closed {at}")).collect();
        if gate != Gate::Frozen {
            expected.extend((0..3).map(|at| format!("cancel {at}")));
        }
        assert_eq!(disk.log(), expected);
        let held = disk.with_holds(|holds| holds.dispatch_gate());
        assert_eq!(held, (gate != Gate::Frozen).then_some(gate));
        open(&mut disk, gate);
        assert_eq!(disk.with_holds(|holds| holds.dispatch_gate()), None);
    }
}

#[test]
fn turns_in_progress_are_awaited() {
    let mut disk = Disk::default();
    await_turns(&mut disk);
    assert!(disk.log().is_empty());
    assert!(disk.runs[2].run());
    disk.running = Some(2);
    await_turns(&mut disk);
    assert_eq!(disk.log(), ["pause"]);
    // The thread of that turn is not in the child.
    assert!(disk.runs[2].run());
    disk.is_after_fork = true;
    await_turns(&mut disk);
    assert!(disk.log().is_empty());
}

#[test]
fn freeze_waits_until_each_context_is_drained() {
    let mut disk = Disk { nr_checks: [1, 2, 1].into(), nr_sleeps: 9, ..Disk::default() };
    assert_eq!(await_drained(&mut disk), Ok(()));
    let expected =
        ["turn 0", "sleep", "turn 0", "turn 1", "sleep", "turn 1", "sleep", "turn 1", "sleep"];
    assert_eq!(disk.log(), expected);
    // A turn in progress may admit requests still.
    assert!(disk.runs[2].run());
    disk.running = Some(2);
    assert_eq!(await_drained(&mut disk), Ok(()));
    assert_eq!(disk.log(), ["turn 0", "turn 1", "sleep"]);
}

#[test]
fn freeze_ends_with_its_time_limit() {
    let mut disk = Disk { nr_checks: [5, 0, 0].into(), nr_sleeps: 1, ..Disk::default() };
    assert_eq!(await_drained(&mut disk), Err("the time is over".into()));
    assert_eq!(disk.log(), ["turn 0", "sleep", "turn 0", "sleep"]);
    disk.is_after_fork = true;
    assert_eq!(await_drained(&mut disk), Ok(()), "no thread of the child drains it");
}

#[test]
fn freeze_fails_if_another_hold_strands_a_request() {
    for gate in [Gate::Quiesced, Gate::Stopped] {
        let mut disk = Disk {
            stranded: Some(1),
            nr_checks: [0, 1, 0].into(),
            nr_sleeps: 1,
            ..Disk::default()
        };
        // Without such a hold the driver is busy.
        assert_eq!(await_drained(&mut disk), Ok(()));
        close(&mut disk, gate);
        assert_eq!(await_drained(&mut disk), Err(format!("stranded behind {gate:?}")));
    }
}
