//! Whether the next I/O reads, writes or trims.

use super::{Direction, Mix, Workload};
use crate::random::Xoshiro256;

#[derive(Debug, Clone)]
pub(super) enum Directions {
    Only(Direction),
    /// A read if a 32-bit draw is below `reads_below`.
    Mixed {
        reads_below: u64,
        draws: Xoshiro256,
    },
}

impl Directions {
    pub(super) fn new(workload: &Workload) -> Self {
        match workload.pattern.mix {
            Mix::Only(direction) => Self::Only(direction),
            Mix::ReadWrite => Self::Mixed {
                reads_below: (u64::from(workload.rwmixread) << 32) / 100,
                draws: Xoshiro256::new(workload.seed, workload.stream.wrapping_mul(2) | 1),
            },
            Mix::Recorded(_) => panic!("the I/Os of a log are replayed, not generated"),
        }
    }

    #[inline]
    pub(super) fn draw(&mut self) -> Direction {
        match self {
            Self::Only(direction) => *direction,
            Self::Mixed { reads_below, draws } => {
                if draws.draw() >> 32 < *reads_below {
                    Direction::Read
                } else {
                    Direction::Write
                }
            }
        }
    }
}
