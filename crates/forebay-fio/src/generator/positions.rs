//! Where the blocks of a job of one block size lie: one after the other, all of them in a random
//! order, or drawn one by one.

use super::{Direction, Workload};
use crate::permutation::Permutation;
use crate::random::Xoshiro256;

#[derive(Debug, Clone)]
pub(super) enum Order {
    /// The next block, per direction.
    Sequential([u64; 3]),
    /// Every block once per pass: the order, the next place in it, and the keys of later passes.
    Mapped { order: Permutation, next: u64, keys: Xoshiro256 },
    /// Independent draws.
    Uniform(Xoshiro256),
}

impl Order {
    pub(super) fn new(workload: &Workload, blocks: u64) -> Self {
        // Streams 2n and 2n+1 of the seed belong to clone n: one for offsets, one for directions.
        let mut keys = Xoshiro256::new(workload.seed, workload.stream.wrapping_mul(2));
        match (workload.pattern.random, workload.norandommap) {
            (false, _) => Self::Sequential([0; 3]),
            (true, true) => Self::Uniform(keys),
            (true, false) => {
                Self::Mapped { order: Permutation::new(blocks, &mut keys), next: 0, keys }
            }
        }
    }

    #[inline(always)]
    pub(super) fn draw(&mut self, direction: Direction, blocks: u64) -> u64 {
        match self {
            Self::Sequential(positions) => {
                let position = &mut positions[direction.index()];
                let block = *position;
                *position = if block + 1 == blocks { 0 } else { block + 1 };
                block
            }
            Self::Mapped { order, next, keys } => {
                if *next == blocks {
                    *order = Permutation::new(blocks, keys);
                    *next = 0;
                }
                *next += 1;
                order.at(*next - 1)
            }
            Self::Uniform(draws) => draws.below(blocks),
        }
    }
}
