//! The run state of a hardware context: one atomic word that grants the right to turn it.
//!
//! Counterpart in Linux: `blk_mq_hw_ctx.state` together with the pending bit of its `run_work`,
//! `QUEUE_FLAG_QUIESCED`, and the freezing half of `q_usage_counter`.
//!
//! A token runs a context, not a thread: the thread that holds RUNNING owns the inner part.
//! Everything else is a mark that another thread leaves for the holder, or for the leader, which
//! waits in the driver. A mark counts only if its partner cannot miss it. Hence this one argument:
//!
//! **Every change is a read-modify-write of the same word, and acquires and releases.** So all
//! changes have one order, and each happens before all that follow. A thread's work before its
//! change is visible to every thread that makes a later one. Two threads that each publish
//! something and then change the word can therefore not miss each other. One of them comes second,
//! finds the other's bits, and sees what the other published. That is why a change that finds its
//! bit already set still writes. A plain load may be older than the partner's change, without
//! either thread noticing: a store and a later load of another word may be reordered, and on x86
//! they are. No fence is needed, and an uncontended run and release are two locked instructions.
//!
//! Plain loads acquire: a thread that sees the bits of a change sees what was published before it.
//!
//! The rules of runs. The rules of waiting, W1 to W7, are in [`crate::wait`]:
//!
//! - R1 the holder reads the inbox after it took the token, and after it cleared a mark;
//! - R2 work is published before a turn is requested, and a thread that finds the token taken
//!   writes the mark even if it is set;
//! - R4 a gate removes no marks, and the thread that opens it requests a turn;
//! - R5 once a gate is closed and the token was seen free, no earlier turn is in progress;
//! - R6 every requested run is counted once, as made or as skipped ([`RunState::nr_skipped`]).
//!
//! R3 concerns delayed runs only: `run_timer.rs` defines it, and what R1 and R4 mean for them.

use crate::hctx::Gates;
use crate::plant::plants;
use crate::primitive::{AtomicU32, Ordering, guess};
use crate::stats::counter::SharedCounter;

/// A thread holds the token.
const RUNNING: u32 = 1 << 0;
/// Work was published since the holder last read the inbox. Set only while RUNNING is.
const QUEUED: u32 = 1 << 1;
/// A thread waits, or is about to wait, in the driver on behalf of all.
const LEADER: u32 = 1 << 2;
/// The leader, or the owner of an owned context, is in the driver's wait or on its way there.
const BLOCKED: u32 = 1 << 3;
/// A thread has undertaken to end that wait. Set only while BLOCKED is.
const KICKED: u32 = 1 << 4;
const QUIESCED: u32 = 1 << 5;
const STOPPED: u32 = 1 << 6;
const FROZEN: u32 = 1 << 7;

/// A reason why a context does less than it could. Each gate is closed and opened independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// No dispatch, by order of the program. Counterpart in Linux: `blk_mq_quiesce_queue`.
    Quiesced,
    /// No dispatch, as [`Gate::Quiesced`]. Closing it does not wait for a turn in progress, so that
    /// turn itself may close it. Counterpart in Linux: `blk_mq_stop_hw_queue`.
    Stopped,
    /// No bio enters. Counterpart in Linux: `blk_freeze_queue_start`.
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
/// A turn always has this form, and R1, R2 and R4 rest on its order:
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
    /// Requested runs that found the token taken (R6). In the cache line of the word.
    nr_skipped: SharedCounter,
}

impl Default for RunState {
    fn default() -> RunState {
        RunState::new()
    }
}

impl RunState {
    /// Creates the state: idle, without a leader, all gates open.
    pub fn new() -> RunState {
        RunState { word: AtomicU32::new(0), nr_skipped: SharedCounter::new() }
    }

