//! Tests of the outer turn: its order, and when it kicks the leader.

use super::{Turning, deliver_each, turn};
use crate::hctx::{Commit, Gates, Turned};
use crate::request::QueuedBio;
use crate::run_state::{Gate, RunState};
use crate::wait::context::Step;
use crate::wait::{Notice, scripted};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;

/// A token holder that records its steps.
#[derive(Default)]
struct Holder {
    run: RunState,
    is_shared: bool,
    serves_tag_waits: bool,
    turned: Option<Turned>,
    /// The number of times that these steps return true.
    nr_unreported: Cell<u32>,
    /// The number of times that requests of other disks complete at once when tags are shared.
    nr_shared: u32,
    nr_left_flushes: u32,
    nr_handed_flushes: u32,
    nr_woken_leaders: u32,
    nr_retries: u32,
    delivers_to_leader: bool,
    kicks_for_deadline: bool,
    log: Vec<String>,
}

fn take_one(nr: &mut u32) -> bool {
    let is_left = *nr > 0;
    *nr -= u32::from(is_left);
    is_left
}

impl Holder {
    /// Creates the token holder of a shared context with a blocked leader.
    fn beside_a_leader() -> Holder {
        let holder = Holder { is_shared: true, ..Holder::default() };
        assert!(holder.run.try_lead());
        assert!(holder.run.run() && holder.run.release_to_wait());
        holder
    }

    /// Makes a turn, and returns its steps.
    fn turn(&mut self, commit: Commit) -> Vec<String> {
        assert!(self.run.run());
        turn(self, commit);
        assert!(self.run.release());
        core::mem::take(&mut self.log)
    }

    fn call(&mut self, text: &str) {
        assert!(self.log.len() < 100, "no end: {:?}", &self.log[..20]);
        self.log.push(text.to_owned());
    }

    fn nr_turns(&mut self) -> usize {
        self.turn(Commit::Now).iter().filter(|call| call.starts_with("core")).count()
    }
}

