//! Planted bugs, which prove that the checkers can fail.
//!
//! Most bugs are in the simulated device and in tasks. Those of waiting and running are in the
//! core, in the code that ships, and are compiled with `--cfg forebay_plant` only.
//!
//! [`Plant::breaks`] returns the rule that must find a bug.

use crate::check::rules;
#[cfg(forebay_plant)]
use forebay_core::plant::CorePlant;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A bug of the core.
    #[cfg(forebay_plant)]
    Core(CorePlant),
    /// A follower whose bios have ended is not woken (W2).
    SkipWake,
    /// A run that found the token taken makes a turn all the same.
    RunWithoutToken,
    /// A delayed run is put off by a later one (R3).
    ExtendDelay,
    /// A task that opens a gate requests no run (R4).
    OpenUnasked,
    /// A run is requested before the work is published (R2).
    RunFirst,
    /// Runs that are left to the holder of the token are not all counted (R6).
    SkipCount,
    /// The requests of the inbox are accepted from the newest on (T8).
    NewestFirst,
    /// A task that frees tags of the budget does not check for waiters (T2).
    SkipTagWake,
    /// A task joins the line for tags, and does not try again after that (T2).
    SkipRetry,
    /// A task that frees tags of the budget checks for waiters, and does not notify the policy
    /// (T1).
    DropTagWake,
    /// The policy is notified of the same tags twice (T3).
    CountTwice,
    /// A wake for tags that finds its task awake is lost (T4).
    LoseWake,
    /// A task that got tags without its wake keeps the wake (T5).
    KeepWake,
    /// A task that was notified of tags of its context does not try again (T5).
    AskNoMore,
    /// The limit of the budget shrinks before the policy gets it (T6).
    ShrinkFirst,
    /// A freed tag is neither owned nor in the set for a while (T7).
    HideTag,
    /// A task waits for tags while requests with tags are in its plug (T9).
    WaitPlugged,
    /// A task needs more than half of the tags at once (T10).
    NeedMore,
    /// A submit waits for a completion (T11).
    WaitInSubmit,
    /// A task that delivers completions waits within the turn (T12).
    WaitInTurn,
    /// A tag of the budget is freed twice.
    PutTwice,
    /// A completion is delivered to another owner.
    WrongMailbox,
    /// A task waits for a bio that was refused.
    CountRefused,
    /// The driver reports a request as queued while the device is busy, and forgets it.
    ForgetBusy,
    /// A batch is not committed.
    ForgetCommit,
    /// Commands that wait for room in a machine do not begin when it has room.
    ForgetWaiting,
    /// The event of a machine's next completion is not added.
    LoseEvent,
    /// A completion is lost.
    LoseCompletion,
    /// A completion arrives twice.
    CompleteTwice,
    /// A command completes under another command's tag.
    WrongTag,
    /// A failure is reported as success.
    HideFailure,
    /// A short count is reported as the full one.
    HideShort,
    /// A read returns a value that was never written.
    WrongData,
    /// A read returns the next block.
    MisdirectedRead,
    /// A write goes to the next block.
    MisdirectedWrite,
    /// A write completes, and is not done.
    LostWrite,
    /// A write completes in full, and its last block is not written.
    TornWrite,
    /// A read returns the value of a block before its last write.
    StaleRead,
    /// A write is done after its completion.
    LateWrite,
    /// A discard also discards the block after its range.
    WideDiscard,
    /// A flush succeeds, and makes nothing durable.
    LieFlush,
    /// A write with FUA succeeds, and stays in the volatile cache.
    IgnoreFua,
    /// A flush covers no more than the flush before it: as if it had joined that one while it ran.
    JoinLate,
    /// A flush is elided although a write has ended since the last one.
    ElideTooMany,
    /// A write is queued without its FUA flag, as if it had merged with others.
    MergeFua,
    /// After a flush is done, the device still takes no command beside it.
    KeepHold,
    /// The limits given to the layer allow larger requests than the device takes (K3).
    WideLimits,
    /// The limits do not declare that a write with FUA syncs the file.
    UndeclaredSync,
    /// The limits declare that writes with FUA may run beside other syncs, which get their errors.
    UndeclaredCache,
    /// No check for errors that were reported before a context opened the file.
    UncheckedOpen,
}