    /// Requests a turn, after the caller has published work (R2). Returns true if the caller now
    /// holds the token; it then reads the inbox (R1). Returns false if another thread holds it;
    /// that thread will see the mark.
    ///
    /// R1, R2: taking the token clears QUEUED in the same change. A producer before this change has
    /// already published its work. A producer after it finds RUNNING and leaves QUEUED. The
    /// holder's release comes later still, and cannot succeed without another check. A producer
    /// that finds QUEUED set writes it again: the holder may be about to clear it, and must acquire
    /// this producer's work too, not only that of the first.
    #[inline]
    pub fn run(&self) -> bool {
        let before = self.change(|word| match word & RUNNING {
            0 => (word | RUNNING) & !QUEUED,
            _ => word | QUEUED,
        });
        let is_ours = before & RUNNING == 0 || plants!(RunWithoutToken);
        if !is_ours && !plants!(SkipCount) {
            self.nr_skipped.add(1);
        }
        is_ours
    }

    /// Returns how many requested runs found the token taken, and were left to its holder (R6).
    pub fn nr_skipped(&self) -> u64 {
        self.nr_skipped.get()
    }

    /// Takes the token if it is free, and leaves no mark if it is not. For threads that have
    /// published nothing and only help, such as a poller. A false result promises nothing, so a
    /// relaxed guess suffices for it.
    #[inline]
    pub fn try_take(&self) -> bool {
        if guess!(self.word, Ordering::Relaxed) & RUNNING != 0 {
            return false;
        }
        // If RUNNING is clear, so is QUEUED, and nothing else needs a change. SeqCst, as
        // everywhere.
        self.word.fetch_or(RUNNING, Ordering::SeqCst) & RUNNING == 0
    }

    /// Takes the token if the context is idle: no thread holds the token, leads or waits, and all
    /// gates are open. Leaves no mark if it is not. A false result promises nothing.
    ///
    /// The caller need not read the gates again for the first turn: the exchange succeeds only if
    /// they are open. A gate that closes later does so after this exchange in modification order,
    /// so the thread that closes it finds the token held (R5).
    #[inline]
    pub fn try_take_idle(&self) -> bool {
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        self.word.compare_exchange(0, RUNNING, order.0, order.1).is_ok()
    }

    /// Releases the token and returns true. If there was a mark, it is cleared, the token is kept,
    /// and the result is false: the caller reads the inbox and turns again.
    ///
    /// # Panics
    /// Panics if the token is not held.
    #[inline]
    pub fn release(&self) -> bool {
        // The common case: no mark, no leader, all gates open.
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        self.word.compare_exchange(RUNNING, 0, order.0, order.1).is_ok() || self.release_marked()
    }

    /// Forgets a mark, as a planted bug.
    fn release_planted(&self) -> bool {
        self.change(|word| word & !(RUNNING | QUEUED));
        true
    }

    /// Releases the token of a context with a mark, a leader or a closed gate.
    #[inline(never)]
    fn release_marked(&self) -> bool {
        if plants!(ForgetMark) {
            return self.release_planted();
        }
        let before = self.change(|word| match word & QUEUED {
            0 => word & !RUNNING,
            _ => word & !QUEUED,
        });
        assert!(before & RUNNING != 0, "released without the token");
        before & QUEUED == 0
    }

    /// Becomes the leader if there is none. The leader waits in the driver for all (W1).
    pub fn try_lead(&self) -> bool {
        self.change(|word| word | LEADER) & LEADER == 0
    }

    /// Returns whether there is a leader. For a follower that has announced that it will park (W2).
    ///
    /// If true, the leader's [`resign`](RunState::resign) comes later in the order of changes, and
    /// will find the announcement. If false, the follower must not park; it leads. For this reason
    /// the function is a change of the word that leaves it as it was, and not a load.
    pub fn has_leader(&self) -> bool {
        self.change(|word| word) & LEADER != 0
    }

