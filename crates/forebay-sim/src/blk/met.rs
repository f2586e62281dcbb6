//! Kinds of events of virtio-blk rings.

use crate::server::{FIRST_OF_PROTOCOL, kinds};

kinds! {
    /// Events between guests and the server.
    Met from FIRST_OF_PROTOCOL;
    Boot,
    BootWithoutFlush,
    BootWithEventIndex,
    Read,
    Write,
    Flush,
    Discard,
    Zero,
    SeveralRanges,
    GetId,
    Bad,
    /// A request without a byte for its status.
    Unanswerable,
    /// The driver moves its index by more than the size of the ring.
    IndexJump,
    MemoryGone,
    ReadOnlyRefused,
    Good,
    Failed,
    Refused,
    /// A write was durable before its status.
    WriteThrough,
    /// A write was answered while the cache was on.
    WriteBack,
    CacheToggled,
    Kick,
    Interrupt,
    /// The driver publishes requests in the middle of a round.
    PublishInRound,
    /// The device finds requests when it has enabled notifications.
    SecondLook,
    NotifyInRound,
    NotifySuppressed,
    DriverPolls,
    Poll,
    PollFinds,
    PollEnds,
    LookAfterPoll,
    Disabled,
    RingBroken,
    RingBrokenBusy,
    RingClosed,
    Reset,
    ResetBusy,
    Pause,
    PauseBusy,
    Death,
    DeathBusy,
    /// A stop finds requests that were not taken.
    NotTaken,
    /// A successor of a server that has died repeats a request.
    Repeated,
    LossAcknowledged,
    FlushAfterLoss,
}
