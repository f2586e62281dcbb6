//! Planted bugs: what shows that the checkers can fail.
//!
//! Each is in the simulator's own runtime, device or tasks. The core is as it is shipped.
//!
//! Not among them: one that keeps a wake-up for tags to itself (T5). Here every tag comes back and
//! wakes the next, so such a bug delays, and stalls nobody; loom finds it, with tags that stay.

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
    /// A turn lets requests in while the disk is frozen.
    EnterFrozen,
    /// Completions are taken while a kick is on its way (K8).
    ReapKicked,
    /// Whoever frees tags of the budget does not look for waiters (T2).
    SkipTagWake,
    /// A wait for tags is announced, and the tags are not looked at again (T2).
    SkipRetry,
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
    /// The limits given to the layer allow larger requests than the device takes (K3).
    WideLimits,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 32] = [
        Plant::SkipWake,
        Plant::SkipKick,
        Plant::DropBaton,
        Plant::ParkBlindly,
        Plant::InboxBeforeRun,
        Plant::BlockUnasked,
        Plant::RunWithoutToken,
        Plant::LeaveKept,
        Plant::DispatchQuiesced,
        Plant::EnterFrozen,
        Plant::ReapKicked,
        Plant::SkipTagWake,
        Plant::SkipRetry,
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
        Plant::WideLimits,
    ];
}
