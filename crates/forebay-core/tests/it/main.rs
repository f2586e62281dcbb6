//! The integration tests, one program: what they share is compiled once, and all of it is used.

mod common;
mod plug;
mod results;
mod split_merge;
