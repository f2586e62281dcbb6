//! Logs of I/Os that can be replayed: fio's iologs, versions 2 and 3.
//!
//! Source: fio's HOWTO, "Trace file format", and what fio 3.33 writes and accepts. The first line
//! has the version. A line of version 2 is `file action [offset length]`; in version 3 the time
//! precedes it, in microseconds since the start.
//!
//! - `add`, `open` and `close` are about files; only the names matter here.
//! - `read`, `write`, `trim`, `sync` and `datasync` are steps of the replay.
//! - `wait N` of version 2 delays the next steps until N milliseconds after the start, as fio 3.33
//!   does. Its HOWTO says microseconds.
//!
//! Unlike fio, which skips wrong lines with a message, [`Recording::parse`] refuses the log.

mod parse;
mod write;

use crate::generator::Direction;

pub use self::parse::{LogError, Problem};
pub use self::write::{HEADER, file_line, io_line, sync_line};

/// The steps of a log, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    files: Vec<String>,
    steps: Vec<Step>,
}

/// A step of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The earliest time, ns since the start. It never decreases from step to step.
    pub due_ns: u64,
    /// First byte; 0 for a sync.
    pub offset: u64,
    /// Bytes; 0 for a sync.
    pub len: u32,
    /// The number of the file.
    pub file: u16,
    /// The kind.
    pub act: Act,
}

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A transfer or a discard.
    Io(Direction),
    /// `sync`: an fsync.
    Sync,
    /// `datasync`: an fdatasync.
    Datasync,
}

/// How a log is changed for its replay; see the options of fio by these names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// `replay_no_stall`: whether times are ignored.
    pub no_stall: bool,
    /// `replay_time_scale`: the speed in percent; 0 for 100.
    pub time_scale: u32,
    /// `replay_redirect`: whether all I/O is on one file.
    pub one_file: bool,
    /// `replay_scale`: a divisor of offsets; 0 for 1.
    pub scale: u64,
    /// `replay_align`: a power of two to which offsets are rounded down and lengths up; 0 for 1.
    pub align: u32,
    /// `replay_skip`: steps that are left out.
    pub skip: Skip,
}

/// Kinds of steps that are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skip {
    /// By [`Direction::index`].
    pub directions: [bool; 3],
    /// Syncs.
    pub syncs: bool,
}

impl Recording {
    /// Returns a recording of these steps. The number of a file is its index in `files`. A step
    /// that is due before the one before it becomes due with it.
    pub fn new(files: Vec<String>, mut steps: Vec<Step>) -> Self {
        let mut latest_ns = 0;
        for step in &mut steps {
            latest_ns = step.due_ns.max(latest_ns);
            step.due_ns = latest_ns;
        }
        Self { files, steps }
    }

    /// Returns the names of the files that the steps use.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Returns the steps, in the order in which they are due.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns whether any step has a time to wait for.
    pub fn is_timed(&self) -> bool {
        self.steps.last().is_some_and(|step| step.due_ns > 0)
    }

    /// Returns the end of the last I/O on a file, in bytes.
    pub fn end_of(&self, file: u16) -> u64 {
        let of_file = self.steps.iter().filter(|step| step.file == file);
        of_file.map(|step| step.offset.saturating_add(step.len.into())).max().unwrap_or(0)
    }

    /// Returns the lengths of the I/Os of a direction, smallest and largest, if there are any.
    pub fn lengths(&self, direction: Direction) -> Option<(u32, u32)> {
        let of = self.steps.iter().filter(|step| step.act == Act::Io(direction));
        let lens = of.map(|step| (step.len, step.len));
        lens.reduce(|(low, high), (len, _)| (low.min(len), high.max(len)))
    }

    /// Returns the total length of all I/Os, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.steps.iter().map(|step| u64::from(step.len)).sum()
    }

    /// Returns the largest power of two that divides all offsets and lengths.
    pub fn alignment(&self) -> u32 {
        let bits = self.steps.iter().fold(0, |all, step| all | step.offset | u64::from(step.len));
        // At most 2 GiB: lengths have 32 bits.
        1 << bits.trailing_zeros().min(31)
    }

    /// Returns the log with these changes. Files without steps are left out.
    #[must_use]
    pub fn changed(mut self, changes: &Changes) -> Self {
        let Skip { directions, syncs } = changes.skip;
        self.steps.retain(|step| match step.act {
            Act::Io(direction) => !directions[direction.index()],
            Act::Sync | Act::Datasync => !syncs,
        });
        let speed = if changes.time_scale == 0 { 100 } else { changes.time_scale };
        let align = u64::from(changes.align.max(1));
        for step in &mut self.steps {
            let scaled_ns = u128::from(step.due_ns) * 100 / u128::from(speed);
            step.due_ns = u64::try_from(scaled_ns).unwrap_or(u64::MAX);
            if changes.no_stall {
                step.due_ns = 0;
            }
            step.offset /= changes.scale.max(1);
            step.offset -= step.offset % align;
            let len = u64::from(step.len).next_multiple_of(align);
            // The largest length that is aligned, if the next one has more than 32 bits.
            step.len = u32::try_from(len).unwrap_or(u32::MAX - u32::MAX % align as u32);
            if changes.one_file {
                step.file = 0;
            }
        }
        self.without_unused_files(changes.one_file)
    }

    fn without_unused_files(mut self, one_file: bool) -> Self {
        if one_file {
            self.files.truncate(1);
            return self;
        }
        let mut is_used = vec![false; self.files.len()];
        self.steps.iter().for_each(|step| is_used[usize::from(step.file)] = true);
        let mut numbers = Vec::with_capacity(is_used.len());
        let mut next = 0;
        for &is_used in &is_used {
            numbers.push(next);
            next += u16::from(is_used);
        }
        self.steps.iter_mut().for_each(|step| step.file = numbers[usize::from(step.file)]);
        let mut is_used = is_used.into_iter();
        self.files.retain(|_| is_used.next() == Some(true));
        self
    }
}

#[cfg(test)]
mod tests;