    /// Stops leading. The caller then looks for followers that have announced themselves, and
    /// passes the baton to one (W3): see [`has_leader`](RunState::has_leader).
    ///
    /// # Panics
    /// Panics if there is no leader, or if it is still blocked.
    pub fn resign(&self) {
        let before = self.change(|word| word & !LEADER);
        assert!(
            before & (LEADER | BLOCKED) == LEADER,
            "resigned without leading, or while blocked"
        );
    }

    /// Releases the token and announces a wait in the driver, in one change. Returns false if there
    /// was a mark: it is cleared, the token is kept, and the caller turns again.
    ///
    /// For the leader, or the owner of an owned context. After a true result it re-tests what it
    /// waits for (W2), and then waits in the driver: see [`kick`](RunState::kick).
    ///
    /// # Panics
    /// Panics if the token is not held, or if a thread is already blocked.
    pub fn release_to_wait(&self) -> bool {
        let before = self.change(|word| match word & QUEUED {
            0 => (word & !RUNNING) | BLOCKED,
            _ => word & !QUEUED,
        });
        assert!(before & (RUNNING | BLOCKED) == RUNNING, "waits without the token, or twice");
        before & QUEUED == 0
    }

    /// Announces a wait in the driver by a leader that does not hold the token, and requests a turn
    /// (R2), in one change. Returns false if another thread holds the token. That thread turns once
    /// more, and finds this one blocked. The leader re-tests what it waits for (W2).
    ///
    /// Returns true if the token was free: the caller holds it now, is not blocked, and turns.
    ///
    /// It is one change so that a blocked leader changes the word no more until its wait is over:
    /// see [`resign_for_blocked`](RunState::resign_for_blocked).
    ///
    /// # Panics
    /// Panics if there is no leader, or if it is already blocked.
    pub fn block(&self) -> bool {
        let before = self.change(|word| match word & RUNNING {
            0 => (word | RUNNING) & !QUEUED,
            _ if plants!(BlockUnasked) => word | BLOCKED,
            _ => word | BLOCKED | QUEUED,
        });
        assert!(before & (LEADER | BLOCKED) == LEADER, "blocks without leading, or twice");
        let is_ours = before & RUNNING == 0;
        if !is_ours && !plants!(BlockUnasked) {
            self.nr_skipped.add(1);
        }
        is_ours
    }

    /// Ends the announced wait, after it or instead of it. Returns whether the thread was kicked.
    /// If so, the wake-up has arrived or will arrive, and the driver must not take it for the next
    /// wait's.
    ///
    /// # Panics
    /// Panics if no thread was blocked.
    pub fn unblock(&self) -> bool {
        let before = self.change(|word| word & !(BLOCKED | KICKED));
        assert!(before & BLOCKED != 0, "unblocked twice");
        before & KICKED != 0
    }

    /// Same as [`unblock`](RunState::unblock), but returns false if another thread has ended the
    /// wait by [`resign_for_blocked`](RunState::resign_for_blocked).
    pub fn unblock_unless_replaced(&self) -> bool {
        self.change(|word| word & !(BLOCKED | KICKED)) & BLOCKED != 0
    }

    /// Stops leading in place of the leader and ends its wait, if it is blocked. Called by the
    /// holder of the token if no kick ends that wait; no thread leads afterwards. Returns false if
    /// the leader is not blocked.
    ///
    /// If true, the leader is between the change that announced its wait, which left it without the
    /// token, and [`unblock_unless_replaced`](RunState::unblock_unless_replaced). That is its next
    /// change, and returns false. If false, the leader's next announcement comes after this change,
    /// and its re-test sees what the caller did before (W2). This change, too, always writes.
    ///
    /// # Panics
    /// Panics if the token is not held.
    pub fn resign_for_blocked(&self) -> bool {
        let before = self.change(|word| match word & BLOCKED {
            0 => word,
            _ => word & !(LEADER | BLOCKED | KICKED),
        });
        assert!(before & RUNNING != 0, "resigns for another thread without the token");
        before & BLOCKED != 0
    }

