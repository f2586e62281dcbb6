//! Single-threaded tests of the run state. `tests/loom/run_state.rs` uses several threads.

use super::*;

fn running() -> RunState {
    let state = RunState::new();
    assert!(state.run());
    state
}

fn leading() -> RunState {
    let state = RunState::new();
    assert!(state.try_lead());
    state
}

/// Returns the state of a leader that is blocked, beside a free token.
fn blocked() -> RunState {
    let state = leading();
    assert!(state.run() && state.release_to_wait());
    state
}

#[test]
fn the_token_is_held_once_and_a_mark_costs_one_more_turn() {
    let state = running();
    assert!(!state.try_take(), "leaves no mark");
    assert!(state.release());
    assert!(!state.is_running() && state.try_take() && !state.run() && !state.run());
    assert!(!state.release(), "marked, once or twice");
    assert!(state.is_running() && state.release() && !state.is_running());
    assert!(state.run(), "no mark is left over");
}

#[test]
fn only_an_idle_context_is_taken_as_idle() {
    let state = RunState::new();
    for gate in [Gate::Quiesced, Gate::Stopped, Gate::Frozen] {
        state.close(gate);
        assert!(!state.try_take_idle(), "{gate:?} is closed");
        state.open(gate);
    }
    assert!(!leading().try_take_idle() && !running().try_take_idle());
    assert!(state.try_take_idle() && !state.try_take_idle());
    assert!(state.is_running() && state.gates() == Gates::OPEN);
    assert!(!state.run() && !state.release() && state.release());
    assert!(state.try_take_idle(), "no mark is left over");
}

#[test]
fn one_leads_until_it_resigns() {
    let state = leading();
    assert!(state.has_leader() && !state.try_lead() && !state.is_running());
    state.resign();
    assert!(!state.has_leader() && state.try_lead());
}

#[test]
fn a_wait_is_announced_with_the_release_unless_there_is_a_mark() {
    let state = leading();
    assert!(state.run() && !state.run());
    assert!(!state.release_to_wait() && state.is_running());
    assert!(state.release_to_wait() && !state.is_running());
    assert!(state.run() && state.kick(), "the token is free while the leader waits");
    assert!(state.release() && state.is_kicked() && state.unblock() && !state.is_kicked());
}

#[test]
fn a_blocked_leader_is_kicked_once() {
    let state = leading();
    assert!(
        state.run() && !state.kick() && !state.is_kicked(),
        "no thread waits beside the driver"
    );
    assert!(!state.block());
    assert!(state.kick() && !state.kick() && state.unblock());
    assert!(!state.block());
    assert!(!state.unblock(), "a kick is for one wait");
    state.resign();
    assert!(!state.release() && state.release());
}

#[test]
fn each_gate_is_closed_and_opened_alone() {
    let state = running();
    for (gate, dispatch, enter) in
        [(Gate::Quiesced, false, true), (Gate::Stopped, false, true), (Gate::Frozen, true, false)]
    {
        state.close(gate);
        assert_eq!((state.gates().dispatch, state.gates().enter), (dispatch, enter), "{gate:?}");
        state.open(gate);
        assert!(state.gates().dispatch && state.gates().enter);
    }
    state.close(Gate::Stopped);
    state.close(Gate::Quiesced);
    state.open(Gate::Stopped);
    assert!(!state.gates().dispatch, "the other gate is closed");
    assert!(!state.run() && !state.release(), "marks pass a closed gate (R4)");
}

#[test]
#[should_panic(expected = "released without the token")]
fn an_idle_token_cannot_be_released() {
    RunState::default().release();
}

#[test]
#[should_panic(expected = "does not hold the token")]
fn a_kick_needs_the_token() {
    RunState::new().kick();
}

#[test]
#[should_panic(expected = "while blocked")]
fn a_blocked_leader_cannot_resign() {
    blocked().resign();
}

#[test]
#[should_panic(expected = "without leading")]
fn only_a_leader_blocks_without_the_token() {
    RunState::new().block();
}

#[test]
#[should_panic(expected = "unblocked twice")]
fn a_wait_ends_once() {
    let state = blocked();
    state.unblock();
    state.unblock();
}

#[test]
fn runs_that_find_the_token_taken_are_counted() {
    let state = running();
    assert_eq!(state.nr_skipped(), 0);
    assert!(!state.run() && !state.run() && !state.try_take());
    assert_eq!(state.nr_skipped(), 2, "R6");
}

#[test]
fn states_of_a_wait_are_visible() {
    assert!(!leading().is_blocked());
    let state = blocked();
    assert!(state.is_blocked() && !state.is_kicked());
    assert!(state.run() && state.kick() && state.gates() == Gates { reap: false, ..Gates::OPEN });
    assert!(state.is_blocked() && state.unblock() && !state.is_blocked());
    assert_eq!(state.gates(), Gates::OPEN);
}

#[test]
#[should_panic(expected = "waits without the token, or twice")]
fn wait_of_a_holder_needs_the_token() {
    leading().release_to_wait();
}

#[test]
#[should_panic(expected = "waits without the token, or twice")]
fn wait_beside_a_wait_is_an_error() {
    let state = blocked();
    assert!(state.run());
    state.release_to_wait();
}

#[test]
#[should_panic(expected = "blocks without leading, or twice")]
fn leader_blocks_once() {
    let state = blocked();
    assert!(state.run());
    state.block();
}

#[test]
fn leader_without_the_token_is_blocked_and_leaves_a_mark_or_takes_the_token() {
    let state = leading();
    assert!(state.block() && state.is_running() && !state.is_blocked());
    assert_eq!(state.nr_skipped(), 0);
    assert!(!state.block() && state.is_blocked());
    assert_eq!(state.nr_skipped(), 1, "R6");
    assert!(!state.release() && state.release(), "R2: the holder turns once more");
}

#[test]
fn holder_resigns_for_a_leader_that_is_blocked_and_for_no_other() {
    let state = blocked();
    assert!(state.run() && state.kick() && state.resign_for_blocked());
    assert!(!state.has_leader() && !state.is_blocked() && state.gates() == Gates::OPEN);
    assert!(!state.unblock_unless_replaced() && !state.has_leader());
    // A leader that does not wait goes on leading.
    let state = leading();
    assert!(state.run() && !state.resign_for_blocked() && state.has_leader());
    assert!(state.release_to_wait() && state.run());
    assert!(state.kick() && state.unblock_unless_replaced());
    assert_eq!((state.has_leader(), state.is_blocked(), state.gates()), (true, false, Gates::OPEN));
}

#[test]
#[should_panic(expected = "without the token")]
fn only_a_holder_resigns_for_another_thread() {
    blocked().resign_for_blocked();
}

#[test]
#[should_panic(expected = "resigned without leading")]
fn only_a_leader_resigns() {
    running().resign();
}
