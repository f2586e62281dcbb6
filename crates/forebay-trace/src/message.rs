//! The messages of a trace: lines of text for events that have no letter in blktrace.
//!
//! `blkparse` prints the text, and the report reads it. A message about a request with a range
//! begins with that range, as `blkparse` prints it: `limit: 8 + 16 held back for 250 ns`.

use crate::record::SECTOR_BYTES;
use std::fmt;
use std::ops::RangeInclusive;

/// The errnos of Linux.
const ERRNOS: RangeInclusive<i32> = 1..=4095;

/// A range of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first sector.
    pub sector: u64,
    /// The number of sectors; not 0.
    pub nr_sectors: u64,
}

impl Extent {
    /// Returns the range of these bytes; `None` if there are none.
    pub(crate) fn of(sector: u64, bytes: u32) -> Option<Extent> {
        let nr_sectors = u64::from(bytes).div_ceil(SECTOR_BYTES);
        (nr_sectors > 0).then_some(Extent { sector, nr_sectors })
    }

    /// Returns the sector after the range.
    pub fn end(self) -> u64 {
        self.sector.saturating_add(self.nr_sectors)
    }
}

/// The event that a message reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// It waits for the next flush.
    FlushWait,
    /// It waits for the flush that runs.
    FlushJoin,
    /// It needs no flush.
    FlushElided,
    /// The flush that it needed is done, this long after it was queued.
    FlushDone {
        /// The time in nanoseconds.
        age_ns: u64,
        /// The errno of a flush that failed, 1 to 4095; or 0.
        errno: i32,
    },
    /// A limit has held it back.
    LimitWait {
        /// The time in nanoseconds.
        ns: u64,
    },
}

/// A message about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The range of the request. A flush has none.
    pub extent: Option<Extent>,
    /// The event.
    pub kind: MessageKind,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause =
            if matches!(self.kind, MessageKind::LimitWait { .. }) { "limit" } else { "flush" };
        write!(f, "{cause}: ")?;
        if let Some(Extent { sector, nr_sectors }) = self.extent {
            write!(f, "{sector} + {nr_sectors} ")?;
        }
        match self.kind {
            MessageKind::FlushWait => f.write_str("waits for the next one"),
            MessageKind::FlushJoin => f.write_str("joins the running one"),
            MessageKind::FlushElided => f.write_str("not needed"),
            MessageKind::FlushDone { age_ns, errno: 0 } => write!(f, "done {age_ns} ns after Q"),
            MessageKind::FlushDone { age_ns, errno } => {
                write!(f, "failed {age_ns} ns after Q, errno {errno}")
            }
            MessageKind::LimitWait { ns } => write!(f, "held back for {ns} ns"),
        }
    }
}

impl Message {
    /// Returns the message of a text, or `None` for any other text.
    pub fn parse(text: &str) -> Option<Message> {
        let (cause, rest) = text.split_once(": ")?;
        let (extent, rest) = match rest.split_once(" + ") {
            None => (None, rest),
            Some((sector, rest)) => {
                let (nr_sectors, rest) = rest.split_once(' ')?;
                let (sector, nr_sectors) = (sector.parse().ok()?, nr_sectors.parse().ok()?);
                (Some(Extent { sector, nr_sectors }), rest)
            }
        };
        let kind = match (cause, rest) {
            ("flush", "waits for the next one") => MessageKind::FlushWait,
            ("flush", "joins the running one") => MessageKind::FlushJoin,
            ("flush", "not needed") => MessageKind::FlushElided,
            ("flush", _) => match rest.strip_prefix("done ") {
                Some(rest) => {
                    let age_ns = rest.strip_suffix(" ns after Q")?.parse().ok()?;
                    MessageKind::FlushDone { age_ns, errno: 0 }
                }
                None => {
                    let rest = rest.strip_prefix("failed ")?;
                    let (age_ns, errno) = rest.split_once(" ns after Q, errno ")?;
                    MessageKind::FlushDone {
                        age_ns: age_ns.parse().ok()?,
                        errno: errno.parse().ok().filter(|errno| ERRNOS.contains(errno))?,
                    }
                }
            },
            ("limit", _) => {
                let ns = rest.strip_prefix("held back for ")?.strip_suffix(" ns")?;
                MessageKind::LimitWait { ns: ns.parse().ok()? }
            }
            _ => return None,
        };
        Some(Message { extent, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_read_as_it_was_written() {
        for extent in [None, Some(Extent { sector: 1 << 50, nr_sectors: 8 })] {
            for kind in [
                MessageKind::FlushWait,
                MessageKind::FlushJoin,
                MessageKind::FlushElided,
                MessageKind::FlushDone { age_ns: u64::MAX, errno: 0 },
                MessageKind::FlushDone { age_ns: 7, errno: 5 },
                MessageKind::LimitWait { ns: 250 },
            ] {
                let message = Message { extent, kind };
                assert_eq!(Message::parse(&message.to_string()), Some(message));
            }
        }
        let extent = Some(Extent { sector: 8, nr_sectors: 16 });
        let message = Message { extent, kind: MessageKind::LimitWait { ns: 250 } };
        assert_eq!(message.to_string(), "limit: 8 + 16 held back for 250 ns");
    }

    #[test]
    fn other_texts_are_no_messages() {
        for text in [
            "",
            "flush",
            "flush: ",
            "flush: a + 8 not needed",
            "flush: 8 + 16",
            "flush: done 1 ns",
            "limit: held back for long ns",
            "limit: not needed",
            "flush: failed 1 ns after Q, errno 0",
            "flush: failed 1 ns after Q, errno -5",
            "flush: failed 1 ns after Q, errno 32768",
            "throtl: held back for 5 ns",
            "3 records are missing: the ring was full",
        ] {
            assert_eq!(Message::parse(text), None, "{text}");
        }
    }
}
