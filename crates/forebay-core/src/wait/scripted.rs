//! A thread at a context whose steps a test decides and records. It runs on one thread: an *event*
//! is a change that another thread makes at a certain step.

use super::{Context, Host, Leader, Owner, Sleeper, Step, Timers, WaitCell, WaitState};
use crate::hctx::{Commit, Turned};
use crate::run_state::RunState;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

type Event = Box<dyn FnOnce(&mut Scripted)>;

/// The token of the scripted context.
pub(super) struct Token;

/// The thread, and its context.
#[derive(Default)]
pub(super) struct Scripted {
    pub(super) run: RunState,
    pub(super) cell: WaitCell,
    pub(super) timers: Timers,
    pub(super) now_ns: u64,
    pub(super) followers: VecDeque<Arc<WaitCell>>,
    pub(super) begins: bool,
    pub(super) runs_wakers: bool,
    pub(super) parks_for_flush: bool,
    /// The thread leads for others, and has no bios of its own.
    pub(super) serves: bool,
    /// Steps that return true, once for each entry.
    pub(super) yes: Vec<&'static str>,
    /// The results of turns. The last one is for all further turns.
    turned: VecDeque<Turned>,
    events: VecDeque<(&'static str, Event)>,
    log: Vec<String>,
}

/// Returns the result of a turn that leaves requests at the driver, and nothing else.
pub(super) fn busy(nr_in_flight: u32) -> Turned {
    Turned::new(nr_in_flight, false, nr_in_flight == 0, u64::MAX)
}

/// Returns the result of a turn that leaves a request which the driver does not take.
pub(super) fn stuck() -> Turned {
    Turned::new(0, true, false, u64::MAX)
}

/// Returns the cell of a follower that is parked.
pub(super) fn parked() -> Arc<WaitCell> {
    let cell = WaitCell::new();
    cell.begin_wait(1, WaitState::Parked);
    Arc::new(cell)
}

impl Scripted {
    /// Creates a thread whose turns have these results.
    pub(super) fn new(turned: impl IntoIterator<Item = Turned>) -> Scripted {
        Scripted { turned: turned.into_iter().collect(), ..Scripted::default() }
    }

    /// Adds an event. Events happen in order, each at the next step or call whose text begins so.
    pub(super) fn at(&mut self, step: &'static str, event: impl FnOnce(&mut Scripted) + 'static) {
        self.events.push_back((step, Box::new(event)));
    }

    /// Delivers bios at a step.
    pub(super) fn deliver_at(&mut self, step: &'static str, nr: u64) {
        self.at(step, move |host| _ = host.cell.deliver(nr, || ()));
    }

    /// Returns the calls since the last call of this function, in order.
    pub(super) fn log(&mut self) -> Vec<String> {
        assert!(self.events.is_empty(), "{} has not come", self.events[0].0);
        core::mem::take(&mut self.log)
    }

    fn fire(&mut self, text: &str) {
        if self.events.front().is_some_and(|(step, _)| text.starts_with(step))
            && let Some((_, event)) = self.events.pop_front()
        {
            event(self);
        }
    }

    fn call(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.log.push(text.clone());
        assert!(self.log.len() < 100, "no end: {:?}", &self.log[..20]);
        self.fire(&text);
    }

    /// Records a call, and returns whether its result is true.
    fn ask(&mut self, call: &'static str) -> bool {
        self.call(call);
        let place = self.yes.iter().position(|yes| *yes == call);
        place.map(|place| self.yes.remove(place)).is_some()
    }

    fn turn_of(&mut self, text: String) -> Turned {
        assert!(self.run.is_running(), "a turn without the token");
        self.call(text);
        match self.turned.len() {
            0 | 1 => self.turned.front().copied().unwrap_or(Turned::NOTHING),
            _ => self.turned.pop_front().unwrap_or(Turned::NOTHING),
        }
    }
}

impl Context for Scripted {
    type Token = Token;
    type Follower = Arc<WaitCell>;

    fn run_state(&self) -> &RunState {
        &self.run
    }

