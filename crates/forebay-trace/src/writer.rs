//! A file of a trace, from records of the core.

use crate::message::{Extent, Message, MessageKind};
use crate::record::{Act, Categories, Kind, Notify, Record, SECTOR_BYTES};
use forebay_core::{BioFlags, BlockStatus, Op, TraceEvent, TraceRecord};
use std::io::{self, Write};
use std::time::Duration;

/// The longest range of a record, in bytes: a longer one is cut. The format has 32 bits.
pub const BYTES_MAX: u64 = (1 << 32) - SECTOR_BYTES;

/// Returns the positive errno of a status.
pub type ErrnoOf = fn(BlockStatus) -> i32;

/// The constant fields of the records of a file.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The device: the major number times 2^20, plus the minor number.
    pub device: u32,
    /// The index of the file.
    pub index: u32,
    /// Returns the errno of a failure.
    pub errno_of: ErrnoOf,
}

/// Writes a file. The caller buffers `W`.
#[derive(Debug)]
pub struct TraceFile<W> {
    out: W,
    place: Place,
    pid: u32,
    /// The number of the next record.
    sequence: u32,
    /// The time of the last record.
    last_ns: u64,
    nr_records: u64,
    nr_lost: u64,
}

impl<W: Write> TraceFile<W> {
    /// Creates a writer of an empty file. [`begin`](Self::begin) comes next.
    pub fn new(out: W, place: Place) -> TraceFile<W> {
        TraceFile { out, place, pid: 0, sequence: 0, last_ns: 0, nr_records: 0, nr_lost: 0 }
    }

