//! Bugs planted in this crate, which prove that the simulator's checkers can fail, and that the
//! naive models of the schedulers differ from a wrong scheduler.
//!
//! They are compiled only with `--cfg forebay_plant`, and in unit tests. Otherwise `plants!` is the
//! constant `false`.

/// Returns whether a planted bug shows now.
macro_rules! plants {
    ($plant:ident) => {{
        #[cfg(any(test, forebay_plant))]
        let shows = $crate::plant::shows($crate::plant::CorePlant::$plant);
        #[cfg(not(any(test, forebay_plant)))]
        let shows = false;
        shows
    }};
}

pub(crate) use plants;

#[cfg(any(test, forebay_plant))]
pub use chosen::{CorePlant, choose, shows};

#[cfg(any(test, forebay_plant))]
mod chosen {
    use alloc::boxed::Box;
    use std::cell::RefCell;
    use std::thread_local;

    /// Declares the bugs, each with the beginning of the text of the rule that must find it.
    macro_rules! core_plants {
        ($($(#[$doc:meta])* $plant:ident: $rule:literal,)*) => {
            /// A bug of this crate.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum CorePlant {
                $($(#[$doc])* $plant,)*
            }

            impl CorePlant {
                /// All bugs of this crate.
                pub const ALL: &[CorePlant] = &[$(CorePlant::$plant),*];

                /// Returns the beginning of the text of the rule that must find the bug.
                pub const fn breaks(self) -> &'static str {
                    match self {
                        $(CorePlant::$plant => $rule,)*
                    }
                }
            }
        };
    }

    core_plants! {
        /// A mark is forgotten when the token is released.
        ForgetMark: "R1:",
        /// A leader whose own wait is over leaves without the turn that it still owes.
        LeaveKept: "R1:",
        /// A leader without the token blocks, and does not request another turn.
        BlockUnasked: "R2:",
        /// A run is requested before the work is published.
        RunFirst: "R2:",
        /// A later delayed run replaces an earlier one.
        ExtendDelay: "R3:",
        /// A thread that opens a gate requests no run.
        OpenUnasked: "R4:",
        /// A turn dispatches behind a closed gate.
        DispatchQuiesced: "R5:",
        /// A turn accepts requests while the disk is frozen.
        EnterFrozen: "R5:",
        /// A thread that quiesces a disk does not wait for the turns in progress.
        SkipTurns: "R5:",
        /// Some runs that are left to the holder of the token are not counted.
        SkipCount: "R6:",
        /// A run that found the token taken makes a turn anyway.
        RunWithoutToken: "one task holds the token",
        /// A follower parks without checking whether there is a leader.
        ParkBlindly: "W1:",
        /// A delivery that reaches the goal of a parked thread wakes no thread.
        SkipWake: "W2:",
        /// A leader leaves without passing the baton.
        DropBaton: "W3:",
        /// No kick reaches a leader.
        SkipKick: "W7:",
        /// A leader whose own bios have ended is not kicked.
        SkipOwnKick: "W4:",
        /// A leader waits in the driver and has not committed the requests that its turn has
        /// issued.
        LeaveCommit: "W5:",
        /// A turn arms no timer for its deadline.
        SkipDeadline: "W7:",
        /// Completions are reaped while a kick is on its way.
        ReapKicked: "K8:",
        /// A thread reaps and leaves its bios in its plug.
        ReapPlugged: "I4:",
        /// The bios of an owner are delivered to the mailbox of the previous owner.
        WrongMailbox: "every end comes to its owner",
        /// Freed tags do not reach the wake policy.
        DropFreed: "T1:",
        /// A thread that frees tags finds no waiter.
        MissWaiters: "T2:",
        /// A user that frees tags does not check for waiters.
        SkipTagWake: "T2:",
        /// A user joins the wait queue, and does not try again after that.
        SkipRetry: "T2:",
        /// A user that got tags without its wake-up keeps the wake-up.
        KeepWake: "T5:",
        /// A set shrinks before its policy does.
        ShrinkFirst: "T6:",
        /// The scheduler hands out more requests than the device depth.
        IgnoreDeviceDepth: "Q5:",
        /// Requests that are not reads take every tag beside a scheduler.
        PassAsyncDepth: "Q9:",
        /// The scheduler changes although requests wait in it.
        ChangeBusy: "Q8:",
        /// The context does not count the tags that are put once it has a scheduler.
        KeepCounts: "",
        /// A new scheduler does not count the requests at the device that were given up.
        ForgetGivenUp: "Q5:",
        /// A request leaves the queue of its owner, and is not charged.
        PassLimit: "OW1:",
        /// A merged request is charged as one I/O.
        ChargeOne: "OW1:",
        /// A NOWAIT request that was issued gets its charge back.
        RefundIssued: "OW1:",
        /// A freeze waits for the requests that wait for their owner.
        HoldFreeze: "OW3:",
        /// Requests leave the queues of their owners while the disk is frozen.
        LeaveFrozen: "R5:",
        /// A request leaves although the depth of its owner is used up.
        PassDepth: "OW7:",
        /// Requests that a depth holds back are not tried again when others end.
        ForgetFreed: "OW6:",
        /// Requests that end still count among the outstanding ones of their owner.
        KeepOutstanding: "OW6:",
        /// Requests that a limit holds back have no deadline.
        ForgetDeadline: "OW6:",
        /// The wake policy counts freed tags twice.
        CountTwice: "T3:",
        /// A thread that was woken for tags does not ask for them again.
        AskNoMore: "T5:",
        /// The wake policy keeps its depth when the set shrinks.
        KeepDepth: "T6:",
        /// A thread that looks for several tags does not get the last free one.
        HideLastTag: "T7:",
        /// A request that found no tag goes behind the later ones of its thread.
        TakeBackLast: "T8:",
        /// A new request overtakes those that wait for the end of a freeze.
        PassOutside: "T8:",
        /// A flush joins one that was issued too early to cover its writes.
        JoinLate: "P2:",
        /// A flush is elided although a write has ended since the last one.
        ElideTooMany: "P2:",
        /// Writes that end while a flush runs count as durable after it.
        CoverTooMany: "P2:",
        /// The loss of a failed flush is not recorded.
        ForgetLoss: "P2:",
        /// A write with FUA merges with one without.
        MergeFua: "P2:",
        /// A native FUA write counts as durable although another sync was at the device with it.
        SyncBeside: "P2:",
        /// A flush that succeeds fails one that waited for it.
        FailFlush: "F3:",
        /// The queue is still held after its flush has ended.
        KeepHold: "F5:",
        /// A flush is issued for one of the requests that wait for it.
        FlushSingly: "F6:",
        /// A request that overlaps a retry is issued: beside it, or before it (A2).
        PassRetry: "A",
        /// A write is tried again although a later one may have overtaken it.
        RetryOvertaken: "A2:",
        /// Requests over their time limit are not noticed.
        SkipTimeout: "H1:",
        /// A device that does not complete a request is not given up.
        KeepDevice: "H",
        /// A request that fails after its time limit keeps its status.
        KeepStatus: "a bio ends with its own status",
        /// Bios end as soon as their request is overdue, before the grace period is over.
        EndBeforeGrace: "H5:",
        /// The memory of a bio that has ended early is not kept for the driver.
        DropHold: "H5:",
        /// A request that overlaps a write that was given up is issued.
        ForgetRange: "",
        /// The neighbours of a bio that overlaps such a write fail with it.
        RefuseNeighbours: "a bio ends with its own status",
        /// A split bio takes the first tag that is freed, although it gathers.
        SkipGather: "T14:",
        /// A split bio gathers half of the tags that it needs.
        NeedFewer: "T14:",
        /// A split bio gathers as many tags as it has parts, even if there are not so many.
        NeedAll: "T10:",
        /// A bio with a flag is held.
        HoldFlagged: "I7:",
        /// A bio is held while the device is idle.
        HoldIdle: "I8:",
        /// A bio is held although few others are outstanding.
        HoldFew: "I8:",
        /// A bio that does not continue the stream overtakes those that are held.
        OvertakeHeld: "I9:",
        /// The age of held bios is that of the newest one.
        RenewAge: "I9:",
        /// A group may have one bio too many.
        HoldOneMore: "I9:",
        /// A batch never ends.
        EndlessBatch: "DL1:",
        /// A batch goes on at the lowest address.
        BatchFromStart: "DL1:",
        /// Writes get no batch while reads wait.
        StarveWrites: "DL2:",
        /// The count of batches of reads is kept after a batch of writes.
        KeepStarved: "DL2:",
        /// A new batch does not begin with a request whose deadline has passed.
        IgnoreExpiry: "DL3:",
        /// A lower class goes while a higher one is at the device.
        PassClass: "DL4:",
        /// No request ages.
        IgnoreAge: "DL5:",
        /// A request that is inserted at the head goes to the tail.
        HeadToTail: "DL6:",
        /// A request that absorbs another one keeps its own deadline.
        KeepDeadline: "DL7:",
        /// A new request merges at the front of a queued one although that is off.
        MergeInFront: "DL7:",
        /// A request that was given up counts as being at the device.
        CountGivenUp: "DL8:",
        /// Discards are in the domain of writes.
        MixDomains: "KY1:",
        /// A domain uses more of the device than its depth.
        IgnoreDomainDepth: "KY2:",
        /// The greatest depth of a domain does not depend on the device.
        FullDomainDepth: "KY2:",
        /// The turn of a domain does not end while it has requests.
        EndlessTurn: "KY3:",
        /// A percentile does not forget its samples.
        KeepSamples: "KY4:",
        /// The total decides whether the device is congested.
        CongestedByTotal: "KY5:",
        /// Only congestion lets a depth grow.
        NeverGrow: "KY5:",
        /// Congestion uses a percentile again and again.
        ReusePercentile: "KY6:",
        /// A request that is inserted at the head goes to the tail of its domain.
        HeadToDomainTail: "KY7:",
        /// A request that absorbs another one keeps its own place.
        KeepPlace: "KY8:",
        /// A request that was given up keeps the room of its domain.
        KeepDomainRoom: "KY9:",
    }

    impl CorePlant {
        /// Returns whether the bug does harm only at rare times, so that it should always show.
        pub const fn is_rare(self) -> bool {
            use CorePlant::*;
            matches!(
                self,
                ParkBlindly
                    | LeaveKept
                    | SkipTurns
                    | PassOutside
                    | ChangeBusy
                    | KeepCounts
                    | SyncBeside
                    | KeepHold
                    | PassRetry
                    | RetryOvertaken
                    | NeedAll
                    | HoldFreeze
                    | LeaveFrozen
                    | HoldIdle
            )
        }
    }

    impl CorePlant {
        /// Returns whether the bug is in the adaptive hold, which only some users of the core have.
        pub const fn is_of_hold(self) -> bool {
            use CorePlant::*;
            matches!(self, HoldFlagged | HoldIdle | HoldFew | OvertakeHeld | RenewAge | HoldOneMore)
        }

        /// Returns whether the bug is in the order of a scheduler. Unit tests find it, by a naive
        /// model.
        pub fn is_of_scheduler(self) -> bool {
            ["DL", "KY"].iter().any(|letters| self.breaks().starts_with(letters))
        }
    }

    type Chooser = Box<dyn FnMut(CorePlant) -> bool>;

    thread_local! {
        static CHOOSER: RefCell<Option<Chooser>> = const { RefCell::new(None) };
    }

    /// Sets the function that decides, on this thread, whether a bug shows.
    pub fn choose(chooser: Option<Chooser>) {
        CHOOSER.with_borrow_mut(|place| *place = chooser);
    }

    /// Returns whether a bug shows now.
    pub fn shows(plant: CorePlant) -> bool {
        CHOOSER.with_borrow_mut(|chooser| chooser.as_mut().is_some_and(|chooser| chooser(plant)))
    }
}