    fn step(&mut self, made: Step) {
        self.fire(&format!("{made:?}"));
    }

    fn try_take(&mut self) -> Option<Token> {
        self.run.try_take().then_some(Token)
    }

    fn request_run(&mut self) -> Option<Token> {
        self.run.run().then_some(Token)
    }

    fn block(&mut self) -> Option<Token> {
        self.run.block().then_some(Token)
    }

    fn turn(&mut self, _token: &mut Token, commit: Commit) -> Turned {
        self.turn_of(format!("turn {commit:?}"))
    }

    fn commit_requests(&mut self, _token: &mut Token) -> bool {
        self.ask("commit")
    }

    fn runs_wakers(&self, _token: &Token) -> bool {
        self.runs_wakers
    }

    fn withdraw_own_call(&mut self, _token: &mut Token) -> bool {
        self.ask("withdraw")
    }

    fn released(&mut self, _token: Token) {
        self.call("released");
    }

    fn pop_follower(&mut self) -> Option<Arc<WaitCell>> {
        self.followers.pop_front()
    }

    fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    fn cell_of<'a>(&'a self, follower: &'a Arc<WaitCell>) -> &'a WaitCell {
        follower
    }

    fn wake_follower(&mut self, _follower: Arc<WaitCell>) {
        self.call("wake follower");
    }
}

impl Sleeper for Scripted {
    fn cell(&self) -> &WaitCell {
        &self.cell
    }

    fn park(&mut self) {
        self.call("park");
    }

    fn parks_for_flush(&self) -> bool {
        self.parks_for_flush
    }

    fn was_woken_for_flush(&mut self) {
        self.call("makes flush");
    }

    fn push_follower(&mut self) {
        self.call("push follower");
    }

    fn ask_for_tags(&mut self) {
        self.call("ask for tags");
    }
}

impl Leader for Scripted {
    fn timers(&self) -> &Timers {
        &self.timers
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn leave_to_wait(&mut self, _token: &mut Token) -> bool {
        self.ask("leave to wait")
    }

    fn take_back(&mut self) -> bool {
        self.ask("take back")
    }

    fn yield_now(&mut self) {
        self.call("yield");
    }

    fn wait_in_driver(&mut self, timeout_ns: Option<u64>) {
        assert!(self.run.is_blocked(), "the wait is announced");
        self.call(match timeout_ns {
            None => "wait".to_owned(),
            Some(ns) => format!("wait {ns}"),
        });
    }

    fn waits_for_bios(&self) -> bool {
        !self.serves
    }

    fn unblock(&mut self) -> bool {
        match self.serves {
            true => self.run.unblock_unless_replaced(),
            false => {
                self.run.unblock();
                true
            }
        }
    }
}

impl Host for Scripted {
    fn turn_with_own(&mut self, commit: Commit) -> Option<(Token, Turned)> {
        if !self.run.run() {
            self.call("publish own");
            return None;
        }
        Some((Token, self.turn_of(format!("turn with own {commit:?}"))))
    }

    fn begins(&self) -> bool {
        self.begins
    }

    fn offer(&mut self) -> bool {
        self.ask("offer")
    }

    fn make_own_call(&mut self) -> bool {
        self.ask("make own call")
    }
}

impl Owner for Scripted {
    fn prepare_wait(&mut self, _token: &mut Token, nr_bios: u32) -> u32 {
        self.call(format!("prepare {nr_bios}"));
        // One request for each two bios.
        nr_bios.div_ceil(2)
    }

    fn wait_in_owned_driver(&mut self, nr: u32, deadline_ns: Option<u64>) {
        assert!(self.run.is_blocked(), "the wait is announced");
        self.call(format!("wait for {nr} until {deadline_ns:?}"));
    }

    fn sleep(&mut self, deadline_ns: Option<u64>) {
        match deadline_ns {
            None => self.call("sleep"),
            Some(at_ns) => self.call(format!("sleep until {at_ns}")),
        }
    }

    fn wait_outside(&mut self, goal: u64) {
        self.call(format!("wait outside {goal}"));
    }
}