    /// Records that the next records are those of a thread, with its number and name. `time_ns` is
    /// a time of the trace's clock, at least 2 ns before the next record, and `since_epoch` the
    /// same time of the calendar.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn begin(
        &mut self,
        pid: u32,
        name: &str,
        time_ns: u64,
        since_epoch: Duration,
    ) -> io::Result<()> {
        self.pid = pid;
        // 15 bytes and a zero, as the kernel's names of threads.
        let mut data: Vec<u8> = name.bytes().take(15).collect();
        data.push(0);
        self.notify(Notify::Process, time_ns, &data)?;
        let mut data = [0; 8];
        // The format's seconds have 32 bits.
        data[..4].copy_from_slice(&(since_epoch.as_secs() as u32).to_ne_bytes());
        data[4..].copy_from_slice(&since_epoch.subsec_nanos().to_ne_bytes());
        self.notify(Notify::Timestamp, time_ns + 1, &data)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&mut self, record: &TraceRecord) -> io::Result<()> {
        self.nr_records += 1;
        let at_ns = record.time_ns;
        let act = match record.event {
            TraceEvent::Queue => Act::Queue,
            TraceEvent::BackMerge => Act::BackMerge,
            TraceEvent::FrontMerge => Act::FrontMerge,
            TraceEvent::GetTag => Act::GetRequest,
            TraceEvent::Sleep => Act::Sleep,
            TraceEvent::Insert => Act::Insert,
            TraceEvent::Issue => Act::Issue,
            TraceEvent::Requeue => Act::Requeue,
            TraceEvent::Complete => Act::Complete,
            TraceEvent::Plug => return self.stage(Act::Plug, record, &[]),
            TraceEvent::Unplug => {
                return self.stage(Act::Unplug, record, &record.len.to_be_bytes());
            }
            TraceEvent::Split => {
                let next = (record.start + u64::from(record.second_len)) / SECTOR_BYTES;
                return self.stage(Act::Split, record, &next.to_be_bytes());
            }
            TraceEvent::FlushWait => return self.about(record, MessageKind::FlushWait),
            TraceEvent::FlushJoin => return self.about(record, MessageKind::FlushJoin),
            TraceEvent::FlushElided => return self.about(record, MessageKind::FlushElided),
            TraceEvent::FlushDone => {
                let errno = record.status.map_or(0, self.place.errno_of);
                return self.about(record, MessageKind::FlushDone { age_ns: record.len, errno });
            }
            TraceEvent::LimitWait => {
                return self.about(record, MessageKind::LimitWait { ns: record.len });
            }
            TraceEvent::Lost => {
                self.nr_records -= 1;
                return self.lose(record.len, at_ns);
            }
            _ => return self.message(at_ns, "an event that this version cannot describe"),
        };
        self.stage(act, record, &[])
    }

    /// Records that `nr` records are missing here: as a gap in the numbers, and as a message.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn lose(&mut self, nr: u64, time_ns: u64) -> io::Result<()> {
        self.nr_lost += nr;
        // The numbers of the format wrap.
        self.sequence = self.sequence.wrapping_add(nr as u32);
        self.message(time_ns, &format!("{nr} records are missing: the ring was full"))
    }

    /// Writes the buffered records to the file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the number of events written, without those at the beginning.
    pub fn nr_records(&self) -> u64 {
        self.nr_records
    }

    /// Returns the time of the last record, or 0.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Returns the number of records that are missing.
    pub fn nr_lost(&self) -> u64 {
        self.nr_lost
    }

    fn stage(&mut self, act: Act, record: &TraceRecord, data: &[u8]) -> io::Result<()> {
        let has_range = !matches!(act, Act::Plug | Act::Unplug);
        let (sector, bytes) = if has_range { sectors_of(record) } else { (0, 0) };
        let error = record.status.map_or(0, |status| -(self.place.errno_of)(status) as i16);
        let categories = if has_range { categories(act, record) } else { Categories::QUEUE };
        let record = Record {
            sequence: 0,
            time_ns: record.time_ns,
            sector,
            bytes,
            kind: Kind::Stage(act),
            categories,
            pid: 0,
            device: 0,
            cpu: 0,
            error,
            data_len: 0,
        };
        self.put(record, data)
    }

    /// Writes a message about the request of a record.
    fn about(&mut self, record: &TraceRecord, kind: MessageKind) -> io::Result<()> {
        let len = u64::from(record.second_len);
        let (sector, bytes) = sectors_of(&TraceRecord { len, ..*record });
        let message = Message { extent: Extent::of(sector, bytes), kind };
        self.message(record.time_ns, &message.to_string())
    }

    fn message(&mut self, time_ns: u64, text: &str) -> io::Result<()> {
        self.notify(Notify::Message, time_ns, text.as_bytes())
    }

    fn notify(&mut self, notify: Notify, time_ns: u64, data: &[u8]) -> io::Result<()> {
        let record = Record {
            sequence: 0,
            time_ns,
            sector: 0,
            bytes: 0,
            kind: Kind::Notify(notify),
            categories: Categories::NOTIFY,
            pid: 0,
            device: 0,
            cpu: 0,
            error: 0,
            data_len: 0,
        };
        self.put(record, data)
    }

    /// Fills in the fields of the file, and writes a record.
    fn put(&mut self, record: Record, data: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.last_ns = self.last_ns.max(record.time_ns);
        let Place { device, index, .. } = self.place;
        let data_len = u16::try_from(data.len()).unwrap_or(u16::MAX);
        let (sequence, pid) = (self.sequence, self.pid);
        let record = Record { sequence, pid, device, cpu: index, data_len, ..record };
        self.out.write_all(&record.to_bytes())?;
        self.out.write_all(&data[..data_len.into()])
    }
}

/// Returns the sectors that a range touches: the first one, and their length in bytes.
fn sectors_of(record: &TraceRecord) -> (u64, u32) {
    let (start, len) = (record.start, record.len);
    let sector = start / SECTOR_BYTES;
    if len == 0 {
        return (sector, 0);
    }
    let end = start.saturating_add(len).div_ceil(SECTOR_BYTES).saturating_mul(SECTOR_BYTES);
    let bytes = (end - sector * SECTOR_BYTES).min(BYTES_MAX);
    (sector, bytes as u32)
}

