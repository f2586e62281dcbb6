//! The stream of I/Os for options that [`Generator`](super::Generator) does not support: blocks of
//! several sizes, distributions, gaps between sequential I/Os.
//!
//! Source: fio's HOWTO and what fio 3.33 does. With a random map and several sizes, fio marks
//! blocks of the smallest size, and an I/O that would run into a marked one is cut off before it;
//! so every byte is visited once per pass here too.

mod sequence;
mod spread;

use std::sync::Arc;

use self::sequence::Sequence;
use self::spread::Spread;
use super::directions::Directions;
use super::ending::{Blocked, EarlyEnd, Stop};
use super::sizes::SizeRule;
use super::skew::Distribution;
use super::strided::{Step, Strided, Walk};
use super::zoned::{Limits, WritePointers, Zoned};
use super::{Direction, Mix, Op, Stream, Workload};
use crate::random::Xoshiro256;

/// Properties of a workload beyond blocks of one size, by direction where they can differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Variety {
    /// Bytes per I/O.
    pub sizes: [SizeRule; 3],
    /// `bs_unaligned`: whether sizes of a range may be any number of bytes.
    pub unaligned: bool,
    /// `blockalign`: alignment of random offsets; `None`: the smallest size.
    pub align: [Option<u32>; 3],
    /// `random_distribution`.
    pub distribution: Distribution,
    /// `percentage_random`: percentage of the I/Os of a random pattern that are random.
    pub percentage_random: [u8; 3],
    /// The number after the colon of `rw=`: bytes that sequential I/O skips, or I/Os of a random
    /// pattern between two seeks.
    pub step: i64,
    /// `rw_sequencer=identical`: whether the I/Os between two seeks have the same offset. As in fio
    /// 3.33 it has no effect on sequential patterns.
    pub identical: bool,
    /// `number_ios`: I/Os after which the stream ends.
    pub number_ios: Option<u64>,
    /// `zonemode=strided`: the zones, in a region that extends to the end of the file.
    pub zones: Option<Strided>,
    /// `zonemode=zbd`: the rules of emulated zones with write pointers.
    pub zoned: Option<Zoned>,
}

/// The stream of I/Os of a [`Workload`] with a [`Variety`].
#[derive(Debug, Clone)]
pub struct Varied {
    region: super::Region,
    /// The smallest I/O, the unit of the map.
    unit: u64,
    random: bool,
    variety: Variety,
    left_bytes: u64,
    left_ios: u64,
    directions: Directions,
    /// Draws of sizes, and of whatever else is neither an offset nor a direction.
    draws: Xoshiro256,
    spread: Spread,
    /// The last I/O in each direction, from which sequential I/O goes on.
    sequence: Sequence,
    /// I/Os before the next seek.
    before_seek: i64,
    /// The zone of the I/Os, if there are zones.
    walk: Option<Walk>,
    /// The write pointers of the file, if its zones have them.
    zoned: Option<(Limits, Arc<WritePointers>)>,
    /// Why no zone accepted the last I/O that was asked for.
    blocked: Option<Blocked>,
    is_mixed: bool,
    /// The largest I/O of all directions of the pattern.
    largest: u32,
    /// Whether the stream has no byte limit.
    is_endless: bool,
}

impl Varied {
    /// Returns the stream of `workload`.
    ///
    /// # Panics
    ///
    /// If the workload has no [`Variety`], or the region does not hold the smallest block.
    pub fn new(workload: &Workload) -> Self {
        Self::on(workload, &Arc::default())
    }

    /// Returns the stream of `workload` on a file with these write pointers, which streams on the
    /// same file share. They have no effect without [`Variety::zoned`].
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn on(workload: &Workload, pointers: &Arc<WritePointers>) -> Self {
        /// Keeps the draws of sizes apart from those of offsets and directions.
        const DRAWS_KEY: u64 = 0x7369_7a65_7300_0001;
        let variety = workload.variety.as_deref().expect("a variety").clone();
        let unit = u64::from(workload.bs);
        assert!(workload.region.len >= unit, "the region holds at least one block");
        let limits = |rules| Limits {
            rules,
            region: workload.region,
            random: workload.pattern.random,
            backward: false,
            stream: workload.stream,
        };
        let step = if workload.pattern.random { 0 } else { variety.step };
        // fio begins at the end only if the offset is larger than the length of the region.
        let begins_at_end = step < 0 && workload.region.offset > 0 && variety.zones.is_none();
        let sizes = || workload.pattern.directions().map(|at| &variety.sizes[at.index()]);
        // A zone has room for an I/O of each direction.
        let room = sizes().map(SizeRule::min).max().unwrap_or(workload.bs);
        let largest = sizes().map(SizeRule::max).max().unwrap_or(workload.bs);
        Self {
            region: workload.region,
            unit,
            random: workload.pattern.random,
            left_bytes: workload.io_size.unwrap_or(u64::MAX),
            left_ios: variety.number_ios.unwrap_or(u64::MAX),
            directions: Directions::new(workload),
            draws: Xoshiro256::new(workload.seed ^ DRAWS_KEY, workload.stream),
            spread: Spread::new(workload, &variety),
            sequence: Sequence::new(step, begins_at_end),
            before_seek: 0,
            walk: variety.zones.map(|zones| Walk::new(zones, workload.region.len, room)),
            zoned: variety.zoned.map(|rules| (limits(rules), Arc::clone(pointers))),
            blocked: None,
            is_mixed: workload.pattern.mix == Mix::ReadWrite,
            largest,
            is_endless: workload.io_size.is_none(),
            variety,
        }
    }

