//! Bugs of a server or a device, which the checkers must find.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdPlant {
    /// A reply has the cookie of another request.
    OtherCookie,
    /// A request is answered twice.
    AnswerTwice,
    /// A request is never answered.
    AnswerNever,
    /// Two writes get each other's answer.
    SwapCookies,
    /// A flush is answered before it is done.
    EarlyFlush,
    /// A flush of a connection that has written nothing is answered at once.
    OwnFlush,
    /// FUA is forgotten.
    ForgetFua,
    /// A write is answered before the disk has it.
    EarlyWrite,
    /// A write is answered, and not done.
    LostWrite,
    /// A write goes to the disk before the end of its payload has come.
    TornPayload,
    /// A write goes to the sectors beside.
    MisplacedWrite,
    /// A read brings the sectors beside.
    MisplacedRead,
    /// A read is answered before its data have come.
    EarlyRead,
    /// A read brings what its buffer held before.
    StaleBuffer,
    /// A chunk of data is said to be a hole.
    FalseHole,
    /// A chunk tells another place than its data's.
    WrongPlace,
    /// Two chunks of a read have each other's data.
    MixChunks,
    /// One byte of a payload that is refused is not skipped.
    OutOfStep,
    /// One byte of data is not sent.
    ShortData,
    /// What failed is answered as done.
    HideFailure,
    /// What fails behind good data is not told.
    HideLateFailure,
    /// What was done for a client that is gone is answered to another.
    AnswerNext,
    /// What must be refused is answered as done.
    Obey,
    /// The buffer of a connection that is gone is not given back.
    LeakBuffer,
    /// The end of a connection with I/O in flight is forgotten.
    LeakConnection,
    /// The device's flush makes nothing durable.
    LieFlush,
}

impl NbdPlant {
    /// All of them.
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
