//! One record of a blktrace file: 48 bytes in the byte order of the machine, then its data.
//!
//! Source: `struct blk_io_trace` of `include/uapi/linux/blktrace_api.h`.

/// The size of a record without its data, in bytes.
pub const RECORD_BYTES: usize = 48;

/// The first word of each record: the magic number, and version 7.
pub const MAGIC: u32 = 0x6561_7407;

/// The size of a sector of the format, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// The stage of a request. The numbers are those of `enum blktrace_act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Act {
    /// Q: a bio is queued.
    Queue = 1,
    /// M: a bio merges at the back of a request.
    BackMerge = 2,
    /// F: a bio merges at the front of a request.
    FrontMerge = 3,
    /// G: a request gets its tag.
    GetRequest = 4,
    /// S: a request waits for a tag.
    Sleep = 5,
    /// R: the driver is busy.
    Requeue = 6,
    /// D: a request is issued.
    Issue = 7,
    /// C: a request is complete.
    Complete = 8,
    /// P: a plug gets its first request.
    Plug = 9,
    /// U: requests leave a plug.
    Unplug = 10,
    /// UT: requests leave a plug because of a timer.
    UnplugTimer = 11,
    /// I: a request is queued in a scheduler.
    Insert = 12,
    /// X: a request is split.
    Split = 13,
    /// B: a bio was copied to other memory.
    Bounce = 14,
    /// A: a bio was passed to another device.
    Remap = 15,
}

impl Act {
    pub(crate) const ALL: [Act; 15] = [
        Act::Queue,
        Act::BackMerge,
        Act::FrontMerge,
        Act::GetRequest,
        Act::Sleep,
        Act::Requeue,
        Act::Issue,
        Act::Complete,
        Act::Plug,
        Act::Unplug,
        Act::UnplugTimer,
        Act::Insert,
        Act::Split,
        Act::Bounce,
        Act::Remap,
    ];

    /// Returns the letters of `blkparse`.
    pub const fn letters(self) -> &'static str {
        match self {
            Act::Queue => "Q",
            Act::BackMerge => "M",
            Act::FrontMerge => "F",
            Act::GetRequest => "G",
            Act::Sleep => "S",
            Act::Requeue => "R",
            Act::Issue => "D",
            Act::Complete => "C",
            Act::Plug => "P",
            Act::Unplug => "U",
            Act::UnplugTimer => "UT",
            Act::Insert => "I",
            Act::Split => "X",
            Act::Bounce => "B",
            Act::Remap => "A",
        }
    }
}

/// A set of categories: the upper half of the action of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Categories(pub u16);

impl Categories {
    /// A read.
    pub const READ: Categories = Categories(1 << 0);
    /// A write.
    pub const WRITE: Categories = Categories(1 << 1);
    /// A flush, or a write with a flush before it.
    pub const FLUSH: Categories = Categories(1 << 2);
    /// Events before the driver.
    pub const QUEUE: Categories = Categories(1 << 4);
    /// R.
    pub const REQUEUE: Categories = Categories(1 << 5);
    /// D.
    pub const ISSUE: Categories = Categories(1 << 6);
    /// C.
    pub const COMPLETE: Categories = Categories(1 << 7);
    /// The request moves data of a file system or program.
    pub const FS: Categories = Categories(1 << 8);
    /// The record is no stage of a request.
    pub const NOTIFY: Categories = Categories(1 << 10);
    /// A discard.
    pub const DISCARD: Categories = Categories(1 << 13);
    /// A write that is durable when it is complete.
    pub const FUA: Categories = Categories(1 << 15);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }

    /// Returns whether a category of `other` is set.
    pub const fn has(self, other: Categories) -> bool {
        self.0 & other.0 != 0
    }
}

/// The kinds of records that are no stage of a request (`enum blktrace_notify`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Notify {
    /// The name of a process. Data: the name.
    Process = 0,
    /// The time of day. Data: seconds and nanoseconds, 4 bytes each.
    Timestamp = 1,
    /// A message. Data: its text.
    Message = 2,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stage of a request.
    Stage(Act),
    /// No stage of a request.
    Notify(Notify),
}

/// A record without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the record in its file. Missing numbers are lost records.
    pub sequence: u32,
    /// The time in nanoseconds of any clock; the same clock in all files of a trace.
    pub time_ns: u64,
    /// The first sector of 512 bytes.
    pub sector: u64,
    /// The number of bytes; 0 for a flush.
    pub bytes: u32,
    /// The stage, or the kind of message.
    pub kind: Kind,
    /// The operation, and other categories.
    pub categories: Categories,
    /// The number of the thread or process.
    pub pid: u32,
    /// The device: the major number times 2^20, plus the minor number.
    pub device: u32,
    /// The index of the file.
    pub cpu: u32,
    /// The negative errno of a failed request; 0 otherwise.
    pub error: i16,
    /// The number of bytes of data that follow.
    pub data_len: u16,
}

