//! Planted bugs of a server or a device, which the checkers must find.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdPlant {
    /// A reply has the cookie of another request.
    OtherCookie,
    /// A request is answered twice.
    AnswerTwice,
    /// A request is never answered.
    AnswerNever,
    /// Two writes get each other's reply.
    SwapCookies,
    /// A flush is answered before it is done.
    EarlyFlush,
    /// A flush on a connection without writes since its last flush is answered at once.
    OwnFlush,
    /// FUA is ignored.
    ForgetFua,
    /// A write is answered before it is done.
    EarlyWrite,
    /// A write is answered, and not done.
    LostWrite,
    /// A write goes to the disk before its whole payload has arrived.
    TornPayload,
    /// A write goes to the next block.
    MisplacedWrite,
    /// A read returns the next block.
    MisplacedRead,
    /// A read is answered before its data has arrived.
    EarlyRead,
    /// A read returns the old contents of its buffer.
    StaleBuffer,
    /// A chunk of data is sent as a hole.
    FalseHole,
    /// A chunk has a wrong offset.
    WrongPlace,
    /// Two chunks of a read have each other's data.
    MixChunks,
    /// One byte of a refused payload is not skipped.
    OutOfStep,
    /// One byte of data is not sent.
    ShortData,
    /// A failed request is answered as done.
    HideFailure,
    /// A failure after good data is not reported.
    HideLateFailure,
    /// The reply to a client that is gone is sent to another client.
    AnswerNext,
    /// A request that must be refused is answered as done.
    Obey,
    /// The buffer of a connection that is gone is leaked.
    LeakBuffer,
    /// The end of a connection with I/O in flight is ignored.
    LeakConnection,
    /// The device's flush makes nothing durable.
    LieFlush,
}

impl NbdPlant {
    /// All planted bugs.
    pub const ALL: [NbdPlant; 26] = [
        NbdPlant::OtherCookie,
        NbdPlant::AnswerTwice,
        NbdPlant::AnswerNever,
        NbdPlant::SwapCookies,
        NbdPlant::EarlyFlush,
        NbdPlant::OwnFlush,
        NbdPlant::ForgetFua,
        NbdPlant::EarlyWrite,
        NbdPlant::LostWrite,
        NbdPlant::TornPayload,
        NbdPlant::MisplacedWrite,
        NbdPlant::MisplacedRead,
        NbdPlant::EarlyRead,
        NbdPlant::StaleBuffer,
        NbdPlant::FalseHole,
        NbdPlant::WrongPlace,
        NbdPlant::MixChunks,
        NbdPlant::OutOfStep,
        NbdPlant::ShortData,
        NbdPlant::HideFailure,
        NbdPlant::HideLateFailure,
        NbdPlant::AnswerNext,
        NbdPlant::Obey,
        NbdPlant::LeakBuffer,
        NbdPlant::LeakConnection,
        NbdPlant::LieFlush,
    ];
}