/// Returns the categories of a stage of a request.
fn categories(act: Act, record: &TraceRecord) -> Categories {
    let of_act = match act {
        Act::Issue => Categories::ISSUE.with(Categories::FS),
        Act::Complete => Categories::COMPLETE.with(Categories::FS),
        Act::Requeue => Categories::REQUEUE.with(Categories::FS),
        // As in Linux, a split has none.
        Act::Split => Categories::default(),
        _ => Categories::QUEUE,
    };
    let of_op = match record.op {
        Op::Read => Categories::READ,
        Op::Write | Op::WriteZeroes => Categories::WRITE,
        Op::Flush => Categories::WRITE.with(Categories::FLUSH),
        Op::Discard => Categories::WRITE.with(Categories::DISCARD),
    };
    let mut all = of_act.with(of_op);
    if record.flags.contains(BioFlags::PREFLUSH) {
        all = all.with(Categories::FLUSH);
    }
    if record.flags.contains(BioFlags::FUA) {
        all = all.with(Categories::FUA);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RECORD_BYTES;

    fn write(records: &[TraceRecord]) -> Vec<(Record, Vec<u8>)> {
        let mut bytes = Vec::new();
        let place = Place { device: 240 << 20, index: 3, errno_of: |_| 5 };
        let mut file = TraceFile::new(&mut bytes, place);
        file.begin(7, "a name that is too long", 9, Duration::new(2, 3)).expect("memory");
        records.iter().for_each(|record| file.write(record).expect("memory"));
        let mut all = Vec::new();
        let mut left = &bytes[..];
        while let Some((head, rest)) = left.split_first_chunk::<RECORD_BYTES>() {
            let record = Record::from_bytes(head).expect("a record").expect("a known kind");
            let (data, rest) = rest.split_at(record.data_len.into());
            all.push((record, data.to_vec()));
            left = rest;
        }
        all
    }

    fn record(event: TraceEvent, op: Op, start: u64, len: u64) -> TraceRecord {
        let (flags, status) = (BioFlags::NONE, None);
        TraceRecord { time_ns: 10, event, op, flags, start, len, status, second_len: 0 }
    }

    #[test]
    fn file_begins_with_the_thread_and_the_time_and_counts_its_records() {
        let all = write(&[
            record(TraceEvent::Queue, Op::Read, 4096, 4096),
            record(TraceEvent::Lost, Op::Flush, 0, 5),
            record(TraceEvent::Unplug, Op::Flush, 0, 2),
        ]);
        let kinds: Vec<_> = all.iter().map(|(it, _)| it.kind).collect();
        assert_eq!(kinds[0], Kind::Notify(Notify::Process));
        assert_eq!((&all[0].1[..], all[0].0.pid), (&b"a name that is \0"[..], 7));
        assert_eq!(kinds[1], Kind::Notify(Notify::Timestamp));
        assert_eq!(all[1].1[..4], 2_u32.to_ne_bytes());
        assert_eq!(
            kinds[2..],
            [Kind::Stage(Act::Queue), Kind::Notify(Notify::Message), Kind::Stage(Act::Unplug)]
        );
        let sequences: Vec<_> = all.iter().map(|(it, _)| it.sequence).collect();
        assert_eq!(sequences, [1, 2, 3, 9, 10]);
        assert_eq!(all[4].1, 2_u64.to_be_bytes());
        assert!(all.iter().all(|(it, _)| it.device == 240 << 20 && it.cpu == 3));
    }

    #[test]
    fn ranges_are_whole_sectors_and_long_ones_are_cut() {
        let all = write(&[
            record(TraceEvent::Issue, Op::Write, 100, 50),
            record(TraceEvent::Issue, Op::Write, 1000, 100),
            record(TraceEvent::Issue, Op::Discard, 512, 1 << 40),
            record(TraceEvent::Complete, Op::Flush, 0, 0),
        ]);
        let ranges: Vec<_> = all[2..].iter().map(|(it, _)| (it.sector, it.bytes)).collect();
        assert_eq!(ranges, [(0, 512), (1, 1024), (1, u32::MAX - 511), (0, 0)]);
        assert!(all[4].0.categories.has(Categories::DISCARD));
        assert!(all[5].0.categories.has(Categories::FLUSH));
    }

    #[test]
    fn failures_have_a_negative_errno_and_splits_the_next_sector() {
        let failed = TraceRecord {
            status: Some(BlockStatus::Io),
            ..record(TraceEvent::Complete, Op::Read, 0, 512)
        };
        let split =
            TraceRecord { second_len: 1024, ..record(TraceEvent::Split, Op::Read, 4096, 4096) };
        let all = write(&[failed, split]);
        assert_eq!(all[2].0.error, -5);
        assert_eq!(all[3].1, 10_u64.to_be_bytes());
    }

    #[test]
    fn messages_name_the_range_of_their_request_and_the_failure() {
        let failed = TraceRecord {
            status: Some(BlockStatus::Io),
            second_len: 4096,
            ..record(TraceEvent::FlushDone, Op::Write, 4096, 77)
        };
        let all = write(&[failed, record(TraceEvent::LimitWait, Op::Flush, 0, 9)]);
        let texts: Vec<_> =
            all[2..].iter().map(|(_, data)| String::from_utf8_lossy(data)).collect();
        assert_eq!(
            texts,
            ["flush: 8 + 8 failed 77 ns after Q, errno 5", "limit: held back for 9 ns"]
        );
    }
}
