//! Streams of I/Os: fio's sequential and random patterns.
//!
//! Source: fio's HOWTO, options `rw`, `rwmixread`, `norandommap`, `io_size`, `randseed`, and what
//! 3.33 writes with `write_iolog=`. The visible rules:
//!
//! - The region is used in whole blocks; a remainder shorter than a block is not used.
//! - Sequential I/O starts again at the region's first block when it reaches the end. In a mixed
//!   workload reads and writes each have their own position.
//! - Random I/O visits every block once per pass. With `norandommap` each block is drawn on its
//!   own.
//! - The stream ends when its I/Os reach `io_size` bytes, so the last I/O may exceed it.
//!
//! In fio every random pass repeats the order of the first; here each pass has its own order. The
//! offsets depend on the seed and the stream only, not on the mix, the machine or the time.

mod directions;
pub mod ending;
pub mod files;
mod map;
mod positions;
mod power;
pub mod sizes;
pub mod skew;
mod stream;
pub mod strided;
pub mod varied;
pub mod zoned;

use self::directions::Directions;
use self::ending::EarlyEnd;
use self::positions::Order;
pub use self::stream::Stream;
use self::varied::Variety;

/// The direction of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards; fio calls them trims.
    Trim,
}

impl Direction {
    /// All directions, in the order of fio's reports.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    /// Returns its index in [`ALL`](Self::ALL).
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns fio's name for it: `read`, `write` or `trim`.
    pub fn word(self) -> &'static str {
        ["read", "write", "trim"][self.index()]
    }
}

/// The directions of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// One direction only.
    Only(Direction),
    /// Reads and writes, mixed by `rwmixread`.
    ReadWrite,
    /// The directions of a log that has trims beside other I/Os, by [`Direction::index`]. The log
    /// determines their order.
    Recorded([bool; 3]),
}

/// An access pattern: the value of `rw=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Whether the offsets are random, not sequential.
    pub random: bool,
    /// The directions.
    pub mix: Mix,
}

impl Pattern {
    /// Returns the pattern of one of fio's names, such as `randread`.
    pub fn from_word(word: &str) -> Option<Self> {
        let (random, mix) = match word.strip_prefix("rand") {
            Some(rest) => (true, rest),
            None => (false, word),
        };
        let mix = match mix {
            "read" => Mix::Only(Direction::Read),
            "write" => Mix::Only(Direction::Write),
            "trim" => Mix::Only(Direction::Trim),
            "rw" => Mix::ReadWrite,
            "readwrite" if !random => Mix::ReadWrite,
            _ => return None,
        };
        Some(Self { random, mix })
    }

    /// Returns its name in fio's reports. The pattern of a log with trims has no name in fio: the
    /// result lists its directions.
    pub fn word(self) -> &'static str {
        match (self.random, self.mix) {
            (false, Mix::Only(direction)) => direction.word(),
            (true, Mix::Only(direction)) => {
                ["randread", "randwrite", "randtrim"][direction.index()]
            }
            (false, Mix::ReadWrite) => "rw",
            (true, Mix::ReadWrite) => "randrw",
            (_, Mix::Recorded([true, true, _])) => "read,write,trim",
            (_, Mix::Recorded([true, false, _])) => "read,trim",
            (_, Mix::Recorded([false, ..])) => "write,trim",
        }
    }

    /// Returns the directions of its I/Os.
    pub fn directions(self) -> impl Iterator<Item = Direction> {
        Direction::ALL.into_iter().filter(move |&direction| self.has(direction))
    }

    /// Returns whether it has I/Os of this direction.
    pub fn has(self, direction: Direction) -> bool {
        match self.mix {
            Mix::Only(only) => only == direction,
            Mix::ReadWrite => direction != Direction::Trim,
            Mix::Recorded(directions) => directions[direction.index()],
        }
    }
}

/// The region of a device that a job uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub offset: u64,
    /// Bytes, not 0: a multiple of the block size, or of the zone size for writes to zones.
    pub len: u64,
}

