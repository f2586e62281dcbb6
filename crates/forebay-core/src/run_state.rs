//! The run state of a hardware context: one word that says who may turn it, and whether.
//!
//! Counterpart in Linux: `blk_mq_hw_ctx.state` together with the pending bit of its `run_work`,
//! `QUEUE_FLAG_QUIESCED`, and the freezing half of `q_usage_counter`.
//!
//! A token, not a thread, runs a context: who holds RUNNING owns its inner part. Everything else
//! is a mark that another thread leaves for the holder, or for the leader, who waits in the
//! driver. A mark counts only if its partner cannot overlook it, hence this one argument:
//!
//! **Every change is a read-modify-write of the same word, and acquires and releases.** So all
//! changes have one order, and each happens before all that follow: what a thread did before its
//! change is visible to whoever makes a later one. Two threads that each publish something and
//! then change the word can therefore not miss each other: one of them comes second, finds the
//! other's bits, and sees what the other published. That is why a change that finds its bit set
//! already still writes: a plain load may be older than the partner's change, without either of
//! them knowing (a store and a later load of another word may pass each other, and on x86 do).
//! No fence is needed, and an uncontended run and release are two locked instructions.
//!
//! Plain loads acquire: who sees the bits of a change sees what was published before it.
//!
//! Its rules; those of who waits, W1 to W5, are the runtime's (`runtime/wait.rs`):
//!
//! - R1 the holder reads the inbox after it took the token, and after it cleared a mark;
//! - R2 work is published before a turn is asked for, and who finds the token taken writes the mark
//!   even if it is set;
//! - R4 a gate takes no marks away, and whoever opens it asks for a turn;
//! - R5 once a gate is closed and the token was seen free, no turn from before is under way;
//! - R6 every run that is asked for is counted once, as made or as skipped (`stats.rs`).
//!
//! R3 is of delayed runs alone: `run_timer.rs`, which says as well what R1 and R4 mean for those.

use crate::hctx::Gates;
use crate::primitive::{AtomicU32, Ordering};

/// Somebody holds the token.
const RUNNING: u32 = 1 << 0;
/// Work was published since the holder last looked. Set only while RUNNING is.
const QUEUED: u32 = 1 << 1;
/// Somebody waits, or is about to wait, in the driver on behalf of all.
const LEADER: u32 = 1 << 2;
/// The leader, or the owner of an owned context, is in the driver's wait or on its way there.
const BLOCKED: u32 = 1 << 3;
/// Somebody has undertaken to end that wait. Set only while BLOCKED is.
const KICKED: u32 = 1 << 4;
const QUIESCED: u32 = 1 << 5;
const STOPPED: u32 = 1 << 6;
const FROZEN: u32 = 1 << 7;

/// A reason why a context does less than it could. Each is closed and opened on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// No dispatch, by order of the program. Counterpart: `blk_mq_quiesce_queue`.
    Quiesced,
    /// No dispatch, as [`Gate::Quiesced`]; who closes it does not wait for the turn that is under
    /// way, and so may be that turn. Counterpart: `blk_mq_stop_hw_queue`.
    Stopped,
    /// Nothing enters. Counterpart: `blk_freeze_queue_start`.
    Frozen,
}

impl Gate {
    const fn bit(self) -> u32 {
        match self {
            Gate::Quiesced => QUIESCED,
            Gate::Stopped => STOPPED,
            Gate::Frozen => FROZEN,
        }
    }
}

/// The token of a hardware context, its marks, and its gates.
///
/// A turn is always of this form, and R1, R2 and R4 rest on its order:
///
/// ```
/// # let state = forebay_core::RunState::new();
/// // publish the work, then:
/// if state.run() {
///     loop {
///         // read the inbox, reap, dispatch as gates() allows, commit
///         if state.release() {
///             break;
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct RunState {
    word: AtomicU32,
}

impl Default for RunState {
    fn default() -> RunState {
        RunState::new()
    }
}

impl RunState {
    /// Idle, without a leader, all gates open.
    pub fn new() -> RunState {
        RunState { word: AtomicU32::new(0) }
    }

