//! Zones with gaps between them: `zonemode=strided`.
//!
//! Source: fio's HOWTO, and what fio 3.33 writes with `write_iolog=`. I/O stays in the first
//! `zonerange` bytes of a zone until `zonesize` bytes were moved. The next zone begins `zonerange`
//! plus `zoneskip` bytes after the start of the last one. Zones extend to the end of the file,
//! whatever `size` is, and continue with the first one. All directions share a zone. Also as in
//! fio, sequential I/O may begin or end in the gap after its zone if it has a positive step, or if
//! its sizes do not divide `zonerange`.
//!
//! Where the file ends within a zone, I/O stays in the part that exists; fio ends the job there.
//! fio also ends a random job that has visited each block of a zone before `zonesize` bytes were
//! moved. Here it visits them again. With several files, each has zones of its own.

/// The zones of a workload, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strided {
    /// `zonesize`: bytes to move before the next zone; not 0.
    pub size: u64,
    /// `zonerange`: bytes of a zone that are used; not 0.
    pub range: u64,
    /// `zoneskip`: bytes between the end of that part and the next zone.
    pub skip: u64,
}

/// The zone of the next I/O.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    zones: Strided,
    /// Bytes of the region.
    len: u64,
    /// Bytes for which a zone must have room: an I/O of each direction.
    room: u64,
    /// Where the zone begins, bytes from the start of the region.
    start: u64,
    /// Bytes moved in the zone.
    moved: u64,
}

/// The effect of a zone on the position of the next I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: sequential I/O goes on where the last I/O ended.
    Stay,
    /// Sequential I/O in this direction continues at the start of the zone.
    Rewind,
    /// So does I/O in all directions, and random I/O may visit each block again.
    Restart,
}

impl Walk {
    /// Begins with the first zone of a region of `len` bytes. The last zone is the last one with
    /// `room` bytes.
    ///
    /// # Panics
    ///
    /// If a zone has no bytes.
    pub(super) fn new(zones: Strided, len: u64, room: u32) -> Self {
        assert!(zones.size > 0 && zones.range > 0, "a zone has bytes");
        Self { zones, len, room: room.into(), start: 0, moved: 0 }
    }

    /// Chooses the zone of the next I/O. The last one in its direction ended at `end`.
    pub(super) fn step(&mut self, end: u64) -> Step {
        let Strided { size, range, skip } = self.zones;
        let is_next = self.moved >= size;
        if is_next {
            self.moved = 0;
            self.start = self.start.saturating_add(range).saturating_add(skip);
            if self.start.saturating_add(self.room) > self.len {
                self.start = 0;
            }
        }
        if self.moved.is_multiple_of(range) {
            Step::Restart
        } else if is_next || end >= self.start.saturating_add(range) {
            Step::Rewind
        } else {
            Step::Stay
        }
    }

    /// Counts an I/O.
    pub(super) fn moved(&mut self, bytes: u32) {
        self.moved += u64::from(bytes);
    }

    /// Returns the start of the zone, bytes from the start of the region.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the bytes of the zone that are used: not more than there are.
    pub(super) fn range(&self) -> u64 {
        self.zones.range.min(self.len - self.start)
    }
}
