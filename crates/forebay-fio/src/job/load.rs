//! Sizes and offsets of I/Os beyond one block size.

use crate::generator::sizes::SizeRule;
use crate::generator::skew::Distribution;
use crate::generator::varied::Variety;
use crate::generator::{Direction, Pattern};
use crate::job::ZoneOptions;
use crate::units::Size;

/// The block size of a direction for which none was given.
const DEFAULT_BS: u32 = 4096;

/// The options; `None` is "not given", also for a single direction.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Load {
    /// `bs`, if it is not one size for all directions.
    pub bs: Option<[Option<u32>; 3]>,
    pub bsrange: Option<[Option<SizeRule>; 3]>,
    pub bssplit: Option<[Option<SizeRule>; 3]>,
    pub bs_unaligned: bool,
    pub blockalign: Option<[Option<u32>; 3]>,
    /// The number after the colon of `rw`.
    pub step: i64,
    /// `rw_sequencer=identical`.
    pub identical: bool,
    pub random_distribution: Option<Distribution>,
    pub percentage_random: Option<[Option<u8>; 3]>,
    pub number_ios: Option<u64>,
    pub serialize_overlap: bool,
    pub max_latency_ns: [u64; 3],
    pub zones: ZoneOptions,
}

impl Load {
    /// Returns the sizes by direction. As in fio, `bssplit` overrides `bsrange`, and `bsrange`
    /// overrides `bs`.
    pub(super) fn sizes(&self, bs: Option<u32>) -> [SizeRule; 3] {
        let of = |rules: &Option<[Option<SizeRule>; 3]>, at: usize| {
            rules.as_ref().and_then(|rules| rules[at].clone())
        };
        std::array::from_fn(|at| {
            let one = self.bs.map_or(bs, |each| each[at]);
            let fixed = || SizeRule::Fixed(one.unwrap_or(DEFAULT_BS));
            of(&self.bssplit, at).or_else(|| of(&self.bsrange, at)).unwrap_or_else(fixed)
        })
    }

    /// Returns what the generator for one block size does not support; `None` if there is nothing.
    pub(super) fn variety(
        &self,
        rw: Pattern,
        sizes: &[SizeRule; 3],
        io_size: Option<Size>,
    ) -> Option<Variety> {
        let percent = self.percentage_random.unwrap_or_default();
        let variety = Variety {
            sizes: sizes.clone(),
            unaligned: self.bs_unaligned,
            align: self.blockalign.unwrap_or_default(),
            distribution: self.random_distribution.clone().unwrap_or(Distribution::Random),
            percentage_random: percent.map(|percent| percent.unwrap_or(100)),
            step: self.step,
            identical: self.identical,
            number_ios: self.number_ios,
            zones: self.zones.strided(),
            zoned: self.zones.zoned(matches!(io_size, Some(Size::Bytes(_)))),
        };
        let mut used = Direction::ALL.into_iter().filter(|&direction| rw.has(direction));
        let first = used.next().map(|direction| &sizes[direction.index()]);
        let is_one_size = matches!(first, Some(SizeRule::Fixed(_)))
            && used.all(|direction| Some(&sizes[direction.index()]) == first);
        let is_plain = is_one_size
            && variety.step == 0
            && variety.number_ios.is_none()
            && variety.zones.is_none()
            && variety.zoned.is_none()
            && (!rw.random
                || (variety.align == [None; 3]
                    && variety.distribution == Distribution::Random
                    && variety.percentage_random == [100; 3]));
        (!is_plain).then_some(variety)
    }
}
