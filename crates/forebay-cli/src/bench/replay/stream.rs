//! The stream of I/Os of a replay.

use std::sync::Arc;

use forebay_fio::generator::{Direction, Op, Stream};
use forebay_fio::iolog::{Act, Recording};

/// The I/Os of a log. Syncs are left to the [`Schedule`](super::Schedule).
#[derive(Debug, Clone)]
pub(in crate::bench) struct Replayed {
    recording: Arc<Recording>,
    /// The number of the next step.
    next: usize,
}

impl Replayed {
    pub(in crate::bench) fn new(recording: &Arc<Recording>) -> Self {
        Self { recording: Arc::clone(recording), next: 0 }
    }

    /// Returns the next I/O, and the number of the step after it.
    fn peek(&self) -> Option<(Op, usize)> {
        let rest = self.recording.steps().get(self.next..)?;
        rest.iter().enumerate().find_map(|(at, step)| match step.act {
            Act::Io(direction) => {
                let op = Op { direction, file: step.file, offset: step.offset, len: step.len };
                Some((op, self.next + at + 1))
            }
            Act::Sync | Act::Datasync => None,
        })
    }
}

impl Iterator for Replayed {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let (op, next) = self.peek()?;
        self.next = next;
        Some(op)
    }
}

impl Stream for Replayed {
    fn direction(&mut self) -> Option<Direction> {
        self.peek().map(|(op, _)| op.direction)
    }

    fn next_as(&mut self, _: Direction) -> Option<Op> {
        self.next()
    }
}
