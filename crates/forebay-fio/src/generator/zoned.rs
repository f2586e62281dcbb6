//! Emulated zones with write pointers: `zonemode=zbd` on a disk that is not zoned.
//!
//! Source: fio's HOWTO and fio 3.33. All zones are empty when a run begins. A write goes to the
//! write pointer of its zone, and a full zone is reset before it is written again. A read stays
//! below the write pointer, unless `read_beyond_wp` is set; if no zone has data, the stream ends.
//! With `max_open_zones`, random writes go to one of the open zones until it is full. The zones
//! that a stream has opened are closed when it ends.
//!
//! The write pointers are shared by all streams on a file. A pointer moves when the I/O is
//! generated, not when it completes, so a reset does not wait for earlier writes: an old and a new
//! write of the same bytes may be in flight together. Emulated zones have no contents to protect,
//! and jobs that verify are refused. fio leaves a zone open whose rest is smaller than a block;
//! here it is closed, as a drive finishes it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ending::{Blocked, Stop};
use super::{Direction, Region};

/// The rules of `zonemode=zbd` for a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zoned {
    /// `zonesize`: bytes from the start of a zone to the next one; not 0.
    pub size: u64,
    /// `zonecapacity`: bytes that can be written to a zone; not 0, at most `size`.
    pub capacity: u64,
    /// `max_open_zones`: zones of a file that are open at the same time; 0: any number.
    pub max_open: u32,
    /// `job_max_open_zones`: the same for a clone.
    pub job_max_open: u32,
    /// `zone_reset_frequency`: resets per write, 0 to 1.
    pub reset_frequency: f64,
    /// `zone_reset_threshold`: the written fraction of the region below which no zone is reset.
    pub reset_threshold: f64,
    /// `read_beyond_wp`: whether reads may go beyond the write pointer.
    pub read_beyond_wp: bool,
    /// Whether `io_size` is given in bytes or zones, not as a percentage. As in fio, bytes that
    /// sequential writes skip at the end of a zone do not count as transferred then, and
    /// sequential reads start again where the data end.
    pub has_io_bytes: bool,
}

/// The write pointers of a file, shared by the streams on it.
#[derive(Debug, Default)]
pub struct WritePointers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By the number of the zone: bytes written to it. Zones beyond the end are empty.
    written: Vec<u64>,
    /// The open zones, each with the stream that opened it. Unused without `max_open`.
    open: Vec<(usize, u64)>,
    /// Bytes written to all zones.
    total: u64,
    /// By the stream: the number of zones that it has reset.
    resets: BTreeMap<u64, u64>,
    /// Writes before the next reset of `zone_reset_frequency`; `None` until the first.
    before_reset: Option<u64>,
}

/// The limits of a stream on a zoned file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) rules: Zoned,
    pub(super) region: Region,
    /// Whether offsets are random.
    pub(super) random: bool,
    /// Whether the next sequential read goes backwards.
    pub(super) backward: bool,
    /// The number of the stream.
    pub(super) stream: u64,
}

impl Limits {
    /// The zones of the region: the first one and the one after the last one.
    fn zones(&self) -> (usize, usize) {
        let Region { offset, len } = self.region;
        let size = self.rules.size;
        ((offset / size) as usize, (offset + len).div_ceil(size) as usize)
    }

    fn start(&self, zone: usize) -> u64 {
        zone as u64 * self.rules.size
    }

    /// Returns the bytes of a zone in the region that can have data.
    fn room_for_reads(&self, zone: usize) -> u64 {
        let Region { offset, len } = self.region;
        let start = self.start(zone).max(offset);
        (self.start(zone) + self.rules.capacity).min(offset + len).saturating_sub(start)
    }

    /// Returns the end of the zone of `offset`, if sequential writes have reached its capacity.
    pub(super) fn skip_to(&self, offset: u64) -> Option<u64> {
        let Zoned { size, capacity, .. } = self.rules;
        let start = offset / size * size;
        (capacity < size && offset >= start + capacity).then_some(start + size)
    }
}

impl State {
    fn written(&self, zone: usize) -> u64 {
        self.written.get(zone).copied().unwrap_or(0)
    }

    fn set(&mut self, zone: usize, bytes: u64) {
        if self.written.len() <= zone {
            self.written.resize(zone + 1, 0);
        }
        self.total = self.total - self.written[zone] + bytes;
        self.written[zone] = bytes;
    }