/// All parameters of a stream of I/Os.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Access pattern.
    pub pattern: Pattern,
    /// Percentage of reads in a mixed pattern, 0 to 100.
    pub rwmixread: u8,
    /// Bytes per I/O.
    pub bs: u32,
    /// The region of the I/Os.
    pub region: Region,
    /// Bytes after which the stream ends; `None` for a stream without end.
    pub io_size: Option<u64>,
    /// Whether random blocks are drawn independently of each other.
    pub norandommap: bool,
    /// The seed of the job.
    pub seed: u64,
    /// The number of the clone. Each clone has its own stream.
    pub stream: u64,
    /// Properties that need [`varied::Varied`] instead of [`Generator`].
    pub variety: Option<Box<Variety>>,
}

/// One I/O of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// Its direction.
    pub direction: Direction,
    /// The number of its file among those of the clone.
    pub file: u16,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// The stream of I/Os of a [`Workload`] with one block size. It does not allocate for an I/O.
///
/// Rare options are in a separate stream, [`varied::Varied`], so that they cost nothing here.
#[derive(Debug, Clone)]
pub struct Generator {
    offset: u64,
    bs: u32,
    blocks: u64,
    /// I/Os left; `u64::MAX` at the start means "without end", which outlives any machine.
    left: u64,
    order: Order,
    directions: Directions,
}

/// The stream of I/Os of any [`Workload`]. It costs one match per I/O.
#[derive(Debug, Clone)]
pub enum Ops {
    /// A workload of one block size.
    Plain(Box<Generator>),
    /// A workload with a [`Variety`].
    Varied(Box<varied::Varied>),
}

impl Ops {
    /// Returns the stream of `workload`.
    ///
    /// # Panics
    ///
    /// As [`Generator::new`].
    pub fn new(workload: &Workload) -> Self {
        match workload.variety {
            None => Self::Plain(Box::new(Generator::new(workload))),
            Some(_) => Self::Varied(Box::new(varied::Varied::new(workload))),
        }
    }
}

impl Iterator for Ops {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        match self {
            Self::Plain(ops) => ops.next(),
            Self::Varied(ops) => ops.next(),
        }
    }
}

impl Stream for Ops {
    fn direction(&mut self) -> Option<Direction> {
        match self {
            Self::Plain(ops) => ops.direction(),
            Self::Varied(ops) => ops.direction(),
        }
    }

    fn next_as(&mut self, direction: Direction) -> Option<Op> {
        match self {
            Self::Plain(ops) => ops.next_as(direction),
            Self::Varied(ops) => ops.next_as(direction),
        }
    }

    fn possible_direction(&self, direction: Direction) -> Direction {
        match self {
            Self::Plain(_) => direction,
            Self::Varied(ops) => ops.possible_direction(direction),
        }
    }

    fn early_end(&self) -> Option<EarlyEnd> {
        match self {
            Self::Plain(_) => None,
            Self::Varied(ops) => ops.early_end(),
        }
    }
}

impl Generator {
    /// Returns the stream of `workload`.
    ///
    /// # Panics
    ///
    /// If the block size is 0, the region does not hold a whole block, or `rwmixread` is above 100.
    pub fn new(workload: &Workload) -> Self {
        assert!(workload.bs > 0, "the block size is not 0");
        assert!(workload.rwmixread <= 100, "rwmixread is a percentage");
        let blocks = workload.region.len / u64::from(workload.bs);
        assert!(blocks > 0, "the region holds at least one block");
        Self {
            offset: workload.region.offset,
            bs: workload.bs,
            blocks,
            left: workload.io_size.map_or(u64::MAX, |bytes| bytes.div_ceil(workload.bs.into())),
            order: Order::new(workload, blocks),
            directions: Directions::new(workload),
        }
    }

    /// Returns the next I/O in this direction. There must be one.
    #[inline(always)]
    fn draw(&mut self, direction: Direction) -> Op {
        self.left -= 1;
        let block = self.order.draw(direction, self.blocks);
        Op { direction, file: 0, offset: self.offset + block * u64::from(self.bs), len: self.bs }
    }
}

impl Iterator for Generator {
    type Item = Op;

    // Always inlined: otherwise each I/O is returned through memory.
    #[inline(always)]
    fn next(&mut self) -> Option<Op> {
        if self.left == 0 {
            return None;
        }
        let direction = self.directions.draw();
        Some(self.draw(direction))
    }
}

impl Stream for Generator {
    fn direction(&mut self) -> Option<Direction> {
        (self.left > 0).then(|| self.directions.draw())
    }

    fn next_as(&mut self, direction: Direction) -> Option<Op> {
        (self.left > 0).then(|| self.draw(direction))
    }
}

#[cfg(test)]
mod tests;
