//! The integration tests, one program: what they share is compiled once, and all of it is used.

mod common;
mod gates;
mod lines;
mod plug;
mod results;
mod retry;
mod split_merge;
mod tags;