    /// Requests a kick, by the holder of the token, after it has done something that the leader
    /// waits for, such as ending its own bio. Returns true if the caller must make the driver's
    /// wait return. Only one caller per wait gets true (W4).
    ///
    /// The result is false if no thread is blocked. A leader that blocks later makes its change
    /// after this one, so its re-test sees what the holder did. This change, too, always writes.
    ///
    /// # Panics
    /// Panics if the token is not held.
    pub fn kick(&self) -> bool {
        let before = self.change(|word| match word & BLOCKED {
            0 => word,
            _ => word | KICKED,
        });
        assert!(before & RUNNING != 0, "a kick by one that does not hold the token");
        before & (BLOCKED | KICKED) == BLOCKED
    }

    /// Returns what a turn may do. The holder of the token calls it before each turn.
    ///
    /// Requests enter according to the returned gate. A thread that freezes closes the gate, waits
    /// until the token was free once (R5), and then checks whether the context is drained. (Code
    /// that enters without the token has to count itself before it reads the gate, and the freezer
    /// has to read that count after [`close`](RunState::close), all four with sequential
    /// consistency. Ours do.) Requests are dispatched unless quiesced or stopped. Completions are
    /// reaped unless a thread has undertaken to end the leader's wait.
    #[inline]
    pub fn gates(&self) -> Gates {
        let word = self.word.load(Ordering::SeqCst);
        Gates {
            enter: word & FROZEN == 0,
            dispatch: word & (QUIESCED | STOPPED) == 0,
            reap: word & KICKED == 0,
        }
    }

    /// Returns whether a thread has undertaken to end the leader's wait.
    pub fn is_kicked(&self) -> bool {
        self.load() & KICKED != 0
    }

    /// Returns whether a thread is in the driver's wait, or on its way there.
    pub fn is_blocked(&self) -> bool {
        self.load() & BLOCKED != 0
    }

    /// Returns whether a thread holds the token. A false result has acquired all that the last
    /// holder did.
    pub fn is_running(&self) -> bool {
        self.load() & RUNNING != 0
    }

    /// Closes a gate.
    ///
    /// R5: once `close(Gate::Quiesced)` has returned and [`is_running`](RunState::is_running) has
    /// returned false once, no earlier dispatch is in progress, and none begins until the gate is
    /// open. Proof: a token taken before the close stays visible in the word until it is released.
    /// The load that finds it released acquires all that its holder did. A token taken after the
    /// close comes from a change that read the flag, so every later read of the word by its holder
    /// finds the flag, or an even later state. (A holder that waits for itself waits forever: a
    /// caller inside a turn is the dispatch in progress.)
    ///
    /// R4: marks stay. QUEUED means that the inbox must be read, not that a request must be
    /// dispatched. Behind a closed gate a turn still reads the inbox and reaps completions.
    /// Requests that cannot be dispatched stay in the context, with the token free: see
    /// [`open`](RunState::open).
    pub fn close(&self, gate: Gate) {
        self.change(|word| word | gate.bit());
    }

    /// Opens a gate. The caller must then call [`run`](RunState::run), and turn if that returns
    /// true. No other thread checks for requests that were left behind the gate (R4).
    pub fn open(&self, gate: Gate) {
        self.change(|word| word & !gate.bit());
    }

    fn load(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Replaces the word by the result of `to` and returns the old value. Always writes.
    ///
    /// SeqCst: it acquires and releases, as the argument at the top requires. It also pairs with
    /// the load in `gates`, the only reason not to use AcqRel; the instruction is the same. The
    /// first load is a guess, and a failed exchange is a better one. Nothing is concluded from
    /// either.
    #[inline]
    fn change(&self, to: impl Fn(u32) -> u32) -> u32 {
        let mut word = guess!(self.word, Ordering::Relaxed);
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
