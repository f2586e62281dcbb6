//! Tasks: one draws its actions from the seed, one runs a fio job, one replays a recorded thread,
//! one performs timed events, one runs a script.

pub(crate) mod events;
pub(crate) mod figures;
pub(crate) mod interrupts;
pub(crate) mod job;
pub(crate) mod random;
pub(crate) mod replay;
pub(crate) mod scripted;
pub(crate) mod worker;