    /// Enters the zone of the next I/O, if there are zones.
    fn enter_zone(&mut self, direction: Direction) {
        let Some(walk) = &mut self.walk else { return };
        let step = walk.step(self.sequence.end(direction));
        let start = walk.start();
        match step {
            Step::Stay => {}
            Step::Rewind => self.sequence.move_to(direction, start),
            Step::Restart => {
                self.sequence.move_all_to(start);
                self.spread.restart(walk.range(), self.unit);
            }
        }
    }

    /// Skips the bytes between the capacity of a zone and its end, if sequential writes reached
    /// them.
    fn skip_unused(&mut self, direction: Direction) -> Result<(), Stop> {
        let Some((limits, _)) = &self.zoned else { return Ok(()) };
        // As in fio, I/O that goes backwards skips nothing.
        if self.random || direction != Direction::Write || self.sequence.step() < 0 {
            return Ok(());
        }
        let (begin, end) = (self.region.offset, self.sequence.end(direction));
        if let Some(next) = limits.skip_to(begin + end) {
            let next = next - begin;
            if !limits.rules.has_io_bytes {
                self.left_bytes = self.left_bytes.saturating_sub(next - end);
            }
            self.sequence.move_to(direction, next);
        }
        if self.left_bytes == 0 { Err(Stop::End) } else { Ok(()) }
    }

    /// Returns the next I/O in this direction.
    fn try_next(&mut self, direction: Direction) -> Result<Op, Stop> {
        self.enter_zone(direction);
        self.skip_unused(direction)?;
        let (offset, len, end) = match self.place(direction) {
            Err(stop) if self.starts_again(direction, stop) => {
                self.sequence.move_to(direction, 0);
                self.place(direction)
            }
            placed => placed,
        }?;
        if let Some(walk) = &mut self.walk {
            walk.moved(len);
        }
        self.sequence.record(direction, offset, end);
        self.left_ios -= 1;
        self.left_bytes = self.left_bytes.saturating_sub(len.into());
        Ok(Op { direction, file: 0, offset: self.region.offset + offset, len })
    }

    /// Returns whether sequential reads that stopped start again at the first zone.
    fn starts_again(&self, direction: Direction, stop: Stop) -> bool {
        let Some((limits, _)) = &self.zoned else { return false };
        if self.random || direction != Direction::Read || self.sequence.end(direction) == 0 {
            return false;
        }
        let is_repeated = self.is_endless || limits.rules.has_io_bytes;
        match stop {
            // As without zones, I/O with a step has passes as long as bytes are left.
            Stop::End => is_repeated || self.is_mixed || self.sequence.step() != 0,
            // Writes of the same job bring more data.
            Stop::Blocked(_) => is_repeated && !self.is_mixed,
        }
    }

    /// Returns the offset of the I/O in the region, and its length: where the write pointer of its
    /// zone permits it, if zones have one. The third value is the end from which sequential I/O
    /// goes on.
    fn place(&mut self, direction: Direction) -> Result<(u64, u32, u64), Stop> {
        let (offset, wanted) = self.choose(direction)?;
        let Some((limits, pointers)) = self.zoned(direction) else {
            return Ok((offset, wanted, offset + u64::from(wanted)));
        };
        let (begin, min) = (self.region.offset, self.smallest(direction.index()));
        let (offset, len) = pointers.place(&limits, direction, (begin + offset, wanted), min)?;
        // With a negative step, reads that are cut off at the end of a zone would step back into it
        // forever.
        let cuts = direction == Direction::Read && self.sequence.step() < 0;
        let passed = if cuts { wanted.max(len) } else { len };
        Ok((offset - begin, len, offset - begin + u64::from(passed)))
    }

    /// Returns the limits of the next I/O in this direction and the write pointers, if the zones
    /// have them.
    fn zoned(&self, direction: Direction) -> Option<(Limits, &WritePointers)> {
        let (limits, pointers) = self.zoned.as_ref()?;
        Some((Limits { backward: self.sequence.is_backward(direction), ..*limits }, pointers))
    }

    /// Returns whether a zone has data for the next read.
    fn can_read(&self) -> bool {
        let Some((limits, pointers)) = self.zoned(Direction::Read) else { return true };
        let (min, region) = (self.smallest(Direction::Read.index()), self.region);
        let offset = if self.random { 0 } else { self.sequence.next(Direction::Read, self.zone()) };
        let starts_again = offset.saturating_add(min.into()) > region.len;
        pointers.can_read(&limits, region.offset + if starts_again { 0 } else { offset }, min)
    }

