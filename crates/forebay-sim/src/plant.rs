//! Planted bugs, which prove that the checkers can fail.
//!
//! The bugs of the layer are in the core, in the code that ships, and are compiled with `--cfg
//! forebay_plant` only. The others are in simulated devices, in tasks as callers of the layer, and
//! in their budget of tags.
//!
//! [`Plant::breaks`] returns the rule that must find a bug.

use crate::check::rules;
use forebay_core::QueueLimits;
#[cfg(forebay_plant)]
use forebay_core::plant::CorePlant;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A bug of the core.
    #[cfg(forebay_plant)]
    Core(CorePlant),
    /// A wake for tags that finds its task awake is lost (T4).
    LoseWake,
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
    /// A task waits for a bio that was refused.
    CountRefused,
    /// The driver reports a request as queued while the device is busy, and forgets it.
    ForgetBusy,
    /// A batch is not committed.
    ForgetCommit,
    /// A wait in the driver does not begin what was left to it (W5).
    ForgetLeft,
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
    /// The limits given to the layer allow larger requests than the device takes (K3).
    WideLimits,
    /// The limits do not declare that a write with FUA syncs the file.
    UndeclaredSync,
    /// The limits declare that writes with FUA may run beside other syncs, which get their errors.
    UndeclaredCache,
    /// A context that opens the file does not check for errors that were reported before.
    UncheckedOpen,
}

impl Plant {
    /// The bugs of the simulator's devices and tasks.
    const ALL: &[Plant] = &[
        Plant::LoseWake,
        Plant::HideTag,
        Plant::WaitPlugged,
        Plant::NeedMore,
        Plant::WaitInSubmit,
        Plant::WaitInTurn,
        Plant::PutTwice,
        Plant::CountRefused,
        Plant::ForgetBusy,
        Plant::ForgetCommit,
        Plant::ForgetLeft,
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
        Plant::WideLimits,
        Plant::UndeclaredSync,
        Plant::UndeclaredCache,
        Plant::UncheckedOpen,
    ];

    /// Returns all planted bugs, with those of the core except the adaptive hold's, and
    /// those in the order of a scheduler that no rule of the simulator covers.
    pub fn all() -> impl Iterator<Item = Plant> {
        let own = Plant::ALL.iter().copied();
        #[cfg(forebay_plant)]
        let own = CorePlant::ALL
            .iter()
            .filter(|plant| !plant.is_of_hold())
            .filter(|plant| !plant.is_of_scheduler() || **plant == CorePlant::PassClass)
            .map(|&plant| Plant::Core(plant))
            .chain(own);
        own
    }

    /// Returns the limits that the layer receives for a device whose real limits are `limits`.
    pub(crate) fn limits(self, limits: QueueLimits) -> QueueLimits {
        match self {
            Plant::WideLimits => limits
                .max_hw_sectors(limits.max_hw_sectors * 2)
                .max_sectors(limits.max_sectors * 2)
                .max_segments(limits.max_segments + 1)
                .chunk_sectors(0),
            Plant::UndeclaredSync => limits.fua_is_sync(false),
            Plant::UndeclaredCache => limits.fua_queueable(true),
            _ => limits,
        }
    }

    /// Returns the beginning of the text of the rule that must find the bug; `None` if any rule may
    /// find it.
    pub fn breaks(self) -> Option<&'static str> {
        Some(match self {
            Plant::LoseWake => rules::T4,
            Plant::HideTag => rules::T7,
            Plant::WaitPlugged => rules::T9,
            Plant::NeedMore => rules::T10,
            Plant::WaitInSubmit => rules::T11,
            Plant::WaitInTurn => rules::T12,
            Plant::ForgetLeft => rules::W5,
            #[cfg(forebay_plant)]
            Plant::Core(plant) => plant.breaks(),
            Plant::LieFlush | Plant::IgnoreFua => rules::P2,
            Plant::UndeclaredSync | Plant::UndeclaredCache | Plant::UncheckedOpen => rules::P2,
            _ => return None,
        })
    }
}