impl Record {
    /// Returns the bytes of the record.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let act = match self.kind {
            Kind::Stage(act) => act as u16,
            Kind::Notify(notify) => notify as u16,
        };
        let action = u32::from(act) | u32::from(self.categories.0) << 16;
        bytes[0..4].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.time_ns.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.sector.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes[28..32].copy_from_slice(&action.to_ne_bytes());
        bytes[32..36].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[36..40].copy_from_slice(&self.device.to_ne_bytes());
        bytes[40..44].copy_from_slice(&self.cpu.to_ne_bytes());
        bytes[44..46].copy_from_slice(&self.error.to_ne_bytes());
        bytes[46..48].copy_from_slice(&self.data_len.to_ne_bytes());
        bytes
    }

    /// Returns the record of these bytes. Records of another byte order are read as well.
    ///
    /// # Errors
    /// Returns the reason if they are no record of versions 7, or of an unknown kind. A record of
    /// an unknown kind has an outer `Ok`, so that its data can be skipped: its length is returned.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Result<Result<Record, u16>, BadRecord> {
        let magic = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let swap = if magic == MAGIC {
            false
        } else if magic.swap_bytes() == MAGIC {
            true
        } else {
            return Err(BadRecord { magic });
        };
        let u64_at = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            let word = u64::from_ne_bytes(word);
            if swap { word.swap_bytes() } else { word }
        };
        let u32_at = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            let word = u32::from_ne_bytes(word);
            if swap { word.swap_bytes() } else { word }
        };
        let u16_at = |at: usize| {
            let word = u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
            if swap { word.swap_bytes() } else { word }
        };
        let action = u32_at(28);
        let categories = Categories((action >> 16) as u16);
        let data_len = u16_at(46);
        let number = action as u16;
        let kind = if categories.has(Categories::NOTIFY) {
            [Notify::Process, Notify::Timestamp, Notify::Message]
                .into_iter()
                .find(|it| *it as u16 == number)
                .map(Kind::Notify)
        } else {
            Act::ALL.into_iter().find(|it| u16::from(*it as u8) == number).map(Kind::Stage)
        };
        let Some(kind) = kind else { return Ok(Err(data_len)) };
        Ok(Ok(Record {
            sequence: u32_at(4),
            time_ns: u64_at(8),
            sector: u64_at(16),
            bytes: u32_at(24),
            kind,
            categories,
            pid: u32_at(32),
            device: u32_at(36),
            cpu: u32_at(40),
            error: u16_at(44) as i16,
            data_len,
        }))
    }
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record begins with {magic:#010x}, expected {MAGIC:#010x}: version 7 of blktrace")]
pub struct BadRecord {
    /// The first word.
    pub magic: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            sequence: 7,
            time_ns: 1 << 40,
            sector: 1 << 50,
            bytes: 4096,
            kind: Kind::Stage(Act::Complete),
            categories: Categories::WRITE.with(Categories::COMPLETE).with(Categories::FUA),
            pid: 42,
            device: 240 << 20 | 3,
            cpu: 5,
            error: -5,
            data_len: 0,
        }
    }

    #[test]
    fn record_survives_its_bytes_in_both_byte_orders() {
        for act in Act::ALL {
            let before = Record { kind: Kind::Stage(act), ..record() };
            let bytes = before.to_bytes();
            assert_eq!(Record::from_bytes(&bytes), Ok(Ok(before)));
            let mut swapped = bytes;
            for (from, to) in [(0, 4), (4, 8), (8, 16), (16, 24), (24, 28), (28, 32)] {
                swapped[from..to].reverse();
            }
            for (from, to) in [(32, 36), (36, 40), (40, 44), (44, 46), (46, 48)] {
                swapped[from..to].reverse();
            }
            assert_eq!(Record::from_bytes(&swapped), Ok(Ok(before)));
        }
        let notify = Kind::Notify(Notify::Message);
        let before = Record { kind: notify, categories: Categories::NOTIFY, ..record() };
        assert_eq!(Record::from_bytes(&before.to_bytes()), Ok(Ok(before)));
    }

    #[test]
    fn other_bytes_are_refused_and_unknown_kinds_are_skipped() {
        let mut bytes = record().to_bytes();
        bytes[28] = 200;
        bytes[46] = 9;
        assert_eq!(Record::from_bytes(&bytes), Ok(Err(9)));
        bytes[0] = 8;
        assert!(Record::from_bytes(&bytes).is_err());
    }
}
