//! Random offsets with sizes: in the order of a map that covers every block once, or drawn one by
//! one.

use super::super::map::Map;
use super::super::skew::Skew;
use super::super::{Direction, Workload};
use super::Variety;
use crate::random::Xoshiro256;

/// How random offsets are found.
#[derive(Debug, Clone)]
pub(super) enum Spread {
    Map(Map),
    Drawn(Box<Drawn>),
}

/// Offsets that are drawn one by one, by direction.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    skews: [Skew; 3],
    align: [u64; 3],
}

impl Spread {
    pub(super) fn new(workload: &Workload, variety: &Variety) -> Self {
        let keys = Xoshiro256::new(workload.seed, workload.stream.wrapping_mul(2));
        let (unit, len) = (u64::from(workload.bs), workload.random_len());
        if workload.has_map() {
            return Self::Map(Map::new(unit, (len / unit).max(1), keys));
        }
        let align = std::array::from_fn(|at| {
            u64::from(variety.align[at].unwrap_or_else(|| variety.sizes[at].min()))
        });
        let skews = align.map(|align: u64| {
            let blocks = (len / align).max(1);
            Skew::new(&variety.distribution, blocks, align, keys.clone())
        });
        Self::Drawn(Box::new(Drawn { skews, align }))
    }

    /// Permits a map to visit each block of `range` bytes again, in blocks of `unit` bytes.
    pub(super) fn restart(&mut self, range: u64, unit: u64) {
        if let Self::Map(map) = self {
            map.restart((range / unit).max(1));
        }
    }

    /// Draws the offset and the length of an I/O in a zone, or in the region: the start and the
    /// length. The I/O ends in the zone, unless its smallest size is larger than the zone.
    pub(super) fn draw(
        &mut self,
        direction: Direction,
        variety: &Variety,
        (start, range): (u64, u64),
        draws: &mut Xoshiro256,
    ) -> (u64, u32) {
        let at = direction.index();
        let rule = &variety.sizes[at];
        match self {
            Self::Map(map) => {
                let (offset, len) = map.draw(rule, draws);
                (start + offset, len)
            }
            Self::Drawn(drawn) => {
                let align = drawn.align[at];
                // The last zone may have fewer blocks than the others.
                let blocks = (range / align).max(1);
                let offset = drawn.skews[at].draw() % blocks * align;
                match rule.draw(variety.unaligned, range.saturating_sub(offset), draws) {
                    Some(len) => (start + offset, len),
                    // The last block is shorter than the smallest I/O: it goes before it.
                    None => {
                        let last = range.saturating_sub(rule.min().into());
                        (start + last - last % align, rule.min())
                    }
                }
            }
        }
    }
}