    /// Asks for a turn, after the caller has published work (R2). True: the caller now holds the
    /// token, and reads the inbox after this (R1). False: the holder will see the mark.
    ///
    /// R1, R2: taking the token clears QUEUED in the same change. A producer that comes before it
    /// has published already; one that comes after finds RUNNING, leaves QUEUED, and the holder's
    /// release, which is later still, cannot succeed without looking again. A producer that finds
    /// QUEUED set writes it again: the holder may be about to clear it, and has to acquire this
    /// producer's work with it, not only that of the first.
    #[inline]
    pub fn run(&self) -> bool {
        let before = self.change(|word| match word & RUNNING {
            0 => (word | RUNNING) & !QUEUED,
            _ => word | QUEUED,
        });
        before & RUNNING == 0
    }

    /// Takes the token if it is free; leaves no mark if it is not. For who has published nothing
    /// and only wants to help, such as a poller: a false promises nothing.
    #[inline]
    pub fn try_take(&self) -> bool {
        if self.load() & RUNNING != 0 {
            return false;
        }
        // Where RUNNING is clear, so is QUEUED: there is nothing else to change. SeqCst: as all.
        self.word.fetch_or(RUNNING, Ordering::SeqCst) & RUNNING == 0
    }

    /// Gives the token back. False: there was a mark; it is cleared and the token kept, and the
    /// caller reads the inbox and turns once more.
    ///
    /// # Panics
    /// If nobody holds the token.
    #[inline]
    pub fn release(&self) -> bool {
        // The usual case: nobody has come, nobody leads, all gates are open.
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        if self.word.compare_exchange(RUNNING, 0, order.0, order.1).is_ok() {
            return true;
        }
        let before = self.change(|word| match word & QUEUED {
            0 => word & !RUNNING,
            _ => word & !QUEUED,
        });
        assert!(before & RUNNING != 0, "released without the token");
        before & QUEUED == 0
    }

    /// Becomes the leader, if there is none: the one that waits in the driver for all (W1).
    pub fn try_lead(&self) -> bool {
        self.change(|word| word | LEADER) & LEADER == 0
    }

    /// Whether somebody leads. For a follower that has announced that it will park (W2).
    ///
    /// True: the leader's [`resign`](RunState::resign) comes later in the order of changes, and
    /// will find the announcement. False: the follower must not park, but lead. This is why it is
    /// a change of the word that changes nothing, and not a load.
    pub fn has_leader(&self) -> bool {
        self.change(|word| word) & LEADER != 0
    }

    /// Stops leading. The caller then looks for followers that have announced themselves, and
    /// passes the baton to one (W3): see [`has_leader`](RunState::has_leader).
    ///
    /// # Panics
    /// If nobody leads, or the leader is still blocked.
    pub fn resign(&self) {
        let before = self.change(|word| word & !LEADER);
        assert!(
            before & (LEADER | BLOCKED) == LEADER,
            "resigned without leading, or while blocked"
        );
    }

    /// Gives the token back and announces a wait in the driver, in one change. False: there was
    /// a mark; it is cleared, the token is kept, and the caller turns once more.
    ///
    /// For the leader, or the owner of an owned context. After a true it re-tests what it waits
    /// for (W2), and then waits in the driver: see [`kick`](RunState::kick).
    ///
    /// # Panics
    /// If nobody holds the token, or somebody is blocked already.
    pub fn release_to_wait(&self) -> bool {
        let before = self.change(|word| match word & QUEUED {
            0 => (word & !RUNNING) | BLOCKED,
            _ => word & !QUEUED,
        });
        assert!(before & (RUNNING | BLOCKED) == RUNNING, "waits without the token, or twice");
        before & QUEUED == 0
    }

    /// Announces a wait in the driver, by a leader that does not hold the token. It then re-tests
    /// what it waits for (W2).
    ///
    /// # Panics
    /// If nobody leads, or the leader is blocked already.
    pub fn block(&self) {
        let before = self.change(|word| word | BLOCKED);
        assert!(before & (LEADER | BLOCKED) == LEADER, "blocks without leading, or twice");
    }

