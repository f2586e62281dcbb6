//! Service times of a simulated device. A model fixes a command's completion time when the command
//! begins; a machine chooses which command to serve next.

use forebay_core::BlockStatus;
use forebay_model::{Admission, Command, Machine, Model, Random, Service};

/// Determines when commands complete.
#[derive(Debug)]
pub(crate) enum Engine {
    /// The completion time of a command is fixed when it begins.
    Model(Box<dyn Model>),
    /// The completion time of a command is fixed when the machine serves it.
    Machine(Box<dyn Machine>),
    /// The caller completes each command.
    Manual,
}

/// A command that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) result: Result<u64, BlockStatus>,
    /// The completion time; `None` if a machine decides it later.
    pub(crate) done_at_ns: Option<u64>,
}

/// Bits of a machine's command id that hold the tag. The bits above hold the hardware context.
const TAG_BITS: u32 = 16;

impl Engine {
    /// Returns whether the device accepts a command.
    pub(crate) fn admit(&mut self, command: &Command, now: u64, random: &mut Random) -> Admission {
        match self {
            Engine::Model(model) => model.admit(command, random),
            Engine::Machine(machine) if machine.may_begin(command, now) => Admission::Taken,
            Engine::Machine(_) => Admission::Busy,
            Engine::Manual => Admission::Taken,
        }
    }

    /// Returns whether an accepted command may begin. Earlier commands of its batch may have filled
    /// the machine; then it begins after a completion.
    pub(crate) fn may_begin(&self, command: &Command, now: u64) -> bool {
        match self {
            Engine::Model(_) | Engine::Manual => true,
            Engine::Machine(machine) => machine.may_begin(command, now),
        }
    }

    /// Begins a command, identified by context and tag.
    pub(crate) fn begin(
        &mut self,
        (hctx, tag): (usize, usize),
        command: &Command,
        now: u64,
        random: &mut Random,
    ) -> Begun {
        match self {
            Engine::Model(model) => {
                let Service { done_at_ns, result } = model.serve(command, now, random);
                assert!(done_at_ns >= now, "a model does not go back in time");
                Begun { result, done_at_ns: Some(done_at_ns) }
            }
            Engine::Machine(machine) => {
                machine.begin((hctx as u32) << TAG_BITS | tag as u32, command, now, random);
                Begun { result: Ok(command.len), done_at_ns: None }
            }
            Engine::Manual => Begun { result: Ok(command.len), done_at_ns: None },
        }
    }

    /// Takes a command that a machine has completed by now: its hardware context, its tag, and its
    /// result.
    pub(crate) fn take_done(
        &mut self,
        now: u64,
        random: &mut Random,
    ) -> Option<(usize, usize, Result<u64, BlockStatus>)> {
        let Engine::Machine(machine) = self else { return None };
        let done = machine.take_done(now, random)?;
        let tag = done.id & ((1 << TAG_BITS) - 1);
        Some(((done.id >> TAG_BITS) as usize, tag as usize, done.result))
    }

    /// Returns when a machine completes its next command.
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        match self {
            Engine::Model(_) | Engine::Manual => None,
            Engine::Machine(machine) => machine.next_at_ns(),
        }
    }
}
