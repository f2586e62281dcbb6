//! What tasks do: draw their next action from the seed, or what a fio job says.

pub(crate) mod job;
pub(crate) mod random;