    /// Returns whether bytes are left because zones lack data, and not because no block fits at
    /// the end of a zone.
    fn lacks_data(&self) -> bool {
        let Some((limits, pointers)) = &self.zoned else { return false };
        let min = self.smallest(Direction::Read.index());
        self.left_bytes > 0 && !limits.rules.read_beyond_wp && pointers.lacks_data(limits, min)
    }

    /// Returns the start of random offsets in the region, and their range.
    fn zone(&self) -> (u64, u64) {
        match &self.walk {
            Some(walk) => (walk.start(), walk.range()),
            None => (0, self.region.len),
        }
    }

    /// Returns the offset of the I/O in the region, and its length, without regard to write
    /// pointers.
    fn choose(&mut self, direction: Direction) -> Result<(u64, u32), Stop> {
        let at = direction.index();
        let percent = self.variety.percentage_random[at];
        let seeks = self.random && (percent >= 100 || self.draws.below(100) < percent.into());
        let repeats = if self.random { self.variety.step.max(1) } else { 1 };
        let goes_on = self.before_seek > 0;
        self.before_seek = if goes_on { self.before_seek - 1 } else { repeats - 1 };
        if goes_on && self.variety.identical {
            let (offset, end) = (self.sequence.start(direction), self.sequence.end(direction));
            // A map may have cut off the last I/O before the end of the region.
            let last = if end > offset { (end - offset) as u32 } else { self.smallest(at) };
            return Ok((offset, self.draw_len(direction, offset).unwrap_or(last)));
        }
        if !seeks || (goes_on && self.random) {
            return self.sequential(direction);
        }
        let zone = self.zone();
        Ok(self.spread.draw(direction, &self.variety, zone, &mut self.draws))
    }

    fn sequential(&mut self, direction: Direction) -> Result<(u64, u32), Stop> {
        let (begin, range) = self.zone();
        let offset = self.sequence.next(direction, (begin, range));
        if let Some(len) = self.draw_len(direction, offset) {
            return Ok((offset, len));
        }
        if !self.random && self.sequence.step() == 0 && self.walk.is_none() {
            self.end_pass(direction, offset)?;
        }
        let len = self.draw_len(direction, begin);
        Ok((begin, len.unwrap_or(self.smallest(direction.index()))))
    }

    /// Ends a pass of sequential I/O at `offset`, where no size fits before the end of the region.
    fn end_pass(&mut self, direction: Direction, offset: u64) -> Result<(), Stop> {
        match &self.zoned {
            // The write goes to the write pointer of the first zone.
            Some(_) if direction == Direction::Write => return Ok(()),
            // The bytes that other zones lack do not count either.
            Some((limits, _)) if !limits.rules.read_beyond_wp => return Err(Stop::End),
            _ => {}
        }
        // As in fio, the bytes that no size fits count as transferred.
        let rest = self.region.len.saturating_sub(offset);
        self.left_bytes = self.left_bytes.saturating_sub(rest);
        if self.left_bytes == 0 { Err(Stop::End) } else { Ok(()) }
    }

    fn draw_len(&mut self, direction: Direction, offset: u64) -> Option<u32> {
        // As in fio, sequential I/O that begins in a zone may end after it.
        let passes_zone = !self.random && self.sequence.step() >= 0;
        let (begin, range) = self.zone();
        let end = if passes_zone { self.region.len } else { begin + range };
        let room = end.saturating_sub(offset);
        let rule = &self.variety.sizes[direction.index()];
        rule.draw(self.variety.unaligned, room, &mut self.draws)
    }

    fn smallest(&self, at: usize) -> u32 {
        self.variety.sizes[at].min()
    }
}

impl Iterator for Varied {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let direction = self.direction()?;
        self.next_as(direction)
    }
}

impl Stream for Varied {
    fn direction(&mut self) -> Option<Direction> {
        (self.left_bytes > 0 && self.left_ios > 0).then(|| self.directions.draw())
    }

    fn possible_direction(&self, direction: Direction) -> Direction {
        match direction {
            Direction::Read if self.is_mixed && !self.can_read() => Direction::Write,
            direction => direction,
        }
    }

    fn next_as(&mut self, direction: Direction) -> Option<Op> {
        if self.left_bytes == 0 || self.left_ios == 0 {
            return None;
        }
        let next = match self.try_next(direction) {
            // A mixed job writes if it can read nothing.
            Err(_) if self.is_mixed && direction == Direction::Read && self.left_bytes > 0 => {
                self.try_next(Direction::Write)
            }
            next => next,
        };
        self.blocked = match next {
            Err(Stop::Blocked(why)) => Some(why),
            // Sequential reads have passed the last zone, and zones before it lack data.
            Err(Stop::End) if direction == Direction::Read && self.lacks_data() => {
                Some(Blocked::NoData)
            }
            _ => None,
        };
        next.ok()
    }

    fn early_end(&self) -> Option<EarlyEnd> {
        let of_ios = self.left_ios.saturating_mul(self.largest.into());
        let left_bytes = (!self.is_endless).then_some(self.left_bytes.min(of_ios));
        self.blocked.map(|why| EarlyEnd { why, left_bytes })
    }
}

#[cfg(test)]
mod tests;
