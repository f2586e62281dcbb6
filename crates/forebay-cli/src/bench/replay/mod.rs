//! Replays: the logs of `--read_iolog`, and the log of `--write_iolog`.
//!
//! - [`load`] reads the log of each job: an iolog of fio, or files of blktrace, of which queued
//!   bios (Q) are replayed, as in fio. Files of one trace are merged by time.
//! - [`Replayed`] is the stream of I/Os.
//! - [`Schedule`] is their times. A replay is open loop: each I/O has a time since the start, and
//!   is submitted then, or as soon as the depth allows. [`Lateness`] is the difference.
//! - [`LogWriter`] writes the log of a clone.

mod lateness;
mod load;
mod schedule;
mod stream;
mod writer;

pub(super) use self::lateness::Lateness;
pub(super) use self::load::{load, loaded};
pub(super) use self::schedule::Schedule;
pub(super) use self::stream::Replayed;
pub(super) use self::writer::LogWriter;