    /// Resets a zone, unless it is empty.
    fn reset(&mut self, zone: usize, stream: u64) {
        if self.written(zone) > 0 {
            *self.resets.entry(stream).or_default() += 1;
            self.set(zone, 0);
        }
    }

    /// Opens a zone, unless it is open. Returns whether it is open now.
    fn open(&mut self, zone: usize, limits: &Limits) -> bool {
        let Zoned { max_open, job_max_open, .. } = limits.rules;
        if max_open == 0 || self.open.iter().any(|&(open, _)| open == zone) {
            return true;
        }
        let of_stream = || self.open.iter().filter(|&&(_, by)| by == limits.stream).count();
        if self.open.len() >= max_open as usize
            || (job_max_open > 0 && of_stream() >= job_max_open as usize)
        {
            return false;
        }
        self.open.push((zone, limits.stream));
        true
    }

    /// Returns an open zone of the region in place of that of `offset`, which cannot be opened.
    fn other_zone(&mut self, offset: u64, limits: &Limits) -> Option<usize> {
        let (first, end) = limits.zones();
        let nr = self.open.len();
        // As in fio, the offset decides which of the open zones is the first candidate.
        let share = u128::from(offset - limits.region.offset) * nr as u128;
        let pick = (share / u128::from(limits.region.len)) as usize;
        (0..nr).map(|step| self.open[(pick + step) % nr].0).find(|zone| (first..end).contains(zone))
    }

    /// Places a write at the write pointer of a zone. Returns its offset and length.
    fn write(
        &mut self,
        limits: &Limits,
        offset: u64,
        len: u32,
        min: u32,
    ) -> Result<(u64, u32), Blocked> {
        let rules = &limits.rules;
        let (first, end) = limits.zones();
        let mut zone = ((offset / rules.size) as usize).clamp(first, end - 1);
        if !self.open(zone, limits) {
            zone = self.other_zone(offset, limits).ok_or(Blocked::NoOpenZone)?;
        }
        let min = u64::from(min);
        if self.is_reset_due(limits) || self.room(zone, limits) < min {
            self.reset(zone, limits.stream);
        }
        // There is room for a block now: the capacity of a zone is at least that.
        let at = self.written(zone);
        let len = u64::from(len).max(min).min(self.room(zone, limits)) / min * min;
        self.set(zone, at + len);
        if self.room(zone, limits) < min {
            self.open.retain(|&(open, _)| open != zone);
        }
        Ok((limits.start(zone) + at, len as u32))
    }

    /// Returns the bytes that can be written to a zone before it is full.
    fn room(&self, zone: usize, limits: &Limits) -> u64 {
        limits.rules.capacity.saturating_sub(self.written(zone))
    }

    /// Counts a write. Returns whether `zone_reset_frequency` resets its zone before it.
    fn is_reset_due(&mut self, limits: &Limits) -> bool {
        let Zoned { reset_frequency, reset_threshold, .. } = limits.rules;
        let threshold = limits.region.len as f64 * reset_threshold;
        if reset_frequency == 0.0 || (self.total as f64) < threshold {
            return false;
        }
        let writes = (1.0 / reset_frequency) as u64;
        let left = self.before_reset.unwrap_or(writes).saturating_sub(1);
        self.before_reset = Some(if left == 0 { writes } else { left });
        left == 0
    }

    /// Places a read below the write pointer of a zone. Returns its offset and length.
    fn read(&self, limits: &Limits, offset: u64, len: u32, min: u32) -> Result<(u64, u32), Stop> {
        let wanted = (offset / limits.rules.size) as usize;
        let (mut zone, mut offset) = (wanted, offset);
        let (mut start, mut range) = self.readable(limits, zone);
        let inside = offset - start;
        let (min, len) = (u64::from(min), u64::from(len).max(min.into()));
        let is_past = !limits.random && inside + min > range;
        if range < min || is_past {
            zone = match self.with_data(limits, wanted, min) {
                Some(zone) => zone,
                None => return Err(self.lack(limits, wanted, min)),
            };
            (start, range) = self.readable(limits, zone);
            if limits.backward {
                offset = start + (range / min - 1) * min;
            } else if !limits.random {
                offset = start;
            }
        }
        // From here on, the zone has a whole block from `offset` on.
        if range <= len {
            offset = start;
        } else if limits.random {
            offset = start + inside % (range - len) / min * min;
        }
        let len = len.min(start + range - offset) / min * min;
        Ok((offset, len as u32))
    }

