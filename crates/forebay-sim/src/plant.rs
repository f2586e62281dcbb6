//! Planted bugs: what shows that the checkers can fail.
//!
//! Each is in the simulator's own runtime, device or tasks. The core is as it is shipped.
//!
//! [`Plant::breaks`] says by which rule a bug must be found, where that is one of tags or of runs.

use crate::check::rules;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A follower whose bios have ended is not woken (W2).
    SkipWake,
    /// A leader whose own bios have ended is not kicked (W4).
    SkipKick,
    /// A leader leaves without passing the baton (W3).
    DropBaton,
    /// A follower parks without looking whether there is a leader (W1).
    ParkBlindly,
    /// The inbox is read before the mark is cleared (R1).
    InboxBeforeRun,
    /// A leader without the token blocks, and does not ask for a turn again (R2).
    BlockUnasked,
    /// A run that found the token taken turns all the same.
    RunWithoutToken,
    /// A leader that has to turn once more, and has what it waited for, leaves without (R2).
    LeaveKept,
    /// A turn dispatches behind a closed gate (R5).
    DispatchQuiesced,
    /// A delayed run is put off by a later one (R3).
    ExtendDelay,
    /// Whoever opens a gate asks for no run (R4).
    OpenUnasked,
    /// A run is asked for, and then the work is published (R2).
    RunFirst,
    /// Runs that are left to the holder of the token are not all counted (R6).
    SkipCount,
    /// What is in the inbox is let in from the newest on (T8).
    NewestFirst,
    /// A turn lets requests in while the disk is frozen.
    EnterFrozen,
    /// Completions are taken while a kick is on its way (K8).
    ReapKicked,
    /// Whoever frees tags of the budget does not look for waiters (T2).
    SkipTagWake,
    /// A wait for tags is announced, and the tags are not looked at again (T2).
    SkipRetry,
    /// Whoever frees tags of the budget looks for waiters, and the policy is not told (T1).
    DropTagWake,
    /// The policy is told of tags twice (T3).
    CountTwice,
    /// A wake for tags that finds its task awake is forgotten (T4).
    LoseWake,
    /// Who got tags by itself keeps the wake that it did not need (T5).
    KeepWake,
    /// Who was told of tags of its context does not ask again (T5).
    AskNoMore,
    /// The limit of the budget shrinks before the policy hears of it (T6).
    ShrinkFirst,
    /// A freed tag is in nobody's hands for a while, and not in the set (T7).
    HideTag,
    /// Who waits for tags has not unplugged what has tags (T9).
    WaitPlugged,
    /// A task needs more tags at once than half of them (T10).
    NeedMore,
    /// A submit waits for an end (T11).
    WaitInSubmit,
    /// Whoever delivers ends waits in the turn (T12).
    WaitInTurn,
    /// A tag of the budget is put twice.
    PutTwice,
    /// An end is delivered to another owner.
    WrongMailbox,
    /// A bio that was refused is forgotten, and waited for.
    CountRefused,
    /// The driver says that it took a request for which the device is busy, and forgets it.
    ForgetBusy,
    /// A batch is not committed.
    ForgetCommit,
    /// A completion is lost.
    LoseCompletion,
    /// A completion comes twice.
    CompleteTwice,
    /// A command completes under another command's tag.
    WrongTag,
    /// A failure is reported as success.
    HideFailure,
    /// A short count is reported as the full one.
    HideShort,
    /// A read brings a value that nobody has written.
    WrongData,
    /// A read brings the block beside.
    MisdirectedRead,
    /// A write goes to the block beside.
    MisdirectedWrite,
    /// A write is not done, and completes.
    LostWrite,
    /// A write is done in all but its last block, and completes in full.
    TornWrite,
    /// A read brings what a block held before its last write.
    StaleRead,
    /// A write is done after its completion.
    LateWrite,
    /// A discard goes to the block after its range as well.
    WideDiscard,
    /// A flush succeeds, and makes nothing durable.
    LieFlush,
    /// A write with FUA succeeds, and is in the volatile cache.
    IgnoreFua,
    /// A flush does no more than the one before it did: who came while that one ran has joined it.
    JoinLate,
    /// A flush is elided although a write has ended since the last one.
    ElideTooMany,
    /// A write with FUA is queued without, as if it had joined others.
    MergeFua,
    /// A flush is done, and the device takes nothing beside it still.
    KeepHold,
    /// The limits given to the layer allow larger requests than the device takes (K3).
    WideLimits,
    /// The limits do not declare that a write with FUA syncs the file.
    UndeclaredSync,
    /// The limits declare that writes with FUA may run beside other syncs, which get their errors.
    UndeclaredCache,
    /// Nothing checks for errors that were reported before a context opened the file.
    UncheckedOpen,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 57] = [
        Plant::SkipWake,
        Plant::SkipKick,
        Plant::DropBaton,
        Plant::ParkBlindly,
        Plant::InboxBeforeRun,
        Plant::BlockUnasked,
        Plant::RunWithoutToken,
        Plant::LeaveKept,
        Plant::DispatchQuiesced,
        Plant::ExtendDelay,
        Plant::OpenUnasked,
        Plant::RunFirst,
        Plant::SkipCount,
        Plant::NewestFirst,
        Plant::EnterFrozen,
        Plant::ReapKicked,
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

    /// The rule of tags or of runs that it breaks, and is found by.
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
            Plant::InboxBeforeRun | Plant::LeaveKept => rules::R1,
            Plant::BlockUnasked | Plant::RunFirst => rules::R2,
            Plant::ExtendDelay => rules::R3,
            Plant::OpenUnasked => rules::R4,
            Plant::DispatchQuiesced | Plant::EnterFrozen => rules::R5,
            Plant::SkipCount => rules::R6,
            Plant::SkipWake => rules::W2,
            Plant::SkipKick => rules::W4,
            Plant::DropBaton => rules::W3,
            Plant::ParkBlindly => rules::W1,
            Plant::LieFlush | Plant::IgnoreFua | Plant::MergeFua => rules::P2,
            Plant::JoinLate | Plant::ElideTooMany => rules::P2,
            Plant::UndeclaredSync | Plant::UndeclaredCache | Plant::UncheckedOpen => rules::P2,
            Plant::KeepHold => rules::F5,
            _ => return None,
        })
    }
}
