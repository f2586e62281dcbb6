//! Tests of the server side, with handwritten client messages, against the protocol document.

mod basics;
mod client;
mod extents;
mod lengths;
mod options;
mod pieces;
mod requests;
mod walk;
