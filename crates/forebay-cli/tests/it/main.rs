//! The integration tests, one program: what they share is compiled once, and all of it is used.

mod against_fio;
mod bench;
mod common;
mod compare;
mod endings;
mod job_files;
mod refusals;
mod sharing;
mod sim;
