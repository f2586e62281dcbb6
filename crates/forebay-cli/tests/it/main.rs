//! The integration tests, one program: what they share is compiled once, and all of it is used.

mod against_fio;
mod bench;
mod common;
mod compare;
mod endings;
mod engines;
mod job_files;
mod lab;
mod load;
mod refusals;
#[path = "../../../forebay/tests/it/seccomp.rs"]
mod seccomp;
mod serve;
mod sharing;
mod sim;
#[path = "../../../forebay/tests/support/skip.rs"]
mod skip_support;
