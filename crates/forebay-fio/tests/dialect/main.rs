//! The dialect beside the real fio's, and under mutation.

mod common;
mod corpus;
mod mutations;
mod names;
#[path = "../../../forebay/tests/support/skip.rs"]
mod skip;