impl Plant {
    /// All planted bugs.
    pub const ALL: &[Plant] = &[
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::SkipKick),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::DropBaton),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::ParkBlindly),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::ForgetMark),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::BlockUnasked),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::LeaveKept),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::DispatchQuiesced),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::EnterFrozen),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::ReapKicked),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::SkipDeadline),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::SkipTimeout),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::EndBeforeGrace),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::DropHold),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::ForgetRange),
        #[cfg(forebay_plant)]
        Plant::Core(CorePlant::SkipGather),
        Plant::SkipWake,
        Plant::RunWithoutToken,
        Plant::ExtendDelay,
        Plant::OpenUnasked,
        Plant::RunFirst,
        Plant::SkipCount,
        Plant::NewestFirst,
        Plant::SkipTagWake,
        Plant::SkipRetry,
        Plant::DropTagWake,
        Plant::CountTwice,
        Plant::LoseWake,
        Plant::KeepWake,
        Plant::AskNoMore,
        Plant::ShrinkFirst,
        Plant::HideTag,
        Plant::WaitPlugged,
        Plant::NeedMore,
        Plant::WaitInSubmit,
        Plant::WaitInTurn,
        Plant::PutTwice,
        Plant::WrongMailbox,
        Plant::CountRefused,
        Plant::ForgetBusy,
        Plant::ForgetCommit,
        Plant::ForgetWaiting,
        Plant::LoseEvent,
        Plant::LoseCompletion,
        Plant::CompleteTwice,
        Plant::WrongTag,
        Plant::HideFailure,
        Plant::HideShort,
        Plant::WrongData,
        Plant::MisdirectedRead,
        Plant::MisdirectedWrite,
        Plant::LostWrite,
        Plant::TornWrite,
        Plant::StaleRead,
        Plant::LateWrite,
        Plant::WideDiscard,
        Plant::LieFlush,
        Plant::IgnoreFua,
        Plant::JoinLate,
        Plant::ElideTooMany,
        Plant::MergeFua,
        Plant::KeepHold,
        Plant::WideLimits,
        Plant::UndeclaredSync,
        Plant::UndeclaredCache,
        Plant::UncheckedOpen,
    ];

    /// Returns the rule that the bug breaks and that must find it; `None` if any rule may find it.
    pub fn breaks(self) -> Option<&'static str> {
        Some(match self {
            Plant::DropTagWake => rules::T1,
            Plant::SkipTagWake | Plant::SkipRetry => rules::T2,
            Plant::CountTwice => rules::T3,
            Plant::LoseWake => rules::T4,
            Plant::KeepWake | Plant::AskNoMore => rules::T5,
            Plant::ShrinkFirst => rules::T6,
            Plant::HideTag => rules::T7,
            Plant::NewestFirst => rules::T8,
            Plant::WaitPlugged => rules::T9,
            Plant::NeedMore => rules::T10,
            Plant::WaitInSubmit => rules::T11,
            Plant::WaitInTurn => rules::T12,
            #[cfg(forebay_plant)]
            Plant::Core(plant) => return breaks_of_core(plant),
            Plant::RunFirst => rules::R2,
            Plant::ExtendDelay => rules::R3,
            Plant::OpenUnasked => rules::R4,
            Plant::SkipCount => rules::R6,
            Plant::SkipWake => rules::W2,
            Plant::LieFlush | Plant::IgnoreFua | Plant::MergeFua => rules::P2,
            Plant::JoinLate | Plant::ElideTooMany => rules::P2,
            Plant::UndeclaredSync | Plant::UndeclaredCache | Plant::UncheckedOpen => rules::P2,
            Plant::KeepHold => rules::F5,
            _ => return None,
        })
    }
}

/// Returns the rule that must find a bug of the core.
#[cfg(forebay_plant)]
fn breaks_of_core(plant: CorePlant) -> Option<&'static str> {
    Some(match plant {
        CorePlant::ForgetMark | CorePlant::LeaveKept => rules::R1,
        CorePlant::BlockUnasked => rules::R2,
        CorePlant::DispatchQuiesced | CorePlant::EnterFrozen => rules::R5,
        CorePlant::ParkBlindly => rules::W1,
        CorePlant::DropBaton => rules::W3,
        CorePlant::SkipKick => rules::W4,
        CorePlant::SkipDeadline => rules::W7,
        CorePlant::SkipTimeout => rules::H1,
        CorePlant::SkipGather => rules::T14,
        CorePlant::EndBeforeGrace | CorePlant::DropHold => rules::H5,
        CorePlant::ReapKicked | CorePlant::ForgetRange => return None,
    })
}