    /// Returns the part of a zone that has data and is in the region: its start and length. The
    /// region of a job that only reads may begin or end inside of a zone.
    fn readable(&self, limits: &Limits, zone: usize) -> (u64, u64) {
        let Region { offset, len } = limits.region;
        let start = limits.start(zone).max(offset);
        let end = (limits.start(zone) + self.written(zone)).min(offset + len);
        (start, end.saturating_sub(start))
    }

    /// Returns why no zone has data for a read of `min` bytes at zone `wanted`.
    fn lack(&self, limits: &Limits, wanted: usize, min: u64) -> Stop {
        let (first, end) = limits.zones();
        if (first..end).all(|zone| limits.room_for_reads(zone) < min) {
            return Blocked::NoRoom.into();
        }
        // Forward reads have passed the last zone with room for a block.
        let is_forward = !(limits.random || limits.backward);
        if is_forward && (wanted..end).all(|zone| self.is_full(limits, zone, min)) {
            return Stop::End;
        }
        Blocked::NoData.into()
    }

    /// Returns whether a zone has as many blocks of `min` bytes as it has room for in the region.
    fn is_full(&self, limits: &Limits, zone: usize, min: u64) -> bool {
        self.readable(limits, zone).1 / min >= limits.room_for_reads(zone) / min
    }

    /// Returns the next zone that has `min` bytes; for random reads, the nearest one. Reads that go
    /// backwards may continue in the same zone. As without zones, the last zone of the region
    /// follows the first one.
    fn with_data(&self, limits: &Limits, zone: usize, min: u64) -> Option<usize> {
        let (first, end) = limits.zones();
        let has_data =
            |&at: &usize| (first..end).contains(&at) && self.readable(limits, at).1 >= min;
        if limits.backward {
            return (first..=zone).rev().chain((zone + 1..end).rev()).find(has_data);
        }
        let before = |step| zone.checked_sub(step).filter(|_| limits.random);
        (1..=end - first)
            .find_map(|step| Some(zone + step).filter(has_data).or(before(step).filter(has_data)))
    }
}

impl WritePointers {
    /// Moves an I/O to where its zone permits it. Returns its offset and length, which is at least
    /// `min` bytes.
    pub(super) fn place(
        &self,
        limits: &Limits,
        direction: Direction,
        (offset, len): (u64, u32),
        min: u32,
    ) -> Result<(u64, u32), Stop> {
        let mut state = self.state();
        match direction {
            Direction::Read if limits.rules.read_beyond_wp => Ok((offset, len)),
            Direction::Read => state.read(limits, offset, len, min),
            Direction::Write => Ok(state.write(limits, offset, len, min)?),
            // Jobs with trims are refused.
            Direction::Trim => Err(Stop::End),
        }
    }

    /// Returns whether a read of `min` bytes at `offset` can be placed, or at the start of the
    /// region if `offset` is past the last zone.
    pub(super) fn can_read(&self, limits: &Limits, offset: u64, min: u32) -> bool {
        let state = self.state();
        let read = |offset| state.read(limits, offset, min, min);
        limits.rules.read_beyond_wp
            || match read(offset) {
                Err(Stop::End) => read(limits.region.offset).is_ok(),
                placed => placed.is_ok(),
            }
    }

    /// Returns whether a zone of the region lacks data for a read of `min` bytes.
    pub(super) fn lacks_data(&self, limits: &Limits, min: u32) -> bool {
        let (state, (first, end)) = (self.state(), limits.zones());
        (first..end).any(|zone| !state.is_full(limits, zone, min.into()))
    }

    /// Closes the zones that this stream has opened. A later write opens them again.
    pub fn close(&self, stream: u64) {
        self.state().open.retain(|&(_, by)| by != stream);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many zones this stream has reset.
    pub fn nr_resets(&self, stream: u64) -> u64 {
        self.state().resets.get(&stream).copied().unwrap_or(0)
    }
}

#[cfg(test)]
pub(super) mod tests;
