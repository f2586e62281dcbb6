//! The default steps of waits: those of a host whose threads do nothing beyond waiting.

use forebay_core::wait::{
    Context, Gated, Holds, Host, Leader, Reaper, Sleeper, Timers, Turning, WaitCell,
};
use forebay_core::{Commit, Gate, Gates, RunState, Turned};

/// Defines functions that no test calls.
macro_rules! never {
    ($(fn $name:ident($($args:tt)*) $(-> $result:ty)?;)*) => {
        $(fn $name($($args)*) $(-> $result)? {
            unreachable!("it has no default")
        })*
    };
}

/// A host that provides only what it must. No test gets to these steps.
struct Least;

impl Context for Least {
    type Token = ();
    type Follower = ();

    never! {
        fn run_state(&self) -> &RunState;
        fn try_take(&mut self) -> Option<()>;
        fn request_run(&mut self) -> Option<()>;
        fn block(&mut self) -> Option<()>;
        fn turn(&mut self, (): &mut (), _commit: Commit) -> Turned;
        fn commit_requests(&mut self, (): &mut ()) -> bool;
        fn runs_wakers(&self, (): &()) -> bool;
        fn released(&mut self, (): ());
        fn pop_follower(&mut self) -> Option<()>;
        fn has_followers(&self) -> bool;
    }
    fn cell_of<'a>(&'a self, (): &'a ()) -> &'a WaitCell {
        unreachable!("it has no default")
    }
    never! {
        fn wake_follower(&mut self, (): ());
    }
}

impl Sleeper for Least {
    never! {
        fn cell(&self) -> &WaitCell;
        fn park(&mut self);
        fn push_follower(&mut self);
        fn ask_for_tags(&mut self);
    }
}

impl Leader for Least {
    never! {
        fn timers(&self) -> &Timers;
        fn now_ns(&self) -> u64;
        fn leave_to_wait(&mut self, (): &mut ()) -> bool;
        fn yield_now(&mut self);
        fn wait_in_driver(&mut self, _timeout_ns: Option<u64>);
    }
}

impl Host for Least {
    never! {
        fn turn_with_own(&mut self, _commit: Commit) -> Option<((), Turned)>;
    }
}

impl Turning for Least {
    never! {
        fn run_state(&self) -> &RunState;
        fn is_shared(&self) -> bool;
        fn apply_tag_calls(&mut self);
        fn accept(&mut self, _enter: bool);
        fn turn_core(&mut self, _gates: Gates, _commit: Commit) -> Turned;
        fn serves_tag_waits(&self) -> bool;
        fn wake_for_tags(&mut self) -> bool;
        fn retry_for_awake(&mut self) -> bool;
        fn record(&mut self, _gates: Gates, _turned: Turned);
        fn deliver(&mut self) -> bool;
        fn arm_delayed_run(&mut self);
        fn arm_deadline(&mut self, _at_ns: u64) -> bool;
        fn kick_driver(&mut self);
    }
}

impl Gated for Least {
    type Error = ();

    never! {
        fn nr_hctxs(&self) -> usize;
    }
    fn with_holds<T>(&self, _change: impl FnOnce(&mut Holds) -> T) -> T {
        unreachable!("it has no default")
    }
    never! {
        fn run_state(&self, _at: usize) -> &RunState;
        fn cancel_runs(&self, _at: usize);
        fn is_shared(&self, _at: usize) -> bool;
        fn owns(&self, _at: usize) -> bool;
        fn run_turn(&mut self, _at: usize);
        fn wake_owner(&mut self, _at: usize);
        fn is_drained(&self, _at: usize) -> bool;
        fn is_stranded(&self, _at: usize) -> bool;
        fn stranded(&self, _behind: Gate);
        fn pause(&mut self);
        fn sleep(&mut self) -> Result<(), ()>;
    }
}

impl Reaper for Least {
    never! {
        fn is_shared(&self) -> bool;
        fn nr_ready(&self) -> usize;
        fn nr_in_layer(&self) -> usize;
        fn nr_mailed(&self) -> u64;
        fn take_mail(&mut self);
        fn lacks_tags(&self) -> bool;
        fn unplug(&mut self);
        fn turn(&mut self, _commit: Commit) -> Option<Turned>;
        fn commit(&mut self);
        fn wait(&mut self, _goal: u64);
        fn wait_as_owner(&mut self, _turned: Turned, _nr: u32);
    }
}

#[test]
fn thread_of_the_least_host_makes_no_calls_of_its_own_and_leads_for_its_bios() {
    let mut host = Least;
    assert!(!host.withdraw_own_call(&mut ()) && !host.offer() && !host.make_own_call());
    assert!(!host.begins() && !host.take_back() && host.waits_for_bios());
}

#[test]
fn threads_of_the_least_host_make_no_flush_and_may_turn() {
    let mut host = Least;
    assert!(!host.parks_for_flush() && !host.takes_left_flush() && !host.wake_for_flush());
    assert!(!host.is_after_fork() && host.can_turn() && !host.has_unreported());
}
