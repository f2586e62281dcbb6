//! The rules: a name and one line of text each. The report of a broken rule begins with this line.
//!
//! The letters: T for tags and tag waits, R for runs of a hardware context, W for
//! waiting tasks and leaders, I for plugs, K for the driver's contract, F for flushes, A for
//! retries, H for time limits, Q and DL for schedulers, OW for owners, P2 for durability (a
//! violation of F2 or F4 shows as one of P2). The other rules have no letter. The code that ensures
//! a rule, in `forebay-core` or in the library's `runtime`, also documents why the rule holds.

pub(crate) const T1: &str = "T1: no task sleeps for tags while some are free and none is pending";
pub(crate) const T2: &str = "T2: a task that frees tags looks for waiters; one that joins retries";
pub(crate) const T3: &str = "T3: wakes are counted against freed tags, and never overtake them";
pub(crate) const T4: &str = "T4: a wake that finds no sleeper is passed on";
pub(crate) const T5: &str = "T5: a woken task that does not use its wake gives it back";
pub(crate) const T6: &str = "T6: the wake policy gets a smaller depth before it is in force";
pub(crate) const T7: &str = "T7: a free tag is never hidden from a task that looks for one";
pub(crate) const T8: &str = "T8: no bio is overtaken beyond the bound";
pub(crate) const T9: &str = "T9: no task waits while it has a tag that is not issued and committed";
pub(crate) const T10: &str = "T10: no task needs more than half of the tags at once";
pub(crate) const T11: &str = "T11: an asynchronous submit never waits";
pub(crate) const T12: &str = "T12: no task waits within a turn";
pub(crate) const T14: &str = "T14: a split bio that gathers tags takes none before they are free";

pub(crate) const Q5: &str = "Q5: the device has no more requests than the device depth";
pub(crate) const DL4: &str = "DL4: no request passes one of a higher class that is queued";
pub(crate) const Q8: &str = "Q8: a scheduler changes only while no admitted bio is in its context";
pub(crate) const Q9: &str = "Q9: with a scheduler, reads find tags that others may not have";

pub(crate) const OW1: &str = "OW1: the I/O of an owner keeps every limit";
pub(crate) const OW3: &str = "OW3: a freeze does not wait for I/O that waits for its owner";
pub(crate) const OW6: &str = "OW6: while a limit holds I/O back, there is a deadline";
pub(crate) const OW7: &str = "OW7: an owner has no more requests in flight than its depth";

pub(crate) const R1: &str = "R1: the mark is cleared before the inbox is read";
pub(crate) const R2: &str = "R2: a run is requested after the work is published";
pub(crate) const R3: &str = "R3: a delayed run is not later than the earliest that was requested";
pub(crate) const R4: &str = "R4: a task that opens a gate requests a run";
pub(crate) const R5: &str = "R5: nothing is dispatched behind a closed gate";
pub(crate) const R6: &str = "R6: turns, empty turns, runs and skipped runs add up";

pub(crate) const W1: &str = "W1: no task parks on a context that has work and no leader";
pub(crate) const W2: &str = "W2: a sleeping task is woken when its wait is over";
pub(crate) const W3: &str = "W3: a leader that leaves passes the baton";
pub(crate) const W4: &str = "W4: a leader that has to return is kicked";
pub(crate) const W5: &str = "W5: a task commits its deferred requests before it waits";
pub(crate) const W7: &str = "W7: a task that waits in the driver returns for a deadline";

pub(crate) const K1: &str = "K1: no tag is live twice at the driver";
pub(crate) const K2: &str = "K2: no bio ends while the driver has it";
pub(crate) const K3: &str = "K3: a request keeps every limit";
pub(crate) const K8: &str = "K8: nothing is reaped while a kick is pending";

pub(crate) const F1: &str = "F1: a hardware context has one flush at the device at most";
pub(crate) const F3: &str = "F3: a failed flush fails its waiters, and no others";
pub(crate) const F5: &str = "F5: a queue that is held is released";
pub(crate) const F6: &str = "F6: a flush waits for two flushes of its context at most";
pub(crate) const F7: &str = "F7: a bio with a flush ends once";

pub(crate) const A1: &str = "A1: no write that overlaps a retry is issued beside it";
pub(crate) const A2: &str = "A2: a write that a later one may have overtaken is not tried again";

pub(crate) const I4: &str = "I4: a task that waits has nothing in its plug";

pub(crate) const H1: &str = "H1: a request over its time limit is counted, once";
pub(crate) const H5: &str = "H5: owned bios end after the grace period, and their memory is kept";
pub(crate) const H3: &str = "H3: a device with a request beyond its grace period is given up";

pub(crate) const P2: &str = "P2: data acknowledged as durable survives a crash";

pub(crate) const ONE_HOLDER: &str = "one task holds the token at a time";
pub(crate) const NO_LEADER: &str = "an owned context has no leader";
pub(crate) const DRAINED: &str = "at the end everything is drained";
pub(crate) const COMPLETES: &str = "a command that was committed completes";
pub(crate) const COMMITS: &str = "a commit begins all commands of the driver";
pub(crate) const ENDS_ONCE: &str = "every bio ends exactly once";
pub(crate) const COMES_BACK: &str = "every end comes to its owner, once";
pub(crate) const OWN_RESULT: &str = "a bio ends with its own status and length";
pub(crate) const COVERS: &str = "a request covers exactly its bios";
pub(crate) const ISSUED_ONCE: &str = "each byte is issued until it is moved, by one command";
pub(crate) const REGISTER: &str = "a read returns data that was written there and not overwritten";
pub(crate) const NOT_REFUSED: &str = "no good bio is refused";
pub(crate) const NOWAIT_UNDONE: &str = "no part of a NOWAIT bio that ends with Again is performed";
pub(crate) const NOWAIT: &str = "a NOWAIT bio does not wait";
pub(crate) const NO_STALL: &str = "no stall while work exists";
pub(crate) const ASSERTION: &str = "no assertion fails";

/// The rules of tags, of schedulers, of owners, of runs and of waits, in order.
pub const RULES: [&str; 33] = [
    T1, T2, T3, T4, T5, T6, T7, T8, T9, T10, T11, T12, T14, Q5, Q8, Q9, DL4, OW1, OW3, OW6, OW7,
    R1, R2, R3, R4, R5, R6, W1, W2, W3, W4, W5, W7,
];
