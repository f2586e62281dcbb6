//! The fio dialect, without any I/O.
//!
//! fio is the tool people measure storage with, so a benchmark of a block layer is understood at
//! once if it takes fio's options, generates fio's kinds of load and prints fio's report. This
//! crate knows that dialect and nothing else: it opens no file, starts no thread and reads no
//! clock. Time, seeds and capacities are arguments; the results are [`job::Job`]s, offsets,
//! counters and text.
//!
//! It is written from fio's documented behaviour (its HOWTO) and from what fio 3.33 prints.
//!
//! ```text
//!  arguments, job files --cmdline, jobfile--> Job --region--> Workload --generator--> Op --+
//!                                                                      | (the caller does the I/O)
//!  normal / JSON text <--report-- JobReport <--group-- JobStats <------+
//! ```
//!
//! # Example
//!
//! ```
//! use forebay_fio::cmdline::{self, Parsed};
//! use forebay_fio::generator::{Direction, Generator};
//!
//! let args = ["--name=job1", "--rw=randread", "--bs=4k", "--size=64k"].map(Into::into);
//! let Parsed::Run(command) = cmdline::parse(args)? else { unreachable!("no --help was given") };
//! let job = &command.jobs[0];
//! let workload = job.workload(job.region(1 << 20)?, 0, 0);
//!
//! let ops: Vec<_> = Generator::new(&workload).collect();
//! assert_eq!(ops.len(), 16);
//! assert!(ops.iter().all(|op| op.direction == Direction::Read && op.len == 4096));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod arguments;
mod assembly;
pub mod cmdline;
pub mod data;
mod errno;
pub mod errors;
pub mod generator;
pub mod histogram;
pub mod host;
pub mod iolog;
pub mod job;
pub mod jobfile;
pub mod latency_target;
pub mod logs;
pub mod measures;
pub mod options;
pub mod origin;
pub mod pace;
pub mod permutation;
pub mod priority;
pub mod random;
pub mod report;
pub mod sample;
pub mod stats;
pub mod steadystate;
pub mod units;
pub mod verify;