impl Turning for Holder {
    fn run_state(&self) -> &RunState {
        &self.run
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn step(&mut self, made: Step) {
        self.call(&format!("{made:?}"));
    }

    fn begin(&mut self) {
        self.call("begin");
    }

    fn apply_tag_calls(&mut self) {
        self.call("apply");
    }

    fn accept(&mut self, enter: bool) {
        self.call(if enter { "accept" } else { "accept nothing" });
    }

    fn turn_core(&mut self, gates: Gates, commit: Commit) -> Turned {
        let Gates { enter, dispatch, reap } = gates;
        let gates = [(enter, 'e'), (dispatch, 'd'), (reap, 'r')];
        let open: String = gates.iter().filter(|gate| gate.0).map(|gate| gate.1).collect();
        self.call(&format!("core {open} {commit:?}"));
        self.turned.unwrap_or(Turned::NOTHING)
    }

    fn takes_left_flush(&mut self) -> bool {
        take_one(&mut self.nr_left_flushes)
    }

    fn wake_for_flush(&mut self) -> bool {
        self.call("hand flush");
        take_one(&mut self.nr_handed_flushes)
    }

    fn has_unreported(&self) -> bool {
        let mut nr = self.nr_unreported.get();
        let has = take_one(&mut nr);
        self.nr_unreported.set(nr);
        has
    }

    fn serves_tag_waits(&self) -> bool {
        self.serves_tag_waits
    }

    fn wake_for_tags(&mut self) -> bool {
        self.call("wake for tags");
        take_one(&mut self.nr_woken_leaders)
    }

    fn retry_for_awake(&mut self) -> bool {
        take_one(&mut self.nr_retries)
    }

    fn share_tags(&mut self, _gates: Gates, _commit: Commit, _turned: &mut Turned) {
        self.call("share");
        if take_one(&mut self.nr_shared) {
            self.nr_unreported.set(1);
        }
    }

    fn record(&mut self, _gates: Gates, turned: Turned) {
        self.call(&format!("record {}", turned.nr_in_flight()));
    }

    fn deliver(&mut self) -> bool {
        self.call("deliver");
        self.delivers_to_leader
    }

    fn arm_delayed_run(&mut self) {
        self.call("arm run");
    }

    fn arm_deadline(&mut self, at_ns: u64) -> bool {
        self.call(&format!("arm {at_ns}"));
        self.kicks_for_deadline
    }

    fn kick_driver(&mut self) {
        self.call("kick");
    }
}

#[test]
fn steps_of_a_turn_have_one_order() {
    let mut holder = Holder::beside_a_leader();
    holder.serves_tag_waits = true;
    holder.turned = Some(Turned::new(3, false, false, 70));
    holder.kicks_for_deadline = true;
    let expected = [
        "begin",
        "ReadGates",
        "apply",
        "accept",
        "core edr Later",
        "MadeProgress",
        "wake for tags",
        "share",
        "record 3",
        "arm 70",
        "deliver",
        "kick",
    ];
    assert_eq!(holder.turn(Commit::Later), expected);
}

#[test]
fn turn_of_a_context_without_waiters_takes_no_step_for_them() {
    let mut holder = Holder::default();
    holder.nr_unreported.set(1);
    holder.nr_left_flushes = 1;
    holder.delivers_to_leader = true;
    let expected =
        ["begin", "ReadGates", "apply", "accept", "core edr Now", "MadeProgress", "record 0"];
    assert_eq!(holder.turn(Commit::Now)[..7], expected);
    assert_eq!((holder.nr_unreported.get(), holder.nr_left_flushes), (1, 1));
}

#[test]
fn closed_gates_reach_the_turn() {
    for (gate, accept, core) in [
        (Gate::Frozen, "accept nothing", "core dr Now"),
        (Gate::Quiesced, "accept", "core er Now"),
        (Gate::Stopped, "accept", "core er Now"),
    ] {
        let mut holder = Holder::default();
        holder.run.close(gate);
        assert_eq!(holder.turn(Commit::Now)[3..5], [accept, core], "{gate:?}");
    }
}

#[test]
fn commit_is_left_to_a_leader_only_if_one_is_blocked() {
    let mut alone = Holder::default();
    let mut beside = Holder::beside_a_leader();
    for (commit, of_one_alone, of_one_beside) in [
        (Commit::Unless(3), "core edr Now", "core edr Unless(3)"),
        (Commit::Later, "core edr Later", "core edr Later"),
    ] {
        assert_eq!(alone.turn(commit)[4], of_one_alone);
        assert_eq!(beside.turn(commit)[4], of_one_beside);
    }
}

#[test]
fn leader_is_kicked_for_each_reason_and_once_for_several() {
    for reasons in 0..16_u32 {
        let has = |nth: u32| reasons & 1 << nth != 0;
        for is_shared in [false, true] {
            let mut holder = Holder::beside_a_leader();
            holder.is_shared = is_shared;
            holder.turned = Some(Turned::new(0, has(0), false, 50));
            holder.kicks_for_deadline = has(1);
            holder.delivers_to_leader = has(2);
            (holder.serves_tag_waits, holder.nr_woken_leaders) = (true, u32::from(has(3)));
            let log = holder.turn(Commit::Now);
            let nr_kicks = log.iter().filter(|call| *call == "kick").count();
            assert_eq!(nr_kicks, usize::from(is_shared && reasons > 0), "{reasons:b}: {log:?}");
            // The leader reads the timer after the kick.
            let expected: &[&str] = if has(0) { &["deliver", "arm run", "kick"] } else { &[] };
            assert!(!is_shared || log.ends_with_calls(expected), "{reasons:b}: {log:?}");
            assert_eq!(log.iter().any(|call| call == "arm run"), is_shared && has(0));
        }
    }
}

trait EndsWith {
    fn ends_with_calls(&self, calls: &[&str]) -> bool;
}

impl EndsWith for Vec<String> {
    fn ends_with_calls(&self, calls: &[&str]) -> bool {
        self[self.len() - calls.len()..] == *calls
    }
}

#[test]
fn leader_that_is_not_blocked_or_kicked_already_is_not_kicked() {
    let mut holder = Holder { is_shared: true, delivers_to_leader: true, ..Holder::default() };
    assert!(
        !holder.turn(Commit::Now).contains(&"kick".to_owned()),
        "no thread waits beside the driver"
    );
    let mut holder = Holder::beside_a_leader();
    holder.delivers_to_leader = true;
    assert!(holder.turn(Commit::Now).contains(&"kick".to_owned()));
    assert!(!holder.turn(Commit::Now).contains(&"kick".to_owned()), "W4: once");
}

#[test]
fn completions_that_no_wait_reports_are_reaped_by_another_turn() {
    let mut holder = Holder { is_shared: true, ..Holder::default() };
    holder.nr_unreported.set(2);
    assert_eq!(holder.nr_turns(), 3);
    // Behind the gate of a kick nothing is reaped.
    let mut holder = Holder::beside_a_leader();
    assert!(holder.run.run() && holder.run.kick() && holder.run.release());
    holder.nr_unreported.set(2);
    assert_eq!(holder.nr_turns(), 1);
    holder.serves_tag_waits = true;
    assert_eq!(holder.nr_turns(), 1);
}

#[test]
fn flush_that_was_left_is_handed_over_or_issued_by_another_turn() {
    for (nr_handed_flushes, nr_turns) in [(0, 3), (1, 1)] {
        let mut holder = Holder { is_shared: true, ..Holder::default() };
        (holder.nr_left_flushes, holder.nr_handed_flushes) = (2, nr_handed_flushes);
        assert_eq!(holder.nr_turns(), nr_turns);
    }
}

#[test]
fn waiters_that_are_awake_are_served_by_further_turns() {
    let mut holder = Holder::beside_a_leader();
    holder.serves_tag_waits = true;
    (holder.nr_retries, holder.nr_woken_leaders) = (2, 2);
    let log = holder.turn(Commit::Now);
    let (wake, core) = ("wake for tags", "core edr Now");
    assert_eq!(log[4..12], [core, "MadeProgress", wake, core, wake, core, wake, "share"]);
    assert!(log.ends_with_calls(&["deliver", "kick"]), "the leader was woken twice: {log:?}");
    // Requests that were issued for them may have completed at once.
    let mut holder = Holder { serves_tag_waits: true, ..Holder::default() };
    holder.nr_unreported.set(1);
    let log = holder.turn(Commit::Now);
    assert_eq!(log[4..11], [core, "MadeProgress", wake, "share", core, wake, "share"]);
    // Then the leader may be woken again, and is kicked once.
    let mut holder = Holder::beside_a_leader();
    holder.serves_tag_waits = true;
    (holder.nr_shared, holder.nr_woken_leaders) = (1, 2);
    let log = holder.turn(Commit::Now);
    let nr_wakes = log.iter().filter(|call| *call == wake).count();
    assert!(nr_wakes == 2 && log.ends_with_calls(&["deliver", "kick"]), "{log:?}");
}

/// A token holder with the default steps.
struct Plain {
    run: RunState,
    nr_turns: u32,
}

impl Turning for Plain {
    fn run_state(&self) -> &RunState {
        &self.run
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn apply_tag_calls(&mut self) {}

    fn accept(&mut self, _enter: bool) {}

    fn turn_core(&mut self, _gates: Gates, _commit: Commit) -> Turned {
        self.nr_turns += 1;
        assert!(self.nr_turns < 10, "no end");
        scripted::busy(1)
    }

    fn serves_tag_waits(&self) -> bool {
        false
    }

    fn wake_for_tags(&mut self) -> bool {
        panic!("no thread waits for tags")
    }

    fn retry_for_awake(&mut self) -> bool {
        panic!("no thread waits for tags")
    }

    fn record(&mut self, _gates: Gates, _turned: Turned) {}

    fn deliver(&mut self) -> bool {
        false
    }

    fn arm_delayed_run(&mut self) {
        panic!("a completion will come")
    }

    fn arm_deadline(&mut self, _at_ns: u64) -> bool {
        panic!("there is no deadline")
    }

    fn kick_driver(&mut self) {
        panic!("there is no reason")
    }
}

#[test]
fn turn_with_default_steps_turns_once() {
    let mut plain = Plain { run: RunState::new(), nr_turns: 0 };
    assert!(plain.run.run());
    assert_eq!(turn(&mut plain, Commit::Now).nr_in_flight(), 1);
    assert_eq!(plain.nr_turns, 1);
}

#[test]
fn consecutive_bios_of_an_owner_are_delivered_together() {
    for (notice, of_all) in [(Notice::Wake, false), (Notice::Nothing, false), (Notice::Kick, true)]
    {
        let owners = [1, 1, 2, 1, 3];
        let mut ended = (0..).zip(owners).map(|(nth, owner)| QueuedBio::new(owner, nth)).collect();
        let mut delivered = Vec::new();
        let to_leader = deliver_each(&mut ended, |owner, bios| {
            delivered.push((owner, bios.map(|bio| bio.number()).collect::<Vec<_>>()));
            if owner == 1 { notice } else { Notice::Nothing }
        });
        let expected = [(1, [0, 1].into()), (2, [2].into()), (1, [3].into()), (3, [4].into())];
        assert_eq!(delivered, expected);
        assert_eq!((to_leader, ended.len()), (of_all, 0));
    }
}
