//! Tasks: one draws its actions from the seed, the other runs a fio job.

pub(crate) mod figures;
pub(crate) mod job;
pub(crate) mod random;
