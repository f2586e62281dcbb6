//! Files of blktrace: written from the records of the core, read again, and summed up.
//!
//! The format is that of `blktrace(8)`, version 7 (`include/uapi/linux/blktrace_api.h`), so
//! `blkparse`, `btt` and fio read the files. This crate has no threads and no clock: the library
//! records in real time, and the simulator in virtual time.
//!
//! - [`record`]: one record of a file, as fields and as bytes;
//! - [`message`]: the messages of a trace, as values and as text;
//! - [`writer`]: a file, from records of the core;
//! - [`directory`]: the names of the files of a trace, and the list of its devices;
//! - [`reader`]: the records of all files of a disk, in the order of their times;
//! - [`stream`]: the files of a trace on a socket, for another process;
//! - [`report`]: how long requests spent in each stage, and where the time of the slowest went.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod directory;
pub mod message;
pub mod reader;
pub mod record;
pub mod report;
pub mod stream;
pub mod writer;
