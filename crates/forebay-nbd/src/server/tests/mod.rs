//! Tests of the server half: a client that is written out, against what the document says.

mod basics;
mod client;
mod extents;
mod lengths;
mod options;
mod pieces;
mod requests;
mod walk;