    /// Back from the driver's wait, or decided against it. True: it was kicked, so the wake-up
    /// has come or is still to come, and the driver must not take it for the next wait's.
    ///
    /// # Panics
    /// If nobody was blocked.
    pub fn unblock(&self) -> bool {
        let before = self.change(|word| word & !(BLOCKED | KICKED));
        assert!(before & BLOCKED != 0, "unblocked twice");
        before & KICKED != 0
    }

    /// For the holder of the token, after it has done something the leader waits for, such as
    /// ending its own bio. True: the caller must make the driver's wait return; nobody else will
    /// be told to (W4: once).
    ///
    /// False because nobody is blocked: a leader that blocks later makes its change after this
    /// one, so its re-test sees what the holder did. This too writes whatever it finds.
    ///
    /// # Panics
    /// If nobody holds the token.
    pub fn kick(&self) -> bool {
        let before = self.change(|word| match word & BLOCKED {
            0 => word,
            _ => word | KICKED,
        });
        assert!(before & RUNNING != 0, "a kick by one that does not hold the token");
        before & (BLOCKED | KICKED) == BLOCKED
    }

    /// What a turn may do, for the holder of the token, who asks before each.
    ///
    /// It lets requests in by what this says of the gate; who freezes closes the gate, waits until
    /// the token was free once (R5), and then looks whether the context is drained. (Whoever enters
    /// without the token has to count itself before it asks, and the freezer to look at that count
    /// after [`close`](RunState::close), all four with sequential consistency. Ours are.) It
    /// dispatches unless quiesced or stopped, and reaps unless somebody has undertaken to end the
    /// leader's wait.
    #[inline]
    pub fn gates(&self) -> Gates {
        let word = self.word.load(Ordering::SeqCst);
        Gates {
            enter: word & FROZEN == 0,
            dispatch: word & (QUIESCED | STOPPED) == 0,
            reap: word & KICKED == 0,
        }
    }

    /// Whether somebody has undertaken to end the leader's wait.
    pub fn is_kicked(&self) -> bool {
        self.load() & KICKED != 0
    }

    /// Whether somebody is in the driver's wait, or on its way there.
    pub fn is_blocked(&self) -> bool {
        self.load() & BLOCKED != 0
    }

    /// Whether somebody holds the token. A false has acquired all that the last holder did.
    pub fn is_running(&self) -> bool {
        self.load() & RUNNING != 0
    }

    /// Closes a gate.
    ///
    /// R5: once `close(Gate::Quiesced)` has returned and [`is_running`](RunState::is_running) has
    /// said false a single time, no dispatch that began before is under way, and none begins until
    /// the gate is open. Proof: a token taken before the close stays visible in the word until it
    /// is released, and the load that finds it released acquires all that its holder did. A token
    /// taken after the close comes from a change that read the flag, so every later look of its
    /// holder at the word finds the flag, or an even later state. (A holder that waits for itself
    /// waits for ever: who closes from within a turn is the dispatch under way.)
    ///
    /// R4: marks stay. QUEUED means that the inbox is to be read, not that something is to be
    /// dispatched; completions are reaped behind a closed gate. What cannot be dispatched stays in
    /// the inbox, with nobody running: [`open`](RunState::open) says who finds it.
    pub fn close(&self, gate: Gate) {
        self.change(|word| word | gate.bit());
    }

    /// Opens a gate. The caller must call [`run`](RunState::run) afterwards, and turn if told to:
    /// what was left behind the gate has no other to look for it (R4).
    pub fn open(&self, gate: Gate) {
        self.change(|word| word & !gate.bit());
    }

    fn load(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Replaces the word by what `to` makes of it, and returns what it was. Always writes.
    ///
    /// SeqCst: it acquires and releases, which the argument at the top asks for, and pairs with
    /// the load of `gates`, for which alone it is not AcqRel; the instruction is the same. The
    /// first load is a guess, and a failed exchange a better one: nothing is concluded from either.
    #[inline]
    fn change(&self, to: impl Fn(u32) -> u32) -> u32 {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let next = to(word);
            let order = (Ordering::SeqCst, Ordering::Relaxed);
            match self.word.compare_exchange_weak(word, next, order.0, order.1) {
                Ok(before) => return before,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests;
