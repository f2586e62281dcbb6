//! Wait protocol: how threads wait for their own bios to end.
//!
//! In an owned context the owner waits in the driver. In a shared context one of the waiting
//! threads is the leader, and waits in the driver for all. The other waiters are its followers:
//! they park until their own bios have ended. A thread that stops leading passes the baton to a
//! follower.
//!
//! The functions here fix the order of the steps. The library makes the steps with threads, the
//! simulator with tasks in virtual time. None of the functions blocks by itself: only the steps of
//! a host do.
//!
//! | trait | implemented by | file |
//! |---|---|---|
//! | [`Turning`] | a token holder, for one turn | `turn.rs` |
//! | [`Context`] | a thread at a context: it takes, turns and releases | `context.rs` |
//! | [`Sleeper`] | a thread that can park | `lead.rs` |
//! | [`Leader`] | a thread that can lead | `lead.rs` |
//! | [`Host`] | a thread that waits for its own bios | `lead.rs`, `shared.rs` |
//! | [`Owner`] | the owner of a context | `owner.rs` |
//! | [`Reaper`] | a queue, for the thread that reaps it | `reap.rs` |
//! | [`Gated`] | a thread that freezes, quiesces or stops a disk | `gate.rs` |
//!
//! The library's service thread leads as others do, and waits for no bio (V1-V4).
//!
//! - W1 No thread parks on a context with work unless the context has a leader. A thread that would
//!   park becomes the leader instead.
//! - W2 A sleeper announces itself, then checks again (its own bios, or whether there is a leader).
//!   Its partner publishes, then checks for sleepers. Both do so by changes of one word, of the
//!   cell or of the run state, so one of them comes second and sees the other.
//! - W3 A thread that receives a baton uses it or passes it on.
//! - W4 A thread that ends the leader's own bio while the leader is blocked kicks it, once.
//! - W5 A thread holds no token while it waits. It commits what it has deferred before it waits; or
//!   the leader's wait itself begins what was left to it, with one system call for both. A leader
//!   that does not wait after all ensures that a turn begins those requests.
//! - W6 A leader that returns from the driver's wait owes a turn. Other threads reap nothing while
//!   it is kicked, and its wait may have consumed the signal of a completion that no turn has
//!   reaped. The leader makes that turn, or passes the debt on with the baton. So a thread that
//!   receives a baton owes a turn, too.
//! - W7 A thread that waits in the driver waits no longer than until the context's next deadline
//!   ([`Turned::deadline`](crate::Turned::deadline)). A turn that leaves an earlier deadline kicks
//!   the leader.

mod cell;
mod context;
mod gate;
mod lead;
mod owner;
mod reap;
#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod scripted;
mod shared;
mod timers;
mod turn;

pub use cell::{NEVER, Notice, TAGS, WaitCell, WaitState};
pub use context::{
    Context, Step, block, change, commit_and_turn, finish, hand_off, publish, release,
    release_to_wait, run_turn,
};
pub use gate::{Gated, Holds, await_drained, await_turns, close, open};
pub use lead::{Host, Leader, RESOURCE_DELAY, Sleeper, follow, lead};
pub use owner::{Owner, await_admitted, drain_owned, wait_as_owner, wait_owned};
pub use reap::{Reaper, reap, unplug_and_wait, wait_for_tags};
pub use shared::{commit_all, wait_shared};
pub use timers::Timers;
pub use turn::{Turning, deliver_each, turn};
